// exp and its relatives, on dense sweeps, against double precision.
#include <scape/kernels/math.hpp>

#include "support/compare.hpp"

#include <limits>

using namespace scape;
using namespace scape::test;

namespace {

/// Largest relative error of exp_fast over `n` even steps from low to high.
double exp_error(double low, double high, Index n) {
    double worst = 0;
    for (Index i = 0; i <= n; ++i) {
        const float x = static_cast<float>(low + (high - low) * static_cast<double>(i) / n);
        const double wanted = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::abs(kernels::exp_fast(x) / wanted - 1));
    }
    return worst;
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
double gelu(double h) {
    return 0.5 * h * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (h + 0.044715 * h * h * h)));
}

}  // namespace

TEST_CASE("exp_fast is accurate wherever e^x is normal") {
    CHECK(exp_error(-87.33, 88.72, 4000001) < 2e-7);
    CHECK(exp_error(-1, 1, 1000001) < 2e-7);
    CHECK(exp_error(-1e-6, 1e-6, 1001) < 1e-7);
    // Around the seams of the reduction, odd multiples of ln2/2, and at both ends.
    for (int n = -125; n <= 127; ++n) {
        const double seam = (n + 0.5) * std::log(2.0);
        CHECK(exp_error(seam - 1e-4, seam + 1e-4, 50) < 2e-7);
    }
    CHECK(exp_error(-87.33, -87.32, 1000) < 2e-7);
    CHECK(exp_error(88.71, 88.72, 1000) < 2e-7);
    CHECK(kernels::exp_fast(0.f) == 1.f);
    CHECK(kernels::exp_fast(-0.f) == 1.f);
}

TEST_CASE("exp_fast outside that range") {
    for (float x : {-87.34f, -88.f, -100.f, -104.f, -150.f, -1e4f, -1e10f, -3e38f, -infinity}) {
        CAPTURE(x);
        CHECK(kernels::exp_fast(x) == 0.f);
    }
    for (float x : {88.73f, 89.f, 100.f, 128.f, 1e4f, 1e10f, 3e38f, infinity}) {
        CAPTURE(x);
        CHECK(kernels::exp_fast(x) == infinity);
    }
    CHECK(std::isnan(kernels::exp_fast(not_a_number)));
    CHECK(kernels::exp_fast(std::numeric_limits<float>::denorm_min()) == 1.f);
}

TEST_CASE("exp_fast never falls as x rises, where it is used for softmax") {
    float before = 0;
    Index falls = 0;
    for (Index i = 0; i <= 2000000; ++i) {
        const float y = kernels::exp_fast(static_cast<float>(-88 + 88 * (i / 2e6)));
        // One unit in the last place where two polynomials meet.
        if (y < before * (1 - 1.2e-7f)) ++falls;
        before = y;
    }
    CHECK(falls == 0);
}

TEST_CASE("A vectorised loop gives the same as one call") {
    std::vector<float> x(1003), y(1003), once(1003);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -100.f + 0.2f * static_cast<float>(i);
    x[17] = not_a_number;
    x[18] = infinity;
    x[19] = -infinity;
#pragma omp simd
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = kernels::exp_fast(x[i]);
    for (std::size_t i = 0; i < x.size(); ++i) {
        volatile float alone = x[i];
        once[i] = kernels::exp_fast(alone);
    }
    check_close("exp_fast", y, once, 1e-7, 0);
}

TEST_CASE("sigmoid, tanh, gelu, silu and derivatives") {
    std::vector<float> x;
    for (Index i = -40000; i <= 40000; ++i) x.push_back(static_cast<float>(i) * 5e-4f);
    for (float v : {-1e4f, -200.f, -100.f, -89.f, -30.f, 30.f, 89.f, 100.f, 1e4f}) x.push_back(v);
    const std::size_t n = x.size();
    std::vector<float> s(n), t(n), g(n), dg(n), u(n), du(n);
    std::vector<double> ws(n), wt(n), wg(n), wdg(n), wu(n), wdu(n);
    for (std::size_t i = 0; i < n; ++i) {
        const double v = x[i], step = 1e-4;
        s[i] = kernels::sigmoid(x[i]);
        t[i] = kernels::tanh_fast(x[i]);
        g[i] = kernels::gelu(x[i]);
        dg[i] = kernels::gelu_derivative(x[i]);
        u[i] = kernels::silu(x[i]);
        du[i] = kernels::silu_derivative(x[i]);
        ws[i] = sigmoid(v);
        wt[i] = std::tanh(v);
        wg[i] = gelu(v);
        wdg[i] = (8 * (gelu(v + step) - gelu(v - step)) - gelu(v + 2 * step) + gelu(v - 2 * step)) /
                 (12 * step);
        wu[i] = v * sigmoid(v);
        wdu[i] = sigmoid(v) * (1 + v * (1 - sigmoid(v)));
    }
    check_close("sigmoid", s, ws, 4e-7, 1e-37);
    check_close("tanh", t, wt, 0, 2e-7);
    check_close("gelu", g, wg, 1e-6, 2e-7);
    check_close("gelu derivative", dg, wdg, 1e-6, 2e-6);
    check_close("silu", u, wu, 1e-6, 1e-36);
    check_close("silu derivative", du, wdu, 1e-6, 1e-6);
    for (float (*f)(float) :
         {&kernels::sigmoid, &kernels::tanh_fast, &kernels::gelu, &kernels::gelu_derivative,
          &kernels::silu, &kernels::silu_derivative}) {
        CHECK(std::isnan(f(not_a_number)));
    }
}
