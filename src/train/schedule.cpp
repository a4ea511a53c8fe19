#include <scape/train/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace scape::train {

double learning_rate(const config::RunConfig& config, Index step) {
    const config::OptimizerSection& o = config.optimizer;
    const auto t = static_cast<double>(step);
    const auto warmup = static_cast<double>(o.warmup_steps);
    if (t < warmup) return o.lr * t / warmup;
    const auto horizon = static_cast<double>(config::decay_steps(config));
    const double x =
        horizon > warmup ? std::clamp((t - warmup) / (horizon - warmup), 0.0, 1.0) : 1.0;
    switch (o.schedule) {
        case config::ScheduleKind::cosine:
            return o.min_lr + (o.lr - o.min_lr) * (1 + std::cos(std::numbers::pi * x)) / 2;
        case config::ScheduleKind::linear:
            return o.lr + (o.min_lr - o.lr) * x;
        case config::ScheduleKind::constant:
            return o.lr;
    }
    return o.lr;
}

}  // namespace scape::train
