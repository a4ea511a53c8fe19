#pragma once
/// @file
/// One rank's steps without a model and without a network: gradients are made up, the rest
/// is the program's own.

#include <scape/comm/counting.hpp>
#include <scape/config/run_config.hpp>
#include <scape/optim/sharded_optimizer.hpp>

#include <memory>

namespace scape::apps {

/// Matrices and norm gains of a transformer of 12 layers with about that many parameters.
FlatLayout transformer_layout(Index parameters);

class ExchangeRig {
   public:
    ExchangeRig(const Exec& exec, const config::RunConfig& config, Index parameters, int ranks);

    /// Begins a step and adds made-up gradients, as backward would.
    void backward();
    /// The step of train::Trainer from there on, with the weights that come back put in place.
    void step();

    const Sharding& sharding() const { return sharding_; }
    const FlatLayout& layout() const { return layout_; }
    /// Of the elements that travel in this step; after a step with everything, at density 1.
    const optim::MaskPlan& plan();
    Span<float> parameters() const { return parameters_; }
    Span<float> gradients() const { return gradients_; }
    /// Spent in the silent communicator, in this step.
    double comm_seconds() const;

   private:
    const Exec exec_;
    const config::RunConfig config_;
    const FlatLayout layout_;
    const std::unique_ptr<comm::Communicator> silent_;
    comm::CountingCommunicator comm_;
    const Sharding sharding_;
    const Vec<float> parameters_, gradients_;
    const Vec<double> squares_;
    optim::ShardedOptimizer optimizer_;
    optim::MaskPlan everything_;
    Index steps_ = 0;
};

}  // namespace scape::apps
