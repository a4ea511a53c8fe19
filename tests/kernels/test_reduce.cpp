// Sums with a fixed order, and the hash.
#include <scape/kernels/reduce.hpp>

#include "support/compare.hpp"

#include <limits>
#include <set>

using namespace scape;
using namespace scape::test;

namespace {

double squares(const std::vector<float>& x, double before = 0) {
    const Index n = x.size();
    const auto v = to_device(x);
    const auto result = filled(1, before);
    const auto workspace =
        filled(kernels::sum_workspace(n), std::numeric_limits<double>::quiet_NaN());
    kernels::add_sum_of_squares(Exec(), v, result, workspace);
    return to_host(result)[0];
}

std::uint64_t hash(const std::vector<float>& x) {
    return kernels::hash_bits(Exec(), to_device(x));
}

}  // namespace

TEST_CASE("add_pieces adds in rank order, then scales, bit for bit") {
    for (int ranks : {1, 2, 3, 4, 7}) {
        for (Index n : {0, 1, 5, 1023, 1024, 1025, 5000}) {
            std::vector<std::vector<float>> pieces;
            for (int p = 0; p < ranks; ++p) pieces.push_back(normal_values(n, 10 + p));
            const float scale = 1.f / static_cast<float>(ranks);
            std::vector<float> wanted(n);
            for (Index i = 0; i < n; ++i) {
                float sum = pieces[0][i];
                for (int p = 1; p < ranks; ++p) sum += pieces[p][i];
                wanted[i] = scale * sum;
            }
            for (int rank = 0; rank < ranks; ++rank) {
                CAPTURE(ranks, n, rank);
                std::vector<float> others;
                for (int p = 0; p < ranks; ++p) {
                    if (p == rank) continue;
                    others.insert(others.end(), pieces[p].begin(), pieces[p].end());
                }
                const auto mine = to_device(pieces[rank]);
                kernels::add_pieces(Exec(), mine, to_device(others), rank, scale);
                check_same_bits("sum", to_host(mine), wanted);
            }
        }
    }
}

TEST_CASE("add_pieces scales the only piece") {
    const auto mine = filled(5000, 3.f);
    kernels::add_pieces(Exec(), mine, {}, 0, 0.5f);
    check_same_bits("halves", to_host(mine), std::vector<float>(5000, 1.5f));
    kernels::add_pieces(Exec(), mine, {}, 0, 1.f);
    check_same_bits("unchanged", to_host(mine), std::vector<float>(5000, 1.5f));
}

TEST_CASE("add_sum_of_squares") {
    for (Index n : {0, 1, 5, 63, 64, 65, 4095, 4096, 4097, 100003, 5000001}) {
        CAPTURE(n);
        const auto x = normal_values(n, 1);
        long double wanted = 0;
        for (float v : x) wanted += static_cast<long double>(v) * v;
        CHECK(squares(x, 1.5) - 1.5 ==
              Approx(static_cast<double>(wanted)).epsilon(1e-13).margin(1e-15));
        CHECK(squares(x) == squares(x));
    }
}

TEST_CASE("add_sum_of_squares: large, small and non-finite values") {
    CHECK(squares(std::vector<float>(100, 1e30f)) == Approx(1e62).epsilon(1e-6));
    CHECK(squares(std::vector<float>(100, 1e-30f)) == Approx(1e-58).epsilon(1e-6));
    for (Index position : {0, 5000, 9999}) {
        std::vector<float> x(10000, 1.f);
        x[position] = std::numeric_limits<float>::infinity();
        CHECK(std::isinf(squares(x)));
        x[position] = std::numeric_limits<float>::quiet_NaN();
        CHECK(std::isnan(squares(x)));
    }
}

TEST_CASE("add_sum_of_squares adds blocks in order, whatever lies before x") {
    // The same values at another address and as part of a larger buffer: the same bits.
    const Index n = 20000;
    const auto x = normal_values(n + 1, 1);
    const auto whole = to_device(x);
    const auto result = filled(2, 0.0);
    const auto workspace = filled(kernels::sum_workspace(n), 0.0);
    kernels::add_sum_of_squares(Exec(), slice(whole, 1, n + 1), slice(result, 0, 1), workspace);
    CHECK(to_host(result)[0] == squares({x.begin() + 1, x.end()}));
}

TEST_CASE("The workspace of a sum grows with n and stays small") {
    Index before = 0;
    for (Index n = 0; n < 40000000; n = n * 5 / 4 + 1) {
        const Index needed = kernels::sum_workspace(n);
        CAPTURE(n);
        CHECK(needed >= before);
        CHECK(needed <= 1024);
        before = needed;
    }
    CHECK(kernels::sum_workspace(Index{1} << 40) == 1024);
}

TEST_CASE("hash_bits sees every bit, every element and every position") {
    const Index n = 10000;
    const auto x = normal_values(n, 1);
    const std::uint64_t h = hash(x);
    CHECK(hash(x) == h);
    std::set<std::uint64_t> seen = {h};
    for (Index i = 0; i < n; i += 613) {
        for (int bit = 0; bit < 32; ++bit) {
            auto y = x;
            std::uint32_t bits;
            std::memcpy(&bits, &y[i], 4);
            bits ^= 1u << bit;
            std::memcpy(&y[i], &bits, 4);
            seen.insert(hash(y));
        }
    }
    CHECK(seen.size() == 1 + 32 * ((n + 612) / 613));
    auto swapped = x;
    std::swap(swapped[17], swapped[7301]);
    CHECK(hash(swapped) != h);
    CHECK(hash({x.begin(), x.end() - 1}) != h);
    CHECK(hash({0.f}) != hash({-0.f}));
    CHECK(hash({0.f, 0.f}) != hash({0.f}));
    CHECK(hash({}) == 0);
}
