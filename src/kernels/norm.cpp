// Both norms are one formula: RMSNorm is LayerNorm with mean 0, no bias, and no term for the mean
// in the backward pass.
//
//     xhat = (x - mean) rstd;   y = xhat gain + bias
//     d_x += rstd (d_y gain - [LayerNorm: mean(d_y gain)] - xhat mean(d_y gain xhat))
//     d_gain += sum over rows of d_y xhat;   d_bias += sum over rows of d_y
#include "column_sums.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/norm.hpp>

#include <cmath>

namespace scape::kernels {

namespace {

/// What both backward kernels work on; `mean` is null for RMSNorm.
template <class T>
struct NormBackward {
    Index rows, columns;  // N, C
    const T* x;           // (N, C)
    const T* gain;        // (C)
    const float* mean;    // (N)
    const float* rstd;    // (N)
    const T* d_y;         // (N, C)
    T* d_x;               // (N, C)
};

/// A block of rows on a host, in one pass over x, d_y and d_x: the rows' d_x, and the block's
/// partial sums of d_gain and d_bias.
template <class T>
struct NormBackwardBlock {
    NormBackward<T> a;
    detail::RowBlocks blocks;
    float* partial_gain;  // (blocks, C)
    float* partial_bias;  // (blocks, C); null for RMSNorm

    KOKKOS_INLINE_FUNCTION void operator()(Index block) const {
        const Index n = a.columns;
        float* sum_gain = partial_gain + block * n;
        float* sum_bias = partial_bias == nullptr ? nullptr : partial_bias + block * n;
        for (Index j = 0; j < n; ++j) sum_gain[j] = 0;
        for (Index j = 0; sum_bias != nullptr && j < n; ++j) sum_bias[j] = 0;
        for (Index i = blocks.begin(block); i < blocks.end(block); ++i) {
            row(i, sum_gain, sum_bias);
        }
    }

    KOKKOS_INLINE_FUNCTION void row(Index i, float* sum_gain, float* sum_bias) const {
        const Index n = a.columns;
        const T* x = a.x + i * n;
        const T* d_y = a.d_y + i * n;
        const T* gain = a.gain;
        T* d_x = a.d_x + i * n;
        const float rstd = a.rstd[i];
        const float mean = a.mean == nullptr ? 0.f : a.mean[i];
        float sum = 0, sum_xhat = 0;
#pragma omp simd reduction(+ : sum, sum_xhat)
        for (Index j = 0; j < n; ++j) {
            const float g = static_cast<float>(d_y[j]) * static_cast<float>(gain[j]);
            sum += g;
            sum_xhat += g * ((static_cast<float>(x[j]) - mean) * rstd);
        }
        const float mean_g = a.mean == nullptr ? 0.f : sum / static_cast<float>(n);
        const float mean_g_xhat = sum_xhat / static_cast<float>(n);
#pragma omp simd
        for (Index j = 0; j < n; ++j) {
            const float xhat = (static_cast<float>(x[j]) - mean) * rstd;
            const float d = static_cast<float>(d_y[j]);
            sum_gain[j] += d * xhat;
            const float g = d * static_cast<float>(gain[j]);
            d_x[j] = static_cast<T>(static_cast<float>(d_x[j]) +
                                    rstd * (g - mean_g - xhat * mean_g_xhat));
        }
        if (sum_bias == nullptr) return;
#pragma omp simd
        for (Index j = 0; j < n; ++j) sum_bias[j] += static_cast<float>(d_y[j]);
    }
};

/// One row of d_x on a device.
template <class T>
struct NormBackwardRow {
    NormBackward<T> a;
    KOKKOS_INLINE_FUNCTION void operator()(const Row& row, Index i) const {
        const Index n = a.columns;
        const T* x = a.x + i * n;
        const T* d_y = a.d_y + i * n;
        const T* gain = a.gain;
        T* d_x = a.d_x + i * n;
        const float rstd = a.rstd[i];
        const float mean = a.mean == nullptr ? 0.f : a.mean[i];
        const auto g = [&](Index j) {
            return static_cast<float>(d_y[j]) * static_cast<float>(gain[j]);
        };
        const auto xhat = [&](Index j) { return (static_cast<float>(x[j]) - mean) * rstd; };
        const float scale = 1.f / static_cast<float>(n);
        const float mean_g = a.mean == nullptr ? 0.f : scale * row.sum(n, g);
        const float mean_g_xhat = scale * row.sum(n, [&](Index j) { return g(j) * xhat(j); });
        row.each(n, [&](Index j) {
            d_x[j] = static_cast<T>(static_cast<float>(d_x[j]) +
                                    rstd * (g(j) - mean_g - xhat(j) * mean_g_xhat));
        });
    }
};

/// Summands of d_gain and d_bias.
template <class T>
struct GainSummand {
    NormBackward<T> a;
    KOKKOS_INLINE_FUNCTION float operator()(Index i, Index j) const {
        const float mean = a.mean == nullptr ? 0.f : a.mean[i];
        const Index k = i * a.columns + j;
        return static_cast<float>(a.d_y[k]) * ((static_cast<float>(a.x[k]) - mean) * a.rstd[i]);
    }
};
template <class T>
struct BiasSummand {
    NormBackward<T> a;
    KOKKOS_INLINE_FUNCTION float operator()(Index i, Index j) const {
        return static_cast<float>(a.d_y[i * a.columns + j]);
    }
};

template <class T>
void norm_backward(const Exec& exec, const std::string& label, const NormBackward<T>& a,
                   Span<float> d_gain, Span<float> d_bias, Span<float> workspace) {
    float* partial_gain = workspace.data();
    float* partial_bias = partial_gain + detail::row_blocks * a.columns;
    const bool has_bias = a.mean != nullptr;
    if constexpr (exec_is_host) {
        const detail::RowBlocks blocks(a.rows);
        Kokkos::parallel_for(
            label, range(exec, blocks.count),
            NormBackwardBlock<T>{a, blocks, partial_gain, has_bias ? partial_bias : nullptr});
        detail::add_partial_sums(exec, label, partial_gain, blocks.count, d_gain);
        if (has_bias) detail::add_partial_sums(exec, label, partial_bias, blocks.count, d_bias);
    } else {
        for_each_row(exec, label, a.rows, NormBackwardRow<T>{a});
        detail::add_column_sums(exec, label, a.rows, GainSummand<T>{a}, d_gain, partial_gain);
        if (has_bias) {
            detail::add_column_sums(exec, label, a.rows, BiasSummand<T>{a}, d_bias, partial_bias);
        }
    }
}

}  // namespace

template <class T>
void layer_norm_forward(const Exec& exec, Mat<const T> x, Span<const T> gain, Span<const T> bias,
                        float eps, Mat<T> y, Span<float> mean, Span<float> rstd) {
    const Index n = x.extent(1);
    for_each_row(
        exec, "scape::kernels::layer_norm_forward", x.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* in = x.data() + i * n;
            const T* g = gain.data();
            const T* b = bias.data();
            T* out = y.data() + i * n;
            const float scale = 1.f / static_cast<float>(n);
            const float m = scale * row.sum(n, [&](Index j) { return static_cast<float>(in[j]); });
            const float variance = scale * row.sum(n, [&](Index j) {
                const float d = static_cast<float>(in[j]) - m;
                return d * d;
            });
            const float r = 1.f / sqrtf(variance + eps);
            row.each(n, [&](Index j) {
                const float xhat = (static_cast<float>(in[j]) - m) * r;
                out[j] = static_cast<T>(xhat * static_cast<float>(g[j]) + static_cast<float>(b[j]));
            });
            row.once([&] {
                mean(i) = m;
                rstd(i) = r;
            });
        });
}

template <class T>
void layer_norm_backward(const Exec& exec, Mat<const T> x, Span<const T> gain,
                         Span<const float> mean, Span<const float> rstd, Mat<const T> d_y,
                         Mat<T> d_x, Span<float> d_gain, Span<float> d_bias,
                         Span<float> workspace) {
    const NormBackward<T> a{static_cast<Index>(x.extent(0)),
                            static_cast<Index>(x.extent(1)),
                            x.data(),
                            gain.data(),
                            mean.data(),
                            rstd.data(),
                            d_y.data(),
                            d_x.data()};
    norm_backward(exec, "scape::kernels::layer_norm_backward", a, d_gain, d_bias, workspace);
}

template <class T>
void rms_norm_forward(const Exec& exec, Mat<const T> x, Span<const T> gain, float eps, Mat<T> y,
                      Span<float> rstd) {
    const Index n = x.extent(1);
    for_each_row(
        exec, "scape::kernels::rms_norm_forward", x.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* in = x.data() + i * n;
            const T* g = gain.data();
            T* out = y.data() + i * n;
            const float squares = row.sum(n, [&](Index j) {
                const float v = static_cast<float>(in[j]);
                return v * v;
            });
            const float r = 1.f / sqrtf(squares / static_cast<float>(n) + eps);
            row.each(n, [&](Index j) {
                out[j] = static_cast<T>(static_cast<float>(in[j]) * r * static_cast<float>(g[j]));
            });
            row.once([&] { rstd(i) = r; });
        });
}

template <class T>
void rms_norm_backward(const Exec& exec, Mat<const T> x, Span<const T> gain, Span<const float> rstd,
                       Mat<const T> d_y, Mat<T> d_x, Span<float> d_gain, Span<float> workspace) {
    const NormBackward<T> a{static_cast<Index>(x.extent(0)),
                            static_cast<Index>(x.extent(1)),
                            x.data(),
                            gain.data(),
                            nullptr,
                            rstd.data(),
                            d_y.data(),
                            d_x.data()};
    norm_backward(exec, "scape::kernels::rms_norm_backward", a, d_gain, {}, workspace);
}

Index norm_workspace(Index columns) {
    return 2 * detail::row_blocks * columns;
}

template void layer_norm_forward(const Exec&, Mat<const float>, Span<const float>,
                                 Span<const float>, float, Mat<float>, Span<float>, Span<float>);
template void layer_norm_backward(const Exec&, Mat<const float>, Span<const float>,
                                  Span<const float>, Span<const float>, Mat<const float>,
                                  Mat<float>, Span<float>, Span<float>, Span<float>);
template void rms_norm_forward(const Exec&, Mat<const float>, Span<const float>, float, Mat<float>,
                               Span<float>);
template void rms_norm_backward(const Exec&, Mat<const float>, Span<const float>, Span<const float>,
                                Mat<const float>, Mat<float>, Span<float>, Span<float>);

}  // namespace scape::kernels
