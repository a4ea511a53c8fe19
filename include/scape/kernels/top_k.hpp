#pragma once
/// @file
/// Exact top-k by magnitude, algorithm section 2.9: |x| is ordered by its bits as an unsigned
/// number, so subnormals differ and NaN is largest, whatever flush mode is on; among equals the
/// lower position wins.

#include <scape/kernels/segment.hpp>

namespace scape::kernels {

/// positions(s.first + j), j < s.selected = positions in the segment (0 ... s.size-1), ascending,
/// of the s.selected largest |x(s.begin + i)|, for every segment s; 1 <= s.selected <= s.size.
/// Linear in the segments' size, deterministic, no host round trip.
/// x: any size that holds all segments. `workspace`: top_k_workspace(largest segment, number of
/// segments) bytes or more, aligned to 8; throws std::logic_error if it is smaller.
void top_k(const Exec& exec, Span<const float> x, Span<const Segment> segments,
           Span<Position> positions, Span<unsigned char> workspace);
/// On a host about largest_segment/2 + 50 Ki for each segment that is worked on at a time (one a
/// thread); on a device 8 Ki a segment, and 8 Ki.
Index top_k_workspace(Index largest_segment, Index segments);

}  // namespace scape::kernels
