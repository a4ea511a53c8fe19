#pragma once
/// @file
/// The codes of value_code.hpp by their definitions, in plain loops.

#include "support/random.hpp"

#include <scape/kernels/value_code.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace scape::test {

inline float from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

/// bf16: of the two neighbours with 16 bits, the nearer; of equally near ones the even. Magnitudes
/// from halfway to the next power of two on become infinite.
inline std::uint16_t nearest_bf16(float x) {
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

/// As the scale of levels up to `top`: 0, normal, or NaN.
inline float as_scale(double x, float top) {
    if (x < 0x1p-126) return 0.f;
    if (!(x < 0x1p128) || std::isinf(static_cast<float>(x) * top)) return from_bits(0x7fc00000u);
    return static_cast<float>(x);
}

inline float scale_of(const kernels::ValueCode& code, const std::vector<float>& block) {
    using kernels::Levels;
    double largest = 0, sum = 0, squares = 0;
    for (const float x : block) {
        if (!std::isfinite(x)) return as_scale(NAN, 1);
        largest = std::max(largest, std::fabs(static_cast<double>(x)));
        sum += std::fabs(static_cast<double>(x));
        squares += static_cast<double>(x) * x;
    }
    const double n = static_cast<double>(block.size());
    const float q = static_cast<float>((1 << (code.bits - 1)) - 1);
    switch (code.levels) {
        case Levels::linear:
            return as_scale(from_bits(nearest_bf16(static_cast<float>(largest) / q) * 65536u), q);
        case Levels::gaussian:
            squares = std::sqrt(squares / n);
            return as_scale(from_bits(nearest_bf16(static_cast<float>(squares)) * 65536u), 1.510f);
        default:
            return as_scale(from_bits(nearest_bf16(static_cast<float>(sum / n)) * 65536u), 1);
    }
}

inline std::uint32_t code_of(const kernels::ValueCode& code, float scale, float x) {
    using kernels::Levels;
    const std::uint32_t negative = std::signbit(x) ? 1 : 0;
    if (code.levels == Levels::sign) return negative;
    if (code.levels == Levels::gaussian)
        return negative * 2 + (std::fabs(x) > 0.9816f * scale ? 1 : 0);
    const int q = (1 << (code.bits - 1)) - 1;
    if (!(scale > 0)) return 0;
    const int k = static_cast<int>(std::nearbyint(x * (1.f / scale)));
    return static_cast<std::uint32_t>(std::clamp(k, -q, q)) & ((1u << code.bits) - 1);
}

inline float value_of(const kernels::ValueCode& code, float scale, std::uint32_t stored) {
    using kernels::Levels;
    if (code.levels == Levels::sign) return stored != 0 ? -scale : scale;
    if (code.levels == Levels::gaussian) {
        const float magnitude = (stored % 2 != 0 ? 1.510f : 0.4528f) * scale;
        return stored >= 2 ? -magnitude : magnitude;
    }
    const int half = 1 << (code.bits - 1);
    const int k = static_cast<int>(stored) - (static_cast<int>(stored) >= half ? 2 * half : 0);
    return static_cast<float>(k) * scale;
}

/// A table of segments of these lengths. Value i of segment s stands at s.first + i.
struct Table {
    std::vector<kernels::CodedSegment> segments;
    Index blocks = 0;
    Index values = 0;  ///< the largest first + values
    Index bytes = 0;   ///< of a message, with what lies between and after the segments
};
inline Table table_of(const kernels::ValueCode& code, const std::vector<Index>& lengths,
                      Index gap_values, Index gap_bytes, Index blocks_before = 0) {
    Table t;
    t.bytes = gap_bytes;
    Index block = blocks_before;
    for (const Index n : lengths) {
        t.segments.push_back({n, t.values, t.bytes, block});
        block += kernels::blocks_of(code, n);
        t.values += n + gap_values;
        t.bytes += kernels::coded_bytes(code, n) + gap_bytes;
    }
    t.blocks = block - blocks_before;
    return t;
}

inline constexpr unsigned char guard = 0x5b;

/// x (t.values): of each value of the table; decoded (t.values): what the message says.
struct CodedValues {
    std::vector<unsigned char> message;
    std::vector<float> decoded;
};
inline CodedValues coded(const kernels::ValueCode& code, const Table& t,
                         const std::vector<float>& x) {
    CodedValues out{std::vector<unsigned char>(t.bytes, guard), std::vector<float>(t.values, 0.f)};
    for (const kernels::CodedSegment& s : t.segments) {
        unsigned char* const scales = out.message.data() + s.bytes;
        std::fill(scales, scales + kernels::coded_bytes(code, s.values), 0);
        unsigned char* const codes = scales + (2 * kernels::blocks_of(code, s.values) + 3) / 4 * 4;
        for (Index i = 0; i < s.values; ++i) {
            const Index b = i / code.block, begin = s.first + b * code.block;
            const Index end = std::min(begin + code.block, s.first + s.values);
            const float scale =
                i % code.block == 0
                    ? scale_of(code, std::vector<float>(x.begin() + begin, x.begin() + end))
                    : from_bits((scales[2 * b] + 256u * scales[2 * b + 1]) << 16);
            scales[2 * b] = static_cast<unsigned char>(bits_of(scale) >> 16);
            scales[2 * b + 1] = static_cast<unsigned char>(bits_of(scale) >> 24);
            const std::uint32_t stored = code_of(code, scale, x[s.first + i]);
            for (int bit = 0; bit < code.bits; ++bit) {
                const Index at = i * code.bits + bit;
                codes[at / 8] |= static_cast<unsigned char>((stored >> bit & 1u) << at % 8);
            }
            out.decoded[s.first + i] = value_of(code, scale, stored);
        }
    }
    return out;
}

/// Values of every magnitude: runs of 50 to 150 of one magnitude, zeros of both signs among them;
/// with `hard` also runs of zeros, subnormals, values near the largest float, NaN and infinity.
inline std::vector<float> values_of_all_sizes(Index n, std::uint64_t seed, bool hard) {
    Random random(seed);
    std::vector<float> x(static_cast<std::size_t>(n));
    for (Index begin = 0, run = 0; begin < n; begin += run) {
        run = std::min(n - begin, 50 + random.below(100));
        const Index kind = hard ? random.below(12) : 11;
        for (Index i = begin; i < begin + run; ++i) {
            const float normal = static_cast<float>(random.normal());
            x[i] = random.below(20) == 0 ? std::copysign(0.f, normal) : normal;
        }
        const int exponent = static_cast<int>(random.below(hard ? 220 : 40)) - (hard ? 118 : 20);
        for (Index i = begin; i < begin + run; ++i) {
            if (kind == 0) x[i] = std::copysign(0.f, x[i]);
            if (kind == 1) x[i] = std::ldexp(x[i], -140);
            if (kind == 2) x[i] = std::ldexp(x[i], -122);
            if (kind == 3) x[i] = std::copysign(std::numeric_limits<float>::max(), x[i]);
            if (kind == 4) x[i] = std::ldexp(static_cast<float>(random.uniform(-1, 1)), 128);
            if (kind == 5) x[i] = std::ldexp(std::copysign(1.f, x[i]), exponent);
            if (kind > 5) x[i] = std::ldexp(x[i], exponent);
        }
        const Index one = begin + random.below(run);
        if (kind == 6) x[one] = std::numeric_limits<float>::quiet_NaN();
        if (kind == 7) x[one] = -std::numeric_limits<float>::infinity();
        if (kind == 8) x[one] = from_bits(0xff800001u);
    }
    return x;
}

}  // namespace scape::test
