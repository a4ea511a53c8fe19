#pragma once
/// @file
/// What a step will cost, before it is run: batch arithmetic, FLOPs, memory.

#include <scape/config/run_config.hpp>

#include <string>

namespace scape::train {

/// Bytes on one rank, by purpose.
struct MemoryAccount {
    Index parameters = 0;
    Index gradients = 0;
    Index optimizer = 0;    ///< this rank's shard of the moments
    Index activations = 0;  ///< arena, logits chunk included
    Index exchange = 0;     ///< message buffers
    Index total() const { return parameters + gradients + optimizer + activations + exchange; }
};

struct StepCost {
    int ranks = 1;
    Index accumulation = 1;    ///< micro-batches per rank and step
    Index step_sequences = 0;  ///< ranks x micro-batch x accumulation
    Index step_tokens = 0;
    Index parameters = 0;
    double flops_per_token = 0;  ///< forward and backward
    double step_flops = 0;
    Index bytes_sent = 0;  ///< per rank and step
    MemoryAccount memory;
};

StepCost step_cost(const config::RunConfig& config, int ranks);

/// For --dry-run and the start of a run.
std::string describe(const StepCost& cost, const config::RunConfig& config);

/// "12.3 MB", powers of 1000.
std::string short_bytes(Index bytes);

}  // namespace scape::train
