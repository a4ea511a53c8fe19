#include <scape/train/step_cost.hpp>

#include <scape/base/flat_layout.hpp>
#include <scape/model/flops.hpp>
#include <scape/model/model.hpp>
#include <scape/optim/baselines.hpp>
#include <scape/optim/optimizer.hpp>
#include <scape/optim/scape.hpp>
#include <scape/train/exchange_setup.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace scape::train {

namespace {

/// Mean over the run of the bytes sent per rank and step, from at most a few hundred of its steps.
double average_bytes(const config::RunConfig& config, optim::MaskPlan& plan, Index value_bytes) {
    constexpr Index most = 400;
    const Index stride = std::max<Index>(1, config.train.steps / most);
    double sum = 0;
    Index count = 0;
    for (Index t = 1; t <= config.train.steps; t += stride, ++count) {
        plan.set(optim::density(config, t));
        sum += static_cast<double>(plan.bytes_sent(value_bytes, config.exchange.elements).total());
    }
    return sum / static_cast<double>(count);
}

}  // namespace

StepCost step_cost(const config::RunConfig& config, int ranks) {
    const FlatLayout layout = model::make_layout(config.model);
    const Sharding sharding(layout, ranks, bucket_bytes(config));
    const config::TrainSection& t = config.train;

    StepCost c;
    c.ranks = ranks;
    c.accumulation = t.global_batch / (ranks * t.micro_batch);
    c.step_sequences = t.global_batch;
    c.step_tokens = t.global_batch * t.seq_len;
    c.parameters = layout.parameters();
    c.flops_per_token = model::flops_per_token(config.model, t.seq_len);
    c.step_flops = c.flops_per_token * static_cast<double>(c.step_tokens);

    const Index flat_bytes = sharding.extent() * static_cast<Index>(sizeof(float));
    c.memory.parameters = flat_bytes;
    c.memory.gradients = flat_bytes;
    c.memory.activations =
        model::make_model<float>(config.model)->activation_bytes(t.micro_batch, t.seq_len);

    using Order = optim::MaskPlan::CodeOrder;
    const config::Elements elements = config.exchange.elements;
    const bool scape = config.optimizer.kind == config::OptimizerKind::scape;
    optim::MaskPlan plan(layout, sharding, config.sparsity,
                         scape ? Order::by_rank : Order::by_bucket);
    const optim::Exchange::Options options = exchange_options(config);
    const Index value_bytes = kernels::value_bytes(options.code);
    c.dense_fp32_bytes = plan.bytes_sent(sizeof(float)).total();
    c.dense_bytes = plan.bytes_sent(value_bytes).total();
    c.bytes_sent = c.dense_bytes;
    c.average_bytes = static_cast<double>(c.dense_bytes);
    if (config::is_sparse(config)) {
        plan.set(config.sparsity.density);
        c.sparse = plan.bytes_sent(value_bytes, elements);
        c.bytes_sent = c.sparse.total();
        c.average_density = optim::average_density(config);
        c.average_bytes = average_bytes(config, plan, value_bytes);
        plan.set(1);
        c.memory.feedback = optim::ErrorFeedback::memory_bytes(config.error_feedback, sharding);
        c.memory.masks =
            scape ? optim::Masks::device_bytes(layout, sharding, config.sparsity,
                                               options.largest_density)
                  : optim::baseline_device_bytes(elements, layout, sharding, config.sparsity,
                                                 options.largest_density);
    }
    c.memory.optimizer = scape ? optim::scape_state_bytes(config, sharding)
                               : optim::state_arrays(config.optimizer.kind) * flat_bytes / ranks;
    c.memory.exchange = optim::Exchange::buffer_bytes(
        sharding, config::is_sparse(config) ? &plan : nullptr, 0,
        elements != config::Elements::automatic, elements == config::Elements::topk_ef, options);
    return c;
}

std::string short_bytes(Index bytes) {
    constexpr std::array units{"B", "kB", "MB", "GB", "TB", "PB"};
    auto x = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (x >= 1000 && unit + 1 < units.size()) {
        x /= 1000;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", x, units[unit]);
}

std::string describe(const StepCost& c, const config::RunConfig& config) {
    const MemoryAccount& m = c.memory;
    std::string text = fmt::format(
        "global batch    {} ranks x {} micro-batch x {} accumulation = {} sequences x {} = {} "
        "tokens a step\n",
        c.ranks, config.train.micro_batch, c.accumulation, c.step_sequences, config.train.seq_len,
        c.step_tokens);
    text += fmt::format("run             {} steps = {} tokens\n", config.train.steps,
                        config.train.steps * c.step_tokens);
    text += fmt::format("parameters      {}\n", c.parameters);
    text += fmt::format("FLOPs           {:.4g} a token, {:.4g} a step (forward and backward)\n",
                        c.flops_per_token, c.step_flops);
    const auto per_parameter = [&](double bytes) {
        return bytes / static_cast<double>(c.parameters);
    };
    const auto traffic = [&](const char* what, double bytes) {
        return fmt::format("{:<16}{} sent per rank and step ({:.3g} bytes per parameter{})\n", what,
                           short_bytes(static_cast<Index>(bytes)), per_parameter(bytes),
                           c.dense_fp32_bytes > 0
                               ? fmt::format(", {:.3g} of dense fp32",
                                             bytes / static_cast<double>(c.dense_fp32_bytes))
                               : "");
    };
    text += traffic("traffic", static_cast<double>(c.bytes_sent));
    if (config::is_sparse(config)) {
        text += fmt::format("                at density {}: gradients {}, weights {}, masks {}\n",
                            config.sparsity.density, short_bytes(c.sparse.gradients),
                            short_bytes(c.sparse.weights), short_bytes(c.sparse.masks));
        text += fmt::format("                averages over the run: density {:.3g}\n",
                            c.average_density);
        text += traffic("", c.average_bytes);
        text += traffic("dense steps", static_cast<double>(c.dense_bytes));
    }
    text += fmt::format(
        "memory          {} per rank: parameters {}, gradients {}, optimizer {}, masks {}, error "
        "feedback {}, activations {}, exchange {}\n",
        short_bytes(m.total()), short_bytes(m.parameters), short_bytes(m.gradients),
        short_bytes(m.optimizer), short_bytes(m.masks), short_bytes(m.feedback),
        short_bytes(m.activations), short_bytes(m.exchange));
    return text;
}

}  // namespace scape::train
