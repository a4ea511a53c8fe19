#pragma once
/// @file
/// Between a flat array and a message: gather with error feedback, sum, scatter. Each is one pass
/// over the selected elements. Values travel as fp32, or as bf16 (rounded to nearest even, no
/// scale); they are always added in fp32, in rank order.
///
/// `positions` says which elements of the flat array are meant, in the order of the message. The
/// positions of one call are all different, padding (no_position) apart: padding carries 0 and goes
/// nowhere.

#include <scape/kernels/segment.hpp>

namespace scape::kernels {

inline constexpr Position no_position = 0xffffffffu;

enum class ValueCode { fp32, bf16 };

constexpr Index value_bytes(ValueCode code) {
    return code == ValueCode::fp32 ? 4 : 2;
}

/// What becomes of an element that was sent.
enum class Rest {
    kept,      ///< what the code lost stays: a = a - decoded, 0 for fp32 (error feedback)
    untouched  ///< a stays as it is
};

/// message = coded a at `positions`.   a: flat; message: a value per position
void pack(const Exec& exec, ValueCode code, Span<float> a, Span<const Position> positions,
          Rest rest, Span<unsigned char> message);
/// The same for all elements, in order.
void pack_all(const Exec& exec, ValueCode code, Span<float> a, Rest rest,
              Span<unsigned char> message);

/// out at `positions` = scale (sum over ranks, in rank order, of the decoded values).
/// mine: this rank's own message to itself; others: P-1 messages of the same size, as
/// Communicator::all_to_all delivers them. `compact`: out(j) = the j-th value's sum instead, for
/// all of out; positions are not looked at. `origin`: the position of out(0).
void sum_values(const Exec& exec, ValueCode code, Span<const unsigned char> mine,
                Span<const unsigned char> others, int rank, float scale,
                Span<const Position> positions, bool compact, Span<float> out, Index origin = 0);

/// out at `positions` += scale (decoded value). `origin`: the position of out(0).
void add_values(const Exec& exec, ValueCode code, Span<const unsigned char> message, float scale,
                Span<const Position> positions, Span<float> out, Index origin = 0);

/// out at `positions` = values.
void unpack(const Exec& exec, Span<const float> values, Span<const Position> positions,
            Span<float> out);
/// out at `positions` = 0.
void clear(const Exec& exec, Span<const Position> positions, Span<float> out);

/// x = factor x.
void scale(const Exec& exec, float factor, Span<float> x);

}  // namespace scape::kernels
