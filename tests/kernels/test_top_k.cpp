// Top-k against std::stable_sort by descending key, for the public function and for both of the
// implementations behind it.
#include "support/catch.hpp"
#include "support/random.hpp"

#include <scape/kernels/machine_rate.hpp>
#include <scape/kernels/top_k.hpp>
#include <scape/kernels/top_k_detail.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <thread>

using namespace scape;
using namespace scape::kernels;
using scape::test::Random;
using scape::test::to_device;
using scape::test::to_host;

namespace {

struct Implementation {
    std::string name;
    decltype(&top_k) select;
    decltype(&top_k_workspace) workspace;
};

std::vector<Implementation> implementations() {
    return {{"public", top_k, top_k_workspace},
            {"device", kernels::detail::top_k_device, kernels::detail::top_k_workspace_device}};
}

std::uint32_t key(float x) {
    return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

std::vector<Position> reference(const float* x, Index n, Index k) {
    std::vector<Position> order(n);
    std::iota(order.begin(), order.end(), Position{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](Position a, Position b) { return key(x[a]) > key(x[b]); });
    order.resize(k);
    std::sort(order.begin(), order.end());
    return order;
}

constexpr Position unwritten = 0xabcdef01u;

/// Segments with their places in x and in the positions, in any order, and room left between them.
struct Case {
    std::vector<float> x;
    std::vector<Segment> segments;
    Index positions = 0;
};

/// Empty, or what is wrong.
std::string check(const Implementation& by, const Case& c) {
    Index largest = 0;
    for (const Segment& s : c.segments) largest = std::max(largest, s.size);
    const Vec<float> x = to_device(c.x);
    const Vec<Segment> segments = to_device(c.segments);
    const Vec<Position> positions = to_device(std::vector<Position>(c.positions, unwritten));
    const Vec<unsigned char> workspace = to_device(std::vector<unsigned char>(
        by.workspace(largest, static_cast<Index>(c.segments.size())), 0x5a));
    by.select(Exec{}, x, segments, positions, workspace);
    const std::vector<Position> got = to_host(positions);
    std::vector<Position> wanted(c.positions, unwritten);
    for (const Segment& s : c.segments) {
        const std::vector<Position> part = reference(c.x.data() + s.begin, s.size, s.selected);
        std::copy(part.begin(), part.end(), wanted.begin() + s.first);
    }
    const auto differ = std::mismatch(got.begin(), got.end(), wanted.begin());
    if (differ.first == got.end()) return "";
    std::string text = by.name + ": position " + std::to_string(differ.first - got.begin()) +
                       " is " + std::to_string(*differ.first) + ", wanted " +
                       std::to_string(*differ.second) + "; segments (size, selected):";
    for (const Segment& s : c.segments) {
        text += " (" + std::to_string(s.size) + ", " + std::to_string(s.selected) + ")";
    }
    return text;
}

void check_all(const Case& c) {
    for (const Implementation& by : implementations()) {
        const std::string wrong = check(by, c);
        if (!wrong.empty()) FAIL_CHECK(wrong);
    }
}

enum class Fill {
    normal,
    all_equal,
    zeros,
    few_values,
    subnormal,
    special,
    any_bits,
    sorted,
    reversed,
    rows_of_zeros,
    one_bin,
    count
};

float special_value(Random& random) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float all[] = {0.f,
                         -0.f,
                         1e-45f,
                         -1e-45f,
                         1.1754942e-38f,
                         1.17549435e-38f,
                         1.f,
                         -1.f,
                         inf,
                         -inf,
                         nan,
                         -nan,
                         3.4028235e38f,
                         -3.4028235e38f,
                         std::bit_cast<float>(0x7f800001u),
                         std::bit_cast<float>(0xffffffffu)};
    return all[random.below(std::size(all))];
}

std::vector<float> values(Fill fill, Index n, Random& random) {
    std::vector<float> x(n);
    const float constant = static_cast<float>(random.normal());
    const std::uint32_t base = static_cast<std::uint32_t>(random.bits()) & 0x7fff0000u;
    const auto sign = [&] { return random.below(2) ? 1.f : -1.f; };
    for (Index i = 0; i < n; ++i) {
        switch (fill) {
            case Fill::all_equal:
                x[i] = sign() * constant;
                break;
            case Fill::zeros:
                x[i] = sign() * 0.f;
                break;
            case Fill::few_values:
                x[i] = sign() * static_cast<float>(random.below(4));
                break;
            case Fill::subnormal:
                x[i] = sign() *
                       std::bit_cast<float>(static_cast<std::uint32_t>(random.below(0x00800010)));
                break;
            case Fill::special:
                x[i] = special_value(random);
                break;
            case Fill::any_bits:
                x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
                break;
            case Fill::rows_of_zeros:
                x[i] = i / 32 % 4 == 0 ? static_cast<float>(random.normal()) : 0.f;
                break;
            case Fill::one_bin:
                x[i] = std::bit_cast<float>(base + static_cast<std::uint32_t>(random.below(40)));
                break;
            default:
                x[i] = static_cast<float>(1e-3 * random.normal());
        }
    }
    const auto less = [](float a, float b) { return key(a) < key(b); };
    if (fill == Fill::sorted) std::sort(x.begin(), x.end(), less);
    if (fill == Fill::reversed) std::sort(x.rbegin(), x.rend(), less);
    return x;
}

/// Sizes up to `most`, often just beside a multiple of 64; k often an extreme.
Segment random_segment(Random& random, Index most) {
    Segment s;
    s.size = 1 + random.below(most);
    if (random.below(3) == 0) s.size = std::max<Index>(1, s.size / 64 * 64 + random.below(3) - 1);
    switch (random.below(6)) {
        case 0:
            s.selected = 1;
            break;
        case 1:
            s.selected = s.size;
            break;
        case 2:
            s.selected = std::max<Index>(1, s.size - 1);
            break;
        case 3:
            s.selected = 1 + s.size / 100;
            break;
        default:
            s.selected = 1 + random.below(s.size);
    }
    s.selected = std::min(s.selected, s.size);
    return s;
}

/// Up to eight segments with gaps between them, in neither x's nor the positions' order.
Case random_case(Random& random, Index most) {
    Case c;
    const Index count = 1 + random.below(8);
    for (Index i = 0; i < count; ++i) {
        Segment s = random_segment(random, most);
        c.x.resize(c.x.size() + random.below(70), std::numeric_limits<float>::quiet_NaN());
        s.begin = static_cast<Index>(c.x.size());
        const Fill fill = static_cast<Fill>(random.below(static_cast<Index>(Fill::count)));
        for (const float v : values(fill, s.size, random)) c.x.push_back(v);
        c.segments.push_back(s);
    }
    for (Index i = count; i-- > 1;) std::swap(c.segments[i], c.segments[random.below(i + 1)]);
    for (Segment& s : c.segments) {
        c.positions += random.below(20);
        s.first = c.positions;
        c.positions += s.selected;
    }
    c.positions += 8;
    for (Index i = count; i-- > 1;) std::swap(c.segments[i], c.segments[random.below(i + 1)]);
    return c;
}

Case one_segment(std::vector<float> x, Index k) {
    Case c;
    c.segments.push_back({0, static_cast<Index>(x.size()), k, 0, 0});
    c.positions = k;
    c.x = std::move(x);
    return c;
}

}  // namespace

TEST_CASE("top_k of small segments is that of a stable sort") {
    Random random(1);
    for (int i = 0; i < 3000; ++i) check_all(random_case(random, i % 2 ? 40 : 400));
}

TEST_CASE("top_k of segments that are sampled is that of a stable sort") {
    Random random(2);
    for (int i = 0; i < 60; ++i) check_all(random_case(random, 30000));
}

TEST_CASE("top_k of a large segment") {
    Random random(3);
    const Index n = 3000001;
    const std::vector<float> x = values(Fill::normal, n, random);
    for (const Index k : {Index{1}, n / 1000, n / 10, n / 2}) check_all(one_segment(x, k));
    check_all(one_segment(values(Fill::reversed, n, random), n / 100));
    check_all(one_segment(values(Fill::rows_of_zeros, n, random), n / 3));
}

TEST_CASE("top_k does not trust its sample") {
    // Large values wherever a sampler with a period would look, or would not; few or many.
    const Index n = 200001;
    for (const Index period : {2, 3, 16, 64, 195, 196, 1000}) {
        for (const Index phase : {Index{0}, period / 2}) {
            std::vector<float> x(n, 0.5f);
            for (Index i = phase; i < n; i += period) x[i] = static_cast<float>(i + 1);
            for (const Index k : {n / 1000, n / 100, n / 10, n / 3}) check_all(one_segment(x, k));
        }
    }
}

TEST_CASE("top_k of ties takes the lower positions") {
    for (const Index n : {5, 64, 65, 4097, 10000}) {
        std::vector<float> x(n, -2.f);
        x[n - 1] = 3.f;
        x[n / 2] = 1.f;
        for (const Index k : {Index{1}, Index{2}, n / 2, n - 1}) check_all(one_segment(x, k));
    }
}

TEST_CASE("top_k orders subnormals while they are flushed to zero") {
    // In a thread of its own: the mode ends with it, as far as this process's other tests go.
    std::string wrong = "the thread did not run";
    std::thread thread([&] {
        flush_subnormals();
        wrong = subnormals_are_flushed() ? "" : "not flushed";
        Random random(4);
        for (int i = 0; i < 300 && wrong.empty(); ++i) {
            const Index n = 1 + random.below(i < 280 ? 300 : 20000);
            const Case c = one_segment(values(Fill::subnormal, n, random), 1 + random.below(n));
            for (const Implementation& by : implementations()) wrong += check(by, c);
        }
    });
    thread.join();
    CHECK(wrong == "");
}

TEST_CASE("top_k without segments does nothing") {
    for (const Implementation& by : implementations()) {
        const Vec<unsigned char> workspace("scape::test::workspace", by.workspace(0, 0));
        by.select(Exec{}, Span<const float>(), Span<const Segment>(), Span<Position>(), workspace);
    }
    SUCCEED();
}
