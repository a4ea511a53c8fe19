#include <scape/base/profiling.hpp>
#include <scape/optim/exchange.hpp>

#include <fmt/format.h>

#include <algorithm>
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

Index pool_of(const Sharding& sharding, const Needs& needs, int buffers) {
    return needs.message * std::min(buffers, sharding.buckets());
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
    pool_ = MessagePool(pool_of(sharding, needs, options.buffers));
    sums_ = Vec<float>("scape::optim::sums", static_cast<std::size_t>(needs.sums));
    if (deltas())
        master_ =
            Vec<float>("scape::optim::master", static_cast<std::size_t>(sharding.shard_extent()));
}

Index Exchange::buffer_bytes(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
                             const Options& options) {
    const Needs needs = needs_of(plan, rank, dense_owner, own_choice, options);
    return pool_of(plan.sharding(), needs, options.buffers) +
           needs.sums * static_cast<Index>(sizeof(float)) +
           MessageLayout::device_bytes(options.values, plan) +
           MessageLayout::device_bytes(options.deltas, plan);
}

Index Exchange::pool_bytes(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
                           const Options& options) {
    const Needs needs = needs_of(plan, rank, dense_owner, own_choice, options);
    return pool_of(plan.sharding(), needs, options.buffers);
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
