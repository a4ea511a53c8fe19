#pragma once
/// @file
/// The owner's side of a step: weights and moments of its shard, touched by nobody else, bucket by
/// bucket.

#include <scape/kernels/pack.hpp>
#include <scape/optim/optimizer.hpp>

namespace scape::optim {

/// What arrived for the own piece of a bucket: (1/P) sum_i of what the ranks sent.
struct Arrived {
    int bucket = 0;
    bool all = true;  ///< every element of the piece, in order; otherwise the mask in the piece
    /// Mask: counted from the start of the bucket.
    Span<const kernels::Position> positions;
    /// All: of element j at j. Mask: of position p at p (`sums` is the bucket), or, if compact, of
    /// the j-th position at j.
    Span<float> sums;
    bool compact = false;
    Index count() const { return static_cast<Index>(all ? sums.extent(0) : positions.extent(0)); }
};

/// The weights of a bucket, for its owner to move.
struct Weights {
    Span<float> replica;  ///< the bucket as every rank has it
    Span<float> master;   ///< the own piece: a part of `replica`, or an array of its own
    bool apart = false;   ///< an array of its own; what the replicas lack will travel
    /// A mask, and not apart: takes the new weights, one per position.
    Span<float> back;
};

class Owner {
   public:
    virtual ~Owner() = default;

    /// A step begins; if the last one was not ended, it did not count.
    virtual void begin_step(const Exec& exec) = 0;
    /// The own piece of a = gradients + error feedback, before it is packed.
    virtual void before_pack(const Exec& exec, int bucket, Span<const float> a) = 0;
    /// The bucket is on its way.
    virtual void after_send(const Exec& exec, int bucket) = 0;
    virtual void arrived(const Exec& exec, const Arrived& arrived) = 0;
    /// result[0] += the square of the norm of what arrived in all buckets (algorithm section 2.8),
    /// in double, in the order of the buckets. NaN and Inf come through.
    virtual void add_squares(const Exec& exec, Span<double> result) = 0;

    /// Moves the own weights, and applies the decay of all elements of the replica that do not
    /// arrive with it. Leaves the sums of a mask in `arrived` zero where they are not compact.
    virtual void update(const Exec& exec, const StepNumbers& numbers, const Arrived& arrived,
                        const Weights& weights) = 0;
    /// All buckets are updated.
    virtual void end_step(const Exec& exec) = 0;

    virtual std::vector<State> state() = 0;
    virtual Index state_bytes() const = 0;
};

/// AdamW, AdamS, SGD: every element of the shard at every step.
std::unique_ptr<Owner> make_dense_owner(const config::OptimizerSection& config,
                                        const FlatLayout& layout, const Sharding& sharding,
                                        int rank);

}  // namespace scape::optim
