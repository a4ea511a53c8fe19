// Messages of numbers against plain loops: fp32 and bf16, padding, rank orders, values that are
// hard to round.
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "value_reference.hpp"

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

constexpr ValueCode codes[]{kernels::fp32_values, kernels::bf16_values};

Index value_bytes(const ValueCode& code) {
    return code.bits / 8;
}

float decoded(const ValueCode& code, float x) {
    if (code.exact()) return x;
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

std::vector<float> values_of(const ValueCode& code, const std::vector<unsigned char>& message) {
    std::vector<float> values;
    const auto bytes = static_cast<std::size_t>(value_bytes(code));
    for (std::size_t at = 0; at < message.size(); at += bytes) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &message[at], bytes);
        values.push_back(from_bits(code.exact() ? bits : bits << 16));
    }
    return values;
}

std::vector<unsigned char> message_of(const ValueCode& code, const std::vector<float>& values) {
    std::vector<unsigned char> message;
    for (const float x : values) {
        const std::uint32_t stored = code.exact() ? bits_of(x) : nearest_bf16(x);
        const auto* const bytes = reinterpret_cast<const unsigned char*>(&stored);
        message.insert(message.end(), bytes, bytes + value_bytes(code));
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

// The caller keeps the positions alive: a Selected points.
kernels::Selected at(const Vec<Position>& positions) {
    return {positions, {}, 0};
}

// x - sent as the machine does it, and 0 where nothing is lost. NaN and Inf leave NaN behind.
float rest_of(const ValueCode& code, float x) {
    return code.exact() ? 0.f : x - decoded(code, x);
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
                const auto where = to_device(positions);
                const Vec<unsigned char> message("message", positions.size() * value_bytes(code));
                kernels::pack(Exec(), code, at(where), device, rest, message);
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

TEST_CASE("pack without positions codes everything in order") {
    const std::vector<float> a = hard_values();
    for (const ValueCode code : codes) {
        for (const Rest rest : {Rest::kept, Rest::untouched}) {
            const auto device = to_device(a);
            const Vec<unsigned char> message("message", a.size() * value_bytes(code));
            kernels::pack(Exec(), code, {}, device, rest, message);
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
    kernels::pack(Exec(), kernels::bf16_values, {}, device, Rest::kept, message);
    const auto sent = values_of(kernels::bf16_values, to_host(message));
    const auto left = to_host(device);
    Index wrong = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        wrong += static_cast<double>(sent[i]) + left[i] != a[i] ||
                 std::fabs(left[i]) > std::fabs(a[i]) / 256;
    CHECK(wrong == 0);
}

TEST_CASE("differences travel as bf16 of master minus replica") {
    const Index n = 1003, origin = 500;
    const auto master = normal_values(n, 11), replica = normal_values(n, 12);
    const auto difference = [&](Index i) {
        return decoded(kernels::bf16_values, master[i] - replica[i]);
    };
    std::vector<float> all, some;
    for (Index i = 0; i < n; ++i) all.push_back(difference(i));
    auto positions = some_positions(n, n / 3, true);
    for (Position& p : positions) {
        some.push_back(p == no_position ? 0.f : difference(p));
        if (p != no_position) p += origin;
    }
    const auto from = to_device(master), to = to_device(replica);
    const auto where = to_device(positions);
    const Vec<unsigned char> of_all("message", 2 * all.size()), of_some("message", 2 * some.size());
    kernels::pack_differences(Exec(), kernels::bf16_values, {}, from, to, 0, of_all);
    kernels::pack_differences(Exec(), kernels::bf16_values, at(where), from, to, origin, of_some);
    check_same_bits("all", values_of(kernels::bf16_values, to_host(of_all)), all);
    check_same_bits("some", values_of(kernels::bf16_values, to_host(of_some)), some);
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
                kernels::sum_values(Exec(), code, {}, mine, received, me, scale, true, compact);
                check_close("compact", to_host(compact), first, 0, 0);

                const auto positions = some_positions(2 * n, count, false);
                const auto where = to_device(positions);
                const auto flat = filled(2 * n, -7.f);
                kernels::sum_values(Exec(), code, at(where), mine, received, me, scale, false,
                                    flat);
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
        const auto where = to_device(positions);
        for (const ValueCode code : codes) {
            const auto added = to_device(before);
            kernels::add_values(Exec(), code, at(where), to_device(message_of(code, values)), 0.25f,
                                added);
            std::vector<float> wanted = before;
            for (std::size_t j = 0; j < positions.size(); ++j)
                if (positions[j] != no_position)
                    wanted[positions[j]] += 0.25f * decoded(code, values[j]);
            check_same_bits("added", to_host(added), wanted);
        }
        const auto put = to_device(before);
        kernels::unpack(Exec(), to_device(values), where, put);
        const auto cleared = to_device(before);
        kernels::clear(Exec(), where, cleared);
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
