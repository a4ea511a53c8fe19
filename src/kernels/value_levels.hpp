#pragma once
/// @file
/// bf16, and the codes of value_code.hpp that share a scale in a block: its scale, a value's code,
/// a code's value. A code is decoded from the highest bits of a word, whatever is below them: so
/// one shift takes it from among others. One definition for hosts and devices; this room's files
/// that include it are compiled without fused multiply-adds, so that every rank and machine decodes
/// the same bits.

#include <scape/kernels/loops.hpp>
#include <scape/kernels/value_code.hpp>

#include <cmath>
#include <cstring>

namespace scape::kernels::detail {

KOKKOS_FORCEINLINE_FUNCTION std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
KOKKOS_FORCEINLINE_FUNCTION float float_of(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline constexpr std::uint32_t sign_bit = 0x80000000u;
inline constexpr std::uint32_t infinity_bits = 0x7f800000u;

struct Bf16 {
    using Stored = std::uint16_t;
    KOKKOS_FORCEINLINE_FUNCTION static Stored encode(float x) {
        const std::uint32_t bits = bits_of(x);
        const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const bool nan = (bits & ~sign_bit) > infinity_bits;  // rounding could make it infinite
        return static_cast<Stored>(nan ? (bits >> 16) | 0x40u : rounded);
    }
    KOKKOS_FORCEINLINE_FUNCTION static float decode(Stored stored) {
        return float_of(static_cast<std::uint32_t>(stored) << 16);
    }
    KOKKOS_FORCEINLINE_FUNCTION static float rest(float x, float sent) { return x - sent; }
};

/// Scales are bf16: normal numbers, 0, or this one.
inline constexpr Bf16::Stored nan_scale = 0x7fc0;

/// Rounded to the nearest bf16; for levels up to `top` scales.
KOKKOS_INLINE_FUNCTION Bf16::Stored nearest_scale(float scale, float top) {
    const Bf16::Stored nearest = Bf16::encode(scale);
    if (!(top * Bf16::decode(nearest) < float_of(infinity_bits))) return nan_scale;
    return nearest < 0x80u ? 0 : nearest;
}

/// What a value becomes.
struct Coded {
    std::uint32_t code;
    float decoded;
};

/// With a scale of 0 or NaN all codes are 0.
template <int b>
struct Linear {
    static constexpr int bits = b;
    static constexpr int q = (1 << (b - 1)) - 1;
    float scale, inverse;
    std::uint32_t mask;

    KOKKOS_INLINE_FUNCTION explicit Linear(Bf16::Stored stored)
        : scale(Bf16::decode(stored)),
          inverse(scale > 0.f ? 1.f / scale : 0.f),
          mask(scale > 0.f ? (1u << bits) - 1u : 0u) {}

    /// Of the values x(0) ... x(n-1).
    template <class X>
    KOKKOS_FORCEINLINE_FUNCTION static Bf16::Stored scale_of(const ShortRow& row, Index n,
                                                             const X& x) {
        // As integers NaN is largest.
        const std::uint32_t magnitude =
            row.largest(n, [&](Index j) { return bits_of(x(j)) & ~sign_bit; });
        return nearest_scale(float_of(magnitude) / static_cast<float>(q), static_cast<float>(q));
    }
    /// No bounds: the scale is at most 2^-8 below largest / q, and 127 (1 + 2^-8) rounds to 127.
    KOKKOS_FORCEINLINE_FUNCTION Coded encode(float x) const {
        constexpr float to_integer = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
        const float t = x * inverse + to_integer;
        return {bits_of(t) & mask, (t - to_integer) * scale};
    }
    KOKKOS_FORCEINLINE_FUNCTION float decode(std::uint32_t code) const {
        return decode(static_cast<std::int32_t>(code) >> (32 - bits));
    }
    KOKKOS_FORCEINLINE_FUNCTION float decode(std::int32_t code) const {
        return static_cast<float>(code) * scale;
    }
};

struct Gaussian {
    static constexpr int bits = 2;
    float inner, outer, threshold;

    KOKKOS_INLINE_FUNCTION explicit Gaussian(Bf16::Stored stored)
        : inner(0.4528f * Bf16::decode(stored)),
          outer(1.510f * Bf16::decode(stored)),
          threshold(0.9816f * Bf16::decode(stored)) {}

    template <class X>
    KOKKOS_FORCEINLINE_FUNCTION static Bf16::Stored scale_of(const ShortRow& row, Index n,
                                                             const X& x) {
        const double squares = row.sum(n, [&](Index j) {
            const double value = x(j);
            return value * value;
        });
        return nearest_scale(static_cast<float>(std::sqrt(squares / static_cast<double>(n))),
                             1.510f);
    }
    KOKKOS_FORCEINLINE_FUNCTION Coded encode(float x) const {
        const bool far = float_of(bits_of(x) & ~sign_bit) > threshold;
        const float magnitude = far ? outer : inner;
        return {bits_of(x) >> 31 << 1 | (far ? 1u : 0u),
                float_of(bits_of(magnitude) ^ (bits_of(x) & sign_bit))};
    }
    KOKKOS_FORCEINLINE_FUNCTION float decode(std::uint32_t code) const {
        return float_of(bits_of((code & sign_bit >> 1) != 0 ? outer : inner) ^ (code & sign_bit));
    }
};

struct Sign {
    static constexpr int bits = 1;
    float scale;

    KOKKOS_INLINE_FUNCTION explicit Sign(Bf16::Stored stored) : scale(Bf16::decode(stored)) {}

    template <class X>
    KOKKOS_FORCEINLINE_FUNCTION static Bf16::Stored scale_of(const ShortRow& row, Index n,
                                                             const X& x) {
        const double sum = row.sum(
            n, [&](Index j) { return static_cast<double>(float_of(bits_of(x(j)) & ~sign_bit)); });
        return nearest_scale(static_cast<float>(sum / static_cast<double>(n)), 1.f);
    }
    KOKKOS_FORCEINLINE_FUNCTION Coded encode(float x) const {
        return {bits_of(x) >> 31, float_of(bits_of(scale) ^ (bits_of(x) & sign_bit))};
    }
    KOKKOS_FORCEINLINE_FUNCTION float decode(std::uint32_t code) const {
        return float_of(bits_of(scale) ^ (code & sign_bit));
    }
};

/// f.template operator()<Code>() for the code in blocks.
template <class F>
void with_levels(const ValueCode& code, const F& f) {
    switch (code.levels) {
        case Levels::number:
            return;
        case Levels::linear:
            if (code.bits == 8) return f.template operator()<Linear<8>>();
            if (code.bits == 4) return f.template operator()<Linear<4>>();
            return f.template operator()<Linear<2>>();
        case Levels::gaussian:
            return f.template operator()<Gaussian>();
        case Levels::sign:
            return f.template operator()<Sign>();
    }
}

}  // namespace scape::kernels::detail
