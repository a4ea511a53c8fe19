#pragma once
/// @file
/// What both back ends of gemm do before and after they call their library.

#include <scape/kernels/gemm.hpp>

#include <sstream>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

/// Sizes of c = op(a) op(b): c (rows, cols), inner the length of each sum.
struct ProductShape {
    Index rows;
    Index cols;
    Index inner;
};

template <class T>
std::string describe(const Block<T>& x, Op op) {
    std::ostringstream text;
    text << "(" << x.rows << " x " << x.cols << ", stride " << x.stride << ")";
    if (op == Op::transpose) text << "^T";
    return text.str();
}

/// Throws std::logic_error, with all three shapes, when they do not fit.
template <class T>
ProductShape product_shape(Op op_a, Op op_b, const Block<const T>& a, const Block<const T>& b,
                           const Block<T>& c) {
    const Index a_rows = op_a == Op::none ? a.rows : a.cols;
    const Index a_cols = op_a == Op::none ? a.cols : a.rows;
    const Index b_rows = op_b == Op::none ? b.rows : b.cols;
    const Index b_cols = op_b == Op::none ? b.cols : b.rows;
    const bool fits = a_rows == c.rows && b_cols == c.cols && a_cols == b_rows;
    const bool strides = a.stride >= a.cols && b.stride >= b.cols && c.stride >= c.cols;
    if (!fits || !strides) {
        throw std::logic_error("gemm: shapes do not fit: " + describe(c, Op::none) + " = " +
                               describe(a, op_a) + " * " + describe(b, op_b));
    }
    return {c.rows, c.cols, a_cols};
}

/// c = beta c: what a product over no terms leaves.
template <class T>
void scale_block(const Exec& exec, float beta, Block<T> c) {
    T* data = c.data;
    const Index cols = c.cols;
    const Index stride = c.stride;
    Kokkos::parallel_for(
        "scape::kernels::gemm_scale",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, c.rows * cols),
        KOKKOS_LAMBDA(Index k) {
            T& x = data[k / cols * stride + k % cols];
            x = beta == 0.f ? T(0) : T(beta * x);
        });
}

}  // namespace scape::kernels::detail
