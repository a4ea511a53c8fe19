// Low bits in the simulator: LoCo, plain quantisation and error feedback, the way back, SGD.
#include "optim/simulator_data.hpp"
#include "support/compare.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

using namespace scape;
using namespace scape::test;

namespace {

using Elements = SimConfig::Elements;
using Rule = SimConfig::Rule;
using Owner = SimConfig::Owner;
using Error = SimConfig::Error;
template <class Real>
using Flat = std::vector<Real>;

SimConfig dense(Error error, int bits, Index block = 8) {
    SimConfig c;
    c.elements = Elements::all;
    c.error = error;
    c.value_bits = bits;
    c.block = block;
    return c;
}

// Slice by slice, the codes of what is marked (all, if `marks` is empty); 0 elsewhere.
template <class Real>
Flat<Real> coded(const SimCode& code, const Geometry& geometry, const Flat<Real>& x,
                 const std::vector<bool>& marks = {}) {
    Flat<Real> result(x.size(), 0);
    for (const SimSlice& s : geometry.slices) {
        Flat<Real> selected;
        for (Index e = s.begin; e < s.begin + s.size; ++e)
            if (marks.empty() || marks[e]) selected.push_back(x[e]);
        selected = sim_decoded(code, selected);
        auto next = selected.begin();
        for (Index e = s.begin; e < s.begin + s.size; ++e)
            if (marks.empty() || marks[e]) result[e] = *next++;
    }
    return result;
}

double rms(const Flat<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum / static_cast<double>(x.size()));
}

}  // namespace

TEST_CASE("SGD with momentum is its three lines") {
    const int ranks = 2;
    const Geometry geometry = small_geometry(ranks);
    SimConfig config = dense(Error::full, 32);
    config.owner = Owner::sgd;
    config.momentum = 0.75;
    config.weight_decay = 0.1;
    config.clip_norm = 1;
    Flat<double> w = drawn(geometry, 7), m(w.size(), 0);
    Simulator<double> sim(config, geometry, ranks, w);
    for (Index t = 1; t <= 12; ++t) {
        const auto g = gradients_of(geometry, ranks, t);
        const double eta = 0.1 / static_cast<double>(t);
        sim.step(g, eta);
        Flat<double> mean(w.size());
        double squares = 0;
        for (std::size_t e = 0; e < w.size(); ++e) {
            mean[e] = (g[0][e] + g[1][e]) / 2;
            squares += mean[e] * mean[e];
        }
        for (const SimSlice& s : geometry.slices) {
            for (Index e = s.begin; e < s.begin + s.size; ++e) {
                m[e] = 0.75 * m[e] + mean[e] / (std::sqrt(squares) + 1e-6);
                if (s.decay) w[e] *= 1 - eta * 0.1;
                w[e] -= eta * m[e];
            }
        }
        check_close("weights", sim.weights(), w, 1e-12, 1e-12);
        check_close("m", sim.m(), m, 1e-12, 1e-12);
        REQUIRE(sim.coefficient() < 1);
    }
}

TEMPLATE_TEST_CASE("LoCo is its recursion", "", float, double) {
    using Real = TestType;
    const auto beta = static_cast<Real>(0.7), rest = 1 - beta;
    for (const int ranks : {1, 3}) {
        for (const int bits : {8, 4, 2}) {
            INFO(ranks << " ranks, " << bits << " bits");
            const Geometry geometry = small_geometry(ranks);
            SimConfig config = dense(Error::loco, bits);
            config.loco_beta = 0.7;
            config.loco_reset_every = 5;
            config.fused = true;  // which speaks of R only
            Simulator<Real> sim(config, geometry, ranks, drawn<Real>(geometry, 7));
            const SimCode linear{SimCode::Levels::linear, bits, 8};
            const SimCode of_error{SimCode::Levels::linear, 8, 8};
            std::vector<Flat<Real>> error(ranks, Flat<Real>(geometry.extent, 0));
            int applied = 0, resets = 0;
            for (Index t = 1; t <= 14; ++t) {
                INFO("step " << t);
                auto g = gradients_of<Real>(geometry, ranks, t);
                const bool bad = t == 3 || t == 7;  // so that resets are not at multiples of t
                if (bad) g[ranks - 1][50] = std::numeric_limits<Real>::infinity();
                sim.step(g, static_cast<Real>(0.01));
                REQUIRE(sim.skipped() == bad);
                Flat<Real> sum(geometry.extent, 0);
                for (int r = 0; r < ranks && !bad; ++r) {
                    Flat<Real> h = g[r], next(h.size());
                    for (std::size_t e = 0; e < h.size(); ++e) h[e] = g[r][e] + error[r][e];
                    const Flat<Real> sent = coded(linear, geometry, h);
                    for (std::size_t e = 0; e < h.size(); ++e) {
                        sum[e] = sum[e] + sent[e];
                        next[e] = beta * error[r][e] + rest * (h[e] - sent[e]);
                    }
                    error[r] = coded(of_error, geometry, next);
                }
                if (!bad && ++applied % 5 == 0) {
                    error.assign(ranks, Flat<Real>(geometry.extent, 0));
                    ++resets;
                }
                for (int r = 0; r < ranks; ++r) {
                    check_close("error", sim.residual(r), error[r], 0, 0);
                    CHECK((rms({error[r].begin(), error[r].end()}) > 0) == (applied % 5 != 0));
                }
                for (Real& x : sum) x = x * (1 / static_cast<Real>(ranks));
                if (!bad) check_close("delivered", sim.delivered(), sum, 0, 0);
            }
            CHECK(resets == 2);
        }
    }
}

TEST_CASE("without error feedback every step sends its own gradient only") {
    const int ranks = 3;
    const Geometry geometry = small_geometry(ranks);
    for (const int bits : {32, 16, 8, 4, 2, 1}) {
        const SimConfig config = dense(Error::none, bits);
        Simulator<double> sim(config, geometry, ranks, drawn(geometry, 7));
        for (Index t = 1; t <= 4; ++t) {
            const auto g = gradients_of(geometry, ranks, t);
            sim.step(g, 0.01);
            Flat<double> mean(geometry.extent, 0);
            for (int r = 0; r < ranks; ++r) {
                const Flat<double> sent = coded(sim_value_code(config), geometry, g[r]);
                for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += sent[e] / ranks;
                CHECK(sim.residual(r) == Flat<double>(geometry.extent, 0));
            }
            check_close("delivered", sim.delivered(), mean, 1e-14, 1e-14);
        }
    }
}

// Section 3: with a constant gradient the time average of what is delivered tends to it, keeps a
// floor, or a bias.
TEST_CASE("the average of what constant gradients deliver") {
    const Geometry geometry{1000, {{0, 0, 1000, 0, false, false}}};
    const Flat<double> g = to_double(normal_values(1000, 17));
    const auto missing = [&](Error error, int bits, Index steps) {
        SimConfig config = dense(error, bits, error == Error::full ? 64 : 256);
        Simulator<double> sim(config, geometry, 1, Flat<double>(1000, 0));
        Flat<double> sum(1000, 0);
        for (Index t = 1; t <= steps; ++t) {
            sim.step({g}, 0);
            for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += sim.delivered()[e];
        }
        for (std::size_t e = 0; e < sum.size(); ++e)
            sum[e] = sum[e] / static_cast<double>(steps) - g[e];
        return rms(sum) / rms(g);
    };
    struct Numbers {
        int bits;
        double left, floor, bias;  // full: times 1 / steps
    };
    for (const Numbers& n : {Numbers{16, 0.0017, 0, 0.0017},
                             {8, 0.006, 0.000028, 0.007},
                             {4, 0.11, 0.0007, 0.125},
                             {2, 1.15, 0.007, 0.35},
                             {1, 9, 0, 0.6}}) {
        INFO(n.bits << " bits");
        for (const double steps : {100, 1000}) {
            const double full = missing(Error::full, n.bits, static_cast<Index>(steps));
            CHECK(full < 1.3 * n.left / steps);
            CHECK(full > 0.5 * n.left / steps);
            const double none = missing(Error::none, n.bits, static_cast<Index>(steps));
            CHECK(none == Approx(n.bias).epsilon(0.1));
        }
        if (n.floor == 0) continue;
        for (const Index steps : {1000, 3000})
            CHECK(missing(Error::loco, n.bits, steps) == Approx(n.floor).epsilon(0.2));
    }
}

// Gradients do not depend on the weights here, so the owners' side must not see the way back.
TEMPLATE_TEST_CASE("the way back: the replica takes coded differences", "", float, double) {
    using Real = TestType;
    const int ranks = 3;
    const Geometry geometry = small_geometry(ranks);
    struct Case {
        Elements elements;
        Rule rule;
        Owner owner;
        Error error;
    };
    for (const Case& c : {Case{Elements::mask, Rule::catch_up, Owner::adams, Error::full},
                          Case{Elements::mask, Rule::paper, Owner::adams, Error::full},
                          Case{Elements::all, Rule::paper, Owner::adamw, Error::loco},
                          Case{Elements::topk_ef, Rule::paper, Owner::sgd, Error::full}}) {
        for (const int bits : {32, 16, 8, 4, 2, 1}) {
            INFO(static_cast<int>(c.elements)
                 << ", " << static_cast<int>(c.rule) << ", " << bits << " bits");
            SimConfig config = sparse(c.rule);
            config.elements = c.elements;
            config.owner = c.owner;
            config.error = c.error;
            config.value_bits = 4;
            config.block = 8;
            Simulator<Real> plain(config, geometry, ranks, drawn<Real>(geometry, 7));
            config.delta_bits = bits;
            Simulator<Real> sim(config, geometry, ranks, drawn<Real>(geometry, 7));
            const auto eta = static_cast<Real>(0.01);
            const auto keep = static_cast<Real>(1 - static_cast<double>(eta) * 0.1);
            for (Index t = 1; t <= 20; ++t) {
                INFO("step " << t);
                Flat<Real> replica = sim.weights();
                auto g = gradients_of<Real>(geometry, ranks, t);
                if (t == 12) g[1].assign(g[1].size(), std::numeric_limits<Real>::quiet_NaN());
                plain.step(g, eta);
                sim.step(g, eta);
                check_same_bits("master", sim.master(), plain.weights());
                if (bits == 32 || t == 12) {
                    check_same_bits("weights", sim.weights(), bits == 32 ? sim.master() : replica);
                    continue;
                }
                Flat<Real> difference = sim.master();
                for (const SimSlice& s : geometry.slices) {
                    for (Index e = s.begin; e < s.begin + s.size; ++e) {
                        if (s.decay) replica[e] = keep * replica[e];
                        difference[e] -= replica[e];
                    }
                }
                const bool masked = c.elements == Elements::mask;
                const Flat<Real> news = coded(sim_delta_code(config), geometry, difference,
                                              masked ? sim.mask() : std::vector<bool>());
                for (const SimSlice& s : geometry.slices)
                    for (Index e = s.begin; e < s.begin + s.size; ++e)
                        if (!masked || sim.mask()[e]) replica[e] += news[e];
                check_same_bits("weights", sim.weights(), replica);
            }
        }
    }
}

// Without error feedback on the way back the distance would grow with the steps.
TEST_CASE("the replica stays near the master, and is it on average") {
    const int ranks = 2;
    const Geometry geometry = small_geometry(ranks);
    for (const Elements elements : {Elements::all, Elements::mask}) {
        double finer = 0;  // the usual distance at more bits
        for (const int bits : {16, 8, 4, 2, 1}) {
            INFO("elements " << static_cast<int>(elements) << ", " << bits << " bits");
            SimConfig config = dense(Error::full, 4);
            config.elements = elements;
            config.delta_bits = bits;
            config.density = config.density_start = 0.25;
            const Flat<double> start = drawn(geometry, 7);
            Simulator<double> sim(config, geometry, ranks, start);
            Flat<double> average(start.size(), 0);
            double farthest[2] = {0, 0}, usual = 0, moved = 0;
            constexpr Index steps = 600;
            for (Index t = 1; t <= steps; ++t) {
                sim.step(gradients_of(geometry, ranks, t), 1e-3);
                Flat<double> d(start.size());
                double& far = farthest[t > steps / 2];
                for (std::size_t e = 0; e < d.size(); ++e) {
                    d[e] = sim.weights()[e] - sim.master()[e];
                    average[e] += d[e] / steps;
                    far = std::max(far, std::abs(d[e]));
                    moved = std::max(moved, std::abs(sim.master()[e] - start[e]));
                }
                usual += rms(d) / steps;
            }
            CHECK(farthest[1] < 1.5 * farthest[0]);
            CHECK(farthest[1] < moved / 5);
            CHECK(usual > finer);
            CHECK(usual < moved / 50);
            CHECK(rms(average) < usual * (elements == Elements::all ? 0.2 : 0.4));
            finer = usual;
        }
    }
}

TEST_CASE("settings that make no optimizer are refused") {
    const Geometry geometry = small_geometry(1);
    const auto make = [&](const SimConfig& c) {
        return Simulator<float>(c, geometry, 1, drawn<float>(geometry, 7));
    };
    SimConfig good;
    CHECK_NOTHROW(make(good));
    SimConfig c = good;
    c.value_bits = 3;
    CHECK_THROWS_AS(make(c), std::logic_error);
    c = good;
    c.delta_bits = 0;
    CHECK_THROWS_AS(make(c), std::logic_error);
    c = good;
    c.block = 0;
    CHECK_THROWS_AS(make(c), std::logic_error);
    c = good;
    c.error = Error::none;
    CHECK_THROWS_AS(make(c), std::logic_error);
    c = good;
    c.owner = Owner::sgd;
    CHECK_THROWS_AS(make(c), std::logic_error);
    CHECK_THROWS_AS(make(dense(Error::loco, 16)), std::logic_error);
    CHECK_NOTHROW(make(dense(Error::loco, 8)));
}
