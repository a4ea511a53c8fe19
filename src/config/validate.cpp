#include "checks.hpp"

#include <scape/base/error.hpp>

namespace scape::config {
namespace {

void check_ranges(CheckContext& c) {
    for (const Key& key : keys()) {
        if (const std::string problem = key.problem(key.get(c.config)); !problem.empty()) {
            c.add(key.full_name(), fmt::format("{}: {}; allowed: {}", c.show(key.full_name()),
                                               problem, key.allowed()));
        }
    }
}

void check_model(CheckContext& c) {
    const ModelConfig& m = c.config.model;
    // Far beyond any machine, and before sizes in bytes leave 64 bits.
    constexpr double most_parameters = 1e13;
    const auto width = static_cast<double>(m.width);
    const double about = static_cast<double>(m.layers) * width *
                             (4 * width + 2.0 * static_cast<double>(m.ffn_width)) +
                         width * static_cast<double>(m.vocab + m.max_seq_len);
    if (about > most_parameters)
        c.add("model.width",
              fmt::format("{}, {}, {}: about {:.2g} parameters, and at most {:.0e} are "
                          "possible; lower one of them",
                          c.show("model.layers"), c.show("model.width"), c.show("model.ffn_width"),
                          about, most_parameters));
    if (m.width % m.heads != 0) {
        const Index below = m.width / m.heads * m.heads;
        c.add("model.width",
              fmt::format("{} is not divisible by {}; nearest widths: {}{}", c.show("model.width"),
                          c.show("model.heads"), below > 0 ? fmt::format("{}, ", below) : "",
                          below + m.heads));
    } else if (m.family == Family::llama && m.head_dim() % 2 != 0) {
        c.add("model.width",
              fmt::format("{} / {} = {} channels per head; RoPE turns pairs of them, "
                          "so this must be even: change width or heads",
                          c.show("model.width"), c.show("model.heads"), m.head_dim()));
    }
    const bool grouped = m.kv_heads != 0 && m.kv_heads != m.heads;
    if (grouped && m.family == Family::gpt) {
        c.add(
            "model.kv_heads",
            fmt::format("{} with model.family = \"gpt\", which has as many key and value heads as "
                        "heads; delete it, set it to {}, or choose llama",
                        c.show("model.kv_heads"), m.heads));
    } else if (grouped && m.heads % m.kv_heads != 0) {
        c.add("model.kv_heads",
              fmt::format("{} does not divide {}; choose a divisor of {}", c.show("model.kv_heads"),
                          c.show("model.heads"), m.heads));
    }
    if (m.family == Family::gpt) {
        c.no_effect("model.rope_base", "gpt has learned positions");
    }
    if (c.config.train.seq_len > m.max_seq_len) {
        c.add("train.seq_len",
              fmt::format("{} is longer than the model's maximum, {}; lower the first or raise the "
                          "second",
                          c.show("train.seq_len"), c.show("model.max_seq_len")));
    }
}

void check_batch(CheckContext& c) {
    const TrainSection& t = c.config.train;
    const double tokens = double(t.steps) * double(t.global_batch) * double(t.seq_len);
    if (tokens >= 9e18) {
        c.add("train.steps",
              fmt::format("{} x {} x {} is more tokens than a 64-bit counter holds; lower one",
                          c.show("train.steps"), c.show("train.global_batch"),
                          c.show("train.seq_len")));
    }
    if (c.ranks < 1) {
        return;
    }
    if (t.global_batch < c.ranks) {
        c.add("train.global_batch",
              fmt::format("{} sequences cannot be shared by {} ranks; start at most {} ranks, or "
                          "raise it to at least {}",
                          c.show("train.global_batch"), c.ranks, t.global_batch, c.ranks));
        return;
    }
    const Index unit = c.ranks * t.micro_batch;
    if (t.global_batch % unit != 0) {
        const Index below = t.global_batch / unit * unit;
        c.add(
            "train.global_batch",
            fmt::format("{} is not a multiple of ranks x micro_batch = {} x {} = {} ({}); nearest "
                        "global batches: {}{}",
                        c.show("train.global_batch"), c.ranks, t.micro_batch, unit,
                        c.show("train.micro_batch"), below > 0 ? fmt::format("{}, ", below) : "",
                        below + unit));
    }
}

void check_data(CheckContext& c) {
    const DataSection& d = c.config.data;
    const Index vocab = c.config.model.vocab;
    if (d.format == DataFormat::synthetic) {
        for (const auto* key : {"data.train", "data.valid"}) {
            if (value_text(c.config, key) != "\"\"") {
                c.add(key, fmt::format("{} with {}, which reads no file; set data.format to text, "
                                       "raw_u16 or raw_u32, or delete it",
                                       c.show(key), c.show("data.format")));
            }
        }
    } else if (d.train.empty()) {
        c.add("data.train", fmt::format("data.train is empty and {}; set data.train to a file, for "
                                        "instance data.train=FILE on the command line",
                                        c.show("data.format")));
    }
    if (d.format == DataFormat::text && vocab < 256) {
        c.add("model.vocab",
              fmt::format("{} with {}, whose tokens are bytes; it must be 256 or more",
                          c.show("model.vocab"), c.show("data.format")));
    }
    if (d.format == DataFormat::raw_u16 && vocab > 65536) {
        c.add("model.vocab", fmt::format("{} with {}, whose ids end at 65535; data of such a "
                                         "vocabulary is raw_u32",
                                         c.show("model.vocab"), c.show("data.format")));
    }
    if (d.ignore_token >= vocab) {
        c.add("data.ignore_token", fmt::format("{} is no token of {}; it must be less, or -1",
                                               c.show("data.ignore_token"), c.show("model.vocab")));
    }
}

void check_optimizer(CheckContext& c) {
    const OptimizerSection& o = c.config.optimizer;
    if (o.schedule == ScheduleKind::constant) {
        return;  // min_lr and decay_steps are not looked at
    }
    if (o.min_lr > o.lr) {
        c.add("optimizer.min_lr", fmt::format("{} is above {}; lower the first or raise the second",
                                              c.show("optimizer.min_lr"), c.show("optimizer.lr")));
    }
    // With the horizon at train.steps a short trial of a long deck may well end within the warm-up.
    if (o.decay_steps > 0 && o.warmup_steps > o.decay_steps) {
        c.add("optimizer.warmup_steps",
              fmt::format("{} is more than {}; lower the first, or raise the second",
                          c.show("optimizer.warmup_steps"), c.show("optimizer.decay_steps")));
    }
}

void check_comm(CheckContext& c) {
    if (c.config.comm.backend == CommBackend::self && c.ranks > 1) {
        c.add("comm.backend",
              fmt::format("{} is for one rank, and this run was started with {}; use "
                          "auto or mpi",
                          c.show("comm.backend"), c.ranks));
    }
}

/// Keys whose text has a form of its own.
template <class Parse>
void check_text(CheckContext& c, const std::string& key, const std::string& text, Parse parse) {
    try {
        parse(text);
    } catch (const user_error& error) {
        const auto found = c.places.find(key);
        c.add(key, fmt::format("{}{}", found != c.places.end() ? found->second.text() + ": " : "",
                               error.what()));
    }
}

}  // namespace

void validate(const RunConfig& config, int ranks, const Places& places) {
    CheckContext c{config, ranks, places, {}};
    check_ranges(c);
    c.problems.throw_if_any();  // what follows divides
    check_model(c);
    check_batch(c);
    check_data(c);
    check_optimizer(c);
    check_exchange(c);
    check_comm(c);
    check_text(c, "run.wall_limit", config.run.wall_limit, wall_limit_seconds);
    check_text(c, "data.split", config.data.split, split_shares);
    if (config.run.dir.empty()) {
        c.add("run.dir", "run.dir is empty; name the folder of this run");
    }
    c.problems.throw_if_any();
}

}  // namespace scape::config
