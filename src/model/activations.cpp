#include <scape/kernels/attention.hpp>
#include <scape/kernels/norm.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/model/activations.hpp>

#include <algorithm>

namespace scape::model {

namespace {

/// Columns before the activation function: gelu has one input, swiglu two.
Index hidden_columns(const config::ModelConfig& config, const Dimensions& d) {
    return config.family == config::Family::gpt ? d.ffn : 2 * d.ffn;
}

Index workspace_elements(const config::ModelConfig& config, const Dimensions& d, Index batch,
                         Index seq) {
    const Index widest = std::max({d.width, d.qkv(), hidden_columns(config, d)});
    return std::max({kernels::attention_workspace({batch, seq, d.heads, d.kv_heads, d.head_dim}),
                     kernels::norm_workspace(d.width), kernels::bias_workspace(widest)});
}

template <class T>
LayerActivations<T> plan_layer(Arena& arena, const config::ModelConfig& config, const Dimensions& d,
                               Index n) {
    const Index means = config.family == config::Family::gpt ? n : 0;
    LayerActivations<T> a;
    a.norm1 = arena.take<T>(n, d.width);
    a.mean1 = arena.take<float>(means);
    a.rstd1 = arena.take<float>(n);
    a.qkv = arena.take<T>(n, d.qkv());
    a.lse = arena.take<float>(n * d.heads);
    a.attended = arena.take<T>(n, d.width);
    a.mid = arena.take<T>(n, d.width);
    a.norm2 = arena.take<T>(n, d.width);
    a.mean2 = arena.take<float>(means);
    a.rstd2 = arena.take<float>(n);
    a.hidden = arena.take<T>(n, hidden_columns(config, d));
    a.activated = arena.take<T>(n, d.ffn);
    return a;
}

template <class T>
BackwardBuffers<T> plan_backward(Arena& arena, const config::ModelConfig& config,
                                 const Dimensions& d, Index n) {
    const bool gpt = config.family == config::Family::gpt;
    const Index hidden = hidden_columns(config, d);
    BackwardBuffers<T> grad;
    grad.d_x = arena.take<T>(n, d.width);
    grad.d_branch = arena.take<T>(n, d.width);
    const Span<T> wide = arena.take<T>(n * std::max(hidden, d.qkv()));
    grad.d_hidden = as_matrix(wide, n, hidden);
    grad.d_qkv = as_matrix(wide, n, d.qkv());
    grad.d_activated = gpt ? grad.d_hidden : arena.take<T>(n, d.ffn);
    return grad;
}

}  // namespace

Index logits_rows(const config::ModelConfig& config, Index rows, Index bytes_per_logit) {
    const double row_bytes = static_cast<double>(config.padded_vocab() * bytes_per_logit);
    const double fitting = config.logits_chunk_mb * 1e6 / row_bytes;
    if (fitting >= static_cast<double>(rows)) return rows;
    const Index most = std::max<Index>(1, static_cast<Index>(fitting));
    return most < 16 ? most : most / 16 * 16;
}

template <class T>
Activations<T> plan_activations(Arena& arena, const config::ModelConfig& config, Index batch,
                                Index seq, bool backward) {
    const Dimensions d = dimensions(config);
    const Index n = batch * seq;
    const bool one_set = !backward || config.recompute == config::Recompute::layer;
    Activations<T> all;
    all.batch = batch;
    all.seq = seq;
    // First, and of a size that no micro-batch changes: its place must not move.
    if (config.family == config::Family::llama)
        all.rope_table = arena.take<float>(d.max_seq, d.head_dim);
    for (Index i = 0; i < (backward ? d.layers + 1 : 2); ++i)
        all.streams.push_back(arena.take<T>(n, d.width));
    for (Index l = 0; l < (one_set ? 1 : d.layers); ++l)
        all.layers.push_back(plan_layer<T>(arena, config, d, n));
    all.y = arena.take<T>(n, d.width);
    all.mean = arena.take<float>(config.family == config::Family::gpt ? n : 0);
    all.rstd = arena.take<float>(n);
    const Index rows = logits_rows(config, n, sizeof(T));
    all.logits = arena.take<T>(rows, d.padded_vocab);
    all.row_loss = arena.take<float>(rows);
    if (backward) all.grad = plan_backward<T>(arena, config, d, n);
    all.workspace = arena.take<float>(workspace_elements(config, d, batch, seq));
    return all;
}

template Activations<float> plan_activations(Arena&, const config::ModelConfig&, Index, Index,
                                             bool);

}  // namespace scape::model
