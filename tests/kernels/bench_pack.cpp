// Time of packing and decoding codes in blocks beside the machine's copy bandwidth:
//
//     bench_pack [elements] [repetitions] [part of a row's name]
//
// Rates are bytes read and written over time; of a sparse selection, whole cache lines of the flat
// arrays. A copy counts bytes read and written, too.

#include "support/random.hpp"

#include <scape/kernels/pack.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

using namespace scape;
using namespace scape::kernels;

namespace {

/// Least seconds of a call. `before` each: what does not count.
double seconds(int repetitions, const std::function<void()>& before,
               const std::function<void()>& call) {
    std::vector<double> times;
    for (int r = 0; r < repetitions; ++r) {
        before();
        Kokkos::fence();
        const auto start = std::chrono::steady_clock::now();
        call();
        Kokkos::fence();
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return *std::min_element(times.begin(), times.end());
}

struct Bench {
    Index n;
    int repetitions;
    std::string only;
    Vec<float> a, b;  // a is as `values` at the start of every call
    Vec<float> values;
    double copy;  // bytes per second

    Bench(Index elements, int repeat, const std::string& part)
        : n(elements),
          repetitions(repeat),
          only(part),
          a(test::to_device(test::normal_values(n, 1, 1e-3))),
          b(test::to_device(test::normal_values(n, 2, 1e-3))),
          values(test::to_device(test::normal_values(n, 1, 1e-3))) {
        const Vec<float> c("c", n);
        copy = 8. * n /
               seconds(
                   repetitions, [] {}, [&] { Kokkos::deep_copy(Exec{}, c, a); });
        std::printf("copy of %lld elements: %.2f GB/s\n", static_cast<long long>(n), 1e-9 * copy);
    }
    void row(const std::string& what, double bytes, const std::function<void()>& call) const {
        if (what.find(only) == std::string::npos) return;
        const double time = seconds(
            repetitions, [&] { Kokkos::deep_copy(Exec{}, a, values); }, call);
        std::printf("%-52s %8.3f ms  %6.2f GB/s  %.2f of copy\n", what.c_str(), 1e3 * time,
                    1e-9 * bytes / time, bytes / time / copy);
    }
};

/// Segments of up to 50,000 selected values.
struct Message {
    std::vector<CodedSegment> rows;
    Index blocks = 0, bytes = 0;
    Message(const ValueCode& code, Index values) {
        for (Index first = 0; first < values; first += 50000) {
            const Index n = std::min<Index>(50000, values - first);
            rows.push_back({n, first, bytes, blocks});
            blocks += blocks_of(code, n);
            bytes += coded_bytes(code, n);
        }
    }
};

/// density 1: all elements, without positions. Every element is sent with this probability.
void bench(const Bench& b, const std::string& name, const ValueCode& code, double density) {
    std::vector<Position> chosen;
    test::Random random(3);
    double lines = b.n / 16.;
    Index last = -1;
    if (density < 1) {
        lines = 0;
        for (Index i = 0; i < b.n; ++i) {
            if (random.uniform() >= density) continue;
            chosen.push_back(static_cast<Position>(i));
            lines += i / 16 != last;
            last = i / 16;
        }
    }
    const Index values = density < 1 ? static_cast<Index>(chosen.size()) : b.n;
    const Vec<Position> positions = test::to_device(chosen);
    const Message m(code, values);
    const Vec<CodedSegment> segments = test::to_device(m.rows);
    Selected selected{positions, segments, m.blocks};
    Index bytes = m.bytes;
    if (!code.in_blocks()) {
        selected = {positions, {}, 0};
        bytes = values * code.bits / 8;
    }
    const Vec<unsigned char> message("message", bytes), others("others", 3 * bytes);
    const double sent = static_cast<double>(bytes), array = 64 * lines;
    const double at = 4. * static_cast<double>(chosen.size());
    const Exec exec;
    char head[64];
    std::snprintf(head, sizeof head, "%s, density %.2f, ", name.c_str(), density);
    b.row(head + std::string("pack, rest kept"), 2 * array + at + sent,
          [&] { pack(exec, code, selected, b.a, Rest::kept, message); });
    b.row(head + std::string("pack, untouched"), array + at + sent,
          [&] { pack(exec, code, selected, b.b, Rest::untouched, message); });
    for (int p = 0; p < 3; ++p)
        Kokkos::deep_copy(slice(others, p * bytes, (p + 1) * bytes), message);
    b.row(head + std::string("sum of 4"), array + at + 4 * sent,
          [&] { sum_values(exec, code, selected, message, others, 1, 0.25f, false, b.a); });
    b.row(head + std::string("add"), 2 * array + at + sent,
          [&] { add_values(exec, code, selected, message, 1e-3f, b.a); });
    if (!code.exact()) {
        b.row(head + std::string("differences"), 2 * array + at + sent,
              [&] { pack_differences(exec, code, selected, b.a, b.b, 0, message); });
    }
    if (density < 1 || !code.in_blocks()) return;
    const ValueCode of_error{Levels::linear, 8, code.block};
    const Message e(of_error, values);
    const Vec<CodedSegment> error_segments = test::to_device(e.rows);
    const Vec<unsigned char> before("before", e.bytes), after("after", e.bytes);
    b.row(head + std::string("loco"), array + sent + 2. * static_cast<double>(e.bytes), [&] {
        pack_loco(exec, code, selected, b.b, {error_segments, before, after, 0.8f}, message);
    });
}

}  // namespace

int main(int argc, char** argv) {
    const Kokkos::ScopeGuard guard(argc, argv);
    const Bench b(argc > 1 ? std::atoll(argv[1]) : 40000000, argc > 2 ? std::atoi(argv[2]) : 7,
                  argc > 3 ? argv[3] : "");
    bench(b, "fp32", fp32_values, 1);
    bench(b, "bf16", bf16_values, 1);
    bench(b, "4 bits, block 64", {Levels::linear, 4, 64}, 1);
    bench(b, "4 bits, block 256", {Levels::linear, 4, 256}, 1);
    bench(b, "8 bits, block 256", {Levels::linear, 8, 256}, 1);
    bench(b, "2 bits, block 256", {Levels::linear, 2, 256}, 1);
    bench(b, "gaussian, block 64", {Levels::gaussian, 2, 64}, 1);
    bench(b, "sign, block 64", {Levels::sign, 1, 64}, 1);
    for (const double density : {0.1, 0.01}) {
        bench(b, "fp32", fp32_values, density);
        bench(b, "4 bits, block 64", {Levels::linear, 4, 64}, density);
        bench(b, "sign, block 64", {Levels::sign, 1, 64}, density);
    }
}
