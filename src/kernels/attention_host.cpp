// Attention for hosts. A task is a (batch, head) in forward and a (batch, key/value head) in
// backward, where one task adds up what all query heads of its group give to dK and dV: no two
// tasks write the same element, so results do not depend on the number of threads.
//
// A query tile (rows) meets the keys [0, its last row] in tiles; only the last of these reaches
// over the diagonal, and only by the query tile's own width. Within a task:
//
//     forward    S = Q K^T / sqrt(D)   (rows, cols)  gemm
//                m, l, P = exp(S - m)                online softmax, rows of S in place
//                O = O + P V           (rows, D)     gemm, into out; at the end O / l
//     backward   S = Q K^T / sqrt(D),  dP = dO V^T   gemm
//                P = exp(S - lse),  dS = P (dP - delta),  delta = row sum of dO * O
//                dV += P^T dO,  dK += dS^T Q / sqrt(D),  dQ += dS K / sqrt(D)      gemm
//
// (FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2, the loops in the order that suits a
// cache.)
#include <scape/kernels/attention_detail.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/math.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

namespace {

// Measured with head size 64 at T = 256 and 1024: shorter query tiles mask less, taller and wider
// ones make faster products; two tiles of scores stay well inside a core's second-level cache.
constexpr Index query_tile = 64;
constexpr Index key_tile = 512;

struct TileSizes {
    Index queries;  // rows of a score tile
    Index keys;     // its columns
    Index stride;   // not a multiple of a page: rows would fall on the same cache sets
    Index scores() const { return queries * stride; }
};

TileSizes tile_sizes(const AttentionShape& shape) {
    const Index padded = round_up(shape.seq, 16);
    const Index keys = std::min(key_tile, padded);
    return {std::min(query_tile, padded), keys, keys + 16};
}

/// Elements of one task: two score tiles and three numbers per row.
Index slot_size(const AttentionShape& shape) {
    const TileSizes tiles = tile_sizes(shape);
    return round_up(2 * tiles.scores() + 3 * tiles.queries, 16);
}

/// Threads that can work at a time, each in a slot of the workspace: Kokkos' own or, where Kokkos
/// is serial, those that OpenMP keeps for the BLAS.
Index threads(const Exec& exec) {
    return std::max<Index>(exec.concurrency(), gemm_threads());
}

/// As many slots as the workspace holds: the threads may have been fewer when it was sized.
Index slots(const Exec& exec, const AttentionShape& shape, const Span<float>& workspace) {
    return std::min(threads(exec), static_cast<Index>(workspace.extent(0)) / slot_size(shape));
}

template <class F>
struct SlotsOnOpenMP {
    F f;
    Index slots;
    void operator()(Index) const {
#pragma omp parallel for num_threads(static_cast <int>(slots)) schedule(static, 1)
        for (Index slot = 0; slot < slots; ++slot) f(slot);
    }
};

template <class F>
void for_each_slot(const Exec& exec, const std::string& label, const F& f) {
    if constexpr (exec_is_host) {
        const ScopedGemmThreads one(1);
        if (exec.concurrency() > 1) {
            Kokkos::parallel_for(label, range(exec, f.slots), f);
        } else {
            Kokkos::parallel_for(label, range(exec, 1), SlotsOnOpenMP<F>{f, f.slots});
        }
    } else {
        throw std::logic_error(label + ": the host's implementation in a device build");
    }
}

/// Row of scores s (cols), of which the first `valid` lie on or below the diagonal: becomes
/// exp(s - m_new), 0 above the diagonal. Returns the factor for what was summed before.
float softmax_row(float* s, Index valid, Index cols, float& m, float& l) {
    const HostRow row;
    const float m_new = std::max(m, row.max(valid, [=](Index j) { return s[j]; }));
    const float keep = exp_fast(m - m_new);
    const float sum = row.sum(valid, [=](Index j) { return s[j] = exp_fast(s[j] - m_new); });
    std::fill(s + valid, s + cols, 0.f);
    l = l * keep + sum;
    m = m_new;
    return keep;
}

template <class T>
struct Forward {
    Exec exec;
    HeadMap map;
    Span<const T> qkv;
    Span<T> out;
    Span<float> lse;
    Span<float> workspace;
    Index slots;

    void operator()(Index slot) const {
        const AttentionShape& s = map.shape;
        for (Index task = slot; task < s.batch * s.heads; task += slots) {
            for (Index q0 = 0; q0 < s.seq; q0 += tile_sizes(s).queries) {
                tile(slot, task / s.heads, task % s.heads, q0);
            }
        }
    }

    void tile(Index slot, Index b, Index head, Index q0) const {
        const AttentionShape& shape = map.shape;
        const Index D = shape.head_dim;
        const TileSizes tiles = tile_sizes(shape);
        const Index rows = std::min(tiles.queries, shape.seq - q0);
        const float scale = 1.f / std::sqrt(static_cast<float>(D));
        float* scores = workspace.data() + slot * slot_size(shape);
        float* m = scores + tiles.scores();
        float* l = m + tiles.queries;
        std::fill(m, m + rows, -std::numeric_limits<float>::infinity());
        std::fill(l, l + rows, 0.f);
        const Block<const T> q(&qkv[map.query(b, head, q0)], rows, D, map.qkv_stride());
        const Block<T> o(&out[map.out(b, head, q0)], rows, D, map.out_stride());
        const Index kv = head / map.group();

        for (Index k0 = 0; k0 < q0 + rows; k0 += tiles.keys) {
            const Index cols = std::min(tiles.keys, q0 + rows - k0);
            const Block<const T> k(&qkv[map.key(b, kv, k0)], cols, D, map.qkv_stride());
            const Block<const T> v(&qkv[map.value(b, kv, k0)], cols, D, map.qkv_stride());
            const Block<float> p(scores, rows, cols, tiles.stride);
            gemm<T>(exec, Op::none, Op::transpose, scale, q, k, 0.f, p);
            for (Index r = 0; r < rows; ++r) {
                const Index valid = std::clamp<Index>(q0 + r + 1 - k0, 0, cols);
                const float keep = softmax_row(scores + r * tiles.stride, valid, cols, m[r], l[r]);
                if (k0 > 0) scale_row(o.data + r * o.stride, keep);
            }
            gemm<T>(exec, Op::none, Op::none, 1.f, p, v, k0 > 0 ? 1.f : 0.f, o);
        }
        for (Index r = 0; r < rows; ++r) {
            scale_row(o.data + r * o.stride, 1.f / l[r]);
            lse[map.row(b, head, q0 + r)] = m[r] + std::log(l[r]);
        }
    }

    void scale_row(T* o, float factor) const {
        HostRow{}.each(map.shape.head_dim, [=](Index d) { o[d] *= factor; });
    }
};

template <class T>
struct Backward {
    Exec exec;
    HeadMap map;
    Span<const T> qkv;
    Span<const T> out;
    Span<const float> lse;
    Span<const T> d_out;
    Span<T> d_qkv;
    Span<float> workspace;
    Index slots;

    void operator()(Index slot) const {
        const AttentionShape& s = map.shape;
        for (Index task = slot; task < s.batch * s.kv_heads; task += slots) {
            const Index b = task / s.kv_heads;
            const Index kv = task % s.kv_heads;
            for (Index head = kv * map.group(); head < (kv + 1) * map.group(); ++head) {
                for (Index q0 = 0; q0 < s.seq; q0 += tile_sizes(s).queries) {
                    // Keys beyond this tile's last row have had no contribution yet.
                    if (head == kv * map.group()) clear_keys(b, kv, q0);
                    tile(slot, b, head, kv, q0);
                }
            }
        }
    }

    void clear_keys(Index b, Index kv, Index q0) const {
        const Index end = std::min(q0 + tile_sizes(map.shape).queries, map.shape.seq);
        for (Index t = q0; t < end; ++t) {
            T* dk = &d_qkv[map.key(b, kv, t)];
            T* dv = &d_qkv[map.value(b, kv, t)];
            std::fill(dk, dk + map.shape.head_dim, T(0));
            std::fill(dv, dv + map.shape.head_dim, T(0));
        }
    }

    void tile(Index slot, Index b, Index head, Index kv, Index q0) const {
        const AttentionShape& shape = map.shape;
        const Index D = shape.head_dim;
        const Index stride = map.qkv_stride();
        const TileSizes tiles = tile_sizes(shape);
        const Index rows = std::min(tiles.queries, shape.seq - q0);
        const float scale = 1.f / std::sqrt(static_cast<float>(D));
        float* scores = workspace.data() + slot * slot_size(shape);
        float* d_scores = scores + tiles.scores();
        const Block<const T> q(&qkv[map.query(b, head, q0)], rows, D, stride);
        const Block<T> dq(&d_qkv[map.query(b, head, q0)], rows, D, stride);
        const Block<const T> d_o(&d_out[map.out(b, head, q0)], rows, D, map.out_stride());
        float* delta = d_scores + tiles.scores();
        for (Index r = 0; r < rows; ++r) delta[r] = row_delta(map.out(b, head, q0 + r));

        for (Index k0 = 0; k0 < q0 + rows; k0 += tiles.keys) {
            const Index cols = std::min(tiles.keys, q0 + rows - k0);
            const Block<const T> k(&qkv[map.key(b, kv, k0)], cols, D, stride);
            const Block<const T> v(&qkv[map.value(b, kv, k0)], cols, D, stride);
            const Block<T> dk(&d_qkv[map.key(b, kv, k0)], cols, D, stride);
            const Block<T> dv(&d_qkv[map.value(b, kv, k0)], cols, D, stride);
            const Block<float> p(scores, rows, cols, tiles.stride);
            const Block<float> ds(d_scores, rows, cols, tiles.stride);
            gemm<T>(exec, Op::none, Op::transpose, scale, q, k, 0.f, p);
            gemm<T>(exec, Op::none, Op::transpose, 1.f, d_o, v, 0.f, ds);
            for (Index r = 0; r < rows; ++r) {
                const Index valid = std::clamp<Index>(q0 + r + 1 - k0, 0, cols);
                gradient_row(p.data + r * p.stride, ds.data + r * ds.stride, valid, cols,
                             lse[map.row(b, head, q0 + r)], delta[r]);
            }
            gemm<T>(exec, Op::transpose, Op::none, 1.f, p, d_o, 1.f, dv);
            gemm<T>(exec, Op::transpose, Op::none, scale, ds, q, 1.f, dk);
            gemm<T>(exec, Op::none, Op::none, scale, ds, k, k0 > 0 ? 1.f : 0.f, dq);
        }
    }

    float row_delta(Index first) const {
        const T* o = &out[first];
        const T* d_o = &d_out[first];
        return HostRow{}.sum(map.shape.head_dim, [=](Index d) { return o[d] * d_o[d]; });
    }

    static void gradient_row(float* p, float* ds, Index valid, Index cols, float row_lse,
                             float row_delta) {
        HostRow{}.each(valid, [=](Index j) {
            p[j] = exp_fast(p[j] - row_lse);
            ds[j] = p[j] * (ds[j] - row_delta);
        });
        std::fill(p + valid, p + cols, 0.f);
        std::fill(ds + valid, ds + cols, 0.f);
    }
};

}  // namespace

template <class T>
void attention_forward_host(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                            Span<T> out, Span<float> lse, Span<float> workspace) {
    check_attention(shape, qkv.extent(0), out.extent(0), lse.extent(0), workspace.extent(0),
                    slot_size(shape));
    for_each_slot(
        exec, "scape::kernels::attention_forward",
        Forward<T>{exec, {shape}, qkv, out, lse, workspace, slots(exec, shape, workspace)});
}

template <class T>
void attention_backward_host(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                             Span<const T> out, Span<const float> lse, Span<const T> d_out,
                             Span<T> d_qkv, Span<float> workspace) {
    check_attention(shape, std::min(qkv.extent(0), d_qkv.extent(0)),
                    std::min(out.extent(0), d_out.extent(0)), lse.extent(0), workspace.extent(0),
                    slot_size(shape));
    for_each_slot(
        exec, "scape::kernels::attention_backward",
        Backward<T>{
            exec, {shape}, qkv, out, lse, d_out, d_qkv, workspace, slots(exec, shape, workspace)});
}

Index attention_workspace_host(const AttentionShape& shape) {
    return threads(Exec{}) * slot_size(shape);
}

template void attention_forward_host<float>(const Exec&, const AttentionShape&, Span<const float>,
                                            Span<float>, Span<float>, Span<float>);
template void attention_backward_host<float>(const Exec&, const AttentionShape&, Span<const float>,
                                             Span<const float>, Span<const float>,
                                             Span<const float>, Span<float>, Span<float>);

}  // namespace scape::kernels::detail
