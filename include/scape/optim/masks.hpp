#pragma once
/// @file
/// Which elements travel: the mask of this step, and the one that is being made for the next
/// (`Lateness::none`: the mask of a step is made in it, and waited for, bucket by bucket). Every
/// rank holds the coded masks of all shards, as they arrived; positions are decoded bucket by
/// bucket where they are needed.
///
///     step t      ready ........ positions (pack) ... positions (unpack)      uses mask(t)
///                            select, begin ─┐                                 makes mask(t+1)
///     step t+1    ready  ◄──────────────────┘   the all-gather had a forward and a backward
///                                               pass to travel in

#include <scape/comm/communicator.hpp>
#include <scape/optim/elements.hpp>
#include <scape/optim/mask_tables.hpp>

namespace scape::optim {

class Masks : public Elements {
   public:
    /// When a mask is used: in the step after the one that chose it, or in that step itself, which
    /// is what one-step-late masks are compared with.
    enum class Lateness { one_step, none };
    /// Room for masks of up to `largest_density` (below 1). The first mask is everything. All
    /// arguments must outlive it.
    Masks(comm::Communicator& comm, const FlatLayout& layout, const Sharding& sharding,
          const config::SparsitySection& sparsity, double largest_density,
          Lateness lateness = Lateness::one_step);

    /// The mask that was begun last step becomes this step's; waits until it is here. Plans the
    /// next one for step.next_density.
    void ready(const Exec& exec, const StepPlan& step) override;
    bool late() const { return late_; }
    void plan_next(const Exec& exec, double density) { next_.tables.set(exec, density); }
    const MaskPlan& plan() const override { return current_.tables.plan(); }

    /// Not late: waits for what all ranks have selected in the bucket.
    void choose(const Exec& exec, int bucket, Span<const float> a,
                Span<kernels::Position> message) override;
    Span<const kernels::Position> positions(const Exec& exec, int bucket) override;
    Span<const kernels::Position> own_positions(const Exec& exec, int bucket) override;

    /// The plan of the mask that is selected in this step; all(): nothing is to be selected.
    const MaskPlan& next_plan() const { return late_ ? next_.tables.plan() : plan(); }
    /// The top k of every slice of this rank in a bucket, by |score|.   score: the own piece
    void select(const Exec& exec, int bucket, Span<const float> score);
    /// Sends what was selected in all buckets on its way.
    void begin(const Exec& exec);
    /// The step is skipped: its mask is the next step's too.
    void keep() override;

    void progress() override { arriving_.test(); }
    /// Time that `ready` was blocked, since the last reset.
    double wait_seconds() const override { return wait_seconds_; }
    void reset_wait() override { wait_seconds_ = 0; }

    /// The mask of the coming step, on its way or kept; flags (shard) = 1 where it is.
    const MaskPlan& coming_plan() const { return next_made_ ? next_plan() : plan(); }
    void coming_flags(const Exec& exec, Span<std::uint8_t> flags);
    /// The other way round, with the plan of `density`, and its exchange begun.
    void restore(const Exec& exec, double density, Span<const std::uint8_t> flags);
    /// Elements of this rank's next mask that are in its current mask too; blocking.
    Index overlap(const Exec& exec);

    Index device_bytes() const override;
    static Index device_bytes(const FlatLayout& layout, const Sharding& sharding,
                              const config::SparsitySection& sparsity, double largest_density);

   private:
    struct Mask {
        MaskTables tables;
        Vec<unsigned char> coded;  // (P x code_bytes)
    };
    Span<const kernels::Position> decode_own(const Exec& exec, const Mask& mask, int bucket);

    comm::Communicator& comm_;
    const Sharding& sharding_;
    const bool late_;
    Mask current_;
    Mask next_;
    Vec<kernels::Position> positions_;  // of one bucket
    Vec<unsigned char> workspace_;      // of top_k, for one rank's slices in a bucket
    comm::Pending arriving_;
    bool next_made_ = false;
    double wait_seconds_ = 0;
};

}  // namespace scape::optim
