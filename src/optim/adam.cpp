#include "adam.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace scape::optim {

ElementNumbers element_numbers(const config::OptimizerSection& config, const StepNumbers& numbers,
                               bool decay) {
    const auto t = static_cast<double>(numbers.step);
    ElementNumbers n;
    n.b1 = static_cast<float>(config.beta1);
    n.one_minus_b1 = static_cast<float>(1 - config.beta1);
    n.b2 = static_cast<float>(config.beta2);
    n.one_minus_b2 = static_cast<float>(1 - config.beta2);
    n.eps = static_cast<float>(config.eps);
    if (config.bias_correction) {
        n.c1 = static_cast<float>(1 - std::pow(config.beta1, t));
        n.c2 = static_cast<float>(1 - std::pow(config.beta2, t));
    }
    n.mu = static_cast<float>(config.momentum);
    n.eta = numbers.lr;
    n.keep = decay ? static_cast<float>(1 - numbers.lr * config.weight_decay) : 1.f;
    n.grad_scale = numbers.grad_scale;
    return n;
}

void check_slice(const Slice& slice, Index shard_extent, Span<float> w,
                 Span<const float> gradient) {
    const auto n = static_cast<std::size_t>(slice.flat.size());
    if (w.extent(0) == n && gradient.extent(0) == n && slice.shard_begin >= 0 &&
        slice.shard_begin + slice.flat.size() <= shard_extent)
        return;
    throw std::logic_error(fmt::format(
        "optimizer: slice of {} elements at {} of a shard of {}, but {} weights and {} gradients",
        n, slice.shard_begin, shard_extent, w.extent(0), gradient.extent(0)));
}

std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerSection& config,
                                          Index shard_extent) {
    switch (config.kind) {
        case config::OptimizerKind::adamw:
            return make_adamw(config, shard_extent);
        case config::OptimizerKind::adams:
            return make_adams(config, shard_extent);
        case config::OptimizerKind::sgd:
            return make_sgd(config, shard_extent);
        case config::OptimizerKind::scape:
            break;  // not element by element: make_scape
    }
    throw std::logic_error("optimizer: unknown kind");
}

Index state_arrays(config::OptimizerKind kind) {
    return kind == config::OptimizerKind::adamw ? 2 : 1;
}

}  // namespace scape::optim
