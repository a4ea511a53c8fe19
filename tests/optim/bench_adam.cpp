// Memory rate of the update beside memcpy's: test_optim "[.bench]".
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/base/profiling.hpp>
#include <scape/optim/optimizer.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

template <class Work>
double best_seconds(const Work& work) {
    double best = 1e9;
    for (int repeat = 0; repeat < 10; ++repeat) {
        const Timer timer;
        work();
        Kokkos::fence();
        best = std::min(best, timer.seconds());
    }
    return best;
}

double update_seconds(config::OptimizerKind kind, Index n) {
    config::OptimizerSection c;
    c.kind = kind;
    const auto optimizer = make_optimizer(c, n);
    const Vec<float> w = to_device(normal_values(n, 1));
    const Vec<float> g = to_device(normal_values(n, 2));
    Slice s;
    s.flat = {0, n};
    return best_seconds([&] { optimizer->update(Exec(), {1, 1e-3f, 1.f}, s, true, w, g); });
}

}  // namespace

TEST_CASE("memory rates of the updates", "[.bench]") {
    const Index n = Index(1) << 24;
    std::vector<float> from(n, 1.f), to(n, 0.f);
    const double copy = 8e-9 * static_cast<double>(n) /
                        best_seconds([&] { std::memcpy(to.data(), from.data(), 4 * n); });
    const double adamw =
        28e-9 * static_cast<double>(n) / update_seconds(config::OptimizerKind::adamw, n);
    const double adams =
        20e-9 * static_cast<double>(n) / update_seconds(config::OptimizerKind::adams, n);
    std::printf("GB/s read and written: memcpy %.1f, AdamW %.1f, AdamS %.1f\n", copy, adamw, adams);
    CHECK(to[n - 1] == 1.f);
}
