#include <scape/optim/density.hpp>

#include <algorithm>
#include <cmath>

namespace scape::optim {
namespace {

using config::OptimizerKind;
using config::RunConfig;
using config::SparsitySection;

/// Last step before the cool-down. At least 1: a cool-down over the whole run begins with the value
/// of step 1.
Index last_before_cooldown(const RunConfig& config) {
    return std::max<Index>(config.train.steps - config.sparsity.cooldown_steps, 1);
}

/// from (to / from)^x, and exactly `to` at its end.
double geometric(double from, double to, double x) {
    return x >= 1 ? to : from * std::pow(to / from, x);
}

/// The schedule without the cool-down.
double descent(const SparsitySection& s, Index step) {
    if (step <= s.dense_steps) {
        return 1;
    }
    const Index since = step - 1 - s.dense_steps;
    return since >= s.warmup_steps
               ? s.density
               : geometric(s.density_start, s.density,
                           static_cast<double>(since) / static_cast<double>(s.warmup_steps));
}

/// Step 1 has no momentum to choose a mask by. The baselines choose by the gradient of the step.
bool starts_dense(const RunConfig& config) {
    return config.optimizer.kind == OptimizerKind::scape;
}

/// Of any step >= 1, the first of a scape run not excepted.
double scheduled(const RunConfig& config, Index step) {
    const SparsitySection& s = config.sparsity;
    const Index before = config.train.steps - s.cooldown_steps;
    if (s.cooldown_steps == 0 || step <= before) {
        return descent(s, step);
    }
    return geometric(descent(s, last_before_cooldown(config)), 1,
                     static_cast<double>(step - before) / static_cast<double>(s.cooldown_steps));
}

/// Sum of from (to / from)^(j / n) over j = 0 .. count - 1, count <= n.
double geometric_sum(double from, double to, Index n, Index count) {
    if (count <= 0) {
        return 0;
    }
    const double rate = std::log(to / from) / static_cast<double>(n);
    const auto terms = static_cast<double>(count);
    return rate == 0 ? from * terms : from * std::expm1(rate * terms) / std::expm1(rate);
}

}  // namespace

double density(const config::RunConfig& config, Index step) {
    if (!config::is_sparse(config) || (step <= 1 && starts_dense(config))) {
        return 1;
    }
    return scheduled(config, step);
}

Index selected(double density, Index n) {
    if (density >= 1 || n <= 1) {
        return n;
    }
    return std::max<Index>(1, static_cast<Index>(density * static_cast<double>(n)));
}

double average_density(const config::RunConfig& config) {
    if (!config::is_sparse(config)) {
        return 1;
    }
    const SparsitySection& s = config.sparsity;
    const Index steps = config.train.steps;
    const Index before = steps - s.cooldown_steps;
    const Index dense = std::min(s.dense_steps, before);
    const Index falling = std::min(s.warmup_steps, before - dense);
    double sum = static_cast<double>(dense) +
                 geometric_sum(s.density_start, s.density, s.warmup_steps, falling) +
                 s.density * static_cast<double>(before - dense - falling);
    if (s.cooldown_steps > 0) {
        // The same terms from the last step backwards.
        sum += geometric_sum(1, descent(s, last_before_cooldown(config)), s.cooldown_steps,
                             s.cooldown_steps);
    }
    if (starts_dense(config)) {
        sum += 1 - scheduled(config, 1);
    }
    return sum / static_cast<double>(steps);
}

double largest_sparse_density(const config::RunConfig& config) {
    // The schedule falls, then rises: the largest value below 1 is at the first sparse step, which
    // is one of the first two that may be, or at the one before the last.
    const Index first = config.sparsity.dense_steps + 1;
    double largest = 0;
    const Index last = config.train.steps;
    for (const Index step : {first, first + 1, last - 1, last, last + 1}) {
        if (step >= 1 && step <= last + 1) {
            const double d = density(config, step);
            largest = d < 1 ? std::max(largest, d) : largest;
        }
    }
    return largest;
}

}  // namespace scape::optim
