#pragma once
/// @file
/// The three products of a linear layer y = x w^T:  x (N, K), w (M, K), y (N, M).

#include <scape/kernels/gemm.hpp>

namespace scape::model {

/// y = x w^T
template <class T>
void linear(const Exec& exec, Mat<const T> x, Mat<const T> w, Mat<T> y) {
    using kernels::Op;
    kernels::gemm<T>(exec, Op::none, Op::transpose, 1.f, x, w, 0.f, y);
}

/// d_x = d_y w
template <class T>
void linear_input_gradient(const Exec& exec, Mat<const T> d_y, Mat<const T> w, Mat<T> d_x) {
    using kernels::Op;
    kernels::gemm<T>(exec, Op::none, Op::none, 1.f, d_y, w, 0.f, d_x);
}

/// d_w += d_y^T x
template <class T>
void linear_weight_gradient(const Exec& exec, Mat<const T> d_y, Mat<const T> x, Mat<float> d_w) {
    using kernels::Op;
    kernels::gemm<T>(exec, Op::transpose, Op::none, 1.f, d_y, x, 1.f, d_w);
}

}  // namespace scape::model
