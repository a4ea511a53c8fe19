#pragma once
/// @file
/// What a team of threads does with tiles in its scratch memory: fill them, multiply them, write
/// them back. A product of tiles is cut into blocks of 4 x 4 results, which a thread keeps in
/// registers.

#include <scape/kernels/attention.hpp>
#include <scape/kernels/math.hpp>

#include <cmath>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

using Policy = Kokkos::TeamPolicy<Exec>;
using Member = Policy::member_type;

inline constexpr int block = 4;  // results of a thread: block x block
inline constexpr int team_threads = exec_is_host ? 1 : 128;
// Bytes a team gets on every device without asking: 48 KiB, of which Kokkos takes some.
inline constexpr Index scratch_limit = 47 * 1024;
inline constexpr Index scratch_slack = 64;  // bytes, for alignment
inline constexpr int operands = 5;          // tiles (rows, D) that the hungriest kernel holds

/// Rows of D elements in scratch; an odd width keeps columns off each other's memory banks.
KOKKOS_INLINE_FUNCTION int row_width(Index D) {
    return static_cast<int>(D) | 1;
}

/// Bytes of `operands` tiles (rows, D), one (rows, rows), and three numbers per row.
inline Index scratch_bytes(Index rows, Index D) {
    return 4 * rows * (operands * row_width(D) + row_width(rows) + 3) + scratch_slack;
}

/// Rows of a tile: the most that fit.
inline int tile_rows(const AttentionShape& shape) {
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
          next(static_cast<float*>(member.team_scratch(0).get_shmem_aligned(
              static_cast<std::ptrdiff_t>(bytes - scratch_slack), 16))),
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

}  // namespace scape::kernels::detail
