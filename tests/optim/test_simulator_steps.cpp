// The parts of the simulator, steps worked out by hand, skipped steps and the baselines.
#include "optim/simulator_data.hpp"
#include "support/compare.hpp"

#include <cmath>
#include <limits>

using namespace scape;
using namespace scape::test;

namespace {

using Elements = SimConfig::Elements;
using Rule = SimConfig::Rule;
using Owner = SimConfig::Owner;
using Values = std::vector<double>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("the density schedule") {
    SimConfig c;
    c.density_start = 0.8;
    c.density = 0.1;
    c.dense_steps = 5;
    c.warmup_steps = 10;
    c.cooldown_steps = 4;
    c.total_steps = 40;
    CHECK(sim_density(c, 1) == 1);
    CHECK(sim_density(c, 5) == 1);
    CHECK(sim_density(c, 6) == 0.8);
    CHECK(sim_density(c, 11) == Approx(std::sqrt(0.8 * 0.1)));
    CHECK(sim_density(c, 16) == 0.1);
    CHECK(sim_density(c, 36) == 0.1);
    CHECK(sim_density(c, 38) == Approx(std::sqrt(0.1)));
    CHECK(sim_density(c, 40) == 1);
    c.warmup_steps = 0;
    CHECK(sim_density(c, 6) == 0.1);
    CHECK(sim_count(0.1, 1) == 1);
    CHECK(sim_count(0.1, 19) == 1);
    CHECK(sim_count(0.5, 7) == 3);
    CHECK(sim_count(1, 7) == 7);
}

TEST_CASE("top k orders by the bits of the magnitude, the lower position first") {
    const float denormal = 1e-45f, inf = std::numeric_limits<float>::infinity();
    const std::vector<float> x = {9.f,  0.f, -0.f, 2 * denormal,  -denormal, -3.f,
                                  -inf, 3.f, 1.f,  std::nanf(""), 99.f};
    const auto chosen = [&](Index k) {
        std::vector<bool> marks(x.size(), false);
        sim_top_k(x, 1, 9, k, marks);
        std::vector<Index> positions;
        for (std::size_t i = 0; i < marks.size(); ++i) {
            if (marks[i]) positions.push_back(static_cast<Index>(i));
        }
        return positions;
    };
    CHECK(chosen(1) == std::vector<Index>{9});
    CHECK(chosen(3) == std::vector<Index>{5, 6, 9});
    CHECK(chosen(6) == std::vector<Index>{3, 5, 6, 7, 8, 9});
    CHECK(chosen(8) == std::vector<Index>{1, 3, 4, 5, 6, 7, 8, 9});
    CHECK(chosen(9).size() == 9);
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
    CHECK(bf16_rounded(1.f) == 1.f);
    CHECK(bf16_rounded(1.f + 0x1p-8f) == 1.f);                // a tie: down to even
    CHECK(bf16_rounded(1.f + 3 * 0x1p-8f) == 1.f + 0x1p-6f);  // a tie: up to even
    CHECK(bf16_rounded(1.f + 0x1p-8f + 0x1p-20f) == 1.f + 0x1p-7f);
    CHECK(bf16_rounded(-3.14159f) == -3.140625f);
    CHECK(std::isinf(bf16_rounded(std::numeric_limits<float>::max())));
    CHECK(std::isnan(bf16_rounded(std::nanf(""))));
}

// One slice of two elements on rank 0, two ranks, d = 0.5, beta1 = 0.5, beta2 = 0.75: every number
// is worked out by hand.
//
//     gradients of rank 0, 1     step 1  (4 2) (4 6)    step 2  (2 3) (0 1)    step 3  (1 1) (1 3)
TEST_CASE("three steps by hand") {
    const Geometry geometry{2, {{0, 0, 2, 0, false, false}}};
    const std::vector<std::vector<Values>> g = {
        {{4, 2}, {4, 6}}, {{2, 3}, {0, 1}}, {{1, 1}, {1, 3}}};
    SimConfig config;
    config.beta1 = 0.5;
    config.beta2 = 0.75;
    config.eps = 0;
    config.bias_correction = false;
    config.density = config.density_start = 0.5;
    using Marks = std::vector<bool>;

    SECTION("catch_up") {
        Simulator<double> sim(config, geometry, 2, {0, 0});
        sim.step(g[0], 1);  // s = (4 4), m = (2 2), v = (4 4)
        CHECK(sim.mask() == Marks{true, true});
        CHECK(sim.weights() == Values{-1, -1});
        CHECK(sim.score() == Values{1, 1});
        CHECK(sim.next_mask() == Marks{true, false});
        sim.step(g[1], 1);  // s = 1, m = 1.5, v = 3 + 0.25; the other: tau of the next step 2
        CHECK(sim.weights()[0] == Approx(-1 - 1.5 / std::sqrt(3.25)));
        CHECK(sim.weights()[1] == -1);
        CHECK(sim.m() == Values{1.5, 2});
        CHECK(sim.residual(0) == Values{0, 3});
        CHECK(sim.residual(1) == Values{0, 1});
        CHECK(sim.score() == Values{0.75, 0.75 * 2 + 1.5 * 1.25});
        CHECK(sim.next_mask() == Marks{false, true});
        sim.step(g[2], 1);  // s = 4 in two steps, q = 0.75: M = 1.5 + 2.5, v = 3 + 2
        CHECK(sim.delivered() == Values{0, 4});
        CHECK(sim.received_norm() == Approx(std::sqrt(8.0)));
        CHECK(sim.weights()[1] == Approx(-1 - 4 / std::sqrt(5.0)));
        CHECK(sim.m() == Values{1.5, 0.25 * 2 + 0.75 * 2});
        CHECK(sim.residual(0) == Values{1, 0});
    }
    SECTION("paper") {
        config.rule = Rule::paper;
        Simulator<double> sim(config, geometry, 2, {0, 0});
        sim.step(g[0], 1);
        CHECK(sim.weights() == Values{-1, -1});
        CHECK(sim.score() == Values{2, 1});  // half of rank 0's own gradient
        sim.step(g[1], 1);
        CHECK(sim.m() == Values{1.5, 1});
        CHECK(sim.score() == Values{1 + 0.5 * 2, 1 + 0.5 * 3});
        CHECK(sim.next_mask() == Marks{false, true});
        sim.step(g[2], 1);  // ghat = 4 + 1 / 0.5, v = 9, m = 3
        CHECK(sim.received_norm() == 6);
        CHECK(sim.weights()[1] == -2);
        CHECK(sim.m() == Values{0.75, 3});
    }
}

// With numbers, what was sent is gone, so of a fault that was sent nothing is left; a code makes
// its whole block not finite, and with it what is left.
TEST_CASE("a skipped step changes nothing but fused error feedback") {
    const Geometry geometry = small_geometry(2);
    for (const Rule rule : {Rule::catch_up, Rule::paper}) {
        for (const int bits : {32, 4}) {
            for (const bool fused : {false, true}) {
                for (const bool off_mask : {false, true}) {
                    INFO(bits << " bits, fused " << fused << ", off the mask too " << off_mask);
                    SimConfig config = sparse(rule);
                    config.fused = fused;
                    config.value_bits = bits;
                    config.delta_bits = bits;
                    config.block = 4;
                    Simulator<double> sim(config, geometry, 2, drawn(geometry, 7));
                    for (Index t = 1; t <= 12; ++t) sim.step(gradients_of(geometry, 2, t), 0.01);
                    const Simulator<double> before = sim;
                    REQUIRE((before.master() == before.weights()) == (bits == 32));

                    sim.step(gradients_of(geometry, 2, 13), 0.01, false);
                    CHECK(sim.skipped());
                    CHECK(sim.residual(0) == before.residual(0));

                    auto g = gradients_of(geometry, 2, 14);
                    Index hit = 0, missed = 0;
                    while (!sim.next_mask()[hit]) ++hit;
                    while (sim.next_mask()[missed]) ++missed;
                    g[1][hit] = not_a_number;
                    if (off_mask) g[1][missed] = not_a_number;
                    sim.step(g, 0.01);
                    CHECK(sim.skipped());
                    CHECK(sim.steps() == 14);
                    CHECK(sim.applied() == 12);
                    CHECK(sim.weights() == before.weights());
                    CHECK(sim.master() == before.master());
                    CHECK(sim.m() == before.m());
                    CHECK(sim.visit() == before.visit());
                    CHECK(sim.next_mask() == before.next_mask());
                    for (int r = 0; r < 2; ++r) {
                        const bool lost = r == 1 && (off_mask || bits == 4);
                        for (Index e = 0; e < geometry.extent; ++e) {
                            const double was = before.residual(r)[e], is = sim.residual(r)[e];
                            if (!fused) {
                                CHECK(is == was);
                            } else if (lost) {
                                CHECK(is == 0);
                            } else if (!sim.mask()[e]) {
                                CHECK(is == was + g[r][e]);
                            } else if (bits == 32) {
                                CHECK(is == 0);
                            }
                        }
                    }
                    sim.step(gradients_of(geometry, 2, 15), 0.01);
                    CHECK_FALSE(sim.skipped());
                    CHECK(sim.visit()[hit] == 13);
                }
            }
        }
    }
}

// The owner's dense AdamW sees the mean of what came, and zeros elsewhere.
TEST_CASE("the baselines select in the same step") {
    const int ranks = 3;
    const Geometry geometry = small_geometry(ranks);
    for (const Elements elements : {Elements::topk_ef, Elements::clt_k}) {
        SimConfig config;
        config.elements = elements;
        config.owner = Owner::adamw;
        config.density = config.density_start = 0.2;
        Values w = drawn(geometry, 7), m(w.size(), 0), v(w.size(), 0);
        Simulator<double> sim(config, geometry, ranks, w);
        std::vector<Values> residual(ranks, Values(w.size(), 0));
        for (Index t = 1; t <= 20; ++t) {
            auto a = gradients_of(geometry, ranks, t);
            sim.step(a, 0.01);
            Values arrived(w.size(), 0);
            for (int r = 0; r < ranks; ++r) {
                for (std::size_t e = 0; e < w.size(); ++e) a[r][e] += residual[r][e];
            }
            for (int r = 0; r < ranks; ++r) {
                const int chooser = elements == Elements::clt_k ? static_cast<int>(t % ranks) : r;
                for (const SimSlice& s : geometry.slices) {
                    // An element is sent if fewer than k others of its slice are larger.
                    const Index k = s.dense ? 7 : s.size == 37 ? 7 : 1;
                    for (Index e = s.begin; e < s.begin + s.size; ++e) {
                        Index larger = 0;
                        for (Index o = s.begin; o < s.begin + s.size; ++o)
                            larger += std::abs(a[chooser][o]) > std::abs(a[chooser][e]) ? 1 : 0;
                        REQUIRE(sim.sent(r)[e] == (larger < k));
                        residual[r][e] = larger < k ? 0 : a[r][e];
                        if (larger < k) arrived[e] += a[r][e] / ranks;
                    }
                }
                check_close("residual", sim.residual(r), residual[r], 1e-12, 1e-12);
            }
            for (const SimSlice& s : geometry.slices) {
                for (Index e = s.begin; e < s.begin + s.size; ++e) {
                    m[e] = 0.9 * m[e] + (1 - 0.9) * arrived[e];
                    v[e] = 0.95 * v[e] + (1 - 0.95) * arrived[e] * arrived[e];
                    w[e] -= 0.01 * m[e] / (1 - std::pow(0.9, t)) /
                            (std::sqrt(v[e] / (1 - std::pow(0.95, t))) + 1e-8);
                }
            }
            check_close("weights", sim.weights(), w, 1e-12, 1e-12);
            const Index sent = count(sim.sent(0)), arriving = count(sim.mask());
            CHECK(sent == ranks * (7 + 7 + 1 + 1));
            CHECK((arriving > sent) == (elements == Elements::topk_ef));
        }
    }
}

TEST_CASE("the geometry of a sharding covers every logical element once") {
    FlatLayout layout;
    layout.add("wte", {57, 7}, 64);
    layout.add("gain", {7});
    layout.add("w", {53, 31});
    const Sharding sharding(layout, 3, 2000);
    const Geometry geometry = geometry_of(layout, sharding);
    CHECK(geometry.extent == sharding.extent());
    std::vector<int> seen(geometry.extent, 0);
    for (const SimSlice& s : geometry.slices) {
        const Tensor& tensor = layout.tensors()[s.tensor];
        CHECK(s.decay == tensor.decay);
        CHECK(s.dense == tensor.dense);
        for (Index e = s.begin; e < s.begin + s.size; ++e) ++seen[e];
    }
    std::vector<int> wanted(geometry.extent, 0);
    for (const Tensor& t : layout.tensors()) {
        for (Index e = t.offset; e < t.offset + t.size; ++e) wanted[e] = 1;
    }
    CHECK(seen == wanted);
}
