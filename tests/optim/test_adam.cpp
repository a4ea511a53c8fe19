// AdamW and AdamS against plain loops in double precision.
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/optim/optimizer.hpp>
#include <scape/optim/scape_rule.hpp>

#include <cmath>
#include <stdexcept>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

using config::OptimizerKind;

// algorithm.md section 1, element by element.
struct Reference {
    config::OptimizerSection c;
    std::vector<double> w, m, v;
    Reference(const config::OptimizerSection& config, const std::vector<float>& start)
        : c(config), w(start.begin(), start.end()), m(start.size(), 0), v(start.size(), 0) {}

    void update(const StepNumbers& s, bool decay, const std::vector<float>& gradient) {
        const double c1 = c.bias_correction ? 1 - std::pow(c.beta1, s.step) : 1;
        const double c2 = c.bias_correction ? 1 - std::pow(c.beta2, s.step) : 1;
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = static_cast<double>(s.grad_scale) * gradient[i];
            const double before = c.kind == OptimizerKind::adams ? m[i] * m[i] : v[i];
            v[i] = c.beta2 * before + (1 - c.beta2) * g * g;
            m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
            if (decay) w[i] *= 1 - s.lr * c.weight_decay;
            w[i] -= s.lr * (m[i] / c1) / (std::sqrt(v[i] / c2) + c.eps);
        }
    }
};

config::OptimizerSection settings(OptimizerKind kind, bool bias_correction) {
    config::OptimizerSection c;
    c.kind = kind;
    c.beta1 = 0.9;
    c.beta2 = 0.95;
    c.eps = 1e-8;
    c.weight_decay = 0.1;
    c.bias_correction = bias_correction;
    return c;
}

Slice part_of_shard(Index begin, Index end) {
    Slice s;
    s.flat = {begin, end};
    s.shard_begin = begin;
    return s;
}

// Weights after 50 steps with a schedule and a clip coefficient that changes, cut at `cuts`.
Vec<float> run(const config::OptimizerSection& c, bool decay, const std::vector<Index>& cuts,
               Reference* reference) {
    const Index n = cuts.back();
    const auto optimizer = make_optimizer(c, n);
    const Vec<float> w = to_device(normal_values(n, 1));
    for (Index t = 1; t <= 50; ++t) {
        const std::vector<float> g = normal_values(n, 100 + t, 0.02);
        const StepNumbers numbers{t, 1e-2f / static_cast<float>(t), t % 3 == 0 ? 0.37f : 1.f};
        const Vec<float> gradient = to_device(g);
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            optimizer->update(Exec(), numbers, part_of_shard(cuts[i], cuts[i + 1]), decay,
                              slice(w, cuts[i], cuts[i + 1]),
                              slice(gradient, cuts[i], cuts[i + 1]));
        }
        if (reference != nullptr) reference->update(numbers, decay, g);
    }
    if (reference != nullptr) {
        const auto state = optimizer->state();
        REQUIRE(state.size() == (c.kind == OptimizerKind::adamw ? 2 : 1));
        CHECK(state[0].name == "m");
        check_close("m", std::get<Vec<float>>(state[0].values), reference->m, 1e-5, 1e-8);
        if (state.size() == 2) {
            CHECK(state[1].name == "v");
            check_close("v", std::get<Vec<float>>(state[1].values), reference->v, 1e-5, 1e-10);
        }
    }
    return w;
}

}  // namespace

TEST_CASE("50 steps agree with the formulas in double precision") {
    const Index n = 5003;  // some chunks of the host loop, and a rest
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adams}) {
        for (const bool bias_correction : {true, false}) {
            for (const bool decay : {true, false}) {
                INFO("kind " << static_cast<int>(kind) << ", bias correction " << bias_correction
                             << ", decay " << decay);
                const auto c = settings(kind, bias_correction);
                Reference reference(c, normal_values(n, 1));
                const Vec<float> w = run(c, decay, {0, n}, &reference);
                check_close("w", w, reference.w, 1e-6, 3e-6);
            }
        }
    }
}

TEST_CASE("the bits do not depend on how a shard is cut into slices") {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adams}) {
        const auto c = settings(kind, true);
        const auto whole = to_host(run(c, true, {0, 5003}, nullptr));
        const auto parts = to_host(run(c, true, {0, 1, 18, 2047, 2049, 5002, 5003}, nullptr));
        check_same_bits("w", parts, whole);
    }
}

TEST_CASE("elements that no gradient ever touches stay exactly as they were") {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adams}) {
        const auto optimizer = make_optimizer(settings(kind, true), 33);
        const std::vector<float> start = normal_values(33, 5);
        const Vec<float> w = to_device(start);
        const Vec<float> zero = filled(33, 0.f);
        for (Index t = 1; t < 5; ++t) {
            optimizer->update(Exec(), {t, 1e-2f, 1.f}, part_of_shard(0, 33), false, w, zero);
        }
        check_same_bits("w", to_host(w), start);
    }
}

TEST_CASE("AdamS stores half of AdamW's state") {
    CHECK(make_optimizer(settings(OptimizerKind::adamw, true), 10)->state().size() == 2);
    const auto state = make_optimizer(settings(OptimizerKind::adams, true), 10)->state();
    REQUIRE(state.size() == 1);
    CHECK(std::get<Vec<float>>(state[0].values).extent(0) == 10);
    CHECK(state_arrays(OptimizerKind::adamw) == 2);
    CHECK(state_arrays(OptimizerKind::adams) == 1);
}

TEST_CASE("lengths that do not fit are refused") {
    const auto optimizer = make_optimizer(settings(OptimizerKind::adamw, true), 10);
    const Vec<float> w = filled(5, 0.f);
    const Vec<float> g = filled(6, 0.f);
    CHECK_THROWS_AS(optimizer->update(Exec(), {}, part_of_shard(0, 5), true, w, g),
                    std::logic_error);
    CHECK_THROWS_AS(optimizer->update(Exec(), {}, part_of_shard(6, 11), true, w, w),
                    std::logic_error);
    CHECK_NOTHROW(optimizer->update(Exec(), {}, part_of_shard(5, 10), true, w, w));
}

TEST_CASE(
    "a code that delivers nothing after a long while does not blow up a stored second moment") {
    optim::ElementNumbers n;
    n.b1 = 0.9f;
    n.b2 = 0.95f;
    n.eps = 1e-8f;
    n.eta = 1e-3f;
    for (const int tau : {2, 10, 100, 1000}) {
        const double p = std::pow(0.9, tau);
        const optim::Powers powers{static_cast<float>(p), static_cast<float>(0.9 * (1 - p) / 0.1)};
        float w = 1, m = 0.02f, v = 0.001f;
        optim::catch_up_stored_element(n, powers, static_cast<float>(std::pow(0.95, tau)),
                                       static_cast<float>(tau), 0.f, w, m, v);
        INFO("tau " << tau);
        CHECK(std::fabs(w - 1) <= 1e-3 * 9 / std::sqrt(0.95) * (1 + 1e-3));
        CHECK(w < 1);
    }
}
