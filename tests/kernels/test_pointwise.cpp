// Biases, residual additions, activations and rotary positions against plain loops in double
// precision.
#include <scape/kernels/pointwise.hpp>

#include "support/compare.hpp"

using namespace scape;
using namespace scape::test;

namespace {

using Doubles = std::vector<double>;

struct Shape {
    Index rows, cols;
};
const std::vector<Shape> shapes = {{1, 1},  {1, 5},   {3, 1},    {2, 80},  {7, 96},
                                   {1, 96}, {1, 768}, {63, 257}, {64, 96}, {130, 257}};

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
const double root = std::sqrt(2 / std::acos(-1.0));
double gelu(double h) {
    return 0.5 * h * (1 + std::tanh(root * (h + 0.044715 * h * h * h)));
}
double gelu_derivative(double h) {
    const double t = std::tanh(root * (h + 0.044715 * h * h * h));
    return 0.5 * (1 + t) + 0.5 * h * (1 - t * t) * root * (1 + 3 * 0.044715 * h * h);
}

}  // namespace

TEST_CASE("add_bias and residual_add") {
    for (const auto& [rows, cols] : shapes) {
        CAPTURE(rows, cols);
        const Index n = rows * cols;
        const auto x = normal_values(n, 1), residual = normal_values(n, 2),
                   bias = normal_values(cols, 3);
        Doubles biased(n), both(n), without(n);
        for (Index k = 0; k < n; ++k) {
            biased[k] = static_cast<double>(x[k]) + bias[k % cols];
            both[k] = biased[k] + residual[k];
            without[k] = static_cast<double>(x[k]) + residual[k];
        }
        const auto vx = to_device(x), vr = to_device(residual), vb = to_device(bias);
        const auto y = filled(n, NAN);
        const Mat<float> mx = as_matrix(vx, rows, cols), mr = as_matrix(vr, rows, cols),
                         my = as_matrix(y, rows, cols);
        kernels::residual_add<float>(Exec(), mr, mx, vb, my);
        check_close("residual + x + bias", my, both, 1e-6, 1e-6);
        kernels::residual_add<float>(Exec(), mr, mx, {}, my);
        check_close("residual + x", my, without, 1e-6, 1e-6);
        kernels::residual_add<float>(Exec(), mr, mx, vb, mr);
        check_close("in the residual's place", mr, both, 1e-6, 1e-6);
        kernels::add_bias<float>(Exec(), mx, vb);
        check_close("x + bias", mx, biased, 1e-6, 1e-6);
        const auto again = to_device(residual), x_again = to_device(x);
        const Mat<float> in_place = as_matrix(x_again, rows, cols);
        kernels::residual_add<float>(Exec(), as_matrix(again, rows, cols), in_place, vb, in_place);
        check_close("in x's place", in_place, both, 1e-6, 1e-6);
    }
}

TEST_CASE("bias_backward adds column sums") {
    for (const auto& [rows, cols] : shapes) {
        CAPTURE(rows, cols);
        const auto d_y = normal_values(rows * cols, 1), before = normal_values(cols, 2);
        Doubles wanted = to_double(before);
        for (Index k = 0; k < rows * cols; ++k) wanted[k % cols] += d_y[k];
        const auto v = to_device(d_y), d_bias = to_device(before), again = to_device(before);
        const auto workspace = filled(kernels::bias_workspace(cols), NAN);
        kernels::bias_backward<float>(Exec(), as_matrix(v, rows, cols), d_bias, workspace);
        check_close("d_bias", d_bias, wanted, 1e-6, 1e-5);
        kernels::bias_backward<float>(Exec(), as_matrix(v, rows, cols), again, workspace);
        check_same_bits("d_bias again", to_host(again), to_host(d_bias));
    }
}

TEST_CASE("Column sums are formed block after block of rows") {
    // 2^24 and ones: fp32 loses a 1 that is added to 2^24 alone, and keeps two that were added to
    // each other first. Rows 0..3 are one block and rows 4..7 the next wherever 256 rows are cut
    // into 64 blocks; a device cuts them into 256 blocks of one row.
    const Index rows = 256;
    std::vector<float> d_y(rows, 0.f);
    d_y[0] = 16777216.f;
    d_y[1] = d_y[2] = 1.f;  // lost one by one in the block of row 0
    d_y[4] = d_y[5] = 1.f;  // kept as 2 in a block of their own
    const auto v = to_device(d_y), d_bias = filled(1, 0.f);
    const auto workspace = filled(kernels::bias_workspace(1), NAN);
    kernels::bias_backward<float>(Exec(), as_matrix(v, rows, 1), d_bias, workspace);
    CHECK(to_host(d_bias)[0] == (exec_is_host ? 16777218.f : 16777216.f));
}

TEST_CASE("GELU forward and backward") {
    for (const auto& [rows, cols] : shapes) {
        CAPTURE(rows, cols);
        const Index n = rows * cols;
        auto h = normal_values(n, 1, 2);
        if (n > 20) {
            h[3] = -40;
            h[7] = 60;
            h[11] = -9;
        }
        const auto bias = normal_values(cols, 2), d_y = normal_values(n, 3);
        Doubles pre(n), y(n), d_h(n);
        for (Index k = 0; k < n; ++k) {
            pre[k] = h[k] + bias[k % cols];
            y[k] = gelu(pre[k]);
            d_h[k] = gelu_derivative(pre[k]) * d_y[k];
        }
        const auto vh = to_device(h), vb = to_device(bias), vd = to_device(d_y);
        const auto out = filled(n, NAN), grad = filled(n, NAN);
        const Mat<float> mh = as_matrix(vh, rows, cols), md = as_matrix(vd, rows, cols);
        kernels::bias_gelu_forward<float>(Exec(), mh, vb, as_matrix(out, rows, cols));
        check_close("pre-activation", mh, pre, 1e-6, 1e-6);
        check_close("y", as_matrix(out, rows, cols), y, 1e-6, 2e-6);
        kernels::gelu_backward<float>(Exec(), mh, md, as_matrix(grad, rows, cols));
        check_close("d_h", as_matrix(grad, rows, cols), d_h, 1e-5, 5e-6);
        kernels::gelu_backward<float>(Exec(), mh, md, md);
        check_same_bits("in d_y's place", to_host(vd), to_host(grad));
    }
}

TEST_CASE("SwiGLU forward and backward") {
    for (const auto& [rows, cols] : shapes) {
        CAPTURE(rows, cols);
        const Index n = rows * cols;
        auto gate_up = normal_values(2 * n, 1, 2);
        gate_up[0] = -100;
        const auto d_y = normal_values(n, 2);
        Doubles y(n), grad(2 * n);
        for (Index i = 0; i < rows; ++i) {
            for (Index j = 0; j < cols; ++j) {
                const Index gate = i * 2 * cols + j, up = gate + cols, k = i * cols + j;
                const double g = gate_up[gate], u = gate_up[up], s = sigmoid(g), d = d_y[k];
                y[k] = g * s * u;
                grad[up] = d * g * s;
                grad[gate] = d * u * s * (1 + g * (1 - s));
            }
        }
        const auto v = to_device(gate_up), vd = to_device(d_y);
        const auto out = filled(n, NAN), d = filled(2 * n, NAN);
        const Mat<float> m = as_matrix(v, rows, 2 * cols);
        kernels::swiglu_forward<float>(Exec(), m, as_matrix(out, rows, cols));
        check_close("y", as_matrix(out, rows, cols), y, 1e-5, 1e-6);
        kernels::swiglu_backward<float>(Exec(), m, as_matrix(vd, rows, cols),
                                        as_matrix(d, rows, 2 * cols));
        check_close("d_gate_up", as_matrix(d, rows, 2 * cols), grad, 1e-5, 3e-6);
        kernels::swiglu_backward<float>(Exec(), m, as_matrix(vd, rows, cols), m);
        check_same_bits("in gate_up's place", to_host(v), to_host(d));
    }
}

TEST_CASE("Rotary positions") {
    struct Case {
        Index batch, seq, heads, rotated, head_dim;
    };
    const double base = 10000;
    for (const Case c : {Case{1, 1, 1, 1, 2}, Case{2, 5, 6, 4, 80}, Case{1, 33, 3, 2, 96},
                         Case{3, 7, 4, 4, 6}, Case{1, 2048, 1, 1, 64}}) {
        CAPTURE(c.batch, c.seq, c.heads, c.rotated, c.head_dim);
        const Index rows = c.batch * c.seq, cols = c.heads * c.head_dim, half = c.head_dim / 2;
        const auto x = normal_values(rows * cols, 1);
        Doubles turned = to_double(x), wanted_table(c.seq * c.head_dim);
        for (Index i = 0; i < rows; ++i) {
            for (Index h = 0; h < c.rotated; ++h) {
                for (Index j = 0; j < half; ++j) {
                    const double angle = static_cast<double>(i % c.seq) /
                                         std::pow(base, 2.0 * static_cast<double>(j) /
                                                            static_cast<double>(c.head_dim));
                    const Index a = i * cols + h * c.head_dim + j, b = a + half;
                    turned[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
                    turned[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
                    wanted_table[(i % c.seq) * c.head_dim + j] = std::cos(angle);
                    wanted_table[(i % c.seq) * c.head_dim + half + j] = std::sin(angle);
                }
            }
        }
        const auto table = filled(c.seq * c.head_dim, NAN), v = to_device(x);
        const Mat<float> m = as_matrix(v, rows, cols), t = as_matrix(table, c.seq, c.head_dim);
        kernels::rope_table(Exec(), base, t);
        check_close("table", t, wanted_table, 0, 6e-8);
        kernels::rope<float>(Exec(), m, c.seq, c.rotated, c.head_dim, t, 1);
        check_close("x", m, turned, 1e-6, 2e-6);
        kernels::rope<float>(Exec(), m, c.seq, c.rotated, c.head_dim, t, -1);
        check_close("and back", m, to_double(x), 1e-6, 2e-6);
    }
}

TEST_CASE("fill_zero") {
    for (Index n : {0, 1, 5, 2048, 2049, 5000}) {
        const auto y = filled(n + 1, NAN);
        kernels::fill_zero<float>(Exec(), slice(y, 0, n));
        const auto got = to_host(y);
        check_same_bits("zeros", {got.begin(), got.begin() + n}, std::vector<float>(n, 0.f));
        CHECK(std::isnan(got[n]));
    }
}
