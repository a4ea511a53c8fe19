// Attention for devices. A team owns a tile of the result, so that nothing is added atomically and
// every sum has one order; tiles of the other operands pass through its scratch memory.
//
//     forward    team (batch, head, query tile):      O, lse      over key tiles <= diagonal
//     delta      thread (batch, head, row):           row sum of dO * O
//     queries    team (batch, head, query tile):      dQ          over key tiles <= diagonal
//     keys       team (batch, kv head, key tile):     dK, dV      over its query heads and their
//                                                                 query tiles >= diagonal
//
// (FlashAttention-2, arXiv 2307.08691.)
#include "attention_team.hpp"

#include <scape/kernels/attention_detail.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/math.hpp>

#include <algorithm>
#include <cmath>

namespace scape::kernels::detail {

namespace {

template <class T>
struct ForwardTile {
    HeadMap map;
    int rows;
    Index tiles;
    Index bytes;
    float scale;
    Span<const T> qkv;
    Span<T> out;
    Span<float> lse;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const AttentionShape& s = map.shape;
        const Place at(team, s.heads, tiles, rows, true);
        const Index kv = at.head / map.group();
        TeamTiles work(team, rows, s.head_dim, bytes);
        float* q = work.operand();
        float* k = work.operand();
        float* v = work.operand();
        float* o = work.operand();
        float* p = work.take(rows * row_width(rows));
        float* m = work.take(rows);
        float* l = work.take(rows);
        float* keep = work.take(rows);

        work.load(q, &qkv[map.query(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
        work.clear(o);
        work.each(rows, [&](int i) {
            m[i] = -INFINITY;
            l[i] = 0.f;
        });
        for (Index k0 = 0; k0 <= at.first; k0 += rows) {
            work.load(k, &qkv[map.key(at.b, kv, 0)], map.qkv_stride(), k0, s.seq);
            work.load(v, &qkv[map.value(at.b, kv, 0)], map.qkv_stride(), k0, s.seq);
            work.scores(p, q, k, scale, at.first, k0, s.seq);
            online_softmax(work, p, m, l, keep, o);
            work.accumulate(o, p, false, v, 1.f);
        }
        const int width = work.width;
        const int D = work.D;
        work.each(rows * D, [&](int i) { o[i / D * width + i % D] /= l[i / D]; });
        work.store(o, &out[map.out(at.b, at.head, 0)], map.out_stride(), at.first, s.seq);
        float* row_lse = &lse[map.row(at.b, at.head, 0)];
        work.each(rows, [&](int i) {
            if (at.first + i < s.seq) row_lse[at.first + i] = m[i] + logf(l[i]);
        });
    }

    /// p = exp(s - m), with m the largest score so far; o and l shrink when m grows.
    KOKKOS_INLINE_FUNCTION void online_softmax(const TeamTiles& work, float* p, float* m, float* l,
                                               float* keep, float* o) const {
        const int n = rows;
        const int pitch = row_width(n);
        work.each(n, [&](int i) {
            float most = m[i];
            for (int j = 0; j < n; ++j) {
                const float x = p[i * pitch + j];
                most = x > most ? x : most;
            }
            // Rows beyond the sequence have seen nothing: any finite number serves them.
            most = most == -INFINITY ? 0.f : most;
            keep[i] = exp_fast(m[i] - most);
            m[i] = most;
        });
        work.each(n * n, [&](int index) {
            float& x = p[index / n * pitch + index % n];
            x = exp_fast(x - m[index / n]);
        });
        const int width = work.width;
        const int D = work.D;
        work.each(n * D, [&](int index) { o[index / D * width + index % D] *= keep[index / D]; });
        work.each(n, [&](int i) {
            float sum = 0.f;
            for (int j = 0; j < n; ++j) sum += p[i * pitch + j];
            l[i] = l[i] * keep[i] + sum;
        });
    }
};

template <class T>
struct Delta {
    HeadMap map;
    Span<const T> out;
    Span<const T> d_out;
    Span<float> delta;

    KOKKOS_INLINE_FUNCTION void operator()(Index row) const {
        const AttentionShape& s = map.shape;
        const Index t = row % s.seq;
        const Index pair = row / s.seq;
        const Index first = map.out(pair / s.heads, pair % s.heads, t);
        float sum = 0.f;
        for (Index d = 0; d < s.head_dim; ++d) {
            sum += static_cast<float>(out[first + d]) * static_cast<float>(d_out[first + d]);
        }
        delta[row] = sum;
    }
};

template <class T>
struct QueryGradientTile {
    HeadMap map;
    int rows;
    Index tiles;
    Index bytes;
    float scale;
    Span<const T> qkv;
    Span<const float> lse;
    Span<const T> d_out;
    Span<const float> delta;
    Span<T> d_qkv;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const AttentionShape& s = map.shape;
        const Place at(team, s.heads, tiles, rows, true);
        const Index kv = at.head / map.group();
        const float* row_lse = &lse[map.row(at.b, at.head, 0)];
        const float* row_delta = &delta[map.row(at.b, at.head, 0)];
        TeamTiles work(team, rows, s.head_dim, bytes);
        float* q = work.operand();
        float* d_o = work.operand();
        float* k = work.operand();
        float* v = work.operand();
        float* dq = work.operand();
        float* p = work.take(rows * row_width(rows));

        work.load(q, &qkv[map.query(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
        work.load(d_o, &d_out[map.out(at.b, at.head, 0)], map.out_stride(), at.first, s.seq);
        work.clear(dq);
        for (Index k0 = 0; k0 <= at.first; k0 += rows) {
            work.load(k, &qkv[map.key(at.b, kv, 0)], map.qkv_stride(), k0, s.seq);
            work.load(v, &qkv[map.value(at.b, kv, 0)], map.qkv_stride(), k0, s.seq);
            work.scores(p, q, k, scale, at.first, k0, s.seq);
            work.probabilities(p, row_lse, at.first, s.seq);
            work.score_gradient(p, d_o, v, row_delta, at.first, s.seq);
            work.accumulate(dq, p, false, k, scale);
        }
        work.store(dq, &d_qkv[map.query(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
    }
};

template <class T>
struct KeyGradientTile {
    HeadMap map;
    int rows;
    Index tiles;
    Index bytes;
    float scale;
    Span<const T> qkv;
    Span<const float> lse;
    Span<const T> d_out;
    Span<const float> delta;
    Span<T> d_qkv;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const AttentionShape& s = map.shape;
        const Place at(team, s.kv_heads, tiles, rows, false);
        TeamTiles work(team, rows, s.head_dim, bytes);
        float* k = work.operand();
        float* v = work.operand();
        float* dk = work.operand();
        float* dv = work.operand();
        float* x = work.operand();  // Q and dO in turn
        float* p = work.take(rows * row_width(rows));

        work.load(k, &qkv[map.key(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
        work.load(v, &qkv[map.value(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
        work.clear(dk);
        work.clear(dv);
        for (Index head = at.head * map.group(); head < (at.head + 1) * map.group(); ++head) {
            const T* q_head = &qkv[map.query(at.b, head, 0)];
            const T* d_o_head = &d_out[map.out(at.b, head, 0)];
            const float* row_lse = &lse[map.row(at.b, head, 0)];
            const float* row_delta = &delta[map.row(at.b, head, 0)];
            for (Index q0 = at.first; q0 < s.seq; q0 += rows) {
                work.load(x, q_head, map.qkv_stride(), q0, s.seq);
                work.scores(p, x, k, scale, q0, at.first, s.seq);
                work.probabilities(p, row_lse, q0, s.seq);
                work.load(x, d_o_head, map.out_stride(), q0, s.seq);
                work.accumulate(dv, p, true, x, 1.f);
                work.score_gradient(p, x, v, row_delta, q0, s.seq);
                work.load(x, q_head, map.qkv_stride(), q0, s.seq);
                work.accumulate(dk, p, true, x, scale);
            }
        }
        work.store(dk, &d_qkv[map.key(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
        work.store(dv, &d_qkv[map.value(at.b, at.head, 0)], map.qkv_stride(), at.first, s.seq);
    }
};

}  // namespace

template <class T>
void attention_forward_device(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                              Span<T> out, Span<float> lse, Span<float> workspace) {
    check_attention(shape, qkv.extent(0), out.extent(0), lse.extent(0), workspace.extent(0),
                    attention_workspace_device(shape));
    if (shape.batch * shape.seq == 0) return;
    const Launch launch(shape);
    Kokkos::parallel_for(
        "scape::kernels::attention_forward", launch.policy(exec, shape.batch * shape.heads),
        ForwardTile<T>{
            {shape}, launch.rows, launch.tiles, launch.bytes, launch.scale, qkv, out, lse});
}

template <class T>
void attention_backward_device(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                               Span<const T> out, Span<const float> lse, Span<const T> d_out,
                               Span<T> d_qkv, Span<float> workspace) {
    check_attention(shape, std::min(qkv.extent(0), d_qkv.extent(0)),
                    std::min(out.extent(0), d_out.extent(0)), lse.extent(0), workspace.extent(0),
                    attention_workspace_device(shape));
    if (shape.batch * shape.seq == 0) return;
    const Launch launch(shape);
    const Span<float> delta = slice(workspace, 0, attention_workspace_device(shape));
    Kokkos::parallel_for("scape::kernels::attention_delta",
                         range(exec, shape.batch * shape.heads * shape.seq),
                         Delta<T>{{shape}, out, d_out, delta});
    Kokkos::parallel_for("scape::kernels::attention_backward_queries",
                         launch.policy(exec, shape.batch * shape.heads),
                         QueryGradientTile<T>{{shape},
                                              launch.rows,
                                              launch.tiles,
                                              launch.bytes,
                                              launch.scale,
                                              qkv,
                                              lse,
                                              d_out,
                                              delta,
                                              d_qkv});
    Kokkos::parallel_for("scape::kernels::attention_backward_keys",
                         launch.policy(exec, shape.batch * shape.kv_heads),
                         KeyGradientTile<T>{{shape},
                                            launch.rows,
                                            launch.tiles,
                                            launch.bytes,
                                            launch.scale,
                                            qkv,
                                            lse,
                                            d_out,
                                            delta,
                                            d_qkv});
}

Index attention_workspace_device(const AttentionShape& shape) {
    return shape.batch * shape.heads * shape.seq;
}

template void attention_forward_device<float>(const Exec&, const AttentionShape&, Span<const float>,
                                              Span<float>, Span<float>, Span<float>);
template void attention_backward_device<float>(const Exec&, const AttentionShape&,
                                               Span<const float>, Span<const float>,
                                               Span<const float>, Span<const float>, Span<float>,
                                               Span<float>);

}  // namespace scape::kernels::detail
