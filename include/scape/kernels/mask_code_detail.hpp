#pragma once
/// @file
/// The two implementations behind mask_code.hpp, for tests that hold one against the other. Both
/// have the contract of the public functions.
///
///     host     a thread per segment. Not in a device build.
///     device   a team per segment. In every build: on a host a team is one thread.

#include <scape/kernels/mask_code.hpp>

namespace scape::kernels::detail {

void encode_mask_host(const Exec& exec, MaskCode code, Span<const Segment> segments,
                      Span<const Position> positions, Span<unsigned char> coded);
void decode_mask_host(const Exec& exec, MaskCode code, Span<const Segment> segments,
                      Span<const unsigned char> coded, Span<Position> positions);

void encode_mask_device(const Exec& exec, MaskCode code, Span<const Segment> segments,
                        Span<const Position> positions, Span<unsigned char> coded);
void decode_mask_device(const Exec& exec, MaskCode code, Span<const Segment> segments,
                        Span<const unsigned char> coded, Span<Position> positions);

/// MaskCode::entropy, for the above. The code is the same byte for byte.
Index entropy_code_bytes(Index n, Index k);
void encode_entropy_host(const Exec& exec, Span<const Segment> segments,
                         Span<const Position> positions, Span<unsigned char> coded);
void decode_entropy_host(const Exec& exec, Span<const Segment> segments,
                         Span<const unsigned char> coded, Span<Position> positions);
void encode_entropy_device(const Exec& exec, Span<const Segment> segments,
                           Span<const Position> positions, Span<unsigned char> coded);
void decode_entropy_device(const Exec& exec, Span<const Segment> segments,
                           Span<const unsigned char> coded, Span<Position> positions);

}  // namespace scape::kernels::detail
