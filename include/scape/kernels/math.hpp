#pragma once
/// @file
/// exp and its relatives as short polynomials without branches, so that host loops vectorise and
/// every back end computes the same formula.

#include <scape/base/types.hpp>

#include <cstring>

namespace scape::kernels {

/// e^x for float, relative error below 2e-7 over the range where e^x is normal; 0 below it,
/// infinity above 88.72, NaN for NaN. Cody-Waite reduction x = n ln 2 + r, |r| <= ln2/2, then the
/// Taylor polynomial of degree 7 in r.
KOKKOS_INLINE_FUNCTION float exp_fast(float x) {
    constexpr float log2_e = 1.44269504088896341f;
    constexpr float ln2_high = 0.693145751953125f;  // exact product with small integers
    constexpr float ln2_low = 1.42860677e-6f;
    constexpr float to_integer = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
    const float lower = x < -87.33f ? -87.33f : x;  // comparisons so written keep NaN
    const float clamped = lower > 88.72f ? 88.72f : lower;
    const float shifted = clamped * log2_e + to_integer;
    const float n = shifted - to_integer;
    const float r = (clamped - n * ln2_high) - n * ln2_low;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    // 2^n in two steps, so that n = 128 does not overflow the exponent field.
    const std::int32_t whole = static_cast<std::int32_t>(n == n ? n : 0.f);
    const std::int32_t half = whole / 2;
    const std::int32_t bits_a = (half + 127) << 23;
    const std::int32_t bits_b = (whole - half + 127) << 23;
    float a, b;
    std::memcpy(&a, &bits_a, sizeof a);
    std::memcpy(&b, &bits_b, sizeof b);
    const float y = p * a * b;
    const float low = x < -87.33f ? 0.f : y;
    return x > 88.72f ? 3.402823466e38f * 2.f : low;
}

/// 1 / (1 + e^-x)
KOKKOS_INLINE_FUNCTION float sigmoid(float x) { return 1.f / (1.f + exp_fast(-x)); }

/// tanh x = 1 - 2 / (e^2x + 1)
KOKKOS_INLINE_FUNCTION float tanh_fast(float x) { return 1.f - 2.f / (exp_fast(2.f * x) + 1.f); }

}  // namespace scape::kernels
