// How fast gemm really is here.
#include <scape/base/profiling.hpp>
#include <scape/kernels/gemm.hpp>

#include <algorithm>

namespace scape::kernels {

namespace {

struct Square {
    explicit Square(Index n)
        : n(n),
          a("scape::kernels::gemm_rate_a", static_cast<std::size_t>(n * n)),
          b("scape::kernels::gemm_rate_b", static_cast<std::size_t>(n * n)),
          c("scape::kernels::gemm_rate_c", static_cast<std::size_t>(n * n)) {}
    Index n;
    Vec<float> a, b, c;  // (n, n)

    /// Seconds of one product.
    double time(const Exec& exec) const {
        exec.fence();
        const Timer timer;
        gemm<float>(exec, Op::none, Op::none, 1.f, as_matrix(a, n, n), as_matrix(b, n, n), 0.f,
                    as_matrix(c, n, n));
        exec.fence();
        return timer.seconds();
    }
};

double flops(Index n) {
    return 2.0 * static_cast<double>(n * n * n);
}

}  // namespace

double measure_gemm_gflops(const Exec& exec, double milliseconds) {
    const Timer total;
    const double budget = milliseconds * 1e-3;
    const Square small(256);
    Kokkos::deep_copy(exec, small.a, 1.f);
    Kokkos::deep_copy(exec, small.b, 1.f);
    small.time(exec);  // code generation, threads and buffers are made in the first call
    double best = flops(small.n) / std::min(small.time(exec), small.time(exec));

    // The largest size of which some five products fit into the time.
    const Index largest = exec_is_host ? 1024 : 8192;
    Index n = small.n;
    while (n < largest && flops(2 * n) / best < budget / 5) n *= 2;
    const Square large(n);
    Kokkos::deep_copy(exec, large.a, 1.f);
    Kokkos::deep_copy(exec, large.b, 1.f);
    do {
        best = std::max(best, flops(n) / large.time(exec));
    } while (total.seconds() < budget);
    return best * 1e-9;
}

}  // namespace scape::kernels
