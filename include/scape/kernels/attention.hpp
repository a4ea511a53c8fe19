#pragma once
/// @file
/// Causal attention, tile by tile with an online softmax (FlashAttention, arXiv 2205.14135): no
/// B x H x T x T array, and no work above the diagonal.
///
///     qkv (B, T, (H + 2 Hkv) D): per token the H query heads, then the Hkv key heads, then values
///     out (B, T, H D);  lse (B, H, T): log of the sum of exponentials of each row, for backward
///     query head h uses key/value head h / (H / Hkv)

#include <scape/base/types.hpp>

namespace scape::kernels {

struct AttentionShape {
    Index batch;     // B
    Index seq;       // T
    Index heads;     // H
    Index kv_heads;  // Hkv; divides H
    Index head_dim;  // D
};

/// out = softmax(q k^T / sqrt(D), causal) v. T: element type of the activations.
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                       Span<T> out, Span<float> lse, Span<float> workspace);

/// d_qkv = gradient (overwritten, all of it) from d_out; recomputes the probabilities from lse.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                        Span<const T> out, Span<const float> lse, Span<const T> d_out,
                        Span<T> d_qkv, Span<float> workspace);

/// Elements of the workspace that both calls need (tiles of the host path; row sums). It does not
/// grow with T*T.
Index attention_workspace(const AttentionShape& shape);

}  // namespace scape::kernels
