#include <scape/train/step_cost.hpp>

#include <scape/base/flat_layout.hpp>
#include <scape/config/budget.hpp>
#include <scape/config/keys.hpp>
#include <scape/model/flops.hpp>
#include <scape/model/model.hpp>
#include <scape/optim/density.hpp>
#include <scape/optim/sharded_optimizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace scape::train {

namespace {

/// Mean over the run of the bytes of all messages in a step, from at most a few hundred of its
/// steps.
double average_bytes(const config::RunConfig& config, optim::MaskPlan& plan,
                     const optim::Exchange::Options& options) {
    const auto bytes_at = [&](Index t) {
        plan.set(optim::density(config, t));
        const auto bytes =
            plan.message_bytes(options.values, options.deltas, config.exchange.elements);
        return static_cast<double>(bytes.total());
    };
    // The first step is often dense, unlike all others.
    constexpr Index most = 400;
    const Index steps = config.train.steps;
    const Index stride = std::max<Index>(1, steps / most);
    double others = 0;
    Index count = 0;
    for (Index t = 2; t <= steps; t += stride, ++count) others += bytes_at(t);
    const double mean = count > 0 ? others / static_cast<double>(count) : 0;
    return (bytes_at(1) + mean * static_cast<double>(steps - 1)) / static_cast<double>(steps);
}

/// In which code what travels, there and back, and what becomes of the rest.
std::string describe_exchange(const config::RunConfig& config) {
    const config::ExchangeSection& e = config.exchange;
    const auto code = [&](Index bits) {
        return bits > 8 ? fmt::format("{} bits", bits)
                        : fmt::format("{} bits in blocks of {}", bits, config::block_of(e));
    };
    std::string text =
        fmt::format("exchange        gradients in {}, {} back in {}\n", code(e.value_bits),
                    e.delta_bits == 32 ? "weights" : "changes", code(e.delta_bits));
    if (config::has_error_feedback(config)) {
        text +=
            fmt::format("                what is not sent is kept (error_feedback.storage = {})\n",
                        config::value_text(config, "error_feedback.storage"));
    } else if (config::has_loco(config)) {
        text += "                of what the code loses, LoCo's average is kept\n";
    } else if (e.value_bits < 32) {
        text += "                what the code loses is lost\n";
    }
    return text;
}

}  // namespace

MemoryAccount memory_account(const config::RunConfig& config, const FlatLayout& layout,
                             const Sharding& sharding) {
    MemoryAccount m;
    static_cast<optim::OptimizerMemory&>(m) = optim::optimizer_memory(config, layout, sharding, 0);
    m.parameters = sharding.extent() * static_cast<Index>(sizeof(float));
    m.gradients = m.parameters;
    m.activations = model::make_model<float>(config.model)
                        ->activation_bytes(config.train.micro_batch, config.train.seq_len);
    return m;
}

StepCost step_cost(const config::RunConfig& config, int ranks) {
    const FlatLayout layout = model::make_layout(config.model);
    const Sharding sharding(layout, ranks, optim::bucket_bytes(config, ranks));
    const config::TrainSection& t = config.train;

    StepCost c;
    c.ranks = ranks;
    c.accumulation = t.global_batch / (ranks * t.micro_batch);
    c.step_sequences = t.global_batch;
    c.step_tokens = t.global_batch * t.seq_len;
    c.parameters = layout.parameters();
    c.flops_per_token = model::flops_per_token(config.model, t.seq_len);
    c.step_flops = c.flops_per_token * static_cast<double>(c.step_tokens);

    using Order = optim::MaskPlan::CodeOrder;
    const config::Elements elements = config.exchange.elements;
    const bool scape = config.optimizer.kind == config::OptimizerKind::scape;
    optim::MaskPlan plan(layout, sharding, config.sparsity,
                         scape ? Order::by_rank : Order::by_bucket);
    const optim::Exchange::Options options = optim::exchange_options(config);
    plan.set(1);
    c.dense_bytes = plan.bytes_sent(options.values, options.deltas).total();
    if (config::is_sparse(config)) plan.set(config.sparsity.density);
    c.sent = plan.bytes_sent(options.values, options.deltas, elements);
    c.bytes_sent = c.sent.total();
    const auto parameters = static_cast<double>(c.parameters);
    const auto message = plan.message_bytes(options.values, options.deltas, elements);
    c.bytes_per_parameter = static_cast<double>(message.total()) / parameters;
    c.average_density = optim::average_density(config);
    const double average = average_bytes(config, plan, options);
    c.average_bytes = average * (ranks - 1) / ranks;
    c.average_bytes_per_parameter = average / parameters;
    c.memory = memory_account(config, layout, sharding);
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
    text += config::describe_budget(config) + describe_exchange(config);
    text +=
        fmt::format("traffic         {} sent per rank and step: gradients {}, back {}, masks {}\n",
                    short_bytes(c.bytes_sent), short_bytes(c.sent.gradients),
                    short_bytes(c.sent.weights), short_bytes(c.sent.masks));
    text += fmt::format(
        "                {:.3g} bytes per parameter and step, there and back (dense fp32: 8, dense "
        "bf16: 4)\n",
        c.bytes_per_parameter);
    if (config::is_sparse(config)) {
        text += fmt::format("                that is at density {}; dense steps send {}\n",
                            config.sparsity.density, short_bytes(c.dense_bytes));
        text += fmt::format(
            "                averages over the run: density {:.3g}, {} sent, {:.3g} bytes per "
            "parameter\n",
            c.average_density, short_bytes(static_cast<Index>(c.average_bytes)),
            c.average_bytes_per_parameter);
    }
    const double budget = config.exchange.bytes_per_param;
    if (budget > 0 && c.average_bytes_per_parameter > 1.05 * budget)
        text += fmt::format(
            "note: that is more than exchange.bytes_per_param = {}: keys that are set by hand, or "
            "norm gains, biases and ends of slices, which count in a small model.\n",
            budget);
    text += fmt::format(
        "memory          {} per rank: parameters {}, gradients {}, optimizer {}, masks {}, error "
        "feedback {}, activations {}, exchange {}\n",
        short_bytes(m.total()), short_bytes(m.parameters), short_bytes(m.gradients),
        short_bytes(m.state), short_bytes(m.masks), short_bytes(m.feedback),
        short_bytes(m.activations), short_bytes(m.exchange));
    return text;
}

}  // namespace scape::train
