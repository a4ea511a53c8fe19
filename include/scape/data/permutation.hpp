#pragma once
/// @file
/// A random permutation without a table.

#include <scape/base/types.hpp>

#include <cstdint>

namespace scape::data {

/// Element i of a permutation of [0, size) that is keyed by (seed, stream): a balanced Feistel
/// network of six Philox rounds over the next even number of bits, applied again until the result
/// falls into the range (cycle walking, fewer than four rounds of it on average).
/// 1 <= size <= 2^62, 0 <= i < size.
Index permute(std::uint64_t seed, std::uint64_t stream, Index i, Index size);

}  // namespace scape::data
