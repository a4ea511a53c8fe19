#include "column_sums.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/math.hpp>
#include <scape/kernels/pointwise.hpp>

namespace scape::kernels {

namespace {

template <class T>
struct Element {
    const T* data;
    Index columns;
    KOKKOS_INLINE_FUNCTION float operator()(Index i, Index j) const {
        return static_cast<float>(data[i * columns + j]);
    }
};

}  // namespace

template <class T>
void add_bias(const Exec& exec, Mat<T> y, Span<const T> bias) {
    const Index n = y.extent(1);
    for_each_row(
        exec, "scape::kernels::add_bias", y.extent(0), KOKKOS_LAMBDA(const Row& row, Index i) {
            T* out = y.data() + i * n;
            const T* b = bias.data();
            row.each(n, [&](Index j) {
                out[j] = static_cast<T>(static_cast<float>(out[j]) + static_cast<float>(b[j]));
            });
        });
}

template <class T>
void bias_backward(const Exec& exec, Mat<const T> d_y, Span<float> d_bias, Span<float> workspace) {
    const Index columns = d_y.extent(1);
    detail::add_column_sums(exec, "scape::kernels::bias_backward", d_y.extent(0),
                            Element<T>{d_y.data(), columns}, d_bias, workspace.data());
}

Index bias_workspace(Index columns) {
    return detail::row_blocks * columns;
}

template <class T>
void residual_add(const Exec& exec, Mat<const T> residual, Mat<const T> x, Span<const T> bias,
                  Mat<T> y) {
    const Index n = y.extent(1);
    const bool has_bias = bias.extent(0) != 0;
    for_each_row(
        exec, "scape::kernels::residual_add", y.extent(0), KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* r = residual.data() + i * n;
            const T* in = x.data() + i * n;
            const T* b = bias.data();
            T* out = y.data() + i * n;
            if (has_bias) {
                row.each(n, [&](Index j) {
                    out[j] = static_cast<T>(static_cast<float>(r[j]) +
                                            (static_cast<float>(in[j]) + static_cast<float>(b[j])));
                });
            } else {
                row.each(n, [&](Index j) {
                    out[j] = static_cast<T>(static_cast<float>(r[j]) + static_cast<float>(in[j]));
                });
            }
        });
}

template <class T>
void bias_gelu_forward(const Exec& exec, Mat<T> h, Span<const T> bias, Mat<T> y) {
    const Index n = h.extent(1);
    for_each_row(
        exec, "scape::kernels::bias_gelu_forward", h.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            T* pre = h.data() + i * n;
            T* out = y.data() + i * n;
            const T* b = bias.data();
            row.each(n, [&](Index j) {
                const float v = static_cast<float>(pre[j]) + static_cast<float>(b[j]);
                pre[j] = static_cast<T>(v);
                out[j] = static_cast<T>(gelu(v));
            });
        });
}

template <class T>
void gelu_backward(const Exec& exec, Mat<const T> h, Mat<const T> d_y, Mat<T> d_h) {
    const Index n = h.extent(1);
    for_each_row(
        exec, "scape::kernels::gelu_backward", h.extent(0), KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* pre = h.data() + i * n;
            const T* in = d_y.data() + i * n;
            T* out = d_h.data() + i * n;
            row.each(n, [&](Index j) {
                out[j] = static_cast<T>(static_cast<float>(in[j]) *
                                        gelu_derivative(static_cast<float>(pre[j])));
            });
        });
}

template <class T>
void swiglu_forward(const Exec& exec, Mat<const T> gate_up, Mat<T> y) {
    const Index n = y.extent(1);  // F
    for_each_row(
        exec, "scape::kernels::swiglu_forward", y.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* gate = gate_up.data() + i * 2 * n;
            const T* up = gate + n;
            T* out = y.data() + i * n;
            row.each(n, [&](Index j) {
                out[j] =
                    static_cast<T>(silu(static_cast<float>(gate[j])) * static_cast<float>(up[j]));
            });
        });
}

template <class T>
void swiglu_backward(const Exec& exec, Mat<const T> gate_up, Mat<const T> d_y, Mat<T> d_gate_up) {
    const Index n = d_y.extent(1);  // F
    for_each_row(
        exec, "scape::kernels::swiglu_backward", d_y.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* gate = gate_up.data() + i * 2 * n;
            const T* up = gate + n;
            const T* d = d_y.data() + i * n;
            T* d_gate = d_gate_up.data() + i * 2 * n;
            T* d_up = d_gate + n;
            row.each(n, [&](Index j) {
                const float g = static_cast<float>(gate[j]);
                const float u = static_cast<float>(up[j]);
                const float s = sigmoid(g);
                const float in = static_cast<float>(d[j]);
                d_up[j] = static_cast<T>(in * (g * s));
                d_gate[j] = static_cast<T>(in * u * (s * (1.f + g * (1.f - s))));
            });
        });
}

template <class T>
void fill_zero(const Exec& exec, Span<T> y) {
    for_each(
        exec, "scape::kernels::fill_zero", y.extent(0), KOKKOS_LAMBDA(Index i) { y(i) = T(0); });
}

template void add_bias(const Exec&, Mat<float>, Span<const float>);
template void bias_backward(const Exec&, Mat<const float>, Span<float>, Span<float>);
template void residual_add(const Exec&, Mat<const float>, Mat<const float>, Span<const float>,
                           Mat<float>);
template void bias_gelu_forward(const Exec&, Mat<float>, Span<const float>, Mat<float>);
template void gelu_backward(const Exec&, Mat<const float>, Mat<const float>, Mat<float>);
template void swiglu_forward(const Exec&, Mat<const float>, Mat<float>);
template void swiglu_backward(const Exec&, Mat<const float>, Mat<const float>, Mat<float>);
template void fill_zero(const Exec&, Span<float>);
template void fill_zero(const Exec&, Span<double>);

}  // namespace scape::kernels
