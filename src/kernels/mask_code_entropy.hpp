#pragma once
/// @file
/// Coding and decoding one piece of a mask, for hosts and devices: what a thread does.
///
/// The code of a segment, from its first byte on: where each piece but the first starts
/// (PieceStart); the numbers of the phrases, piece after piece; and, from the segment's last byte
/// backwards, the raw bits, piece after piece. Both start at a whole byte in every piece. Between
/// the two lie zeros.

#include <scape/kernels/mask_code_phrases.hpp>

#include <bit>
#include <cstring>

namespace scape::kernels::detail {

inline constexpr Index piece_elements = 8192;  // selected elements of a piece, or more

struct PieceStart {
    std::uint32_t position;  ///< the first element after the last selected one before the piece
    std::uint32_t words;     ///< bytes before the piece's numbers
    std::uint32_t raws;      ///< bytes of raw bits after the piece's
};

KOKKOS_INLINE_FUNCTION Index piece_count(Index k) {
    return k < 2 * piece_elements ? 1 : k / piece_elements;
}
/// The phrases of a piece cost what its elements are worth, and one more whose end lies beyond the
/// piece; its two streams end in whole bytes.
KOKKOS_INLINE_FUNCTION Index entropy_bytes(const PhraseView& code, Index n, Index k) {
    if (k == 0 || k == n) return 0;
    const Index worth = (k * code.selected + (n - k) * code.skipped) >> phrase_worth_bits;
    const Index pieces = piece_count(k);
    const Index bytes = (worth + pieces * (phrase_bits + 2 * 7)) / 8 +
                        (pieces - 1) * static_cast<Index>(sizeof(PieceStart));
    return (bytes + 7) / 8 * 8;
}
/// First selected element of a piece.
KOKKOS_INLINE_FUNCTION Index piece_begin(Index k, Index pieces, Index piece) {
    return k * piece / pieces;
}

/// Four bytes to any address, the lowest first.
KOKKOS_FORCEINLINE_FUNCTION void store_four(unsigned char* to, std::uint32_t four) {
    if constexpr (exec_is_host && std::endian::native == std::endian::little) {
        std::memcpy(to, &four, sizeof four);
    } else {
        for (int b = 0; b < 4; ++b) to[b] = static_cast<unsigned char>(four >> 8 * b);
    }
}

/// A stream of bits from its first byte on, the lowest bits first. Without `write` it only counts.
template <bool write>
struct BitsForward {
    unsigned char* out;
    std::uint64_t waiting = 0;
    int count = 0;
    Index bytes = 0;

    KOKKOS_FORCEINLINE_FUNCTION void put(std::uint32_t value, int bits) {
        if constexpr (write) {
            waiting |= std::uint64_t{value} << count;
            count += bits;
            if (count < 32) return;
            store_four(out + bytes, static_cast<std::uint32_t>(waiting));
            bytes += 4;
            waiting >>= 32;
            count -= 32;
        } else {
            bytes += bits;  // bits, until finish()
        }
    }
    KOKKOS_INLINE_FUNCTION Index finish() {
        if constexpr (write) {
            for (; count > 0; count -= 8, waiting >>= 8) {
                out[bytes++] = static_cast<unsigned char>(waiting);
            }
            return bytes;
        } else {
            return (bytes + 7) / 8;
        }
    }
};

/// A stream of bits that ends before `end` and grows towards lower addresses, the highest bits
/// first.
template <bool write>
struct BitsBackward {
    unsigned char* end;
    std::uint64_t waiting = 0;
    int count = 0;
    Index bytes = 0;

    KOKKOS_FORCEINLINE_FUNCTION void put(std::uint32_t value, int bits) {
        if constexpr (write) {
            waiting = waiting << bits | value;
            count += bits;
            if (count < 32) return;
            count -= 32;
            bytes += 4;
            store_four(end - bytes, static_cast<std::uint32_t>(waiting >> count));
        } else {
            bytes += bits;
        }
    }
    KOKKOS_INLINE_FUNCTION Index finish() {
        if constexpr (write) {
            waiting <<= 32 - count;
            for (; count > 0; count -= 8, waiting <<= 8) {
                *(end - ++bytes) = static_cast<unsigned char>(waiting >> 24);
            }
            return bytes;
        } else {
            return (bytes + 7) / 8;
        }
    }
};

struct PieceBytes {
    Index words;
    Index raws;
};

/// The piece of positions in[0, count), ascending, all at or above `next`, to `words` and, ending
/// at `raws_end`; or, without `write`, only what it takes.
template <bool write>
KOKKOS_INLINE_FUNCTION PieceBytes encode_piece(const PhraseView& code, const Position* in,
                                               Index count, Position next, unsigned char* words,
                                               unsigned char* raws_end) {
    BitsForward<write> numbers{words};
    BitsBackward<write> raws{raws_end};
    const PhraseStep* const steps = code.steps;
    std::uint32_t node = 0;
    std::uint32_t span = code.root_span;
    std::uint32_t number = 0;
    for (Index j = 0; j < count; ++j) {
        Position gap = in[j] - next;
        next = in[j] + 1;
        while (gap >= span) {  // the phrase ends in a skip
            numbers.put(number + steps[node + span].number, phrase_bits);
            gap -= span;
            node = 0;
            span = code.root_span;
            number = 0;
        }
        const PhraseStep step = steps[node + gap];
        number += step.number;
        node = step.node;
        span = step.span;
        if (step.ends) {
            numbers.put(number, phrase_bits);
            raws.put(step.raw, step.raw_bits);
            number = 0;
        }
    }
    if (node != 0) numbers.put(number + steps[node + span].number, phrase_bits);
    return {numbers.finish(), raws.finish()};
}

/// Bits [at, at + count) of a code, count <= 17; what lies behind its end is 0.
KOKKOS_INLINE_FUNCTION std::uint32_t bits_at(const unsigned char* in, Index bytes, Index at,
                                             int count) {
    std::uint32_t three = 0;
    for (int b = 0; b < 3; ++b) {
        const Index byte = at / 8 + b;
        if (byte < bytes) three |= std::uint32_t{in[byte]} << 8 * b;
    }
    return three >> at % 8 & ((1u << count) - 1);
}

/// What a decoder knows between two phrases. Nothing that a damaged code says leads to a read
/// outside [in, in + bytes), to a write outside [out, end) or to a position above `last`.
struct PieceDecoder {
    const Phrase* phrases;
    const unsigned char* in;
    Index bytes;
    Position begin;  // of the segment in the array
    Position last;   // of the segment
    Position* out;
    Position* end;
    Index at = 0;   // bit of the next number
    Index top = 0;  // bit after the next raw ones
    Position next = 0;

    KOKKOS_FORCEINLINE_FUNCTION Position inside(Position position) const {
        return begin + (position < last ? position : last);
    }

    KOKKOS_INLINE_FUNCTION void start(const PieceStart& s) {
        at = 8 * Index{s.words};
        top = 8 * (bytes - Index{s.raws});
        next = s.position;
    }

    /// The phrases up to the end of the piece or of its code, with care; then, if the code was
    /// damaged, the last element of the segment.
    KOKKOS_INLINE_FUNCTION void finish() {
        while (out < end && top - at >= phrase_bits) {
            const Phrase phrase = phrases[bits_at(in, bytes, at, phrase_bits)];
            at += phrase_bits;
            const std::uint32_t rest = phrase.lanes[7];
            const int raw_bits = static_cast<int>(rest >> 8);
            top -= raw_bits;  // no more than phrase_bits: top stays above 0
            const Position first = next;
            next += phrase.lanes[6] + bits_at(in, bytes, top, raw_bits);
            const int full = static_cast<int>(rest & 15);
            const int selected = static_cast<int>(rest >> 4 & 15);
            for (int l = 0; l < selected && out < end; ++l) {
                *out++ = inside(l < full ? first + phrase.lanes[l] : next - 1);
            }
        }
        while (out < end) *out++ = begin + last;
    }
};

/// A piece of a segment and its code. starts: those of the segment, of all pieces but the first.
struct Piece {
    Segment segment;
    Index pieces;
    Index piece;

    KOKKOS_INLINE_FUNCTION Index first() const {
        return piece_begin(segment.selected, pieces, piece);
    }
    KOKKOS_INLINE_FUNCTION Index count() const {
        return piece_begin(segment.selected, pieces, piece + 1) - first();
    }
    KOKKOS_INLINE_FUNCTION Position before(const Position* positions) const {
        return piece == 0 ? 0 : positions[segment.first + first() - 1] + 1;
    }
    KOKKOS_INLINE_FUNCTION PieceStart start(const PieceStart* starts) const {
        const auto header = static_cast<std::uint32_t>((pieces - 1) * Index{sizeof(PieceStart)});
        return piece == 0 ? PieceStart{0, header, 0} : starts[piece - 1];
    }
};

template <bool write>
KOKKOS_INLINE_FUNCTION PieceBytes encode(const PhraseView& code, const Piece& p,
                                         const Position* positions, const PieceStart& start,
                                         unsigned char* out, Index bytes) {
    return encode_piece<write>(code, positions + p.segment.first + p.first(), p.count(),
                               start.position, out + start.words, out + bytes - start.raws);
}

KOKKOS_INLINE_FUNCTION bool has_code(const Segment& s) {
    return s.selected > 0 && s.selected < s.size;
}

KOKKOS_INLINE_FUNCTION PieceDecoder piece_decoder(const PhraseView& code, const Piece& p,
                                                  const unsigned char* coded, Position* positions) {
    const Segment& s = p.segment;
    const unsigned char* const in = coded + s.code;
    const bool readable = code.phrases != nullptr;
    Position* const out = positions + s.first + p.first();
    PieceDecoder decoder{code.phrases,
                         in,
                         readable ? entropy_bytes(code, s.size, s.selected) : 0,
                         static_cast<Position>(s.begin),
                         static_cast<Position>(s.size - 1),
                         out,
                         out + p.count()};
    if (readable) decoder.start(p.start(reinterpret_cast<const PieceStart*>(in)));
    return decoder;
}

/// The segment itself, where all are selected.
KOKKOS_INLINE_FUNCTION void count_up(const Segment& s, Index from, Index step,
                                     Position* positions) {
    for (Index j = from; j < s.size; j += step) {
        positions[s.first + j] = static_cast<Position>(s.begin + j);
    }
}

}  // namespace scape::kernels::detail
