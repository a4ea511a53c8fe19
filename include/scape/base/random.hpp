#pragma once
/// @file
/// Counter-based random numbers: every number is a pure function of (seed, stream, counter), so it
/// is the same for any number of ranks, any order of evaluation and any back end. Host functions.
///
/// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
/// Floating-point steps are written with std::fma where a product meets a sum, so that a compiler
/// has nothing left to contract: the same bits with and without FMA instructions.

#include <scape/base/types.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace scape {

/// The block function: ten rounds, 128 bits out of a 128-bit counter and a 64-bit key.
inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                               std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(a)};
        key[0] += 0x9E3779B9;  // the golden ratio
        key[1] += 0xBB67AE85;  // sqrt(3) - 1
    }
    return counter;
}

/// 64 uniform bits. Streams and counters may take any value; different ones are independent.
std::uint64_t uniform_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

/// Quantile of the normal distribution, 0 < p < 1: algorithm AS 241, PPND16 (Wichura, Appl.
/// Statist. 37 (1988) 477); about 1e-16 relative.
double inverse_normal_cdf(double p);

/// A sample of normal(0, 1): element `element` of the stream. At most 8.2 in magnitude.
double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t element);

/// out[i] = stddev * normal(seed, stream, first + i), the product rounded to float once.
void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, double stddev,
                 HostSpan<float> out);

/// Number of the stream that belongs to a name (FNV-1a, 64 bits).
constexpr std::uint64_t stream_of(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

}  // namespace scape
