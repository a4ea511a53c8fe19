#pragma once
// One rank's part of steps without a model, of any optimizer and exchange: gradients are drawn,
// everything else is the program's own.
#include "support/compare.hpp"
#include "support/scape_simulator.hpp"
#include "support/scratch.hpp"

#include <scape/comm/counting.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/optim/sharded_optimizer.hpp>

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
    bool vanishing = false;  // gradients that are zero, or so small that scales are not normal
};

class StepRig {
   public:
    StepRig(comm::Communicator& inner, const RigOptions& o, FlatLayout of = odd_layout())
        : comm(inner),
          config(o.config),
          vanishing(o.vanishing),
          layout(std::move(of)),
          sharding(layout, comm.size(), o.bucket_bytes),
          parameters(to_device(initial())),
          gradients(filled(sharding.extent(), 0.f)),
          optimizer(config, comm, layout, sharding, parameters, gradients, o.buffers) {
        optimizer.exchange().take_master(Exec());
    }

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
        auto g = flat_of(static_cast<std::uint64_t>(1000 * t + rank), 0.1);
        if (!vanishing) return g;
        const Tensor& zero = layout.tensor("w2");
        std::fill_n(g.begin() + zero.offset, zero.size, 0.f);
        const Tensor& small = layout.tensor("w");
        for (Index i = 0; i < small.size; ++i) g[small.offset + i] *= i % 3 == 0 ? 1e-38f : 3e-38f;
        return g;
    }

    // The step of the trainer, from the gradients on. Returns whether it counted.
    bool step(Index t, const std::vector<float>& g, float lr) {
        const Exec exec;
        comm.reset();
        optim::Exchange& exchange = optimizer.exchange();
        optimizer.begin_step(exec, t);
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
        optimizer.add_checks(exec, slice(squares, 0, 1), slice(squares, 1, 2));
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
        optimizer.update(exec, numbers);
        return true;
    }

    void skip(const Exec& exec) {
        if (!optimizer.skip(exec)) return;
        const auto left = to_host(gradients);
        if (!std::all_of(left.begin(), left.end(), [](float x) { return std::isfinite(x); }))
            optimizer.forget(exec);
    }

    // What this rank keeps, wherever it lives.
    std::vector<float> residual() {
        if (!optimizer.keeps()) return std::vector<float>(gradients.extent(0), 0.f);
        optimizer.load_kept(Exec());
        return to_host(gradients);
    }
    std::vector<float> weights() {
        optimizer.exchange().finish_gathers(Exec());
        return to_host(parameters);
    }
    // (shard) What this rank owns.
    std::vector<float> master() {
        if (optimizer.exchange().master().extent(0) > 0)
            return to_host(optimizer.exchange().master());
        std::vector<float> own;
        const auto all = weights();
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Range piece = sharding.piece(b, comm.rank());
            own.insert(own.end(), all.begin() + piece.begin, all.begin() + piece.end);
        }
        return own;
    }
    // Of this rank's shard, the rest 0.
    std::vector<std::uint8_t> next_mask() {
        const Vec<std::uint8_t> flags("flags", sharding.shard_extent());
        optimizer.masks()->coming_flags(Exec(), flags);
        return to_host(flags);
    }

    comm::CountingCommunicator comm;
    config::RunConfig config;
    bool vanishing;
    FlatLayout layout;
    Sharding sharding;
    Vec<float> parameters, gradients;
    optim::ShardedOptimizer optimizer;
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
    using config::Elements;
    using config::OptimizerKind;
    s.elements = c.exchange.elements == Elements::topk_ef   ? SimConfig::Elements::topk_ef
                 : c.exchange.elements == Elements::clt_k   ? SimConfig::Elements::clt_k
                 : c.optimizer.kind == OptimizerKind::scape ? SimConfig::Elements::mask
                                                            : SimConfig::Elements::all;
    const bool adamw = c.optimizer.kind == OptimizerKind::scape
                           ? c.scape.second_moment == config::SecondMoment::stored
                           : c.optimizer.kind == OptimizerKind::adamw;
    s.owner = c.optimizer.kind == OptimizerKind::sgd ? SimConfig::Owner::sgd
              : adamw                                ? SimConfig::Owner::adamw
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
    s.delta_bits = static_cast<int>(c.exchange.delta_bits);
    s.block = config::block_of(c.exchange);
    s.error = c.exchange.error == config::ErrorKind::full   ? SimConfig::Error::full
              : c.exchange.error == config::ErrorKind::loco ? SimConfig::Error::loco
                                                            : SimConfig::Error::none;
    s.loco_beta = c.loco.beta;
    s.loco_reset_every = c.loco.reset_every;
    s.momentum = c.optimizer.momentum;
    s.fused =
        config::has_error_feedback(c) && c.error_feedback.storage == config::FeedbackStorage::fused;
    s.beta1 = c.optimizer.beta1;
    s.beta2 = c.optimizer.beta2;
    s.eps = c.optimizer.eps;
    s.weight_decay = c.optimizer.weight_decay;
    s.bias_correction = c.optimizer.bias_correction;
    s.clip_norm = c.optimizer.clip_norm;
    return s;
}

}  // namespace scape::test
