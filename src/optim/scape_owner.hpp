#pragma once
// What both rules share: decay, the norm, scratch memory for scores, and when the next mask is
// chosen.

#include "adam.hpp"

#include <scape/optim/decay.hpp>
#include <scape/optim/scape.hpp>
#include <scape/optim/scape_rule.hpp>
#include <scape/optim/squares.hpp>

namespace scape::optim {

// Where the j-th element of what arrived lies.
struct Where {
    const kernels::Position* positions = nullptr;  // from the start of the bucket; null: all
    Index piece = 0;                               // the own piece's start in the bucket
    Index shard = 0;                               // and in the shard
    bool compact = true;                           // sums are in the order of j

    KOKKOS_FORCEINLINE_FUNCTION Index in_bucket(Index j) const {
        return positions == nullptr ? piece + j : static_cast<Index>(positions[j]);
    }
    KOKKOS_FORCEINLINE_FUNCTION Index in_piece(Index j) const { return in_bucket(j) - piece; }
    KOKKOS_FORCEINLINE_FUNCTION Index in_shard(Index j) const { return shard + in_piece(j); }
    KOKKOS_FORCEINLINE_FUNCTION Index in_sums(Index j) const { return compact ? j : in_bucket(j); }
};

class ScapeOwner : public Scape {
   public:
    ScapeOwner(const config::RunConfig& config, const FlatLayout& layout, const Sharding& sharding,
               int rank, Masks& masks);

    void begin_step(const Exec& exec) override { squares_.clear(exec); }
    void before_pack(const Exec& exec, int bucket, Span<const float> a) override;
    void after_send(const Exec& exec, int bucket) override;
    void add_squares(const Exec& exec, Span<double> result) override { squares_.sum(exec, result); }
    bool selects_after() const override { return !before_; }
    void select(const Exec& exec, int bucket, Span<const float> residual) override;

   protected:
    // |score| of every element of the own piece of a bucket, as of the step that comes next.
    virtual void score(const Exec& exec, int bucket, Span<const float> a, Span<float> score) = 0;

    Span<float> scratch(int bucket) const;
    Where where(const Arrived& a) const;
    // Decay of all elements that do not arrive with it, and of the own ones. Returns the numbers
    // for weights that have decayed.
    ElementNumbers decay(const Exec& exec, const StepNumbers& numbers, const Arrived& a,
                         const Weights& weights) const;

    const config::OptimizerSection config_;
    const Sharding& sharding_;
    const int rank_;
    Masks& masks_;
    const bool before_;
    Squares squares_;
    Vec<float> scratch_;  // (largest piece) scores; summands of the norm

   private:
    Decay decay_;
};

std::unique_ptr<Scape> make_catch_up(const config::RunConfig& config, const FlatLayout& layout,
                                     const Sharding& sharding, int rank, Masks& masks);
std::unique_ptr<Scape> make_paper(const config::RunConfig& config, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Masks& masks);

}  // namespace scape::optim
