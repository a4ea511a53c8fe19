#pragma once
/// @file
/// Sums with a fixed order.

#include <scape/base/types.hpp>

namespace scape::kernels {

/// mine = scale (sum over ranks, in rank order, of the pieces): `mine` is this rank's own piece on
/// entry, `others` holds P-1 pieces as Communicator::all_to_all delivers them.
void add_pieces(const Exec& exec, Span<float> mine, Span<const float> others, int rank,
                float scale);

/// Sum of squares in double, added to result[0] on the device. The order of addition depends on
/// x.extent(0) alone. NaN and Inf come through. workspace: sum_workspace(x.extent(0)) elements.
void add_sum_of_squares(const Exec& exec, Span<const float> x, Span<double> result,
                        Span<double> workspace);
/// Partial sums of n elements; does not fall as n grows, and never more than 1024.
Index sum_workspace(Index n);

/// 64-bit hash of the bits of x that depends on every element and its position; blocking.
std::uint64_t hash_bits(const Exec& exec, Span<const float> x);

}  // namespace scape::kernels
