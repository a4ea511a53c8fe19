#pragma once
/// @file
/// What a step will cost, before it is run: batch arithmetic, FLOPs, memory.

#include <scape/config/run_config.hpp>
#include <scape/optim/mask_plan.hpp>

#include <string>

namespace scape::train {

/// Bytes on one rank, by purpose.
struct MemoryAccount {
    Index parameters = 0;
    Index gradients = 0;
    Index optimizer = 0;    ///< this rank's shard of the moments
    Index masks = 0;        ///< coded masks of this step and the next, positions of a bucket
    Index feedback = 0;     ///< error feedback outside the gradient buffer
    Index activations = 0;  ///< arena, logits chunk included
    Index exchange = 0;     ///< message buffers
    Index total() const {
        return parameters + gradients + optimizer + masks + feedback + activations + exchange;
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
    Index bytes_sent = 0;          ///< per rank and step; of a sparse run: at its target density
    Index dense_bytes = 0;         ///< of a step at density 1
    Index dense_fp32_bytes = 0;    ///< and of one with fp32 values both ways
    optim::MaskPlan::Sent sparse;  ///< scape: at the target density, by what it is
    double average_density = 1;    ///< over the run
    double average_bytes = 0;
    MemoryAccount memory;
};

StepCost step_cost(const config::RunConfig& config, int ranks);

/// For --dry-run and the start of a run.
std::string describe(const StepCost& cost, const config::RunConfig& config);

/// "12.3 MB", powers of 1000.
std::string short_bytes(Index bytes);

}  // namespace scape::train
