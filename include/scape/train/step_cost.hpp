#pragma once
/// @file
/// What a step will cost, before it is run: batch arithmetic, FLOPs, memory.

#include <scape/config/run_config.hpp>
#include <scape/optim/sharded_optimizer.hpp>

#include <string>

namespace scape::train {

/// Bytes on one rank, by purpose.
struct MemoryAccount : optim::OptimizerMemory {
    Index parameters = 0;
    Index gradients = 0;
    Index activations = 0;  ///< arena, logits chunk included
    Index total() const {
        return parameters + gradients + state + masks + feedback + activations + exchange;
    }
};

struct StepCost {
    int ranks = 1;
    Index accumulation = 1;    ///< micro-batches per rank and step
    Index step_sequences = 0;  ///< ranks x micro-batch x accumulation
    Index step_tokens = 0;
    Index parameters = 0;
    double flops_per_token = 0;  ///< forward and backward
    double step_flops = 0;
    Index bytes_sent = 0;         ///< per rank and step; of a sparse run: at its target density
    Index dense_bytes = 0;        ///< of a step at density 1
    optim::MaskPlan::Bytes sent;  ///< bytes_sent, by what it is
    double average_density = 1;   ///< over the run
    double average_bytes = 0;
    /// In the messages of all ranks, there and back, over the parameters: dense fp32 is 8. At the
    /// target density, and as an average over the run.
    double bytes_per_parameter = 0;
    double average_bytes_per_parameter = 0;
    MemoryAccount memory;
};

/// Of rank 0.
MemoryAccount memory_account(const config::RunConfig& config, const FlatLayout& layout,
                             const Sharding& sharding);

StepCost step_cost(const config::RunConfig& config, int ranks);

/// For --dry-run and the start of a run.
std::string describe(const StepCost& cost, const config::RunConfig& config);

/// "12.3 MB", powers of 1000.
std::string short_bytes(Index bytes);

}  // namespace scape::train
