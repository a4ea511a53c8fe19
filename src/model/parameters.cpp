#include <scape/base/error.hpp>
#include <scape/model/parameters.hpp>

#include <fmt/format.h>

#include <cmath>

namespace scape::model {

namespace {

void require(bool condition, const std::string& message) {
    if (!condition) throw user_error(ExitCode::usage, message);
}

/// Adds tensors and says how each starts.
class Planner {
   public:
    explicit Planner(ParameterPlan& plan) : plan_(plan) {}

    void group() { plan_.group_begin.push_back(round_up(plan_.layout.extent(), tensor_alignment)); }
    void weight(const std::string& name, Index rows, Index cols, double stddev,
                Index padded_rows = 0) {
        plan_.layout.add(name, {rows, cols}, padded_rows);
        plan_.inits.push_back({stddev, 0});
    }
    void vector(const std::string& name, Index n, double value) {
        plan_.layout.add(name, {n});
        plan_.inits.push_back({0, value});
    }

   private:
    ParameterPlan& plan_;
};

/// Standard deviations of GPT-2: each of the 2 L projections adds to the residual stream, so that
/// its variance would grow with the depth.
struct Spread {
    double plain;
    double into_residual;
    explicit Spread(const config::ModelConfig& config)
        : plain(config.init_std),
          into_residual(config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))) {}
};

void plan_gpt(Planner& add, const Dimensions& d, const Spread& std) {
    add.group();
    add.weight("wte", d.vocab, d.width, std.plain, d.padded_vocab);
    add.weight("wpe", d.max_seq, d.width, std.plain);
    for (Index l = 0; l < d.layers; ++l) {
        const std::string h = fmt::format("h.{}.", l);
        add.group();
        add.vector(h + "ln1.gain", d.width, 1);
        add.vector(h + "ln1.bias", d.width, 0);
        add.weight(h + "attn.qkv.weight", d.qkv(), d.width, std.plain);
        add.vector(h + "attn.qkv.bias", d.qkv(), 0);
        add.weight(h + "attn.proj.weight", d.width, d.width, std.into_residual);
        add.vector(h + "attn.proj.bias", d.width, 0);
        add.vector(h + "ln2.gain", d.width, 1);
        add.vector(h + "ln2.bias", d.width, 0);
        add.weight(h + "mlp.fc.weight", d.ffn, d.width, std.plain);
        add.vector(h + "mlp.fc.bias", d.ffn, 0);
        add.weight(h + "mlp.proj.weight", d.width, d.ffn, std.into_residual);
        add.vector(h + "mlp.proj.bias", d.width, 0);
    }
    add.group();
    add.vector("lnf.gain", d.width, 1);
    add.vector("lnf.bias", d.width, 0);
}

void plan_llama(Planner& add, const Dimensions& d, const Spread& std) {
    add.group();
    add.weight("wte", d.vocab, d.width, std.plain, d.padded_vocab);
    for (Index l = 0; l < d.layers; ++l) {
        const std::string h = fmt::format("layers.{}.", l);
        add.group();
        add.vector(h + "norm1.gain", d.width, 1);
        add.weight(h + "attn.qkv.weight", d.qkv(), d.width, std.plain);
        add.weight(h + "attn.proj.weight", d.width, d.width, std.into_residual);
        add.vector(h + "norm2.gain", d.width, 1);
        add.weight(h + "mlp.gate_up.weight", 2 * d.ffn, d.width, std.plain);
        add.weight(h + "mlp.down.weight", d.width, d.ffn, std.into_residual);
    }
    add.group();
    add.vector("norm.gain", d.width, 1);
}

}  // namespace

Dimensions dimensions(const config::ModelConfig& config) {
    config::ModelConfig c = config;
    config::resolve_defaults(c);
    for (const Index n : {c.layers, c.width, c.heads, c.max_seq_len, c.vocab, c.vocab_multiple})
        require(n > 0,
                fmt::format("model: sizes must be positive, one of layers {}, width {}, "
                            "heads {}, max_seq_len {}, vocab {}, vocab_multiple {} is not",
                            c.layers, c.width, c.heads, c.max_seq_len, c.vocab, c.vocab_multiple));
    require(c.width % c.heads == 0,
            fmt::format("model.heads = {} does not divide model.width = {}: choose a divisor",
                        c.heads, c.width));
    Dimensions d;
    d.layers = c.layers;
    d.width = c.width;
    d.heads = c.heads;
    d.head_dim = c.width / c.heads;
    d.max_seq = c.max_seq_len;
    d.vocab = c.vocab;
    d.padded_vocab = c.padded_vocab();
    const bool llama = c.family == config::Family::llama;
    d.kv_heads = llama ? c.kv_heads : c.heads;
    d.ffn = c.ffn_width;
    require(d.heads % d.kv_heads == 0,
            fmt::format("model.kv_heads = {} does not divide model.heads = {}: choose a divisor",
                        d.kv_heads, d.heads));
    require(!llama || d.head_dim % 2 == 0,
            fmt::format("model.width / model.heads = {} / {} = {} is odd: rotary positions turn "
                        "pairs, choose sizes with an even quotient",
                        d.width, d.heads, d.head_dim));
    return d;
}

Index ParameterPlan::group_end(Index group) const {
    const auto next = static_cast<std::size_t>(group) + 1;
    return next < group_begin.size() ? group_begin[next] : layout.extent();
}

ParameterPlan plan_parameters(const config::ModelConfig& config) {
    const Dimensions d = dimensions(config);
    const Spread spread(config);
    ParameterPlan plan;
    Planner add(plan);
    if (config.family == config::Family::gpt)
        plan_gpt(add, d, spread);
    else
        plan_llama(add, d, spread);
    if (!config.tied) {
        add.group();
        add.weight("head.weight", d.vocab, d.width, spread.plain, d.padded_vocab);
    }
    return plan;
}

}  // namespace scape::model
