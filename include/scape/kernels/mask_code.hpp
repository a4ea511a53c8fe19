#pragma once
/// @file
/// Codes of a mask, algorithm section 2.6. Every size is static: it follows from n and k.
///
///     bitmap   1 bit an element, in 64-bit words
///     gaps     a byte an element: elements skipped since the one before (0 ... 254);
///              255 = skip 255 more, no element; the rest is filled with 255
///     index    32-bit positions
///     entropy  within some 5 % of log2 C(n, k) bits for k/n in 0.0005 ... 0.18 and k of thousands;
///              see mask_code_phrases.hpp. The smallest, and the slowest: worth its time where
///              bandwidth is dear
///
/// A segment with k == n has no code.

#include <scape/kernels/segment.hpp>

namespace scape::kernels {

enum class MaskCode { bitmap, gaps, index, entropy };

/// Bytes of the code of k of n elements, a multiple of 8; 0 if k == n. For the entropy code this
/// also makes the tables of that density if they do not exist yet (some 3 ms); a device codes only
/// segments whose size has been asked for.
Index mask_code_bytes(MaskCode code, Index n, Index k);

/// positions: in the segment, ascending, as top_k leaves them at Segment::first. Writes all
/// mask_code_bytes of every segment. coded: aligned to 8, as every Segment::code is.
void encode_mask(const Exec& exec, MaskCode code, Span<const Segment> segments,
                 Span<const Position> positions, Span<unsigned char> coded);
/// The inverse, with Segment::begin added: positions in the array that holds the segments. Also
/// of segments without a code. A code that no encoder made (damaged on its way) never leads to a
/// write outside the segment's positions, nor to a position outside the segment; all positions are
/// written, but they may then repeat and need not ascend.
void decode_mask(const Exec& exec, MaskCode code, Span<const Segment> segments,
                 Span<const unsigned char> coded, Span<Position> positions);

}  // namespace scape::kernels
