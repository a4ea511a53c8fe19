// LayerNorm and RMSNorm against plain loops in double precision.
#include <scape/kernels/norm.hpp>

#include "support/compare.hpp"

using namespace scape;
using namespace scape::test;

namespace {

using Doubles = std::vector<double>;

/// y and the gradients of both norms: RMSNorm when `centred` is false.
struct NormReference {
    Doubles y, mean, rstd, d_x, d_gain, d_bias;

    NormReference(bool centred, Index rows, Index cols, double eps, const std::vector<float>& x,
                  const std::vector<float>& gain, const std::vector<float>& bias,
                  const std::vector<float>& d_y)
        : y(rows * cols), mean(rows), rstd(rows), d_x(rows * cols), d_gain(cols), d_bias(cols) {
        for (Index i = 0; i < rows; ++i) {
            double m = 0, square = 0;
            for (Index j = 0; j < cols; ++j) m += x[i * cols + j];
            m = centred ? m / cols : 0;
            for (Index j = 0; j < cols; ++j) square += std::pow(x[i * cols + j] - m, 2);
            const double r = 1 / std::sqrt(square / cols + eps);
            mean[i] = m;
            rstd[i] = r;
            double sum = 0, sum_xhat = 0;
            for (Index j = 0; j < cols; ++j) {
                const Index k = i * cols + j;
                const double xhat = (x[k] - m) * r;
                y[k] = xhat * gain[j] + (centred ? bias[j] : 0);
                sum += d_y[k] * static_cast<double>(gain[j]);
                sum_xhat += d_y[k] * static_cast<double>(gain[j]) * xhat;
                d_gain[j] += d_y[k] * xhat;
                d_bias[j] += d_y[k];
            }
            for (Index j = 0; j < cols; ++j) {
                const Index k = i * cols + j;
                const double xhat = (x[k] - m) * r;
                d_x[k] = r * (d_y[k] * static_cast<double>(gain[j]) - (centred ? sum / cols : 0) -
                              xhat * sum_xhat / cols);
            }
        }
    }
};

Doubles plus(const std::vector<float>& a, Doubles b) {
    for (std::size_t i = 0; i < a.size(); ++i) b[i] += a[i];
    return b;
}

struct Shape {
    Index rows, cols;
};
const std::vector<Shape> shapes = {{1, 1},   {1, 5},    {3, 1},     {2, 80},    {7, 96},
                                   {1, 768}, {63, 257}, {130, 257}, {200, 768}, {65, 5}};

void check_norm(bool centred, Shape shape, double mean_of_x) {
    const Index rows = shape.rows, cols = shape.cols, n = rows * cols;
    CAPTURE(centred, rows, cols, mean_of_x);
    const float eps = 1e-5f;
    const auto x = normal_values(n, 1, 1.5, mean_of_x), d_y = normal_values(n, 2);
    const auto gain = normal_values(cols, 3, 0.3, 1), bias = normal_values(cols, 4, 0.2);
    const auto d_x_before = normal_values(n, 5), d_gain_before = normal_values(cols, 6),
               d_bias_before = normal_values(cols, 7);
    const NormReference wanted(centred, rows, cols, eps, x, gain, bias, d_y);

    const auto vx = to_device(x), vgain = to_device(gain), vbias = to_device(bias),
               vd_y = to_device(d_y);
    const Mat<const float> mx = as_matrix(vx, rows, cols), md_y = as_matrix(vd_y, rows, cols);
    const auto y = filled(n, NAN), mean = filled(rows, NAN), rstd = filled(rows, NAN);
    auto d_x = to_device(d_x_before), d_gain = to_device(d_gain_before),
         d_bias = to_device(d_bias_before);
    const auto workspace = filled(kernels::norm_workspace(cols), NAN);
    const Exec exec;
    const auto backward = [&] {
        if (centred) {
            kernels::layer_norm_backward<float>(exec, mx, vgain, mean, rstd, md_y,
                                                as_matrix(d_x, rows, cols), d_gain, d_bias,
                                                workspace);
        } else {
            kernels::rms_norm_backward<float>(exec, mx, vgain, rstd, md_y,
                                              as_matrix(d_x, rows, cols), d_gain, workspace);
        }
    };
    if (centred) {
        kernels::layer_norm_forward<float>(exec, mx, vgain, vbias, eps, as_matrix(y, rows, cols),
                                           mean, rstd);
        check_close("mean", mean, wanted.mean, 5e-6, 1e-6);
    } else {
        kernels::rms_norm_forward<float>(exec, mx, vgain, eps, as_matrix(y, rows, cols), rstd);
    }
    backward();
    // At one or two columns rstd is up to 1/sqrt(eps), and so are the errors.
    const double abs = cols < 10 ? 1e-3 : 1e-5 * (1 + std::abs(mean_of_x));
    check_close("y", as_matrix(y, rows, cols), wanted.y, 1e-5, abs);
    check_close("rstd", rstd, wanted.rstd, 1e-5, 0);
    check_close("d_x", as_matrix(d_x, rows, cols), plus(d_x_before, wanted.d_x), 1e-5, abs);
    check_close("d_gain", d_gain, plus(d_gain_before, wanted.d_gain), 1e-5, 10 * abs);
    if (centred) {
        check_close("d_bias", d_bias, plus(d_bias_before, wanted.d_bias), 1e-5, 1e-5);
    } else {
        check_same_bits("bias gradient untouched", to_host(d_bias), d_bias_before);
    }

    const auto first_d_x = to_host(d_x), first_d_gain = to_host(d_gain);
    d_x = to_device(d_x_before);
    d_gain = to_device(d_gain_before);
    backward();
    check_same_bits("d_x again", to_host(d_x), first_d_x);
    check_same_bits("d_gain again", to_host(d_gain), first_d_gain);
}

}  // namespace

TEST_CASE("LayerNorm forward and backward") {
    for (const Shape& shape : shapes) check_norm(true, shape, 0);
}

TEST_CASE("RMSNorm forward and backward") {
    for (const Shape& shape : shapes) check_norm(false, shape, 0);
}

TEST_CASE("LayerNorm of rows far from zero: the variance is that of the differences") {
    check_norm(true, {5, 768}, 30);
}

TEST_CASE("A norm of a constant row") {
    const Index cols = 96;
    const auto x = filled(cols, 3.f), gain = filled(cols, 2.f), bias = filled(cols, 0.5f);
    const auto y = filled(cols, NAN), mean = filled(1, NAN), rstd = filled(1, NAN);
    kernels::layer_norm_forward<float>(Exec(), as_matrix(x, 1, cols), gain, bias, 1e-5f,
                                       as_matrix(y, 1, cols), mean, rstd);
    check_close("y", y, Doubles(cols, 0.5), 0, 1e-3);
    kernels::rms_norm_forward<float>(Exec(), as_matrix(x, 1, cols), gain, 1e-5f,
                                     as_matrix(y, 1, cols), rstd);
    check_close("y", y, Doubles(cols, 2), 1e-5, 0);
}

TEST_CASE("The gain's gradient is exact on small integers, whatever the cut into blocks") {
    const Index rows = 128, cols = 33;
    std::vector<float> ones(rows * cols), counting(rows * cols);
    for (Index i = 0; i < rows * cols; ++i) {
        ones[i] = i % 2 == 0 ? 1.f : -1.f;
        counting[i] = static_cast<float>(i % 7);
    }
    const auto x = to_device(ones), d_y = to_device(counting), gain = filled(cols, 1.f);
    const auto rstd = filled(rows, 1.f), d_x = filled(rows * cols, 0.f);
    const auto d_gain = filled(cols, 0.f), workspace = filled(kernels::norm_workspace(cols), NAN);
    kernels::rms_norm_backward<float>(Exec(), as_matrix(x, rows, cols), gain, rstd,
                                      as_matrix(d_y, rows, cols), as_matrix(d_x, rows, cols),
                                      d_gain, workspace);
    Doubles wanted(cols);
    for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < cols; ++j) {
            wanted[j] += static_cast<double>(ones[i * cols + j]) * counting[i * cols + j];
        }
    }
    check_close("d_gain", d_gain, wanted, 0, 0);
}
