// Hidden: test_model "[.bench]" times GPT-2 124M, B = 4, T = 256, kernel by kernel.

#include "fixture.hpp"
#include "support/catch.hpp"

#include <scape/base/profiling.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/model/flops.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

using namespace scape;

namespace {

struct Total {
    double seconds = 0;
    int calls = 0;
};
std::map<std::string, Total> totals;
std::string current;
double started = 0;

double now() {
    static const Timer timer;
    return timer.seconds();
}

void begin_kernel(const char* name, std::uint32_t, std::uint64_t*) {
    current = name;
    started = now();
}
void end_kernel(std::uint64_t) {
    Total& t = totals[current];
    t.seconds += now() - started;
    ++t.calls;
}

void time_steps(int threads) {
    namespace tools = Kokkos::Tools::Experimental;
    config::ModelConfig c;
    c.vocab = 50257;
    const Index batch = 4, seq = 256;
    test::ModelRun run(c, batch, seq);
    const test::Sample s = test::sample_of(batch, seq, c.vocab);
    kernels::set_gemm_threads(threads);
    run.pass(s, 1e-3f);
    totals.clear();
    tools::set_begin_parallel_for_callback(begin_kernel);
    tools::set_end_parallel_for_callback(end_kernel);
    tools::set_begin_parallel_reduce_callback(begin_kernel);
    tools::set_end_parallel_reduce_callback(end_kernel);
    std::vector<double> times;
    const int repeats = 5;
    for (int i = 0; i < repeats; ++i) {
        const Timer timer;
        run.pass(s, 1e-3f);
        times.push_back(timer.seconds());
    }
    tools::set_begin_parallel_for_callback(nullptr);
    tools::set_end_parallel_for_callback(nullptr);
    tools::set_begin_parallel_reduce_callback(nullptr);
    tools::set_end_parallel_reduce_callback(nullptr);
    std::sort(times.begin(), times.end());
    const double flops = model::flops_per_token(c, seq) * static_cast<double>(batch * seq);
    std::printf("%s, %d threads: forward + backward median %.3f s (best %.3f), %.1f GFLOP/s\n",
                kernels::gemm_library().c_str(), threads, times[repeats / 2], times[0],
                flops / times[repeats / 2] * 1e-9);
    double listed = 0;
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto& [name, t] : totals) sorted.emplace_back(t.seconds / repeats, name);
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [seconds, name] : sorted) {
        std::printf("  %8.1f ms  %4d calls  %s\n", seconds * 1e3, totals[name].calls / repeats,
                    name.c_str());
        listed += seconds;
    }
    std::printf("  %8.1f ms  the rest: matrix products outside of kernels\n",
                (times[repeats / 2] - listed) * 1e3);
}

}  // namespace

TEST_CASE("forward and backward of GPT-2 124M", "[.bench]") {
    const int before = kernels::gemm_threads();
    time_steps(1);
    time_steps(2);
    kernels::set_gemm_threads(before);
}
