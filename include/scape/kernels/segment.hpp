#pragma once
/// @file
/// A batch of independent pieces of an array that one launch works on. A sparse optimizer selects,
/// codes and packs each slice on its own; a device gives each segment to a team.

#include <scape/base/types.hpp>

#include <cstdint>

namespace scape::kernels {

/// Position of a selected element: in its segment, or in the array that holds all segments.
using Position = std::uint32_t;

/// k of n elements are selected. The counts are static: they follow from the density alone.
struct Segment {
    Index begin = 0;     ///< first element in the array
    Index size = 0;      ///< n
    Index selected = 0;  ///< k; k == n: all of them, and there is no code
    Index first = 0;     ///< where its k positions lie in the array of positions
    Index code = 0;      ///< byte offset of its code in the coded mask; a multiple of 8
};

}  // namespace scape::kernels
