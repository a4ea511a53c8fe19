#include <scape/optim/density.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/catch.hpp"

// The schedule of algorithm section 2.2, against its formula written out for each phase.

using namespace scape;
using scape::config::Elements;
using scape::config::OptimizerKind;
using scape::config::RunConfig;
using scape::optim::average_density;
using scape::optim::density;
using scape::optim::largest_sparse_density;
using scape::optim::selected;

namespace {

/// A baseline run: the schedule as it is. With scape step 1 is dense in any case.
RunConfig run(Index steps, double start, double target, Index warmup, Index dense = 0,
              Index cooldown = 0) {
    RunConfig c;
    c.exchange.elements = Elements::topk_ef;
    c.train.steps = steps;
    c.sparsity.density_start = start;
    c.sparsity.density = target;
    c.sparsity.warmup_steps = warmup;
    c.sparsity.dense_steps = dense;
    c.sparsity.cooldown_steps = cooldown;
    return c;
}

RunConfig scape_run(RunConfig c) {
    c.exchange.elements = Elements::automatic;
    c.optimizer.kind = OptimizerKind::scape;
    return c;
}

double average_by_steps(const RunConfig& c) {
    double sum = 0;
    for (Index t = 1; t <= c.train.steps; ++t) sum += density(c, t);
    return sum / static_cast<double>(c.train.steps);
}

double largest_by_steps(const RunConfig& c) {
    double largest = 0;
    for (Index t = 1; t <= c.train.steps + 1; ++t) {
        const double d = density(c, t);
        if (d < 1) largest = std::max(largest, d);
    }
    return largest;
}

}  // namespace

TEST_CASE("dense steps, then a geometric descent, then the target") {
    const RunConfig c = run(100, 0.5, 0.01, 10, 4);
    for (Index t = 1; t <= 4; ++t) CHECK(density(c, t) == 1.0);
    CHECK(density(c, 5) == 0.5);
    CHECK(density(c, 10) == Approx(0.5 * std::sqrt(0.02)).epsilon(1e-14));
    for (Index t = 6; t <= 14; ++t) {  // equal factors
        CHECK(density(c, t) / density(c, t - 1) == Approx(std::pow(0.02, 0.1)).epsilon(1e-13));
    }
    CHECK(density(c, 14) > 0.01);
    for (const Index t : {15, 16, 100, 101, 1000000}) CHECK(density(c, t) == 0.01);
}

TEST_CASE("no warm-up: the target at once; equal ends: constant") {
    const RunConfig at_once = run(10, 1, 0.01, 0, 2);
    CHECK(density(at_once, 2) == 1.0);
    CHECK(density(at_once, 3) == 0.01);
    // The exact target, though 0.3 (0.1 / 0.3) is not 0.1 in floating point.
    CHECK(density(run(10, 0.3, 0.1, 2), 3) == 0.1);
    const RunConfig constant = run(10, 0.1, 0.1, 5);
    for (Index t = 1; t <= 10; ++t) CHECK(density(constant, t) == 0.1);
}

TEST_CASE("back to 1 over the cool-down, at the last step exactly") {
    const RunConfig c = run(20, 1, 0.01, 5, 0, 4);
    CHECK(density(c, 16) == 0.01);
    CHECK(density(c, 17) == Approx(std::pow(0.01, 0.75)).epsilon(1e-14));
    CHECK(density(c, 18) == Approx(0.1).epsilon(1e-14));
    CHECK(density(c, 19) == Approx(std::pow(0.01, 0.25)).epsilon(1e-14));
    CHECK(density(c, 20) == 1.0);
    CHECK(density(c, 21) == 1.0);
    CHECK(density(run(20, 1, 0.01, 5, 0, 1), 19) == 0.01);
    CHECK(density(run(20, 1, 0.01, 5, 0, 1), 20) == 1.0);

    // It begins where the descent has come to: no jump.
    const RunConfig early = run(20, 1, 0.01, 100, 0, 10);
    const double d0 = std::pow(0.01, 0.09);
    CHECK(density(early, 10) == Approx(d0).epsilon(1e-14));
    CHECK(density(early, 15) == Approx(std::sqrt(d0)).epsilon(1e-14));
    CHECK(density(early, 20) == 1.0);

    const RunConfig all_of_it = run(4, 0.01, 0.01, 0, 0, 4);  // from the value of step 1
    CHECK(density(all_of_it, 2) == Approx(0.1).epsilon(1e-14));
    CHECK(density(all_of_it, 4) == 1.0);
    // Nothing between the dense steps and the cool-down: there is nothing to come back from.
    for (Index t = 1; t <= 10; ++t) CHECK(density(run(10, 1, 0.01, 0, 4, 6), t) == 1.0);
}

TEST_CASE("a run that sends everything has density 1, whatever its schedule says") {
    RunConfig c = run(10, 0.5, 0.1, 3);
    c.exchange.elements = Elements::automatic;
    for (const auto kind : {OptimizerKind::adamw, OptimizerKind::adams}) {
        c.optimizer.kind = kind;
        for (Index t = 1; t <= 10; ++t) CHECK(density(c, t) == 1.0);
        CHECK(average_density(c) == 1.0);
        CHECK(largest_sparse_density(c) == 0.0);
    }
    const RunConfig d1 = scape_run(run(10, 1, 1, 3, 2, 2));
    for (Index t = 1; t <= 10; ++t) CHECK(density(d1, t) == 1.0);
    CHECK(average_density(d1) == 1.0);
    CHECK(largest_sparse_density(d1) == 0.0);
}

TEST_CASE("step 1 of scape has no momentum to choose by, and is dense") {
    const RunConfig baseline = run(10, 0.5, 0.1, 4);
    const RunConfig c = scape_run(baseline);
    CHECK(density(baseline, 1) == 0.5);
    CHECK(density(c, 1) == 1.0);
    for (Index t = 2; t <= 10; ++t) CHECK(density(c, t) == density(baseline, t));
    // Nor does it change what a cool-down over the whole run begins with.
    CHECK(density(scape_run(run(4, 0.01, 0.01, 0, 0, 4)), 2) == Approx(0.1).epsilon(1e-14));
}

TEST_CASE("elements of a slice") {
    CHECK(selected(0.1, 1000) == 100);
    CHECK(selected(0.1, 1009) == 100);
    CHECK(selected(0.5, 7) == 3);
    CHECK(selected(0.01, 99) == 1);
    CHECK(selected(1e-9, 5) == 1);
    CHECK(selected(0.9, 1) == 1);
    CHECK(selected(1.0, 12345) == 12345);
    CHECK(selected(0.999999, 3) == 2);
    CHECK(selected(0.25, 0) == 0);
    CHECK(selected(1.0, 0) == 0);
    CHECK(selected(0.25, Index{1} << 40) == Index{1} << 38);
}

TEST_CASE("average and largest density are those of the steps, for any schedule") {
    const std::vector<std::pair<double, double>> ends{
        {1.0, 0.01}, {0.5, 0.1}, {0.1, 0.1}, {1.0, 1.0}, {1.0, 0.99}};
    const auto compare = [&](Index steps, Index warmup, Index dense, Index cooldown) {
        for (const auto& [start, target] : ends) {
            const RunConfig c = run(steps, start, target, warmup, dense, cooldown);
            INFO(steps << " steps, warm-up " << warmup << ", dense " << dense << ", cool-down "
                       << cooldown << ", " << start << " to " << target);
            for (const RunConfig& r : {c, scape_run(c)}) {
                CHECK(average_density(r) == Approx(average_by_steps(r)).epsilon(1e-12));
                CHECK(largest_sparse_density(r) == largest_by_steps(r));
            }
        }
    };
    for (const Index steps : {1, 2, 3, 7, 100})
        for (const Index warmup : {0, 1, 5, 30, 1000})
            for (const Index dense : {0, 1, 2, 30})
                for (const Index cooldown : {0, 1, 2, 25, 100})
                    if (dense + cooldown <= steps) compare(steps, warmup, dense, cooldown);
    // "Geometric over half the run to 0.01" of algorithm section 2.4: 0.12 with what stays dense.
    CHECK(average_density(scape_run(run(800, 1, 0.01, 400))) == Approx(0.1125).margin(0.001));
}

TEST_CASE("runs of a billion steps") {
    constexpr Index billion = 1000000000;
    // Mean of 0.01^x over x in [0, 1]: 0.99 / ln 100; over the first and the last half of the run.
    const double mean = 0.99 / std::log(100.0);
    const RunConfig c = run(billion, 1, 0.01, billion / 2, 0, billion / 4);
    CHECK(average_density(c) == Approx(mean / 2 + 0.01 / 4 + mean / 4).epsilon(1e-7));
    CHECK(largest_sparse_density(c) < 1);
    CHECK(largest_sparse_density(c) > 1 - 1e-7);
    CHECK(average_density(run(billion, 0.25, 0.25, 500)) == Approx(0.25).epsilon(1e-12));
}
