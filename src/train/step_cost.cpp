#include <scape/train/step_cost.hpp>

#include <scape/base/flat_layout.hpp>
#include <scape/model/flops.hpp>
#include <scape/model/model.hpp>
#include <scape/optim/dense_exchange.hpp>
#include <scape/optim/optimizer.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace scape::train {

StepCost step_cost(const config::RunConfig& config, int ranks) {
    const FlatLayout layout = model::make_layout(config.model);
    const Sharding sharding(layout, ranks, static_cast<Index>(config.comm.bucket_mb * 1e6));
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
    c.bytes_sent = 2 * (flat_bytes - flat_bytes / ranks);  // gradients there, weights back
    c.memory.parameters = flat_bytes;
    c.memory.gradients = flat_bytes;
    c.memory.optimizer = optim::state_arrays(config.optimizer.kind) * flat_bytes / ranks;
    c.memory.activations =
        model::make_model<float>(config.model)->activation_bytes(t.micro_batch, t.seq_len);
    c.memory.exchange = optim::DenseExchange::buffer_bytes(sharding);
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
    const double bytes_per_parameter =
        static_cast<double>(c.bytes_sent) / static_cast<double>(c.parameters);
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
    text += fmt::format("traffic         {} sent per rank and step ({:.2f} bytes per parameter)\n",
                        short_bytes(c.bytes_sent), bytes_per_parameter);
    text += fmt::format(
        "memory          {} per rank: parameters {}, gradients {}, optimizer {}, activations {}, "
        "exchange {}\n",
        short_bytes(m.total()), short_bytes(m.parameters), short_bytes(m.gradients),
        short_bytes(m.optimizer), short_bytes(m.activations), short_bytes(m.exchange));
    return text;
}

}  // namespace scape::train
