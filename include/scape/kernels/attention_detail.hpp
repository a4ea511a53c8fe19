#pragma once
/// @file
/// The two implementations behind attention.hpp, for tests that hold one against the other. Both
/// have the contract of the public functions.
///
///     host     tasks over (batch, head); products of tiles are calls of gemm. Throws
///              std::logic_error in a device build.
///     device   teams over tiles; products of tiles are the team's own, out of its scratch memory.
///              In every build: on a host a team is one thread.

#include <scape/kernels/attention.hpp>

namespace scape::kernels::detail {

template <class T>
void attention_forward_host(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                            Span<T> out, Span<float> lse, Span<float> workspace);
template <class T>
void attention_backward_host(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                             Span<const T> out, Span<const float> lse, Span<const T> d_out,
                             Span<T> d_qkv, Span<float> workspace);
/// One set of tiles for each thread.
Index attention_workspace_host(const AttentionShape& shape);

template <class T>
void attention_forward_device(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                              Span<T> out, Span<float> lse, Span<float> workspace);
template <class T>
void attention_backward_device(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                               Span<const T> out, Span<const float> lse, Span<const T> d_out,
                               Span<T> d_qkv, Span<float> workspace);
/// delta (B, H, T), the row sums of d_out * out.
Index attention_workspace_device(const AttentionShape& shape);

/// Throws std::logic_error when a buffer is smaller than `shape` asks for.
void check_attention(const AttentionShape& shape, std::size_t qkv, std::size_t out, std::size_t lse,
                     std::size_t workspace, Index workspace_needed);

/// Where the heads of a token lie: in a row of qkv, (H + 2 Hkv) D wide, and of out, H D wide.
struct HeadMap {
    AttentionShape shape;
    KOKKOS_INLINE_FUNCTION Index qkv_stride() const {
        return (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    }
    KOKKOS_INLINE_FUNCTION Index out_stride() const { return shape.heads * shape.head_dim; }
    KOKKOS_INLINE_FUNCTION Index group() const { return shape.heads / shape.kv_heads; }
    KOKKOS_INLINE_FUNCTION Index query(Index b, Index head, Index t) const {
        return (b * shape.seq + t) * qkv_stride() + head * shape.head_dim;
    }
    KOKKOS_INLINE_FUNCTION Index key(Index b, Index kv_head, Index t) const {
        return query(b, shape.heads + kv_head, t);
    }
    KOKKOS_INLINE_FUNCTION Index value(Index b, Index kv_head, Index t) const {
        return query(b, shape.heads + shape.kv_heads + kv_head, t);
    }
    KOKKOS_INLINE_FUNCTION Index out(Index b, Index head, Index t) const {
        return (b * shape.seq + t) * out_stride() + head * shape.head_dim;
    }
    KOKKOS_INLINE_FUNCTION Index row(Index b, Index head, Index t) const {
        return (b * shape.heads + head) * shape.seq + t;
    }
};

}  // namespace scape::kernels::detail
