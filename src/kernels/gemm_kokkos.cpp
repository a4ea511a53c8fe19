// gemm by Kokkos Kernels, which passes it on to the BLAS it was built with: on the host the
// system's, on a device cuBLAS or rocBLAS.
#include "gemm_shapes.hpp"

#include <scape/kernels/gemm.hpp>

#include <KokkosBlas3_gemm.hpp>

#include <dlfcn.h>

namespace scape::kernels {

namespace {

// A row-major (rows, cols) block is the column-major (cols, rows) transpose: the first `cols` rows
// of a (stride, rows) matrix. A subview keeps that leading dimension and stays LayoutLeft, which
// is what the libraries' interfaces accept.
template <class T>
auto transposed(const Block<T>& x) {
    const Kokkos::View<T**, Kokkos::LayoutLeft, Memory, Unmanaged> whole(
        x.data, static_cast<std::size_t>(x.stride), static_cast<std::size_t>(x.rows));
    return Kokkos::subview(whole, Kokkos::make_pair(Index(0), x.cols), Kokkos::ALL());
}

// Kokkos Kernels before 3.6 takes no execution space.
template <class E, class A, class B, class C>
void call_gemm(const E& exec, const char* op_a, const char* op_b, float alpha, const A& a,
               const B& b, float beta, const C& c) {
    if constexpr (requires { KokkosBlas::gemm(exec, op_a, op_b, alpha, a, b, beta, c); }) {
        KokkosBlas::gemm(exec, op_a, op_b, alpha, a, b, beta, c);
    } else {
        KokkosBlas::gemm(op_a, op_b, alpha, a, b, beta, c);
    }
}

// The BLAS is Kokkos Kernels' choice, so its own calls are looked up in the running program and
// nothing more is linked.
template <class F>
F find(const char* name) {
    return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

struct Names {
    const char* get_threads;
    const char* set_threads;
};
[[maybe_unused]] constexpr Names thread_calls[] = {
    {"openblas_get_num_threads", "openblas_set_num_threads"},
    {"MKL_Get_Max_Threads", "MKL_Set_Num_Threads"},
    {"bli_thread_get_num_threads", "bli_thread_set_num_threads"},
};

[[maybe_unused]] std::string host_blas() {
    if (const auto config = find<char* (*)()>("openblas_get_config")) {
        // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": the first two words
        const std::string all = config();
        const std::string name = all.substr(0, all.find(' ', all.find(' ') + 1));
        const auto core = find<char* (*)()>("openblas_get_corename");
        return core ? name + " (" + core() + ")" : name;
    }
    if (find<void*>("MKL_Get_Max_Threads")) return "MKL";
    if (const auto version = find<const char* (*)()>("bli_info_get_version_str")) {
        return std::string("BLIS ") + version();
    }
    return "a BLAS without a name";
}

std::string library_behind_kokkos_kernels() {
#if defined(KOKKOS_ENABLE_CUDA)
#if defined(KOKKOSKERNELS_ENABLE_TPL_CUBLAS)
    return "cuBLAS";
#else
    return "its own kernels (built without cuBLAS: slow)";
#endif
#elif defined(KOKKOS_ENABLE_HIP)
#if defined(KOKKOSKERNELS_ENABLE_TPL_ROCBLAS)
    return "rocBLAS";
#else
    return "its own kernels (built without rocBLAS: slow)";
#endif
#elif defined(KOKKOSKERNELS_ENABLE_TPL_BLAS)
    return host_blas();
#else
    return "its own kernels (built without a BLAS: slow)";
#endif
}

}  // namespace

template <class T>
void gemm(const Exec& exec, Op op_a, Op op_b, float alpha, Block<const T> a, Block<const T> b,
          float beta, Block<T> c) {
    const detail::ProductShape shape = detail::product_shape<T>(op_a, op_b, a, b, c);
    if (shape.rows == 0 || shape.cols == 0) return;
    if (shape.inner == 0) {
        detail::scale_block(exec, beta, c);
        return;
    }
    // c = op(a) op(b) row-major is c^T = op(b)^T op(a)^T column-major.
    call_gemm(exec, op_b == Op::none ? "N" : "T", op_a == Op::none ? "N" : "T", alpha,
              transposed(b), transposed(a), beta, transposed(c));
}

template void gemm<float>(const Exec&, Op, Op, float, Block<const float>, Block<const float>, float,
                          Block<float>);

std::string gemm_library() {
    return "Kokkos Kernels " + std::to_string(KOKKOS_VERSION / 10000) + "." +
           std::to_string(KOKKOS_VERSION / 100 % 100) + "." + std::to_string(KOKKOS_VERSION % 100) +
           ", " + library_behind_kokkos_kernels();
}

int gemm_threads() {
    if constexpr (exec_is_host) {
        for (const Names& names : thread_calls) {
            if (const auto get = find<int (*)()>(names.get_threads)) return get();
        }
    }
    return 1;
}

void set_gemm_threads([[maybe_unused]] int threads) {
    if constexpr (exec_is_host) {
        for (const Names& names : thread_calls) {
            if (const auto set = find<void (*)(int)>(names.set_threads)) {
                set(threads < 1 ? 1 : threads);
                return;
            }
        }
    }
}

}  // namespace scape::kernels
