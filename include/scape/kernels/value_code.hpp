#pragma once
/// @file
/// How values travel: as numbers, or as codes of a few bits in blocks that share one scale
/// (algorithm sections 2.7, 2.10 and 3).
///
///     32        fp32
///     16        bf16, rounded to nearest even
///     8, 4, 2   linear: code = round(x / scale), -q .. q, q = 2^(bits-1) - 1, ties to even;
///               scale = largest magnitude of the block / q, rounded to the nearest bf16: the
///               largest code is always q, so that |x - decoded| <= scale / 2, and coding what
///               was decoded gives the same code and scale again
///     2         gaussian: the optimal four levels of a normal distribution (Max, 1960),
///               +-0.4528 and +-1.510 times the block's root mean square, threshold 0.9816
///     1         sign times the block's mean magnitude
///
/// A block is `block` values of one segment; the last of a segment is shorter. A scale below the
/// smallest normal number is 0, and so is everything decoded with it. A block with NaN or infinity,
/// or with values so large that a level would be infinite, has a scale that is NaN, and decodes to
/// NaN throughout: whoever adds such values cannot miss it.

#include <scape/kernels/segment.hpp>

namespace scape::kernels {

enum class Levels {
    number,    ///< fp32 or bf16 each
    linear,    ///< 8, 4, 2 bits
    gaussian,  ///< 2 bits
    sign       ///< 1 bit
};

struct ValueCode {
    Levels levels = Levels::number;
    int bits = 32;
    Index block = 1;  ///< values that share a scale; codes: a multiple of 8
    bool exact() const { return bits == 32; }
    bool in_blocks() const { return levels != Levels::number; }
    bool operator==(const ValueCode&) const = default;
};
inline constexpr ValueCode fp32_values{};
inline constexpr ValueCode bf16_values{Levels::number, 16, 1};

/// A segment's values in a message: first the scales of its blocks (bf16), from the next multiple
/// of 4 bytes on its codes, value j at bit j * bits (in a byte the lowest bits first), up to the
/// next multiple of 4. Linear codes are two's complement; gaussian: bit 1 is the sign, bit 0 the
/// outer level; sign: 1 is negative.
struct CodedSegment {
    Index values = 0;  ///< how many
    Index first = 0;   ///< where they begin: in the array of positions; without one, in the array
    Index bytes = 0;   ///< where its scales begin in the message; a multiple of 4
    Index block = 0;   ///< blocks of the table's rows before it
};
constexpr Index blocks_of(const ValueCode& code, Index values) {
    return (values + code.block - 1) / code.block;
}
/// Bytes of a segment of `values` values; codes in blocks.
constexpr Index coded_bytes(const ValueCode& code, Index values) {
    return round_up(blocks_of(code, values) * 2, 4) + round_up(values * code.bits, 32) / 8;
}

}  // namespace scape::kernels
