#pragma once
/// @file
/// The part of pack.hpp for codes in blocks, with its arguments.

#include <scape/kernels/pack.hpp>

namespace scape::kernels::detail {

void pack_blocks(const Exec& exec, const ValueCode& code, const Selected& selected, Span<float> a,
                 Rest rest, Span<unsigned char> message);

void pack_blocks_of_differences(const Exec& exec, const ValueCode& code, const Selected& selected,
                                Span<const float> master, Span<const float> replica, Index origin,
                                Span<unsigned char> message);

void sum_blocks(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> mine, Span<const unsigned char> others, int rank,
                float scale, bool compact, Span<float> out, Index origin);

void add_blocks(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> message, float scale, Span<float> out, Index origin);

}  // namespace scape::kernels::detail
