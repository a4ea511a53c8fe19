#pragma once
/// @file
/// How much of the gradient travels at a step: the density schedule of algorithm section 2.2, a
/// pure function of the deck and the step.

#include <scape/config/run_config.hpp>

namespace scape::optim {

/// d(t), in (0, 1], for step t >= 1:
///
///     1                         t <= dense_steps, and step 1 of the scape optimizer, which has no
///                               momentum to choose a mask by
///     start (target / start)^x  x = clamp((t - 1 - dense_steps) / warmup_steps, 0, 1);
///                               warmup_steps = 0: target at once
///     d0 (1 / d0)^y             over the last cooldown_steps steps of train.steps: from d0, the
///                               schedule's value before them, to 1 at the last step
///
/// Exactly 1.0 wherever the step is dense; always 1 when config is not sparse (is_sparse). Beyond
/// train.steps the schedule just goes on (stays at 1 after a cool-down).
double density(const config::RunConfig& config, Index step);

/// k = max(1, floor(density n)): elements of a slice of n that travel; n at density 1, 0 of 0.
Index selected(double density, Index n);

/// Mean of density() over steps 1 to train.steps: the share of dense traffic. In closed form, so
/// cheap for any number of steps.
double average_density(const config::RunConfig& config);

/// The largest density below 1 of steps 1 to train.steps + 1, because the last step chooses the
/// mask of the one after it, with which a longer run goes on; 0 when all of them are dense. What
/// masks and message buffers are sized for.
double largest_sparse_density(const config::RunConfig& config);

}  // namespace scape::optim
