// The mathematics of algorithm.md section 2, by the simulator that the program is compared with:
// what it computes is checked against other ways to compute the same.
#include "optim/simulator_data.hpp"
#include "support/compare.hpp"

#include <cmath>

using namespace scape;
using namespace scape::test;

namespace {

using Elements = SimConfig::Elements;
using Rule = SimConfig::Rule;
using Score = SimConfig::Score;
using Values = std::vector<double>;

// Rule paper as its authors write it, 2.3, with full copies of m and w on every rank, without
// clip.
struct AuthorsForm {
    SimConfig config;
    Geometry geometry;
    int ranks;
    std::vector<bool> mask, next_mask;
    std::vector<Values> w, m, residual;  // [rank] flat

    AuthorsForm(const SimConfig& c, const Geometry& g, int p, const Values& weights)
        : config(c), geometry(g), ranks(p), w(p, weights), m(p, Values(g.extent, 0)), residual(m) {
        next_mask = sim_mask(c, g, weights, 1);
    }

    void step(const std::vector<Values>& g, Index t, double eta) {
        const double b1 = config.beta1, b2 = config.beta2;
        const double c1 = 1 - std::pow(b1, t), c2 = 1 - std::pow(b2, t);
        mask = next_mask;
        Values of_owner(geometry.extent, 0);
        for (const SimSlice& slice : geometry.slices) {
            const double keep = slice.decay ? 1 - eta * config.weight_decay : 1;
            for (Index e = slice.begin; e < slice.begin + slice.size; ++e) {
                Values c(ranks);
                double s = 0;
                for (int r = 0; r < ranks; ++r) {
                    c[r] = b1 * m[r][e] + (1 - b1) * g[r][e] + residual[r][e];
                    s += c[r] / ranks;
                }
                of_owner[e] = c[slice.owner];
                for (int r = 0; r < ranks; ++r) {
                    const double ghat = (s - b1 * m[r][e]) / (1 - b1);
                    const double v = b2 * m[r][e] * m[r][e] + (1 - b2) * ghat * ghat;
                    w[r][e] *= keep;
                    if (mask[e]) w[r][e] -= eta * (s / c1) / (std::sqrt(v / c2) + config.eps);
                    m[r][e] = mask[e] ? s : 0;
                    residual[r][e] = mask[e] ? 0 : c[r];
                }
            }
        }
        next_mask = sim_mask(config, geometry, of_owner, sim_density(config, t + 1));
    }
};

}  // namespace

TEST_CASE("the paper's rule in owner form is its authors' form") {
    for (const int ranks : {1, 2, 3}) {
        const Geometry geometry = small_geometry(ranks);
        const SimConfig config = sparse(Rule::paper);
        const Values start = drawn(geometry, 7);
        Simulator<double> owner(config, geometry, ranks, start);
        AuthorsForm authors(config, geometry, ranks, start);
        for (Index t = 1; t <= 40; ++t) {
            INFO(ranks << " ranks, step " << t);
            const auto g = gradients_of(geometry, ranks, t);
            owner.step(g, 0.01);
            authors.step(g, t, 0.01);
            REQUIRE(owner.mask() == authors.mask);
            REQUIRE(owner.next_mask() == authors.next_mask);
            for (int r = 0; r < ranks; ++r)
                check_close("weights", owner.weights(), authors.w[r], 1e-12, 1e-12);
            Values m = owner.m();  // z is m on the mask only
            for (std::size_t e = 0; e < m.size(); ++e) m[e] = owner.mask()[e] ? m[e] : 0;
            check_close("m", m, authors.m[0], 1e-12, 1e-12);
        }
        CHECK(count(owner.mask()) == ranks * (3 + 7 + 1 + 1));
    }
}

TEST_CASE("what is sent and what is kept add up to what there was") {
    struct Case {
        Elements elements;
        Rule rule;
    };
    for (const Case& c : {Case{Elements::mask, Rule::catch_up}, Case{Elements::mask, Rule::paper},
                          Case{Elements::all, Rule::paper}, Case{Elements::topk_ef, Rule::paper},
                          Case{Elements::clt_k, Rule::paper}}) {
        for (const int ranks : {1, 3}) {
            for (const int bits : {32, 16, 8, 4, 2, 1}) {
                const Geometry geometry = small_geometry(ranks);
                SimConfig config = sparse(c.rule);
                config.elements = c.elements;
                config.value_bits = bits;
                config.block = 8;
                config.clip_norm = 1;
                Simulator<double> sim(config, geometry, ranks, drawn(geometry, 7));
                double lost = 0;
                for (Index t = 1; t <= 20; ++t) {
                    INFO("elements " << static_cast<int>(c.elements) << ", " << ranks << " ranks, "
                                     << bits << " bits, step " << t);
                    const auto g = gradients_of(geometry, ranks, t);
                    Values before(geometry.extent, 0), after(geometry.extent, 0);
                    for (int r = 0; r < ranks; ++r) {
                        for (Index e = 0; e < geometry.extent; ++e)
                            before[e] += g[r][e] + sim.residual(r)[e];
                    }
                    sim.step(g, 0.01);
                    for (Index e = 0; e < geometry.extent; ++e)
                        after[e] = ranks * sim.delivered()[e];
                    for (int r = 0; r < ranks; ++r) {
                        for (Index e = 0; e < geometry.extent; ++e) {
                            const double left = sim.residual(r)[e];
                            after[e] += left;
                            if (sim.sent(r)[e]) lost = std::max(lost, std::abs(left));
                        }
                    }
                    check_close("sum", after, before, 1e-12, 1e-12);
                    REQUIRE(sim.coefficient() < 1);
                }
                CHECK((lost > 0) == (bits < 32));
            }
        }
    }
}

// Both rules at d = 1, and the dense exchange, against section 1 written out here.
TEMPLATE_TEST_CASE("at density 1 every rule is dense AdamS bit for bit", "", float, double) {
    using Real = TestType;
    struct Case {
        Elements elements;
        Rule rule;
        Score score;
    };
    for (const Case& c : {Case{Elements::mask, Rule::catch_up, Score::after},
                          Case{Elements::mask, Rule::catch_up, Score::before},
                          Case{Elements::mask, Rule::paper, Score::after},
                          Case{Elements::all, Rule::paper, Score::after},
                          Case{Elements::topk_ef, Rule::paper, Score::after}}) {
        for (const int ranks : {1, 2, 3}) {
            const Geometry geometry = small_geometry(ranks);
            SimConfig config = sparse(c.rule, c.score);
            config.elements = c.elements;
            config.density = 1;
            config.clip_norm = ranks == 2 ? 1 : 0;
            std::vector<Real> w = drawn<Real>(geometry, 7), m(w.size(), 0);
            Simulator<Real> sim(config, geometry, ranks, w);
            const auto b1 = static_cast<Real>(0.9), b1c = static_cast<Real>(1 - 0.9);
            const auto b2 = static_cast<Real>(0.95), b2c = static_cast<Real>(1 - 0.95);
            for (Index t = 1; t <= 12; ++t) {
                const auto g = gradients_of<Real>(geometry, ranks, t);
                const auto eta = static_cast<Real>(0.01 / t);
                sim.step(g, eta);
                std::vector<Real> mean(w.size());
                double squares = 0;
                for (std::size_t e = 0; e < w.size(); ++e) {
                    Real sum = g[0][e];
                    for (int r = 1; r < ranks; ++r) sum = sum + g[r][e];
                    mean[e] = sum * (1 / static_cast<Real>(ranks));
                    squares += static_cast<double>(mean[e]) * static_cast<double>(mean[e]);
                }
                CHECK(sim.received_norm() == Approx(std::sqrt(squares)).epsilon(1e-12));
                CHECK((sim.coefficient() < 1) == (ranks == 2));
                const auto c1 = static_cast<Real>(1 - std::pow(0.9, t));
                const auto c2 = static_cast<Real>(1 - std::pow(0.95, t));
                for (const SimSlice& s : geometry.slices) {
                    const auto keep =
                        static_cast<Real>(s.decay ? 1 - static_cast<double>(eta) * 0.1 : 1);
                    for (Index e = s.begin; e < s.begin + s.size; ++e) {
                        const Real x = sim.coefficient() * mean[e];
                        const Real v = b2 * (m[e] * m[e]) + b2c * (x * x);
                        m[e] = b1 * m[e] + b1c * x;
                        w[e] = keep * w[e] -
                               eta * ((m[e] / c1) / (std::sqrt(v / c2) + static_cast<Real>(1e-8)));
                    }
                }
                check_same_bits("weights", sim.weights(), w);
                check_same_bits("m", sim.m(), m);
            }
        }
    }
}

// What an element with momentum m moves in tau steps of mean gradient `mean`, without 1/sqrt(v).
double sum_of_moments(double m, double mean, Index tau) {
    double sum = 0;
    for (Index i = 0; i < tau; ++i) {
        m = 0.9 * m + (1 - 0.9) * mean;
        sum += m;
    }
    return sum;
}

TEST_CASE("catch-up is the steps of dense AdamS with the interval's mean gradient") {
    const int ranks = 2;
    const Geometry geometry = small_geometry(ranks);
    for (const Score score : {Score::after, Score::before}) {
        SimConfig config = sparse(Rule::catch_up, score);
        config.bias_correction = false;
        config.clip_norm = 3;
        Values w = drawn(geometry, 7), m(w.size(), 0);
        std::vector<Index> waited(w.size(), 0);
        Simulator<double> sim(config, geometry, ranks, w);
        Index longest = 0;
        for (Index t = 1; t <= 60; ++t) {
            INFO("step " << t);
            const std::vector<bool> promised = sim.next_mask();
            const Simulator<double> old = sim;
            const auto g = gradients_of(geometry, ranks, t);
            sim.step(g, 0.01);
            REQUIRE(sim.mask() == promised);
            Values wanted(w.size(), 0);
            double squares = 0;
            for (const SimSlice& slice : geometry.slices) {
                for (Index e = slice.begin; e < slice.begin + slice.size; ++e) {
                    const Index tau = ++waited[e];
                    if (score == Score::before) {
                        const double a = g[slice.owner][e] + old.residual(slice.owner)[e];
                        wanted[e] = sum_of_moments(m[e], a / tau, tau);
                    }
                    if (slice.decay) w[e] *= 1 - 0.01 * 0.1;
                    if (sim.mask()[e]) {
                        const double s = sim.coefficient() * sim.delivered()[e];
                        const double v = 0.95 * m[e] * m[e] + (1 - 0.95) * s * s / tau;
                        w[e] -= 0.01 * sum_of_moments(m[e], s / tau, tau) / (std::sqrt(v) + 1e-8);
                        for (Index i = 0; i < tau; ++i) m[e] = 0.9 * m[e] + (1 - 0.9) * s / tau;
                        squares += sim.delivered()[e] * sim.delivered()[e] / tau;
                        longest = std::max(longest, tau);
                        waited[e] = 0;
                        CHECK(static_cast<Index>(sim.visit()[e]) == t);
                    }
                    if (score == Score::after) {
                        const Index next = waited[e] + 1;
                        wanted[e] = sum_of_moments(m[e], sim.residual(slice.owner)[e] / next, next);
                    }
                }
            }
            check_close("weights", sim.weights(), w, 1e-12, 1e-12);
            check_close("m", sim.m(), m, 1e-12, 1e-12);
            check_close("score", sim.score(), wanted, 1e-12, 1e-12);
            CHECK(sim.next_mask() ==
                  sim_mask(config, geometry, sim.score(), sim_density(config, t + 1)));
            CHECK(sim.received_norm() == Approx(std::sqrt(squares)).epsilon(1e-12));
        }
        CHECK(longest > 10);
    }
}
