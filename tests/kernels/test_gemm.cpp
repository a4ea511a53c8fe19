// Products against plain loops in double precision; threads, subnormals and the rate measured.
#include <scape/kernels/gemm.hpp>
#include <scape/kernels/machine_rate.hpp>

#include "support/compare.hpp"

#include <cstring>

using namespace scape;
using namespace scape::kernels;
using namespace scape::test;

namespace {

struct Case {
    Index rows, cols, inner;
    Op op_a, op_b;
    float alpha, beta;
    Index gap;  // elements between the rows of every matrix
};

/// A row-major matrix with `gap` elements after each row, all pseudo-random.
struct Operand {
    Operand(Index rows, Index cols, Index gap, std::uint64_t seed)
        : rows(rows),
          cols(cols),
          stride(cols + gap),
          values(normal_values(rows * (cols + gap), seed)),
          device(to_device(values)) {}
    double at(Index i, Index j, Op op) const {
        return op == Op::none ? values[i * stride + j] : values[j * stride + i];
    }
    Block<float> block() const { return {device.data(), rows, cols, stride}; }

    Index rows, cols, stride;
    std::vector<float> values;
    Vec<float> device;
};

Operand operand(Op op, Index rows, Index cols, Index gap, std::uint64_t seed) {
    return op == Op::none ? Operand(rows, cols, gap, seed) : Operand(cols, rows, gap, seed);
}

void check(const Case& t) {
    INFO(t.rows << " x " << t.cols << ", sums of " << t.inner << ", ops " << int(t.op_a)
                << int(t.op_b) << ", alpha " << t.alpha << ", beta " << t.beta << ", gap "
                << t.gap);
    const Operand a = operand(t.op_a, t.rows, t.inner, t.gap, 1);
    const Operand b = operand(t.op_b, t.inner, t.cols, t.gap, 2);
    const Operand c(t.rows, t.cols, t.gap, 3);
    std::vector<double> wanted = to_double(c.values);  // the gaps stay as they were
    for (Index i = 0; i < t.rows; ++i) {
        for (Index j = 0; j < t.cols; ++j) {
            double sum = 0;
            for (Index k = 0; k < t.inner; ++k) sum += a.at(i, k, t.op_a) * b.at(k, j, t.op_b);
            double& x = wanted[i * c.stride + j];
            x = t.alpha * sum + (t.beta == 0 ? 0 : t.beta * x);
        }
    }
    gemm<float>(Exec{}, t.op_a, t.op_b, t.alpha, a.block(), b.block(), t.beta, c.block());
    const double size = std::sqrt(static_cast<double>(t.inner) + 1);
    check_close("product", to_host(c.device), wanted, 1e-5, 2e-6 * size, c.stride);
}

}  // namespace

TEST_CASE("gemm: every combination of operands, odd sizes, blocks of wider matrices") {
    for (const Op op_a : {Op::none, Op::transpose}) {
        for (const Op op_b : {Op::none, Op::transpose}) {
            for (const Index gap : {0, 5}) {
                check({67, 45, 129, op_a, op_b, 1.f, 0.f, gap});
                check({1, 45, 80, op_a, op_b, 0.5f, 1.f, gap});
                check({33, 1, 7, op_a, op_b, -1.5f, 0.25f, gap});
                check({64, 512, 64, op_a, op_b, 0.125f, 0.f, gap});
                check({1, 1, 1, op_a, op_b, 1.f, 1.f, gap});
            }
        }
    }
}

TEST_CASE("gemm: sums over nothing scale c; empty results are left alone") {
    check({5, 7, 0, Op::none, Op::none, 1.f, 0.5f, 3});
    check({5, 7, 0, Op::transpose, Op::none, 1.f, 0.f, 0});
    check({0, 7, 3, Op::none, Op::none, 1.f, 0.f, 2});
    check({5, 0, 3, Op::none, Op::transpose, 1.f, 1.f, 2});
}

TEST_CASE("gemm: beta = 0 overwrites what is not a number") {
    const Index n = 40;
    const Vec<float> a = filled(n * n, 1.f), b = filled(n * n, 2.f), c = filled(n * n, NAN);
    gemm<float>(Exec{}, Op::none, Op::none, 1.f, as_matrix(a, n, n), as_matrix(b, n, n), 0.f,
                as_matrix(c, n, n));
    check_close("product", to_host(c), std::vector<double>(n * n, 2.0 * n), 1e-6, 0);
}

TEST_CASE("gemm: shapes that do not fit are refused") {
    const Vec<float> x = filled(100, 1.f);
    const auto product = [&](Op op_a, Op op_b, Block<float> a, Block<float> b, Block<float> c) {
        gemm<float>(Exec{}, op_a, op_b, 1.f, a, b, 0.f, c);
    };
    const auto block = [&](Index rows, Index cols, Index stride) {
        return Block<float>(x.data(), rows, cols, stride);
    };
    CHECK_THROWS_AS(product(Op::none, Op::none, block(2, 3, 3), block(4, 5, 5), block(2, 5, 5)),
                    std::logic_error);
    CHECK_THROWS_AS(
        product(Op::transpose, Op::none, block(2, 3, 3), block(3, 5, 5), block(2, 5, 5)),
        std::logic_error);
    CHECK_THROWS_AS(product(Op::none, Op::none, block(2, 3, 2), block(3, 5, 5), block(2, 5, 5)),
                    std::logic_error);
}

TEST_CASE("gemm: threads are set, and set back") {
    if (!exec_is_host) return;
    const int before = gemm_threads();
    {
        const ScopedGemmThreads one(1);
        CHECK(gemm_threads() == 1);
        check({130, 70, 90, Op::none, Op::transpose, 1.f, 0.f, 0});
    }
    CHECK(gemm_threads() == before);
    set_gemm_threads(0);
    CHECK(gemm_threads() == 1);
    set_gemm_threads(before);
    CHECK(gemm_threads() == before);
}

TEST_CASE("gemm: subnormal results are flushed, on every thread of the BLAS") {
    if (!exec_is_host) return;
    const Index n = 512;
    const Vec<float> a = filled(n * n, 1e-25f), b = filled(n * n, 1e-17f);
    const auto nonzero = [&](int threads) {
        const ScopedGemmThreads scope(threads);
        const Vec<float> c = filled(n * n, 1.f);
        gemm<float>(Exec{}, Op::none, Op::none, 1.f, as_matrix(a, n, n), as_matrix(b, n, n), 0.f,
                    as_matrix(c, n, n));
        Index count = 0;
        for (const float x : to_host(c)) {
            std::uint32_t bits;  // a comparison of floats would take a subnormal for 0 itself
            std::memcpy(&bits, &x, sizeof bits);
            count += bits != 0;
        }
        return count;
    };
    // 1e-42 512 times over: each term and the sum lie below 1.2e-38.
    const ScopedGemmThreads two(2);
    if (!subnormals_are_flushed()) CHECK(nonzero(2) == n * n);
    flush_subnormals();  // after the product above: its threads run already
    CHECK(subnormals_are_flushed());
    for (const int threads : {1, 2, 3}) CHECK(nonzero(threads) == 0);
}

TEST_CASE("gemm: its rate is measured, and held against what the cores could do") {
    CHECK_FALSE(gemm_library().empty());
    const double measured = measure_gemm_gflops(Exec{}, 20);
    CHECK(measured > 0.1);
    const AttainableRate rate = attainable_rate(1);
    INFO(gemm_library() << ": " << measured << " GFLOP/s measured, " << rate.gflops << " = "
                        << rate.threads << " x " << rate.flops_per_cycle << " x " << rate.gigahertz
                        << " GHz (" << rate.unit << ", " << rate.clock << ")");
    CHECK(rate.threads == 1);
    CHECK(rate.flops_per_cycle >= 8);
    CHECK(rate.gigahertz > 0.5);
    CHECK(rate.gigahertz < 8);
    CHECK(rate.gflops == Approx(rate.threads * rate.flops_per_cycle * rate.gigahertz));
    CHECK(attainable_rate(100000).threads < 100000);  // cores, not wishes
    if (exec_is_host && gemm_threads() == 1) CHECK(measured < 1.3 * rate.gflops);
}
