#pragma once
/// @file
/// exp and its relatives as short polynomials without branches, so that host loops vectorise and
/// every back end computes the same formula.

#include <scape/base/types.hpp>

#include <cmath>
#include <cstring>

namespace scape::kernels {

/// e^x for float, relative error below 2e-7 over the range where e^x is normal; 0 below it,
/// infinity above 88.72, NaN for NaN. Cody-Waite reduction x = n ln 2 + r, |r| <= ln2/2, then
/// 1 + r + r^2 q(r) with q of degree 4, fitted to the least relative error (3e-9).
KOKKOS_FORCEINLINE_FUNCTION float exp_fast(float x) {
    constexpr float log2_e = 1.44269504088896341f;
    constexpr float ln2_high = 0.693145751953125f;  // exact product with small integers
    constexpr float ln2_low = 1.42860677e-6f;
    constexpr float to_integer = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * log2_e + to_integer;
    const float n = shifted - to_integer;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float p = 1.38145406e-3f;
    p = p * r + 8.36874545e-3f;
    p = p * r + 4.16683890e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 0.49999994f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    // p 2^n: n stands in the lowest bits of `shifted` and is added to p's exponent. Between the
    // bounds below that never leaves the normal numbers; beyond them the result is not used.
    std::uint32_t n_bits, p_bits;
    std::memcpy(&n_bits, &shifted, sizeof n_bits);
    std::memcpy(&p_bits, &p, sizeof p_bits);
    p_bits += n_bits << 23;
    float y;
    std::memcpy(&y, &p_bits, sizeof y);
    y = x >= -87.33f ? y : 0.f;
    return x <= 88.72f ? y : x + INFINITY;  // infinity or NaN
}

/// 1 / (1 + e^-x)
KOKKOS_FORCEINLINE_FUNCTION float sigmoid(float x) {
    return 1.f / (1.f + exp_fast(-x));
}

/// tanh x = 1 - 2 / (e^2x + 1); absolute error below 2e-7.
KOKKOS_FORCEINLINE_FUNCTION float tanh_fast(float x) {
    return 1.f - 2.f / (exp_fast(2.f * x) + 1.f);
}

namespace detail {
inline constexpr float gelu_linear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float gelu_cubic = 0.044715f;
}  // namespace detail

/// GELU in the tanh form of GPT-2 (arXiv 1606.08415): 0.5 h (1 + tanh u) = h sigmoid(2 u),
/// u = sqrt(2/pi) (h + 0.044715 h^3).
KOKKOS_FORCEINLINE_FUNCTION float gelu(float h) {
    const float two_u = detail::gelu_linear * (h + detail::gelu_cubic * h * h * h);
    return h / (1.f + exp_fast(-two_u));
}

/// Its derivative: s + h s (1 - s) (2 u)', s = sigmoid(2 u).
KOKKOS_FORCEINLINE_FUNCTION float gelu_derivative(float h) {
    const float h2 = h * h;
    const float two_u = detail::gelu_linear * h * (1.f + detail::gelu_cubic * h2);
    const float slope = detail::gelu_linear * (1.f + 3.f * detail::gelu_cubic * h2);
    const float s = sigmoid(two_u);
    return s + h * slope * (s * (1.f - s));
}

/// SiLU (arXiv 1702.03118): g sigmoid(g).
KOKKOS_FORCEINLINE_FUNCTION float silu(float g) {
    return g / (1.f + exp_fast(-g));
}

/// Its derivative: s (1 + g (1 - s)), s = sigmoid(g).
KOKKOS_FORCEINLINE_FUNCTION float silu_derivative(float g) {
    const float s = sigmoid(g);
    return s * (1.f + g * (1.f - s));
}

}  // namespace scape::kernels
