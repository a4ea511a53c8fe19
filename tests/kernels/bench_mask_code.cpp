// Size and time of the codes of a mask, and the bandwidth below which the entropy code is the
// faster choice:
//
//     bench_mask_code [elements] [elements of a segment] [ranks] [repetitions]
//
// Every rank codes 1/P of the mask, and decodes all of it. The entropy code is compared with the
// smaller one of bitmap and gaps: it wins where the bytes saved take longer to receive than what
// coding and decoding take more. "alone" counts nothing for the other code's time.

#include "support/random.hpp"

#include <scape/kernels/mask_code.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

using namespace scape;
using namespace scape::kernels;

namespace {

/// Least seconds of a call, after one that does not count.
double seconds(int repetitions, const std::function<void()>& call) {
    double least = 1e9;
    for (int r = 0; r <= repetitions; ++r) {
        Kokkos::fence();
        const auto start = std::chrono::steady_clock::now();
        call();
        Kokkos::fence();
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        if (r > 0) least = std::min(least, time.count());
    }
    return least;
}

struct Mask {
    std::vector<Segment> segments;
    std::vector<Position> positions;
};

/// Segments of `size` of n elements, k = density of each, at random.
Mask random_mask(Index n, Index size, double density) {
    Mask mask;
    test::Random random(7);
    for (Index begin = 0; begin < n; begin += size) {
        Segment s;
        s.begin = begin;
        s.size = std::min(size, n - begin);
        s.selected = std::max<Index>(1, std::llround(static_cast<double>(s.size) * density));
        s.first = static_cast<Index>(mask.positions.size());
        for (Index i = 0, left = s.selected; left > 0; ++i) {
            if (random.below(s.size - i) >= left) continue;
            mask.positions.push_back(static_cast<Position>(i));
            --left;
        }
        mask.segments.push_back(s);
    }
    return mask;
}

/// log2 of n over k.
double entropy_bits(const std::vector<Segment>& segments) {
    double bits = 0;
    for (const Segment& s : segments) {
        const auto n = static_cast<double>(s.size);
        const auto k = static_cast<double>(s.selected);
        bits += (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.);
    }
    return bits;
}

struct Cost {
    double bytes;   // per element
    double encode;  // seconds per element
    double decode;
};

Cost measure(MaskCode code, Mask mask, Index n, int repetitions) {
    Index bytes = 0;
    for (Segment& s : mask.segments) {
        s.code = bytes;
        bytes += mask_code_bytes(code, s.size, s.selected);
    }
    const Vec<Segment> segments = test::to_device(mask.segments);
    const Vec<Position> in = test::to_device(mask.positions);
    const Vec<Position> out("positions", mask.positions.size());
    const Vec<unsigned char> coded("coded", bytes);
    const double encode =
        seconds(repetitions, [&] { encode_mask(Exec{}, code, segments, in, coded); });
    const double decode =
        seconds(repetitions, [&] { decode_mask(Exec{}, code, segments, coded, out); });
    const std::vector<Position> got = test::to_host(out);
    for (const Segment& s : mask.segments) {
        for (Index j = s.first; j < s.first + s.selected; ++j) {
            if (got[j] != s.begin + mask.positions[j]) {
                std::printf("decoded to another mask\n");
                std::exit(1);
            }
        }
    }
    const auto per_element = 1 / static_cast<double>(n);
    return {static_cast<double>(bytes) * per_element, encode * per_element, decode * per_element};
}

void compare(Index n, Index size, double density, Index ranks, int repetitions) {
    const Mask mask = random_mask(n, size, density);
    const double entropy = entropy_bits(mask.segments) / 8 / static_cast<double>(n);
    const Cost costs[] = {measure(MaskCode::bitmap, mask, n, repetitions),
                          measure(MaskCode::gaps, mask, n, repetitions),
                          measure(MaskCode::entropy, mask, n, repetitions)};
    const char* names[] = {"bitmap", "gaps", "entropy"};
    const double ns = 1e9 * static_cast<double>(n) / static_cast<double>(mask.positions.size());
    std::printf("k/n %.3f: log2 C(n, k) %.5f B/element\n", density, entropy);
    for (int c = 0; c < 3; ++c) {
        std::printf("  %-8s %.5f B/element (%.4f)  encode %5.2f  decode %5.2f ns/selected\n",
                    names[c], costs[c].bytes, costs[c].bytes / entropy, ns * costs[c].encode,
                    ns * costs[c].decode);
    }
    const Cost& other = costs[0].bytes < costs[1].bytes ? costs[0] : costs[1];
    const auto time = [&](const Cost& c) {
        return c.encode / static_cast<double>(ranks) + c.decode;
    };
    const double saved = 8e-9 * (other.bytes - costs[2].bytes);  // Gbit
    std::printf("  entropy wins below %.2f Gbit/s; alone %.2f\n",
                saved / (time(costs[2]) - time(other)), saved / time(costs[2]));
}

}  // namespace

int main(int argc, char** argv) {
    const Kokkos::ScopeGuard guard(argc, argv);
    const auto argument = [&](int i, Index otherwise) {
        return argc > i ? Index{std::atoll(argv[i])} : otherwise;
    };
    const Index n = argument(1, 20000000);
    const Index size = argument(2, 1600000);
    const Index ranks = argument(3, 4);
    const int repetitions = static_cast<int>(argument(4, 15));
    std::printf("%lld elements in segments of %lld, %lld ranks\n", static_cast<long long>(n),
                static_cast<long long>(size), static_cast<long long>(ranks));
    for (const double density : {0.1, 0.03, 0.01}) compare(n, size, density, ranks, repetitions);
}
