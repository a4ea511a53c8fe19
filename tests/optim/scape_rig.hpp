#pragma once
// One rank's part of SCAPE steps without a model: gradients are drawn, everything else is the
// program's own.
#include "support/compare.hpp"
#include "support/scape_simulator.hpp"
#include "support/scratch.hpp"

#include <scape/comm/counting.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/optim/density.hpp>
#include <scape/optim/exchange.hpp>
#include <scape/optim/scape.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

namespace scape::test {

// Matrices and vectors of odd sizes, one element, padding rows of the vocabulary.
inline FlatLayout odd_layout() {
    FlatLayout layout;
    layout.add("wte", {37, 5}, 48);
    layout.add("gain", {7});
    layout.add("one", {1, 1});
    layout.add("w", {53, 31});
    layout.add("bias", {31});
    layout.add("w2", {3, 257});
    return layout;
}

struct RigOptions {
    config::RunConfig config;
    Index bucket_bytes = 2000;
    int buffers = 2;
};

class ScapeRig {
   public:
    ScapeRig(comm::Communicator& inner, const RigOptions& o, FlatLayout of = odd_layout())
        : comm(inner),
          config(o.config),
          layout(std::move(of)),
          sharding(layout, comm.size(), o.bucket_bytes),
          parameters(to_device(initial())),
          gradients(filled(sharding.extent(), 0.f)),
          masks(comm, layout, sharding, config.sparsity, optim::largest_sparse_density(config),
                config.scape.lateness == 0 ? optim::Masks::Lateness::none
                                           : optim::Masks::Lateness::one_step),
          feedback(config.error_feedback, sharding, comm.rank()),
          owner(optim::make_scape(config, layout, sharding, comm.rank(), masks)),
          exchange(comm, sharding, parameters, gradients, *owner, &masks, &feedback,
                   {.code = config.exchange.value_bits == 16 ? kernels::ValueCode::bf16
                                                             : kernels::ValueCode::fp32,
                    .rest = kernels::Rest::kept,
                    .buffers = o.buffers,
                    .largest_density = optim::largest_sparse_density(config)}) {}

    // Logical elements normal, padding zero.
    std::vector<float> flat_of(std::uint64_t seed, double deviation) const {
        std::vector<float> flat(static_cast<std::size_t>(sharding.extent()), 0.f);
        for (const Tensor& t : layout.tensors()) {
            const auto values = normal_values(t.size, seed + 17 * t.offset, deviation);
            std::copy(values.begin(), values.end(), flat.begin() + t.offset);
        }
        return flat;
    }
    std::vector<float> initial() const { return flat_of(3, 1); }
    std::vector<float> gradient(int rank, Index t) const {
        return flat_of(static_cast<std::uint64_t>(1000 * t + rank), 0.1);
    }

    // The step of the trainer, from the gradients on. Returns whether it counted.
    bool step(Index t, const std::vector<float>& g, float lr) {
        const Exec exec;
        comm.reset();
        exchange.begin_step(exec, {t, optim::density(config, t), optim::density(config, t + 1)});
        if (!feedback.fused()) {
            feedback.begin_step(exec);
            feedback.finish(exec);
            feedback.expect();
            kernels::fill_zero<float>(exec, gradients);
        }
        // Backward: += from the end, in uneven portions.
        std::vector<float> sum = to_host(gradients);
        Index end = sharding.extent();
        while (end > 0) {
            const Index begin = end - std::min(end, 1 + end / 3);
            for (Index i = begin; i < end; ++i) sum[i] += g[i];
            Kokkos::deep_copy(slice(gradients, begin, end),
                              HostSpan<const float>(sum.data() + begin, end - begin));
            exchange.gradients_final(exec, begin);
            exchange.progress();
            end = begin;
        }
        exchange.finish_reduce(exec);
        const Vec<double> squares("squares", 2);
        owner->add_squares(exec, slice(squares, 0, 1));
        feedback.add_check(exec, slice(squares, 1, 2));
        const auto sums = comm.all_reduce_sum(
            {to_host(squares)[0], std::isfinite(to_host(squares)[1]) ? 0.0 : 1.0});
        norm = std::sqrt(sums[0]);
        if (!std::isfinite(norm) || sums[1] > 0) {
            skip(exec);
            return false;
        }
        if (before_update) before_update();
        optim::StepNumbers numbers{t, lr, 1.f};
        if (config.optimizer.clip_norm > 0)
            numbers.grad_scale =
                static_cast<float>(std::min(1.0, config.optimizer.clip_norm / (norm + 1e-6)));
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Span<float> back = exchange.back(exec, b);
            owner->update(exec, numbers, exchange.arrived(exec, b), exchange.weights(b), back);
            exchange.gather_begin(exec, b);
        }
        owner->end_step(exec);
        if (exchange.straight()) {
            kernels::fill_zero<float>(exec, gradients);
            feedback.commit_zero();
        } else {
            feedback.commit(exec, gradients);
        }
        if (owner->selects_after() && !masks.next_plan().all())
            for (int b = 0; b < sharding.buckets(); ++b)
                owner->select(exec, b, exchange.own_gradients(b));
        masks.begin(exec);
        return true;
    }

    void skip(const Exec& exec) {
        exchange.give_up(exec);
        if (!feedback.fused()) return;
        const auto left = to_host(gradients);
        const bool finite =
            std::all_of(left.begin(), left.end(), [](float x) { return std::isfinite(x); });
        if (exchange.straight() || !finite) kernels::fill_zero<float>(exec, gradients);
    }

    // What this rank keeps, wherever it lives.
    std::vector<float> residual() {
        if (!feedback.fused()) feedback.load(Exec(), gradients);
        return to_host(gradients);
    }
    std::vector<float> weights() {
        exchange.finish_gathers(Exec());
        return to_host(parameters);
    }
    // Of this rank's shard, the rest 0.
    std::vector<std::uint8_t> next_mask() {
        const Vec<std::uint8_t> flags("flags", sharding.shard_extent());
        masks.coming_flags(Exec(), flags);
        return to_host(flags);
    }

    comm::CountingCommunicator comm;
    config::RunConfig config;
    FlatLayout layout;
    Sharding sharding;
    Vec<float> parameters, gradients;
    optim::Masks masks;
    optim::ErrorFeedback feedback;
    std::unique_ptr<optim::Scape> owner;
    optim::Exchange exchange;
    double norm = 0;
    std::function<void()> before_update;  // everything has arrived, nothing is applied
};

inline config::RunConfig scape_config(config::ScapeRule rule, config::ScapeScore score) {
    config::RunConfig c;
    c.optimizer.kind = config::OptimizerKind::scape;
    c.optimizer.weight_decay = 0.1;
    c.optimizer.clip_norm = 2.0;
    c.scape.rule = rule;
    c.scape.score = score;
    c.sparsity.density = 0.03;
    c.sparsity.density_start = 1.0;
    c.sparsity.warmup_steps = 12;
    c.sparsity.dense_steps = 1;
    c.train.steps = 30;
    return c;
}

inline SimConfig simulated(const config::RunConfig& c) {
    SimConfig s;
    s.rule = c.scape.rule == config::ScapeRule::paper ? SimConfig::Rule::paper
                                                      : SimConfig::Rule::catch_up;
    s.score = config::score_of(c) == config::ScapeScore::before ? SimConfig::Score::before
                                                                : SimConfig::Score::after;
    s.owner = c.scape.second_moment == config::SecondMoment::stored ? SimConfig::Owner::adamw
                                                                    : SimConfig::Owner::adams;
    s.same_step = c.scape.lateness == 0;
    s.density = c.sparsity.density;
    s.density_start = c.sparsity.density_start;
    s.warmup_steps = c.sparsity.warmup_steps;
    s.dense_steps = c.sparsity.dense_steps;
    s.cooldown_steps = c.sparsity.cooldown_steps;
    s.total_steps = c.train.steps;
    s.sparsify_1d = c.sparsity.sparsify_1d;
    s.value_bits = static_cast<int>(c.exchange.value_bits);
    s.fused = c.error_feedback.storage == config::FeedbackStorage::fused;
    s.beta1 = c.optimizer.beta1;
    s.beta2 = c.optimizer.beta2;
    s.eps = c.optimizer.eps;
    s.weight_decay = c.optimizer.weight_decay;
    s.bias_correction = c.optimizer.bias_correction;
    s.clip_norm = c.optimizer.clip_norm;
    return s;
}

}  // namespace scape::test
