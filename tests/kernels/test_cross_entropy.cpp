// Softmax cross-entropy and its gradient against plain loops in double precision.
#include <scape/kernels/cross_entropy.hpp>

#include "support/compare.hpp"

#include <numeric>

using namespace scape;
using namespace scape::test;

namespace {

struct Result {
    double loss = 0;
    std::vector<double> gradient;
};

Result reference(const std::vector<float>& z, const std::vector<Token>& targets, Index vocab,
                 Index padded, double scale) {
    Result r;
    r.gradient.assign(z.size(), 0);
    for (std::size_t i = 0; i < targets.size(); ++i) {
        if (targets[i] == ignored_target) continue;
        const float* row = z.data() + i * padded;
        double most = row[0], sum = 0;
        for (Index j = 0; j < vocab; ++j) most = std::max<double>(most, row[j]);
        for (Index j = 0; j < vocab; ++j) sum += std::exp(row[j] - most);
        r.loss += most + std::log(sum) - row[targets[i]];
        for (Index j = 0; j < vocab; ++j) {
            r.gradient[i * padded + j] = scale * std::exp(row[j] - most) / sum;
        }
        r.gradient[i * padded + targets[i]] -= scale;
    }
    return r;
}

struct Case {
    Index rows, vocab, padded;
    double deviation;    // of the logits
    Index ignore_every;  // 0: none
};

/// Loss and gradient of one call; `before` is in loss[0] on entry.
Result run(const std::vector<float>& z, const std::vector<Token>& targets, Index vocab,
           Index padded, float scale, bool with_gradient, double before) {
    const Index rows = targets.size();
    const auto logits = to_device(z), row_loss = filled(rows + 3, NAN);
    const auto vt = to_device(targets);
    const auto loss = filled(1, before);
    kernels::softmax_cross_entropy<float>(Exec(), as_matrix(logits, rows, padded), vt, vocab, scale,
                                          with_gradient, row_loss, loss);
    return {to_host(loss)[0], to_double(to_host(logits))};
}

void check(const Case& c) {
    CAPTURE(c.rows, c.vocab, c.padded, c.deviation, c.ignore_every);
    const float scale = 0.37f;
    auto z = normal_values(c.rows * c.padded, 1, c.deviation);
    // Padding takes no part, whatever is in it.
    for (Index i = 0; i < c.rows; ++i) {
        for (Index j = c.vocab; j < c.padded; ++j) z[i * c.padded + j] = j % 2 == 0 ? 1e30f : NAN;
    }
    auto targets = token_values(c.rows, 2, c.vocab, c.ignore_every);
    if (c.ignore_every != 1) targets.back() = static_cast<Token>(c.vocab - 1);
    const Result wanted = reference(z, targets, c.vocab, c.padded, scale);
    const Result got = run(z, targets, c.vocab, c.padded, scale, true, 2.5);
    CHECK(got.loss - 2.5 == Approx(wanted.loss).epsilon(1e-6).margin(1e-6 * c.rows));
    // e^(z - max) is as exact as z - max, which fp32 rounds by up to 6e-8 |z|.
    check_close("gradient", got.gradient, wanted.gradient, 2e-6 + 1e-6 * c.deviation, 1e-7,
                c.padded);
    const Result only = run(z, targets, c.vocab, c.padded, scale, false, 2.5);
    CHECK(only.loss == Approx(got.loss).epsilon(1e-7));
    check_close("logits left alone", only.gradient, to_double(z), 0, 0, c.padded);
}

}  // namespace

TEST_CASE("Softmax cross-entropy: loss and gradient") {
    check({1, 1, 1, 1, 0});
    check({1, 5, 5, 1, 0});
    check({3, 5, 64, 2, 0});
    check({9, 257, 320, 3, 4});
    check({5, 80, 96, 10, 0});
    check({6, 50257, 50304, 2, 3});
    check({2, 50257, 50257, 1, 0});
    check({130, 96, 128, 1, 5});
}

TEST_CASE("Softmax cross-entropy with all targets ignored") {
    check({4, 257, 320, 1, 1});
    const std::vector<float> z(2 * 64, 1e30f);
    const auto r = run(z, {ignored_target, ignored_target}, 60, 64, 1.f, true, 0.25);
    CHECK(r.loss == 0.25);
    check_close("gradient", r.gradient, std::vector<double>(2 * 64, 0.0), 0, 0);
}

TEST_CASE("Softmax cross-entropy of saturated logits") {
    check({7, 257, 320, 60, 0});
    check({7, 257, 320, 3e4, 0});
    // One logit towers over the others: loss 0 if it is the target, the difference if not.
    const Index vocab = 100;
    std::vector<float> z(2 * vocab, -500.f);
    z[3] = 700.f;
    z[vocab + 3] = 700.f;
    const auto r = run(z, {3, 4}, vocab, vocab, 1.f, true, 0);
    CHECK(r.loss == 1200.0);
    std::vector<double> wanted(2 * vocab, 0.0);
    wanted[vocab + 3] = 1;
    wanted[vocab + 4] = -1;
    check_close("gradient", r.gradient, wanted, 0, 0);
}

TEST_CASE("Non-finite logits give a loss that is not finite") {
    for (float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        auto z = normal_values(3 * 257, 1);
        z[257 + 200] = bad;
        CHECK_FALSE(std::isfinite(run(z, {1, 2, 3}, 257, 257, 1.f, true, 0).loss));
        CHECK_FALSE(std::isfinite(run(z, {1, 2, 3}, 257, 257, 1.f, false, 0).loss));
    }
}

TEST_CASE("The loss does not depend on the padding of the vocabulary") {
    const Index rows = 11, vocab = 257, padded = 320;
    const auto narrow = normal_values(rows * vocab, 1);
    std::vector<float> wide(rows * padded, 5.f);
    for (Index i = 0; i < rows; ++i) {
        std::copy_n(narrow.begin() + i * vocab, vocab, wide.begin() + i * padded);
    }
    const auto targets = token_values(rows, 2, vocab, 3);
    CHECK(run(narrow, targets, vocab, vocab, 1.f, true, 0).loss ==
          run(wide, targets, vocab, padded, 1.f, true, 0).loss);
}

TEST_CASE("The loss does not depend on how rows are cut into chunks") {
    const Index vocab = 96;
    const auto z = normal_values(20 * vocab, 1);
    const auto targets = token_values(20, 2, vocab);
    const double whole = run(z, targets, vocab, vocab, 1.f, false, 0).loss;
    const double first = run({z.begin(), z.begin() + 7 * vocab},
                             {targets.begin(), targets.begin() + 7}, vocab, vocab, 1.f, false, 0)
                             .loss;
    const double both = run({z.begin() + 7 * vocab, z.end()}, {targets.begin() + 7, targets.end()},
                            vocab, vocab, 1.f, false, first)
                            .loss;
    if (exec_is_host) {
        CHECK(both == whole);
    } else {
        CHECK(both == Approx(whole).epsilon(1e-14));
    }
}
