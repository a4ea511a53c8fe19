#include "exchange_rig.hpp"

#include <scape/base/fence.hpp>
#include <scape/comm/silent.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/pointwise.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace scape::apps {

namespace {

// A number of mean 0, about normal, for every (element, step): the sum of four uniform ones.
void add_noise(const Exec& exec, std::uint32_t step, float deviation, Span<float> x) {
    const float unit = deviation * std::sqrt(12.f / 4.f) / 128.f;
    kernels::for_each(
        exec, "scape::apps::noise", static_cast<Index>(x.extent(0)), KOKKOS_LAMBDA(Index i) {
            std::uint32_t h = static_cast<std::uint32_t>(i) * 0x9e3779b1u + step * 0x85ebca77u;
            h = (h ^ (h >> 16)) * 0x7feb352du;
            h = (h ^ (h >> 15)) * 0x846ca68bu;
            h ^= h >> 16;
            const auto sum =
                static_cast<int>((h & 255u) + (h >> 8 & 255u) + (h >> 16 & 255u) + (h >> 24));
            x(i) += unit * static_cast<float>(sum - 510);
        });
}

}  // namespace

FlatLayout transformer_layout(Index parameters) {
    constexpr Index layers = 12;
    constexpr double in_layers = 0.8;
    const double width_wanted =
        std::sqrt(in_layers * static_cast<double>(parameters) / (12.0 * layers));
    const Index w = std::max<Index>(8, round_up(static_cast<Index>(width_wanted), 8));
    const Index rows = std::max<Index>(1, parameters / w - 12 * layers * w);
    FlatLayout layout;
    layout.add("embedding", {rows, w});
    for (Index l = 0; l < layers; ++l) {
        const auto name = [&](const char* what) { return fmt::format("layers.{}.{}", l, what); };
        layout.add(name("norm1"), {w});
        layout.add(name("qkv"), {3 * w, w});
        layout.add(name("out"), {w, w});
        layout.add(name("norm2"), {w});
        layout.add(name("up"), {4 * w, w});
        layout.add(name("down"), {w, 4 * w});
    }
    layout.add("norm", {w});
    return layout;
}

ExchangeRig::ExchangeRig(const Exec& exec, const config::RunConfig& config, Index parameters,
                         int ranks)
    : exec_(exec),
      config_(config),
      layout_(transformer_layout(parameters)),
      silent_(comm::make_silent(0, ranks)),
      comm_(*silent_),
      sharding_(layout_, ranks, optim::bucket_bytes(config, ranks)),
      parameters_("scape::apps::parameters", static_cast<std::size_t>(sharding_.extent())),
      gradients_("scape::apps::gradients", static_cast<std::size_t>(sharding_.extent())),
      squares_("scape::apps::squares", 2),
      optimizer_(config_, comm_, layout_, sharding_, parameters_, gradients_),
      everything_(layout_, sharding_, config_.sparsity) {
    everything_.set(1);
    add_noise(exec_, 0, 0.02f, parameters_);
    optimizer_.exchange().take_master(exec_);
}

const optim::MaskPlan& ExchangeRig::plan() {
    return optimizer_.exchange().sparse() ? optimizer_.elements()->plan() : everything_;
}

void ExchangeRig::backward() {
    optimizer_.begin_step(exec_, ++steps_);
    add_noise(exec_, static_cast<std::uint32_t>(steps_), 1e-3f, gradients_);
    fence(exec_, "scape::apps::backward");
}

void ExchangeRig::step() {
    comm_.reset();
    optimizer_.exchange().finish_reduce(exec_);
    kernels::fill_zero<double>(exec_, squares_);
    optimizer_.add_checks(exec_, slice(squares_, 0, 1), slice(squares_, 1, 2));
    optimizer_.update(exec_, {steps_, 1e-4f, 1.f});
    optimizer_.exchange().finish_gathers(exec_);
    fence(exec_, "scape::apps::step");
}

double ExchangeRig::comm_seconds() const {
    double seconds = 0;
    for (const comm::Traffic& row : comm_.traffic()) seconds += row.seconds;
    return seconds;
}

}  // namespace scape::apps
