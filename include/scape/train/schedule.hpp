#pragma once
/// @file
/// The learning rate as a pure function of the step, so that a resumed run needs no state for it.

#include <scape/config/run_config.hpp>

namespace scape::train {

/// eta of step t (from 1). Warm-up: lr t / warmup_steps. Then, with
/// x = (t - warmup_steps) / (decay_steps - warmup_steps) clamped to [0, 1]:
///     cosine    min_lr + (lr - min_lr) (1 + cos(pi x)) / 2
///     linear    lr + (min_lr - lr) x
///     constant  lr
/// The horizon is optimizer.decay_steps (0: train.steps): a run can be extended without bending
/// the curve that it has followed.
double learning_rate(const config::RunConfig& config, Index step);

}  // namespace scape::train
