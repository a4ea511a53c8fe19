#pragma once
/// @file
/// Between a flat array and a message: gather with error feedback, sum, scatter; each one pass over
/// the selected elements, in any code (value_code.hpp). Values are always added in fp32, in rank
/// order.

#include <scape/kernels/value_code.hpp>

namespace scape::kernels {

inline constexpr Position no_position = 0xffffffffu;

/// Which elements of a flat array a message carries, in its order.
struct Selected {
    /// Of element j of the message, all different; padding, no_position, carries 0 and goes
    /// nowhere. Empty: all elements of the array, in order; of numbers as many as the message has
    /// bytes for.
    Span<const Position> positions;
    /// Codes in blocks: the message, segment by segment. Rows may be a part of a table: the first
    /// row's `block` is where its blocks are counted from.
    Span<const CodedSegment> segments;
    Index blocks = 0;  ///< of all segments
};

/// What becomes of an element that was sent.
enum class Rest {
    kept,      ///< what the code lost stays: a = a - decoded, 0 for fp32 (error feedback)
    untouched  ///< a stays as it is
};

/// message = coded a at what is selected.   a: flat
void pack(const Exec& exec, const ValueCode& code, const Selected& selected, Span<float> a,
          Rest rest, Span<unsigned char> message);

/// LoCo's error of the elements of a message, as codes {Levels::linear, 8, the message's block}.
struct LocoError {
    Span<const CodedSegment> segments;  ///< as Selected::segments, but for `bytes`
    Span<const unsigned char> before;   ///< e; empty: zero
    Span<unsigned char> after;          ///< another array
    float beta = 0;
};
/// One pass (algorithm section 3): h = g + e; message = coded h; e = beta e + (1-beta) (h -
/// decoded). g stays. Codes in blocks; selected: all elements.
void pack_loco(const Exec& exec, const ValueCode& code, const Selected& selected,
               Span<const float> g, const LocoError& error, Span<unsigned char> message);

/// message = coded (master - replica) at what is selected. `origin`: the position of the first
/// element of both. Not fp32.
void pack_differences(const Exec& exec, const ValueCode& code, const Selected& selected,
                      Span<const float> master, Span<const float> replica, Index origin,
                      Span<unsigned char> message);

/// out at what is selected = scale (sum over ranks, in rank order, of the decoded values).
/// mine: this rank's own message to itself; others: P-1 messages of the same size, as
/// Communicator::all_to_all delivers them. `compact`: out(j) = the j-th value's sum instead; for
/// numbers, of all of out, and positions are not looked at. `origin`: the position of out(0).
void sum_values(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> mine, Span<const unsigned char> others, int rank,
                float scale, bool compact, Span<float> out, Index origin = 0);

/// out at what is selected += scale (decoded value). `origin`: the position of out(0).
void add_values(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> message, float scale, Span<float> out, Index origin = 0);

/// out at `positions` = values.
void unpack(const Exec& exec, Span<const float> values, Span<const Position> positions,
            Span<float> out);
/// out at `positions` = 0.
void clear(const Exec& exec, Span<const Position> positions, Span<float> out);

/// x = factor x.
void scale(const Exec& exec, float factor, Span<float> x);

}  // namespace scape::kernels
