// gemm by oneDNN, which generates its code for the processor it finds. Row-major, as we are.
#include "gemm_shapes.hpp"

#include <scape/kernels/gemm.hpp>

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

namespace scape::kernels {

namespace {

const char* isa_name(dnnl_cpu_isa_t isa) {
    switch (isa) {
        case dnnl_cpu_isa_sse41:
            return "SSE4.1";
        case dnnl_cpu_isa_avx:
            return "AVX";
        case dnnl_cpu_isa_avx2:
            return "AVX2";
        case dnnl_cpu_isa_avx512_core:
            return "AVX-512";
        case dnnl_cpu_isa_avx512_core_vnni:
            return "AVX-512, VNNI";
        case dnnl_cpu_isa_avx512_core_bf16:
            return "AVX-512, bf16";
        case dnnl_cpu_isa_avx512_core_amx:
            return "AVX-512, AMX";
        default:
            return "another instruction set";
    }
}

}  // namespace

template <class T>
void gemm(const Exec& exec, Op op_a, Op op_b, float alpha, Block<const T> a, Block<const T> b,
          float beta, Block<T> c) {
    const auto [rows, cols, inner] = detail::product_shape<T>(op_a, op_b, a, b, c);
    if (rows == 0 || cols == 0) return;
    if (inner == 0) {
        detail::scale_block(exec, beta, c);
        return;
    }
    const dnnl_status_t status =
        dnnl_sgemm(op_a == Op::none ? 'N' : 'T', op_b == Op::none ? 'N' : 'T', rows, cols, inner,
                   alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
    if (status != dnnl_success) {
        throw std::runtime_error("dnnl_sgemm(" + std::to_string(rows) + " x " +
                                 std::to_string(cols) + ", sums of " + std::to_string(inner) +
                                 ") returned status " + std::to_string(status));
    }
}

template void gemm<float>(const Exec&, Op, Op, float, Block<const float>, Block<const float>, float,
                          Block<float>);

std::string gemm_library() {
    const dnnl_version_t* version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch) + " (" + isa_name(dnnl_get_effective_cpu_isa()) + ")";
}

int gemm_threads() {
    return omp_get_max_threads();
}

void set_gemm_threads(int threads) {
    omp_set_num_threads(threads < 1 ? 1 : threads);
}

}  // namespace scape::kernels
