#include <scape/base/profiling.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/optim/exchange.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace scape::optim {

using kernels::Position;
using kernels::Rest;

namespace {

/// What the modes of a run need, on one rank.
struct Needs {
    Index message = 0;  // bytes of all messages of the largest bucket
    Index sums = 0;     // elements of sums that need an array of their own
};

Needs needs_of(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
               const Exchange::Options& options) {
    const Sharding& sharding = plan.sharding();
    const Index ranks = sharding.ranks();
    const bool apart = options.rest == Rest::kept && !options.values.exact();
    Needs needs;
    // Everything travels, at least in the first step.
    std::vector<double> densities{1};
    if (options.largest_density > 0) densities.push_back(options.largest_density);
    if (apart || dense_owner) needs.sums = sharding.shard_extent();
    for (const double d : densities) {
        plan.set(d);
        const bool straight = plan.all() && options.values.exact();
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Index part = plan.part_bytes(options.values, b, false);
            const Index positions = own_choice && !plan.all()
                                        ? plan.padded(b) * static_cast<Index>(sizeof(Position))
                                        : 0;
            Index there = (ranks - 1) * part;
            if (!straight) there += ranks * part + 2 * MessagePool::alignment;
            if (positions > 0) there += (2 * ranks - 1) * positions + 2 * MessagePool::alignment;
            const bool all_back = plan.all() || dense_owner;
            const Index back = all_back && options.deltas.exact()
                                   ? 0
                                   : ranks * plan.part_bytes(options.deltas, b, all_back);
            needs.message = std::max({needs.message, there, back});
        }
        if (apart) needs.sums = std::max(needs.sums, plan.selected_of(rank));
    }
    needs.message = round_up(needs.message, MessagePool::alignment);
    return needs;
}

Span<Position> as_positions(Span<unsigned char> bytes) {
    return Span<Position>(reinterpret_cast<Position*>(bytes.data()),
                          bytes.extent(0) / sizeof(Position));
}
Span<const float> as_floats(Span<unsigned char> bytes) {
    return Span<const float>(reinterpret_cast<float*>(bytes.data()),
                             bytes.extent(0) / sizeof(float));
}

Index pool_bytes(const Sharding& sharding, const Needs& needs, int buffers) {
    return needs.message * std::min(buffers, sharding.buckets());
}

Index count_nonzero(const Exec& exec, Span<const float> x) {
    Index count = 0;
    Kokkos::parallel_reduce(
        "scape::optim::count_nonzero", kernels::range(exec, static_cast<Index>(x.extent(0))),
        KOKKOS_LAMBDA(Index i, Index & sum) { sum += x(i) != 0.f ? 1 : 0; }, count);
    return count;
}

MaskPlan plan_of_everything(const FlatLayout& layout, const Sharding& sharding) {
    MaskPlan plan(layout, sharding, {});
    plan.set(1);
    return plan;
}

}  // namespace

Exchange::Exchange(comm::Communicator& communicator, const FlatLayout& layout,
                   const Sharding& sharding, Span<float> parameters, Span<float> gradients,
                   const Parts& parts, const Options& options)
    : comm_(communicator),
      sharding_(sharding),
      parameters_(parameters),
      gradients_(gradients),
      owner_(parts.owner),
      elements_(parts.elements),
      feedback_(parts.feedback),
      loco_(parts.loco),
      options_(options),
      everything_(plan_of_everything(layout, sharding)),
      values_(options.values, everything_, communicator.rank()),
      deltas_(options.deltas, everything_, communicator.rank()),
      sums_begin_(static_cast<std::size_t>(sharding.buckets()), 0),
      gathering_(static_cast<std::size_t>(sharding.buckets())),
      first_gather_(sharding.buckets()),
      unsent_(sharding.buckets()) {
    const auto whole = static_cast<std::size_t>(sharding.extent());
    if (sharding.ranks() != communicator.size() || parameters.extent(0) != whole ||
        gradients.extent(0) != whole || options.buffers < 1) {
        throw std::logic_error(
            fmt::format("exchange: a sharding of {} elements for {} ranks, but {} ranks, {} "
                        "parameters, {} gradients, {} buffers",
                        whole, sharding.ranks(), communicator.size(), parameters.extent(0),
                        gradients.extent(0), options.buffers));
    }
    const Needs needs = needs_of(elements_ != nullptr ? elements_->plan() : everything_,
                                 comm_.rank(), dense_owner(), own_choice(), options);
    pool_ = MessagePool(pool_bytes(sharding, needs, options.buffers));
    sums_ = Vec<float>("scape::optim::sums", static_cast<std::size_t>(needs.sums));
    if (deltas())
        master_ =
            Vec<float>("scape::optim::master", static_cast<std::size_t>(sharding.shard_extent()));
}

Index Exchange::buffer_bytes(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
                             const Options& options) {
    const Needs needs = needs_of(plan, rank, dense_owner, own_choice, options);
    return pool_bytes(plan.sharding(), needs, options.buffers) +
           needs.sums * static_cast<Index>(sizeof(float)) +
           MessageLayout::device_bytes(options.values, plan) +
           MessageLayout::device_bytes(options.deltas, plan);
}

Index Exchange::buffer_bytes() const {
    return pool_.bytes() + static_cast<Index>(sums_.span() * sizeof(float)) +
           values_.device_bytes() + deltas_.device_bytes();
}

Span<float> Exchange::bucket_of(Span<float> flat, int bucket) const {
    const Range r = sharding_.bucket(bucket);
    return slice(flat, r.begin, r.end);
}

Span<float> Exchange::own(Span<float> flat, int bucket) const {
    const Range mine = sharding_.piece(bucket, comm_.rank());
    return slice(flat, mine.begin, mine.end);
}

/// The first element of the own piece, counted from the start of the bucket.
Index Exchange::own_origin(int bucket) const {
    return sharding_.piece(bucket, comm_.rank()).begin - sharding_.bucket(bucket).begin;
}

/// Sums that the owner gets.
Index Exchange::arriving_values(int bucket) const {
    return sparse() && !dense_owner() ? elements_->plan().selected(bucket, comm_.rank())
                                      : sharding_.bucket(bucket).size() / comm_.size();
}

/// Memory for a message; the oldest messages are finished until there is room.
Span<unsigned char> Exchange::take(const Exec& exec, Index bytes) {
    for (;;) {
        if (const auto memory = pool_.take(bytes)) return *memory;
        if (!reducing_.empty()) {
            finish_oldest(exec);
        } else if (first_gather_ < sharding_.buckets() && gathering_[first_gather_].begun) {
            finish_gather(exec, first_gather_);
        } else {
            throw std::logic_error(fmt::format("exchange: a message of {} bytes in a pool of {}",
                                               bytes, pool_.bytes()));
        }
    }
}

// --- To the owner ------------------------------------------------------------------------------

void Exchange::begin_step(const Exec& exec, const StepPlan& step) {
    // Only a step that was given up leaves reductions behind.
    while (!reducing_.empty()) {
        if (reducing_.front().pooled) pool_.free_oldest();
        reducing_.pop_front();
    }
    unsent_ = sharding_.buckets();
    begun_ = false;
    step_ = step;
    owner_.begin_step(exec);
}

/// Before the first bucket is sent.
void Exchange::begin(const Exec& exec) {
    finish_gathers(exec);  // the last step's weights are unpacked with the last step's mask
    if (elements_ != nullptr) elements_->ready(exec, step_);
    values_.set(exec, sparse() ? elements_->plan() : everything_);
    deltas_.set(exec, all_back() ? everything_ : elements_->plan());
    Index end = 0;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        sums_begin_[static_cast<std::size_t>(b)] = end;
        end += arriving_values(b);
    }
    // What nobody sends is zero: elements that no rank chose; padding, which codes leave out.
    if (sparse() ? dense_owner() : !sums_all_) kernels::fill_zero<float>(exec, sums_);
    sums_all_ = !sparse();
    begun_ = true;
}

void Exchange::gradients_final(const Exec& exec, Index begin) {
    while (unsent_ > 0 && sharding_.bucket(unsent_ - 1).begin >= begin) {
        if (!begun_) this->begin(exec);
        --unsent_;
        send(exec, unsent_);
    }
}

void Exchange::send(const Exec& exec, int bucket) {
    const Index piece = values_.part_bytes(bucket);
    const Index others = comm_.size() - 1;
    const bool with_positions = sparse() && own_choice();
    const Index positions =
        with_positions ? elements_->plan().padded(bucket) * static_cast<Index>(sizeof(Position))
                       : 0;
    Reduction r;
    r.bucket = bucket;
    // One block of the pool: send, received, and the same of positions.
    const std::array sizes{straight() ? 0 : (others + 1) * piece, others * piece,
                           (others + 1) * positions, others * positions};
    Index block = 0;
    for (const Index size : sizes) block += round_up(size, MessagePool::alignment);
    if (block > 0) {
        const Span<unsigned char> memory = take(exec, block);
        r.pooled = true;
        Index at = 0;
        Span<unsigned char>* const parts[] = {&r.send, &r.received, &r.send_positions,
                                              &r.received_positions};
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            *parts[i] = slice(memory, at, at + sizes[i]);
            at += round_up(sizes[i], MessagePool::alignment);
        }
    }

    const Span<float> gradients = bucket_of(gradients_, bucket);
    if (feedback_ != nullptr) feedback_->add(exec, bucket, gradients);
    owner_.before_pack(exec, bucket, own_gradients(bucket));
    if (!straight()) {
        pack(exec, r);
        if (piece > 0) r.pending = comm_.all_to_all(exec, r.send, r.received);
        if (r.send_positions.extent(0) > 0)
            r.pending_positions = comm_.all_to_all(exec, r.send_positions, r.received_positions);
    } else if (comm_.size() > 1) {
        r.pending = comm_.all_to_all(exec, gradients, r.received);
    }
    reducing_.push_back(std::move(r));
    owner_.after_send(exec, bucket);
}

/// a at what travels into the message; what is not sent stays.
void Exchange::pack(const Exec& exec, Reduction& r) {
    const Region region("scape::optim::pack");
    const Span<float> a = bucket_of(gradients_, r.bucket);
    if (!sparse()) {
        const auto all = values_.whole(r.bucket, {});
        if (loco_ != nullptr) {
            loco_->pack(exec, r.bucket, all, a, r.send);
        } else {
            kernels::pack(exec, options_.values, all, a, options_.rest, r.send);
        }
        return;
    }
    const Span<Position> message = as_positions(r.send_positions);
    elements_->choose(exec, r.bucket, a, message);
    const auto positions =
        own_choice() ? Span<const Position>(message) : elements_->positions(exec, r.bucket);
    kernels::pack(exec, options_.values, values_.whole(r.bucket, positions), a, Rest::kept, r.send);
}

Span<float> Exchange::sums_of(int bucket) const {
    if (straight() || (sums_.extent(0) == 0 && !sparse())) return own_gradients(bucket);
    if (sums_.extent(0) == 0) return bucket_of(gradients_, bucket);
    const Index begin = sums_begin_[static_cast<std::size_t>(bucket)];
    return slice(sums_, begin, begin + arriving_values(bucket));
}

Arrived Exchange::arrived(const Exec& exec, int bucket) {
    Arrived a;
    a.bucket = bucket;
    a.all = !sparse() || dense_owner();
    a.compact = sums_.extent(0) > 0;
    a.sums = sums_of(bucket);
    if (!a.all) a.positions = elements_->own_positions(exec, bucket);
    return a;
}

/// (1/P) sum over ranks, in rank order, of what came for the own piece.
void Exchange::sum(const Exec& exec, const Reduction& r, const Arrived& a) {
    const Region region("scape::optim::sum");
    const int me = comm_.rank();
    const float scale = 1.f / static_cast<float>(comm_.size());
    if (straight()) {
        if (comm_.size() > 1) kernels::add_pieces(exec, a.sums, as_floats(r.received), me, scale);
        return;
    }
    const auto part = [&](Span<unsigned char> send, Span<unsigned char> received, int rank) {
        const Index size = static_cast<Index>(send.extent(0)) / comm_.size();
        const Index at = (rank < me ? rank : rank - 1) * size;
        return rank == me ? slice(send, me * size, (me + 1) * size)
                          : slice(received, at, at + size);
    };
    const auto mine = part(r.send, r.received, me);
    const auto sum_at = [&](Span<const Position> positions, bool compact, Index origin) {
        kernels::sum_values(exec, options_.values, values_.own(r.bucket, positions), mine,
                            r.received, me, scale, compact, a.sums, origin);
    };
    const Index origin = own_origin(r.bucket);
    if (sparse() && elements_->plan().selected(r.bucket, me) == 0) return;
    if (!sparse()) {
        sum_at({}, true, 0);
    } else if (!dense_owner()) {
        sum_at(a.positions, a.compact, 0);
    } else if (!own_choice()) {
        sum_at(elements_->own_positions(exec, r.bucket), false, origin);
    } else {
        for (int rank = 0; rank < comm_.size(); ++rank) {
            const auto positions = as_positions(part(r.send_positions, r.received_positions, rank));
            kernels::add_values(exec, options_.values, values_.own(r.bucket, positions),
                                part(r.send, r.received, rank), 1.f, a.sums, origin);
        }
        kernels::scale(exec, scale, a.sums);
    }
}

void Exchange::finish_oldest(const Exec& exec) {
    Reduction oldest = std::move(reducing_.front());
    reducing_.pop_front();
    wait(exec, oldest.pending);
    wait(exec, oldest.pending_positions);
    const Arrived a = arrived(exec, oldest.bucket);
    sum(exec, oldest, a);
    if (oldest.pooled) pool_.free_oldest();
    owner_.arrived(exec, a);
}

void Exchange::finish_reduce(const Exec& exec) {
    gradients_final(exec, 0);
    while (!reducing_.empty()) finish_oldest(exec);
}

Index Exchange::filled(const Exec& exec) const {
    return sparse() && own_choice() ? count_nonzero(exec, sums_) : 0;
}

void Exchange::give_up(const Exec& exec) {
    if (elements_ != nullptr) elements_->keep();
    if (!sparse() || sums_.extent(0) > 0) return;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Arrived a = arrived(exec, b);
        kernels::clear(exec, a.positions, a.sums);
    }
}

// --- And back ----------------------------------------------------------------------------------

void Exchange::take_master(const Exec& exec) {
    if (!deltas()) return;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range piece = sharding_.shard_piece(b);
        Kokkos::deep_copy(exec, slice(master_, piece.begin, piece.end), own_weights(b));
    }
}

Weights Exchange::weights(const Exec& exec, int bucket) {
    Weights w;
    w.replica = bucket_of(parameters_, bucket);
    w.apart = deltas();
    const Range piece = sharding_.shard_piece(bucket);
    w.master = w.apart ? slice(master_, piece.begin, piece.end) : own_weights(bucket);
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    g.unpacked = w.apart || !all_back();
    const Index part = g.unpacked ? deltas_.part_bytes(bucket) : 0;
    if (part == 0) return w;
    g.message = take(exec, comm_.size() * part);
    if (w.apart) return w;
    auto* const values = reinterpret_cast<float*>(g.message.data() + comm_.rank() * part);
    w.back = Span<float>(values, static_cast<std::size_t>(arriving_values(bucket)));
    return w;
}

void Exchange::gather_begin(const Exec& exec, const Arrived& arrived) {
    const int bucket = arrived.bucket;
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    if (!g.unpacked) return gather_parameters(exec, bucket);
    if (bucket == 0) first_gather_ = 0;
    g.begun = true;
    if (g.message.extent(0) == 0) return;
    const bool news = all_back() || arrived.positions.extent(0) > 0;
    if (deltas() && news) {
        const Region region("scape::optim::pack");
        const Range piece = sharding_.shard_piece(bucket);
        const Index part = deltas_.part_bytes(bucket);
        kernels::pack_differences(exec, options_.deltas, deltas_.own(bucket, arrived.positions),
                                  slice(master_, piece.begin, piece.end), own_weights(bucket),
                                  all_back() ? 0 : own_origin(bucket),
                                  slice(g.message, comm_.rank() * part, (comm_.rank() + 1) * part));
    }
    g.pending = comm_.all_gather(exec, g.message);
}

void Exchange::gather_parameters(const Exec& exec, int bucket) {
    if (bucket == 0) first_gather_ = 0;
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    g.begun = true;
    if (comm_.size() > 1) g.pending = comm_.all_gather(exec, bucket_of(parameters_, bucket));
}

void Exchange::finish_gather(const Exec& exec, int bucket) {
    Gather& g = gathering_[static_cast<std::size_t>(bucket)];
    wait(exec, g.pending);
    if (g.message.extent(0) > 0) {
        const Region region("scape::optim::unpack");
        const Span<float> replica = bucket_of(parameters_, bucket);
        Span<const Position> positions;
        if (!all_back()) positions = elements_->positions(exec, bucket);
        if (deltas()) {
            kernels::add_values(exec, options_.deltas, deltas_.whole(bucket, positions), g.message,
                                1.f, replica);
        } else {
            const auto values = as_floats(g.message);
            const Index piece = static_cast<Index>(positions.extent(0)) / comm_.size();
            const Index mine = comm_.rank() * piece;  // which is in place since the update
            for (const Range r : {Range{0, mine}, Range{mine + piece, comm_.size() * piece}})
                kernels::unpack(exec, slice(values, r.begin, r.end),
                                slice(positions, r.begin, r.end), replica);
        }
        pool_.free_oldest();
    }
    g = Gather();
    first_gather_ = bucket + 1;
}

void Exchange::before_use(const Exec& exec, Index end) {
    while (first_gather_ < sharding_.buckets() && sharding_.bucket(first_gather_).begin < end &&
           gathering_[static_cast<std::size_t>(first_gather_)].begun)
        finish_gather(exec, first_gather_);
}

void Exchange::finish_gathers(const Exec& exec) {
    before_use(exec, sharding_.extent());
}

void Exchange::wait(const Exec& exec, comm::Pending& pending) {
    if (!pending) return;
    const Timer timer;
    pending.wait(exec);
    wait_seconds_ += timer.seconds();
}

void Exchange::progress() {
    for (Reduction& r : reducing_) {
        r.pending.test();
        r.pending_positions.test();
    }
    for (Gather& g : gathering_) g.pending.test();
    if (elements_ != nullptr) elements_->progress();
}

}  // namespace scape::optim
