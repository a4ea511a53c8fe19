// Time of the selection kernels beside the machine's copy bandwidth:
//
//     bench_top_k [elements] [repetitions]
//
// Rates are bytes of x (or of codes and positions) over time; a copy counts bytes read and written.

#include "support/random.hpp"

#include <scape/kernels/mask_code.hpp>
#include <scape/kernels/top_k.hpp>

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

/// Least seconds of a call, after one that does not count.
double seconds(int repetitions, const std::function<void()>& call) {
    std::vector<double> times;
    call();
    for (int r = 0; r < repetitions; ++r) {
        Kokkos::fence();
        const auto start = std::chrono::steady_clock::now();
        call();
        Kokkos::fence();
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return *std::min_element(times.begin(), times.end());
}

struct Batch {
    std::vector<Segment> segments;
    Index positions = 0;
    Index largest = 0;
    Index bytes = 0;  // of the code
};

/// n elements in segments of `size`, k = density of each.
Batch batch(Index n, Index size, double density, MaskCode code) {
    Batch b;
    for (Index begin = 0; begin < n; begin += size) {
        Segment s;
        s.begin = begin;
        s.size = std::min(size, n - begin);
        s.selected = std::max<Index>(1, static_cast<Index>(s.size * density));
        s.first = b.positions;
        s.code = b.bytes;
        b.positions += s.selected;
        b.largest = std::max(b.largest, s.size);
        b.bytes += mask_code_bytes(code, s.size, s.selected);
        b.segments.push_back(s);
    }
    return b;
}

double copy_rate(const Vec<float>& x, int repetitions) {
    const Vec<float> y(Kokkos::view_alloc("copy", Kokkos::WithoutInitializing), x.size());
    const double time = seconds(repetitions, [&] { Kokkos::deep_copy(Exec{}, y, x); });
    return 2 * sizeof(float) * x.size() / time;
}

void bench_top_k(const Vec<float>& x, const char* what, double copy, int repetitions) {
    const Index n = x.size();
    for (const Index size : {n, Index{1600000}, Index{50000}}) {
        for (const double density : {0.5, 0.1, 0.03, 0.01, 0.001}) {
            const Batch b = batch(n, size, density, MaskCode::gaps);
            const Vec<Segment> segments = test::to_device(b.segments);
            const Vec<Position> positions("positions", b.positions);
            const Vec<unsigned char> workspace(
                "workspace", top_k_workspace(b.largest, static_cast<Index>(b.segments.size())));
            const double time =
                seconds(repetitions, [&] { top_k(Exec{}, x, segments, positions, workspace); });
            const double rate = sizeof(float) * n / time;
            std::printf(
                "top_k  %-10s segments of %8lld  k/n %5.3f  %7.3f ms  %6.2f GB/s  %.2f of copy"
                "  workspace %.2f B/element\n",
                what, static_cast<long long>(size), density, 1e3 * time, 1e-9 * rate, rate / copy,
                1. * workspace.size() / b.largest);
        }
    }
}

void bench_codes(const Vec<float>& x, double copy, int repetitions) {
    const Index n = x.size();
    const char* names[] = {"bitmap", "gaps", "index"};
    for (const MaskCode code : {MaskCode::bitmap, MaskCode::gaps, MaskCode::index}) {
        for (const double density : {0.1, 0.03, 0.01, 0.001}) {
            const Batch b = batch(n, 50000, density, code);
            const Vec<Segment> segments = test::to_device(b.segments);
            const Vec<Position> positions("positions", b.positions);
            const Vec<unsigned char> coded("coded", b.bytes);
            const Vec<unsigned char> workspace(
                "workspace", top_k_workspace(b.largest, static_cast<Index>(b.segments.size())));
            top_k(Exec{}, x, segments, positions, workspace);
            const double encode = seconds(
                repetitions, [&] { encode_mask(Exec{}, code, segments, positions, coded); });
            const double decode = seconds(
                repetitions, [&] { decode_mask(Exec{}, code, segments, coded, positions); });
            const double bytes = sizeof(Position) * b.positions + b.bytes;
            std::printf(
                "code   %-6s  k/n %5.3f  encode %7.3f ms %6.2f GB/s (%.2f of copy)  "
                "decode %7.3f ms %6.2f GB/s (%.2f of copy)\n",
                names[static_cast<int>(code)], density, 1e3 * encode, 1e-9 * bytes / encode,
                bytes / encode / copy, 1e3 * decode, 1e-9 * bytes / decode, bytes / decode / copy);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const Kokkos::ScopeGuard guard(argc, argv);
    const Index n = argc > 1 ? std::atoll(argv[1]) : 10000000;
    const int repetitions = argc > 2 ? std::atoi(argv[2]) : 15;
    std::vector<float> values = test::normal_values(n, 1, 1e-3);
    const Vec<float> x = test::to_device(values);
    const double copy = copy_rate(x, repetitions);
    std::printf("copy of %lld elements: %.2f GB/s\n", static_cast<long long>(n), 1e-9 * copy);
    bench_top_k(x, "normal", copy, repetitions);
    // Nine rows in ten have never been touched.
    for (Index i = 0; i < n; ++i) values[i] = i / 512 % 10 == 0 ? values[i] : 0.f;
    bench_top_k(test::to_device(values), "rows of 0", copy, repetitions);
    std::fill(values.begin(), values.end(), 1.f);
    bench_top_k(test::to_device(values), "all equal", copy, repetitions);
    bench_codes(x, copy, repetitions);
}
