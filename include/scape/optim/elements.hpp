#pragma once
/// @file
/// Which elements travel to their owners in a step: the first of the exchange's three choices
/// (algorithm section 3).
///
///     masks.hpp       the scape optimizer: a mask that the owners chose in the step before
///     baselines.hpp   clt_k: one rank's top k of this step, for all; topk_ef: every rank's own

#include <scape/kernels/pack.hpp>
#include <scape/optim/mask_plan.hpp>

namespace scape::optim {

/// The numbers of one step that decide how much travels.
struct StepPlan {
    Index step = 1;           ///< t, from 1
    double density = 1;       ///< d(t)
    double next_density = 1;  ///< d(t+1)
};

class Elements {
   public:
    virtual ~Elements() = default;

    /// A step begins to exchange.
    virtual void ready(const Exec& exec, const StepPlan& step) = 0;
    /// Counts of this step.
    virtual const MaskPlan& plan() const = 0;
    bool all() const { return plan().all(); }

    /// Every rank sends other elements, so their positions travel too, and the owner's optimizer
    /// sees a dense gradient with zeros (topk_ef).
    virtual bool own_choice() const { return false; }
    /// The owner moves every element of its shard, not only what arrived: weights come back dense.
    virtual bool dense_owner() const { return false; }

    /// a of a bucket is complete and about to be packed. `message` (own_choice: P * padded) takes
    /// the positions, in each rank's part counted from the start of the bucket.
    virtual void choose(const Exec& exec, int bucket, Span<const float> a,
                        Span<kernels::Position> message) = 0;
    /// Not own_choice: positions of a bucket, counted from its start: (P * padded), in the order of
    /// the message, padding no_position. They stay until the next call of any function here.
    virtual Span<const kernels::Position> positions(const Exec& exec, int bucket) = 0;
    /// The same for this rank's own piece, without padding: (selected).
    virtual Span<const kernels::Position> own_positions(const Exec& exec, int bucket) = 0;

    /// The step is skipped.
    virtual void keep() {}
    virtual void progress() {}
    /// Time that the caller was blocked, since the last reset.
    virtual double wait_seconds() const { return 0; }
    virtual void reset_wait() {}
    virtual Index device_bytes() const = 0;
};

}  // namespace scape::optim
