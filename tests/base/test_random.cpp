// Counter-based random numbers: Philox against its published vectors, the normal distribution
// against the error function and its moments.
#include <scape/base/random.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <set>
#include <vector>

using namespace scape;

using Block = std::array<std::uint32_t, 4>;

TEST_CASE("philox4x32-10: known answers of Random123") {
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    const std::uint32_t ones = 0xffffffff;
    CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
          Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform bits depend on every bit of seed, stream and counter") {
    std::set<std::uint64_t> seen{uniform_bits(0, 0, 0)};
    for (int bit = 0; bit < 64; ++bit) {
        const std::uint64_t x = std::uint64_t{1} << bit;
        seen.insert(uniform_bits(x, 0, 0));
        seen.insert(uniform_bits(0, x, 0));
        seen.insert(uniform_bits(0, 0, x));
    }
    CHECK(seen.size() == 1 + 3 * 64);
    CHECK(uniform_bits(1, 2, 3) == uniform_bits(1, 2, 3));
    CHECK(uniform_bits(0, 0, 0) == 0xe169c58d6627e8d5);
}

TEST_CASE("stream_of is FNV-1a") {
    CHECK(stream_of("") == 0xcbf29ce484222325);
    CHECK(stream_of("a") == 0xaf63dc4c8601ec8c);
    CHECK(stream_of("foobar") == 0x85944171f73967e8);
}

TEST_CASE("inverse normal distribution: inverse of erfc, to double precision") {
    // All three ranges of the approximation, both tails.
    for (double x = -8; x <= 8; x += 0.0625) {
        const double p = 0.5 * std::erfc(-x / std::sqrt(2.0));
        if (p > 0.5) continue;  // p near 1 has no digits left for the tail
        // dx = dp / density, so the rounding of p itself is allowed for.
        const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
        CAPTURE(x, p);
        CHECK(std::abs(inverse_normal_cdf(p) - x) <= 1e-14 + 1e-15 * p / density);
    }
    for (int k = 2; k <= 52; ++k) {  // where 1 - p is exact
        const double p = std::ldexp(1.0, -k);
        CHECK(inverse_normal_cdf(1 - p) == -inverse_normal_cdf(p));
    }
    CHECK(inverse_normal_cdf(0.5) == 0);
    CHECK(inverse_normal_cdf(0.25) == Approx(-0.6744897501960817).epsilon(1e-15));
    CHECK(inverse_normal_cdf(0.001) == Approx(-3.0902323061678132).epsilon(1e-15));
    CHECK(inverse_normal_cdf(1e-20) == Approx(-9.2623400897984520).epsilon(1e-14));
}

TEST_CASE("normal numbers: moments, tails, independence of neighbours and streams") {
    constexpr int n = 400000;
    double sum = 0, squares = 0, cubes = 0, fourths = 0, lag = 0, other = 0;
    int beyond_2 = 0, beyond_3 = 0, positive = 0;
    for (int i = 0; i < n; ++i) {
        const double x = normal(1, 2, i);
        sum += x;
        squares += x * x;
        cubes += x * x * x;
        fourths += x * x * x * x;
        lag += x * normal(1, 2, i + 1);
        other += x * normal(1, 3, i);
        beyond_2 += std::abs(x) > 2;
        beyond_3 += std::abs(x) > 3;
        positive += x > 0;
    }
    // Bounds of four standard errors.
    const double e = 4 / std::sqrt(n);
    CHECK(std::abs(sum / n) < e);
    CHECK(std::abs(squares / n - 1) < e * std::sqrt(2.0));
    CHECK(std::abs(cubes / n) < e * std::sqrt(15.0));
    CHECK(std::abs(fourths / n - 3) < e * std::sqrt(96.0));
    CHECK(std::abs(lag / n) < e);
    CHECK(std::abs(other / n) < e);
    CHECK(std::abs(positive / double(n) - 0.5) < e / 2);
    CHECK(std::abs(beyond_2 / double(n) - 0.0455003) < e * std::sqrt(0.0455 * 0.9545));
    CHECK(std::abs(beyond_3 / double(n) - 0.0026998) < e * std::sqrt(0.0027 * 0.9973));
}

TEST_CASE("fill_normal is normal, element for element, from any start") {
    std::vector<float> whole(1000), part(37);
    fill_normal(7, stream_of("wte"), 0, 0.02, HostSpan<float>(whole.data(), whole.size()));
    fill_normal(7, stream_of("wte"), 900, 0.02, HostSpan<float>(part.data(), part.size()));
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + 900));
    CHECK(whole[500] == static_cast<float>(0.02 * normal(7, stream_of("wte"), 500)));
    // Beyond 2^32 elements.
    fill_normal(7, 1, (std::uint64_t{1} << 40) + 5, 1, HostSpan<float>(part.data(), 1));
    CHECK(part[0] == static_cast<float>(normal(7, 1, (std::uint64_t{1} << 40) + 5)));
    CHECK(part[0] != static_cast<float>(normal(7, 1, 5)));
}

TEST_CASE("normal numbers have the same bits on every machine") {
    // Found by this code with and without FMA instructions; the last lies in the far tail.
    const std::uint64_t stream = stream_of("wte");
    CHECK(normal(1, stream, 0) == -0x1.121b09e43fa59p-2);
    CHECK(normal(1, stream, 1) == 0x1.0d2bbe0c3316ap+0);
    CHECK(normal(1, stream, 1587704) == -0x1.46194b106c1e1p+2);
}
