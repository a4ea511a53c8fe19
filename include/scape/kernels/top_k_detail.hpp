#pragma once
/// @file
/// The two implementations behind top_k.hpp, for tests that hold one against the other. Both have
/// the contract of the public functions.
///
///     host     a thread per segment. Not in a device build.
///     device   several teams per segment. In every build: on a host a team is one thread.

#include <scape/kernels/top_k.hpp>

namespace scape::kernels::detail {

void top_k_host(const Exec& exec, Span<const float> x, Span<const Segment> segments,
                Span<Position> positions, Span<unsigned char> workspace);
Index top_k_workspace_host(Index largest_segment, Index segments);

void top_k_device(const Exec& exec, Span<const float> x, Span<const Segment> segments,
                  Span<Position> positions, Span<unsigned char> workspace);
Index top_k_workspace_device(Index largest_segment, Index segments);

}  // namespace scape::kernels::detail
