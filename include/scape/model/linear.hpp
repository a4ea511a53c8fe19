#pragma once
/// @file
/// The three products of a linear layer y = x w^T:  x (N, K), w (M, K), y (N, M). Each is a
/// profiling region: a product is no kernel of Kokkos', so tools would not see it otherwise.

#include <scape/base/profiling.hpp>
#include <scape/kernels/gemm.hpp>

namespace scape::model {

/// y = x w^T
template <class T>
void linear(const Exec& exec, Mat<const T> x, Mat<const T> w, Mat<T> y) {
    const Region region("scape::model::linear");
    using kernels::Op;
    kernels::gemm<T>(exec, Op::none, Op::transpose, 1.f, x, w, 0.f, y);
}

/// d_x = d_y w
template <class T>
void linear_input_gradient(const Exec& exec, Mat<const T> d_y, Mat<const T> w, Mat<T> d_x) {
    const Region region("scape::model::linear_input_gradient");
    using kernels::Op;
    kernels::gemm<T>(exec, Op::none, Op::none, 1.f, d_y, w, 0.f, d_x);
}

/// d_w += d_y^T x
template <class T>
void linear_weight_gradient(const Exec& exec, Mat<const T> d_y, Mat<const T> x, Mat<float> d_w) {
    const Region region("scape::model::linear_weight_gradient");
    using kernels::Op;
    kernels::gemm<T>(exec, Op::transpose, Op::none, 1.f, d_y, x, 1.f, d_w);
}

}  // namespace scape::model
