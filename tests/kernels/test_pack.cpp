// Messages against plain loops: both codes, padding, rank orders, values that are hard to round.
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/kernels/pack.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace scape;
using namespace scape::test;
using kernels::no_position;
using kernels::Position;
using kernels::Rest;
using kernels::ValueCode;

namespace {

float from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// bf16 by its definition: of the two neighbours with 16 bits, the nearer; of equally near ones the
// even. Magnitudes from halfway to the next power of two on become infinite.
std::uint16_t nearest_bf16(float x) {
    if (std::isnan(x)) return static_cast<std::uint16_t>(bits_of(x) >> 16 | 0x40);
    const std::uint32_t sign = bits_of(x) & 0x80000000u;
    const float magnitude = std::fabs(x);
    const std::uint32_t low = bits_of(magnitude) >> 16;
    if (std::isinf(x)) return static_cast<std::uint16_t>(sign >> 16 | low);
    const std::uint32_t high = low + 1;
    const double below = from_bits(low << 16);
    const double above = high == 0x7f80 ? 0x1p128 : from_bits(high << 16);
    const double to_low = magnitude - below, to_high = above - magnitude;
    const bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
    return static_cast<std::uint16_t>(sign >> 16 | (up ? high : low));
}

float decoded(ValueCode code, float x) {
    if (code == ValueCode::fp32) return x;
    return from_bits(static_cast<std::uint32_t>(nearest_bf16(x)) << 16);
}

std::vector<float> hard_values() {
    std::vector<float> values{0.f,
                              -0.f,
                              1.f,
                              -1.f,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(),
                              from_bits(0x7f800001u),  // NaNs whose upper bits alone are Inf
                              from_bits(0xff800001u),
                              from_bits(0xffffffffu),
                              std::numeric_limits<float>::max(),
                              -std::numeric_limits<float>::max(),
                              from_bits(0x7f7f8000u),  // halfway to Inf, and just below
                              from_bits(0x7f7f7fffu),
                              std::numeric_limits<float>::min(),
                              std::numeric_limits<float>::denorm_min(),
                              from_bits(0x00007fffu),  // subnormals around halfway
                              from_bits(0x00008000u),
                              from_bits(0x00008001u),
                              from_bits(0x00018000u),
                              from_bits(0x007fffffu)};
    for (const std::uint32_t upper : {0x3f80u, 0x3f81u, 0xc2feu, 0xc2ffu, 0x3fffu})
        for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
            values.push_back(from_bits(upper << 16 | lower));
    Random random(5);
    for (int i = 0; i < 3000; ++i)
        values.push_back(from_bits(static_cast<std::uint32_t>(random.bits())));
    return values;
}

std::vector<float> values_of(ValueCode code, const std::vector<unsigned char>& message) {
    std::vector<float> values;
    const auto bytes = static_cast<std::size_t>(kernels::value_bytes(code));
    for (std::size_t at = 0; at < message.size(); at += bytes) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &message[at], bytes);
        values.push_back(from_bits(code == ValueCode::fp32 ? bits : bits << 16));
    }
    return values;
}

std::vector<unsigned char> message_of(ValueCode code, const std::vector<float>& values) {
    std::vector<unsigned char> message;
    for (const float x : values) {
        const std::uint32_t stored = code == ValueCode::fp32 ? bits_of(x) : nearest_bf16(x);
        const auto* const bytes = reinterpret_cast<const unsigned char*>(&stored);
        message.insert(message.end(), bytes, bytes + kernels::value_bytes(code));
    }
    return message;
}

// Some `count` of n positions, none twice, in no order; `padding` more after every third.
std::vector<Position> some_positions(Index n, Index count, bool padding) {
    std::vector<Position> all(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i) all[i] = static_cast<Position>(i);
    Random random(static_cast<std::uint64_t>(n + 31 * count));
    for (Index i = n; i-- > 1;) std::swap(all[i], all[random.below(i + 1)]);
    std::vector<Position> positions;
    for (Index i = 0; i < count; ++i) {
        positions.push_back(all[i]);
        if (padding && i % 3 == 0) positions.push_back(no_position);
    }
    return positions;
}

constexpr ValueCode codes[]{ValueCode::fp32, ValueCode::bf16};

// x - sent as the machine does it, and 0 where nothing is lost. NaN and Inf leave NaN behind.
float rest_of(ValueCode code, float x) {
    return code == ValueCode::fp32 ? 0.f : x - decoded(code, x);
}

}  // namespace

TEST_CASE("pack gathers, codes, and leaves what the code lost") {
    const std::vector<float> a = hard_values();
    const auto n = static_cast<Index>(a.size());
    for (const ValueCode code : codes) {
        for (const Rest rest : {Rest::kept, Rest::untouched}) {
            for (const Index count : {Index(0), Index(1), n / 3, n}) {
                const auto positions = some_positions(n, count, true);
                const auto device = to_device(a);
                const Vec<unsigned char> message("message",
                                                 positions.size() * kernels::value_bytes(code));
                kernels::pack(Exec(), code, device, to_device(positions), rest, message);
                std::vector<float> wanted, left = a;
                for (const Position p : positions) {
                    wanted.push_back(p == no_position ? 0.f : decoded(code, a[p]));
                    if (p != no_position && rest == Rest::kept) left[p] = rest_of(code, a[p]);
                }
                check_same_bits("message", values_of(code, to_host(message)), wanted);
                check_close("rest", to_host(device), left, 0, 0);
            }
        }
    }
}

TEST_CASE("pack_all codes everything in order") {
    const std::vector<float> a = hard_values();
    for (const ValueCode code : codes) {
        for (const Rest rest : {Rest::kept, Rest::untouched}) {
            const auto device = to_device(a);
            const Vec<unsigned char> message("message", a.size() * kernels::value_bytes(code));
            kernels::pack_all(Exec(), code, device, rest, message);
            std::vector<float> wanted, left;
            for (const float x : a) {
                wanted.push_back(decoded(code, x));
                left.push_back(rest == Rest::kept ? rest_of(code, x) : x);
            }
            check_same_bits("message", values_of(code, to_host(message)), wanted);
            check_close("rest", to_host(device), left, 0, 0);
        }
    }
}

TEST_CASE("what was sent and what was left add up to what there was") {
    // Exactly: the difference of a float and its bf16 neighbour is a float.
    const std::vector<float> a = normal_values(5001, 3, 2.5);
    const auto device = to_device(a);
    const Vec<unsigned char> message("message", a.size() * 2);
    kernels::pack_all(Exec(), ValueCode::bf16, device, Rest::kept, message);
    const auto sent = values_of(ValueCode::bf16, to_host(message));
    const auto left = to_host(device);
    Index wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        wrong += static_cast<double>(sent[i]) + left[i] != a[i] ||
                 std::fabs(left[i]) > std::fabs(a[i]) / 256;
    CHECK(wrong == 0);
}

TEST_CASE("sums are formed in rank order, wherever the caller stands") {
    const Index n = 701;
    for (const ValueCode code : codes) {
        for (int ranks = 1; ranks <= 4; ++ranks) {
            std::vector<std::vector<float>> of_rank;
            for (int r = 0; r < ranks; ++r) {
                auto values = normal_values(n, 7 + r, std::pow(10.0, r));
                values[5] = r == 1 ? std::numeric_limits<float>::infinity() : 1.f;
                values[6] = r == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.f;
                of_rank.push_back(values);
            }
            const float scale = 1.f / static_cast<float>(ranks);
            std::vector<float> sums;
            for (Index j = 0; j < n; ++j) {
                float sum = decoded(code, of_rank[0][j]);
                for (int r = 1; r < ranks; ++r) sum += decoded(code, of_rank[r][j]);
                sums.push_back(scale * sum);
            }
            for (int me = 0; me < ranks; ++me) {
                INFO("rank " << me << " of " << ranks);
                std::vector<unsigned char> others;
                for (int r = 0; r < ranks; ++r) {
                    if (r == me) continue;
                    const auto part = message_of(code, of_rank[r]);
                    others.insert(others.end(), part.begin(), part.end());
                }
                const auto mine = to_device(message_of(code, of_rank[me]));
                const auto received = to_device(others);
                // The owner knows what the padding at the end of its message is: fewer are summed.
                const Index count = n - 13;
                const std::vector<float> first(sums.begin(), sums.begin() + count);
                const auto compact = filled(count, -7.f);
                kernels::sum_values(Exec(), code, mine, received, me, scale, {}, true, compact);
                check_close("compact", to_host(compact), first, 0, 0);

                const auto positions = some_positions(2 * n, count, false);
                const auto flat = filled(2 * n, -7.f);
                kernels::sum_values(Exec(), code, mine, received, me, scale, to_device(positions),
                                    false, flat);
                std::vector<float> wanted(static_cast<std::size_t>(2 * n), -7.f);
                for (Index j = 0; j < count; ++j) wanted[positions[j]] = first[j];
                check_close("at positions", to_host(flat), wanted, 0, 0);
            }
        }
    }
}

TEST_CASE("values are added, put and cleared at positions, and nowhere else") {
    const Index n = 911;
    const std::vector<float> before = normal_values(n, 1);
    for (const Index count : {Index(0), Index(1), Index(300), n}) {
        const auto positions = some_positions(n, count, true);
        const auto values = normal_values(static_cast<Index>(positions.size()), 2);
        const auto at = to_device(positions);
        for (const ValueCode code : codes) {
            const auto added = to_device(before);
            kernels::add_values(Exec(), code, to_device(message_of(code, values)), 0.25f, at,
                                added);
            std::vector<float> wanted = before;
            for (std::size_t j = 0; j < positions.size(); ++j)
                if (positions[j] != no_position)
                    wanted[positions[j]] += 0.25f * decoded(code, values[j]);
            check_same_bits("added", to_host(added), wanted);
        }
        const auto put = to_device(before);
        kernels::unpack(Exec(), to_device(values), at, put);
        const auto cleared = to_device(before);
        kernels::clear(Exec(), at, cleared);
        std::vector<float> wanted_put = before, wanted_cleared = before;
        for (std::size_t j = 0; j < positions.size(); ++j) {
            if (positions[j] == no_position) continue;
            wanted_put[positions[j]] = values[j];
            wanted_cleared[positions[j]] = 0.f;
        }
        check_same_bits("put", to_host(put), wanted_put);
        check_same_bits("cleared", to_host(cleared), wanted_cleared);
    }
}

TEST_CASE("scale multiplies every element") {
    for (const Index n : {Index(0), Index(1), Index(70001)}) {
        const auto before = normal_values(n, 4);
        const auto x = to_device(before);
        kernels::scale(Exec(), 0.75f, x);
        std::vector<float> wanted;
        for (const float v : before) wanted.push_back(0.75f * v);
        check_same_bits("scaled", to_host(x), wanted);
    }
}
