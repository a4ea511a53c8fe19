#pragma once
/// @file
/// Matrix products of row-major matrices. One call, and behind it the fastest library there is:
/// oneDNN on the host where it was found, Kokkos Kernels (its BLAS, cuBLAS or rocBLAS) otherwise.

#include <scape/base/types.hpp>

#include <string>
#include <type_traits>

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
        : data(m.data()),
          rows(static_cast<Index>(m.extent(0))),
          cols(static_cast<Index>(m.extent(1))),
          stride(static_cast<Index>(m.extent(1))) {}
    template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
    Block(const Block<U>& b) : data(b.data), rows(b.rows), cols(b.cols), stride(b.stride) {}
};

enum class Op { none, transpose };

/// c = alpha op(a) op(b) + beta c.   op(a) (M,K), op(b) (K,N), c (M,N).
/// beta = 0 overwrites c whatever it held; sizes of 0 are allowed (K = 0: c = beta c). fp32 sums.
/// Throws std::logic_error on shapes that do not fit. In a host build it may be called from inside
/// a kernel (attention's tiles) when the BLAS threads are set to one. T: float.
template <class T>
void gemm(const Exec& exec, Op op_a, Op op_b, float alpha, Block<const T> a, Block<const T> b,
          float beta, Block<T> c);

/// Name and version of the library behind gemm and the code it chose for this processor, e.g.
/// "oneDNN 2.6.3 (AVX-512, bf16)" or "Kokkos Kernels 4.6.1, OpenBLAS 0.3.21 (Zen)".
std::string gemm_library();
/// Threads that library uses for one call on the host (1 on a device build).
int gemm_threads();
/// Asks for that many threads, at least 1; no effect on a device build or a BLAS of one thread.
void set_gemm_threads(int threads);

/// That many threads for as long as the object lives, then as many as before.
class ScopedGemmThreads {
   public:
    explicit ScopedGemmThreads(int threads) : before_(gemm_threads()) {
        if (threads != before_) set_gemm_threads(threads);
    }
    ~ScopedGemmThreads() {
        if (gemm_threads() != before_) set_gemm_threads(before_);
    }
    ScopedGemmThreads(const ScopedGemmThreads&) = delete;
    ScopedGemmThreads& operator=(const ScopedGemmThreads&) = delete;

   private:
    int before_;
};

/// GFLOP/s of a square product, best of several within about `milliseconds` (a slow library takes
/// longer: at least five products are timed). Blocking; allocates.
double measure_gemm_gflops(const Exec& exec, double milliseconds);

}  // namespace scape::kernels
