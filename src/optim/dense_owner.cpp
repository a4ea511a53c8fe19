#include "adam.hpp"

#include <scape/optim/decay.hpp>
#include <scape/optim/owner.hpp>
#include <scape/optim/squares.hpp>

namespace scape::optim {

namespace {

class DenseOwner : public Owner {
   public:
    DenseOwner(const config::OptimizerSection& config, const FlatLayout& layout,
               const Sharding& sharding, int rank)
        : config_(config),
          layout_(layout),
          sharding_(sharding),
          rank_(rank),
          slices_(sharding.slices(rank)),
          optimizer_(make_optimizer(config, sharding.shard_extent())),
          decay_(layout, sharding, rank),
          squares_(sharding, sharding.ranks()) {}

    void begin_step(const Exec& exec) override { squares_.clear(exec); }
    void before_pack(const Exec&, int, Span<const float>) override {}
    void after_send(const Exec&, int) override {}
    void arrived(const Exec& exec, const Arrived& a) override {
        squares_.add(exec, a.bucket, a.sums);
    }
    void add_squares(const Exec& exec, Span<double> result) override { squares_.sum(exec, result); }

    void update(const Exec& exec, const StepNumbers& numbers, const Arrived& a,
                const Weights& weights) override {
        if (weights.apart)
            decay_.bucket(exec, element_numbers(config_, numbers, true).keep, a.bucket,
                          weights.replica);
        const Index piece = sharding_.piece(a.bucket, rank_).begin;
        for (const Slice& s : slices_) {
            if (s.bucket != a.bucket) continue;
            const auto [begin, end] = s.flat;
            optimizer_->update(exec, numbers, s,
                               layout_.tensors()[static_cast<std::size_t>(s.tensor)].decay,
                               slice(weights.master, begin - piece, end - piece),
                               slice(a.sums, begin - piece, end - piece));
        }
    }
    void end_step(const Exec&) override {}
    std::vector<State> state() override { return optimizer_->state(); }
    Index state_bytes() const override {
        Index bytes = 0;
        for (const State& s : optimizer_->state()) bytes += s.bytes();
        return bytes;
    }

   private:
    const config::OptimizerSection config_;
    const FlatLayout& layout_;
    const Sharding& sharding_;
    int rank_;
    std::vector<Slice> slices_;
    std::unique_ptr<Optimizer> optimizer_;
    Decay decay_;  // of replicas
    Squares squares_;
};

}  // namespace

std::unique_ptr<Owner> make_dense_owner(const config::OptimizerSection& config,
                                        const FlatLayout& layout, const Sharding& sharding,
                                        int rank) {
    return std::make_unique<DenseOwner>(config, layout, sharding, rank);
}

}  // namespace scape::optim
