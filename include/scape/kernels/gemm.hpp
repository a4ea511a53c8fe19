#pragma once
/// @file
/// Matrix products of row-major matrices. One call, and behind it the fastest library there is:
/// oneDNN on the host where it was found, Kokkos Kernels (its BLAS, cuBLAS or rocBLAS) otherwise.

#include <scape/base/types.hpp>

#include <string>

namespace scape::kernels {

/// A row-major matrix, possibly a block of a wider one: element (i, j) at data[i * stride + j].
template <class T>
struct Block {
    T* data;
    Index rows;
    Index cols;
    Index stride;
    Block(T* d, Index r, Index c, Index s) : data(d), rows(r), cols(c), stride(s) {}
    template <class U>
    Block(const Mat<U>& m)
        : data(m.data()), rows(m.extent(0)), cols(m.extent(1)), stride(m.extent(1)) {}
};

enum class Op { none, transpose };

/// c = alpha op(a) op(b) + beta c.   op(a) (M,K), op(b) (K,N), c (M,N).
/// beta = 0 overwrites c whatever it held. fp32 sums. Throws std::logic_error on shapes that do
/// not fit. In a host build it may be called from inside a kernel (attention's tiles) when the
/// BLAS threads are set to one.
template <class T>
void gemm(const Exec& exec, Op op_a, Op op_b, float alpha, Block<const T> a, Block<const T> b,
          float beta, Block<T> c);

/// Name and version of the library behind gemm, e.g. "oneDNN 2.6.3".
std::string gemm_library();
/// Threads that library uses for one call on the host (1 on a device build).
int gemm_threads();
/// Asks for that many threads; no effect on a device build.
void set_gemm_threads(int threads);

/// GFLOP/s of a square product, best of several within about `milliseconds`.
double measure_gemm_gflops(const Exec& exec, double milliseconds);

}  // namespace scape::kernels
