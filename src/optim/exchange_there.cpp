// Gradients on the way to their owners.
#include <scape/base/profiling.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/optim/exchange.hpp>

#include <array>

namespace scape::optim {

using kernels::Position;
using kernels::Rest;

namespace {

Span<Position> as_positions(Span<unsigned char> bytes) {
    return Span<Position>(reinterpret_cast<Position*>(bytes.data()),
                          bytes.extent(0) / sizeof(Position));
}

Span<const float> as_floats(Span<unsigned char> bytes) {
    return Span<const float>(reinterpret_cast<float*>(bytes.data()),
                             bytes.extent(0) / sizeof(float));
}

Index count_nonzero(const Exec& exec, Span<const float> x) {
    Index count = 0;
    Kokkos::parallel_reduce(
        "scape::optim::count_nonzero", kernels::range(exec, static_cast<Index>(x.extent(0))),
        KOKKOS_LAMBDA(Index i, Index & sum) { sum += x(i) != 0.f ? 1 : 0; }, count);
    return count;
}

}  // namespace

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

}  // namespace scape::optim
