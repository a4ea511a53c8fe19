// Attention for devices. A team owns a tile of the result, so that nothing is added atomically and
// every sum has one order; tiles of the other operands pass through its scratch memory.
//
//     forward    team (batch, head, query tile):      O, lse      over key tiles <= diagonal
//     delta      thread (batch, head, row):           row sum of dO * O
//     queries    team (batch, head, query tile):      dQ          over key tiles <= diagonal
//     keys       team (batch, kv head, key tile):     dK, dV      over its query heads and their
//                                                                 query tiles >= diagonal
//
// (FlashAttention-2, arXiv 2307.08691.) Within a team a product of tiles is cut into blocks of
// 4 x 4 results, which a thread keeps in registers.
#include <scape/kernels/attention_detail.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/math.hpp>

#include <cmath>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

namespace {

using Policy = Kokkos::TeamPolicy<Exec>;
using Member = Policy::member_type;

constexpr int block = 4;  // results of a thread: block x block
constexpr int team_threads = exec_is_host ? 1 : 128;
constexpr Index scratch_limit = 48 * 1024;  // bytes a team gets on every device without asking
constexpr int operands = 5;                 // tiles (rows, D) that the hungriest kernel holds

/// Rows of D elements in scratch; an odd width keeps columns off each other's memory banks.
KOKKOS_INLINE_FUNCTION int row_width(Index D) {
    return static_cast<int>(D) | 1;
}

/// Bytes of `operands` tiles (rows, D), one (rows, rows), and three numbers per row.
Index scratch_bytes(Index rows, Index D) {
    return 4 * rows * (operands * row_width(D) + row_width(rows) + 3) + 64;
}

/// Rows of a tile: the most that fit.
int tile_rows(const AttentionShape& shape) {
    for (int rows = 32; rows >= block; rows /= 2) {
        if (scratch_bytes(rows, shape.head_dim) <= scratch_limit) return rows;
    }
    throw std::logic_error("attention: tiles of head size " + std::to_string(shape.head_dim) +
                           " do not fit into the scratch memory of a team");
}

/// Bump allocator over a team's scratch memory, and the team's ways to fill and multiply tiles.
struct TeamTiles {
    const Member& team;
    float* next;
    int rows;   // of every tile
    int width;  // of a row of an operand tile
    int D;

    KOKKOS_INLINE_FUNCTION TeamTiles(const Member& member, int tile, Index head_dim, Index bytes)
        : team(member),
          next(static_cast<float*>(
              member.team_scratch(0).get_shmem_aligned(static_cast<std::ptrdiff_t>(bytes), 16))),
          rows(tile),
          width(row_width(head_dim)),
          D(static_cast<int>(head_dim)) {}

    KOKKOS_INLINE_FUNCTION float* take(int count) {
        float* mine = next;
        next += count;
        return mine;
    }
    KOKKOS_INLINE_FUNCTION float* operand() { return take(rows * width); }

    template <class F>
    KOKKOS_INLINE_FUNCTION void each(int n, const F& f) const {
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), f);
        team.team_barrier();
    }

    /// tile (rows, D) = rows [first, first + rows) of a head; those from `end` on are 0.
    template <class T>
    KOKKOS_INLINE_FUNCTION void load(float* tile, const T* head, Index stride, Index first,
                                     Index end) const {
        each(rows * D, [&](int i) {
            const int r = i / D;
            const int d = i % D;
            tile[r * width + d] =
                first + r < end ? static_cast<float>(head[(first + r) * stride + d]) : 0.f;
        });
    }
    template <class T>
    KOKKOS_INLINE_FUNCTION void store(const float* tile, T* head, Index stride, Index first,
                                      Index end) const {
        each(rows * D, [&](int i) {
            const int r = i / D;
            const int d = i % D;
            if (first + r < end)
                head[(first + r) * stride + d] = static_cast<T>(tile[r * width + d]);
        });
    }
    KOKKOS_INLINE_FUNCTION void clear(float* tile) const {
        each(rows * width, [&](int i) { tile[i] = 0.f; });
    }

    /// put(i, j, sum over k < inner of a(i, k) b(k, j)) for i < rows, j < cols. A thread's columns
    /// lie cols/4 apart, so that neighbours read neighbouring banks.
    template <class A, class B, class Put>
    KOKKOS_INLINE_FUNCTION void multiply(int cols, int inner, const A& a, const B& b,
                                         const Put& put) const {
        const int col_blocks = (cols + block - 1) / block;
        each(rows / block * col_blocks, [&](int index) {
            const int i0 = index / col_blocks * block;
            const int j0 = index % col_blocks;
            int js[block];
            for (int j = 0; j < block; ++j) {
                js[j] = j0 + j * col_blocks < cols ? j0 + j * col_blocks : cols - 1;
            }
            float sum[block][block] = {};
            for (int k = 0; k < inner; ++k) {
                float x[block];
                float y[block];
                for (int i = 0; i < block; ++i) x[i] = a(i0 + i, k);
                for (int j = 0; j < block; ++j) y[j] = b(k, js[j]);
                for (int i = 0; i < block; ++i) {
                    for (int j = 0; j < block; ++j) sum[i][j] += x[i] * y[j];
                }
            }
            for (int i = 0; i < block; ++i) {
                for (int j = 0; j < block; ++j) {
                    if (j0 + j * col_blocks < cols) put(i0 + i, js[j], sum[i][j]);
                }
            }
        });
    }

    /// s (rows, rows) = scale q k^T, -infinity above the diagonal and beyond the sequence.
    KOKKOS_INLINE_FUNCTION void scores(float* s, const float* q, const float* k, float scale,
                                       Index q0, Index k0, Index seq) const {
        const int pitch = row_width(rows);
        const int w = width;
        multiply(
            rows, D, [&](int i, int d) { return q[i * w + d]; },
            [&](int d, int j) { return k[j * w + d]; },
            [&](int i, int j, float sum) {
                const bool seen = k0 + j <= q0 + i && q0 + i < seq;
                s[i * pitch + j] = seen ? scale * sum : -INFINITY;
            });
    }

    /// s = p = exp(s - lse), with lse of the rows [q0, q0 + rows)
    KOKKOS_INLINE_FUNCTION void probabilities(float* s, const float* lse, Index q0,
                                              Index seq) const {
        const int pitch = row_width(rows);
        const int n = rows;
        each(n * n, [&](int index) {
            const int i = index / n;
            float& x = s[i * pitch + index % n];
            x = q0 + i < seq ? exp_fast(x - lse[q0 + i]) : 0.f;
        });
    }

    /// p = dS = p (d_o v^T - delta)
    KOKKOS_INLINE_FUNCTION void score_gradient(float* p, const float* d_o, const float* v,
                                               const float* delta, Index q0, Index seq) const {
        const int pitch = row_width(rows);
        const int w = width;
        multiply(
            rows, D, [&](int i, int d) { return d_o[i * w + d]; },
            [&](int d, int j) { return v[j * w + d]; },
            [&](int i, int j, float sum) {
                float& x = p[i * pitch + j];
                x = q0 + i < seq ? x * (sum - delta[q0 + i]) : 0.f;
            });
    }

    /// acc (rows, D) += factor p x, or factor p^T x; p (rows, rows), x (rows, D)
    KOKKOS_INLINE_FUNCTION void accumulate(float* acc, const float* p, bool transpose,
                                           const float* x, float factor) const {
        const int by_row = transpose ? 1 : row_width(rows);
        const int by_col = transpose ? row_width(rows) : 1;
        const int w = width;
        multiply(
            D, rows, [&](int i, int j) { return p[i * by_row + j * by_col]; },
            [&](int j, int d) { return x[j * w + d]; },
            [&](int i, int d, float sum) { acc[i * w + d] += factor * sum; });
    }
};

/// A team's place: league = ((batch, head), tile), the longest tiles first.
struct Place {
    Index b;
    Index head;
    Index first;
    KOKKOS_INLINE_FUNCTION Place(const Member& team, Index heads, Index tiles, int rows,
                                 bool last_tile_first) {
        const Index rank = team.league_rank();
        const Index tile = rank / (rank_count(team) / tiles);
        const Index pair = rank % (rank_count(team) / tiles);
        b = pair / heads;
        head = pair % heads;
        first = (last_tile_first ? tiles - 1 - tile : tile) * rows;
    }
    KOKKOS_INLINE_FUNCTION static Index rank_count(const Member& team) {
        return team.league_size();
    }
};

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

/// What every launch over tiles shares.
struct Launch {
    int rows;
    Index tiles;
    Index bytes;
    float scale;

    explicit Launch(const AttentionShape& shape)
        : rows(tile_rows(shape)),
          tiles((shape.seq + rows - 1) / rows),
          bytes(scratch_bytes(rows, shape.head_dim)),
          scale(1.f / std::sqrt(static_cast<float>(shape.head_dim))) {}

    Policy policy(const Exec& exec, Index batch_heads) const {
        Policy policy(exec, static_cast<int>(batch_heads * tiles), team_threads);
        policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(bytes)));
        return policy;
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
