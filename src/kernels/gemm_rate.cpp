// How fast gemm really is here.
#include <scape/base/profiling.hpp>
#include <scape/kernels/gemm.hpp>

#include <algorithm>

namespace scape::kernels {

namespace {

double flops(Index n) {
    return 2.0 * static_cast<double>(n * n * n);
}

struct Square {
    explicit Square(Index n)
        : n(n),
          a("scape::kernels::gemm_rate_a", static_cast<std::size_t>(n * n)),
          b("scape::kernels::gemm_rate_b", static_cast<std::size_t>(n * n)),
          c("scape::kernels::gemm_rate_c", static_cast<std::size_t>(n * n)) {}
    Index n;
    Vec<float> a, b, c;  // (n, n)

    /// FLOP/s of one product.
    double rate(const Exec& exec) const {
        exec.fence();
        const Timer timer;
        gemm<float>(exec, Op::none, Op::none, 1.f, as_matrix(a, n, n), as_matrix(b, n, n), 0.f,
                    as_matrix(c, n, n));
        exec.fence();
        return flops(n) / timer.seconds();
    }
    /// The best of `repeats` and as many more as fit into the time.
    double best_rate(const Exec& exec, int repeats, double seconds) const {
        const Timer total;
        double best = 0;
        for (int i = 0; i < repeats || total.seconds() < seconds; ++i) {
            best = std::max(best, rate(exec));
        }
        return best;
    }
};

}  // namespace

double measure_gemm_gflops(const Exec& exec, double milliseconds) {
    const Timer total;
    const double budget = milliseconds * 1e-3;
    // Fewer than these, and one thread that has to wait for a core spoils the result.
    constexpr int repeats = 5;
    const Square small(256);
    Kokkos::deep_copy(exec, small.a, 1.f);
    Kokkos::deep_copy(exec, small.b, 1.f);
    // One thread says how large a product the time allows: many threads on cores that others use
    // too would wait for each other longer than a small product takes.
    double guess = gemm_threads();
    {
        const ScopedGemmThreads one(1);
        small.rate(exec);  // code generation and buffers are made in the first call
        guess *= small.best_rate(exec, repeats, 0);
    }
    const Index largest = exec_is_host ? 1024 : 8192;
    Index n = small.n;
    while (n < largest && flops(2 * n) / guess < budget / repeats) n *= 2;
    const Square large(n);
    Kokkos::deep_copy(exec, large.a, 1.f);
    Kokkos::deep_copy(exec, large.b, 1.f);
    large.rate(exec);  // starts the threads
    const double left = budget - total.seconds();
    return 1e-9 * large.best_rate(exec, repeats, left);
}

}  // namespace scape::kernels
