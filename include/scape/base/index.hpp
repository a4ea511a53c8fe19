#pragma once
/// @file
/// Integers of the program. Apart from types.hpp, so that rooms without kernels (decks, say) need
/// no Kokkos and no device compiler.

#include <cstddef>
#include <cstdint>

namespace scape {

/// Every size and index that can grow with the model or the data is 64 bits wide.
using Index = std::int64_t;

using Token = std::int32_t;

/// A target that does not count: no loss, no gradient.
inline constexpr Token ignored_target = -1;

/// Smallest multiple of `unit` that is >= n. Host code only.
constexpr Index round_up(Index n, Index unit) {
    return (n + unit - 1) / unit * unit;
}

}  // namespace scape
