// The entropy code of a mask on a host.
#include "mask_code_entropy.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/mask_code_detail.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace scape::kernels::detail {

namespace {

template <class T>
T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (std::endian::native == std::endian::big) {
        value =
            static_cast<T>(sizeof value == 8 ? __builtin_bswap64(value) : __builtin_bswap32(value));
    }
    return value;
}

/// Length and counts of a phrase: lanes[6] | lanes[7] << 16, with a load of its own. From those of
/// the eight lanes the compiler would take them through the vector unit, and the way from one
/// phrase to the next would be three times as long.
std::uint32_t tail_of(const Phrase& phrase) {
    std::uint32_t tail;
    std::memcpy(&tail, phrase.lanes + 6, sizeof tail);
    return std::endian::native == std::endian::big ? std::rotl(tail, 16) : tail;
}

/// Eight lanes and whole words at a time, as long as neither can leave the piece: a phrase takes at
/// most eight positions, and four bytes of numbers and raw bits together.
void decode_fast(PieceDecoder& d) {
    constexpr Index lanes = 8;
    constexpr Index slack = 16;
    const Position base = d.begin;
    const Position last = d.last;
    for (;;) {
        const Index safe =
            std::min<Index>((d.end - d.out) / lanes, ((d.top - d.at) / 8 - slack) / 4);
        if (safe <= 0) return;
        Position* out = d.out;
        Index at = d.at;
        Index top = d.top;
        Position next = d.next;
        for (Index i = 0; i < safe; ++i) {
            const auto number = load<std::uint32_t>(d.in + at / 8) >> at % 8;
            const Phrase& phrase = d.phrases[number & (phrase_count - 1)];
            const std::uint32_t tail = tail_of(phrase);
            at += phrase_bits;
#pragma omp simd
            for (Index l = 0; l < lanes; ++l) {
                const Position position = next + phrase.lanes[l];
                out[l] = base + (position < last ? position : last);
            }
            const auto raw_bits = static_cast<int>(tail >> 24);
            const Index byte = (top + 7) / 8;
            const auto eight = load<std::uint64_t>(d.in + byte - 8) << (8 * byte - top);
            top -= raw_bits;
            next += (tail & 0xffff) + static_cast<Position>(eight >> 1 >> (63 - raw_bits));
            out[tail >> 16 & 15] = base + (next - 1 < last ? next - 1 : last);
            out += tail >> 20 & 15;
        }
        d.out = out;
        d.at = at;
        d.top = top;
        d.next = next;
    }
}

/// One pass, piece after piece.
void encode_segment(const PhraseView& code, const Segment& s, const Position* positions,
                    unsigned char* out) {
    const Index bytes = entropy_bytes(code, s.size, s.selected);
    const Index pieces = piece_count(s.selected);
    PieceStart at = Piece{s, pieces, 0}.start(nullptr);
    for (Index i = 0; i < pieces; ++i) {
        const Piece p{s, pieces, i};
        at.position = p.before(positions);
        if (i > 0) std::memcpy(out + (i - 1) * Index{sizeof at}, &at, sizeof at);
        const PieceBytes took = encode<true>(code, p, positions, at, out, bytes);
        at.words += static_cast<std::uint32_t>(took.words);
        at.raws += static_cast<std::uint32_t>(took.raws);
    }
    std::memset(out + at.words, 0, static_cast<std::size_t>(bytes - at.words - at.raws));
}

/// With the tables of all segments, also of those whose size nobody has asked for.
const PhraseView* views_of(Span<const Segment> segments) {
    for (std::size_t i = 0; i < segments.extent(0); ++i) {
        const Segment& s = segments[i];
        if (has_code(s)) phrase_table(phrase_model(s.size, s.selected));
    }
    return phrase_views();
}

}  // namespace

void encode_entropy_host(const Exec& exec, Span<const Segment> segments,
                         Span<const Position> positions, Span<unsigned char> coded) {
    const PhraseView* const views = views_of(segments);
    Kokkos::parallel_for("scape::kernels::encode_mask_entropy",
                         range(exec, static_cast<Index>(segments.extent(0))), [=](Index i) {
                             const Segment s = segments[i];
                             if (!has_code(s)) return;
                             encode_segment(views[phrase_model(s.size, s.selected)], s,
                                            positions.data(), coded.data() + s.code);
                         });
}

void decode_entropy_host(const Exec& exec, Span<const Segment> segments,
                         Span<const unsigned char> coded, Span<Position> positions) {
    const PhraseView* const views = views_of(segments);
    const Index count = static_cast<Index>(segments.extent(0));
    Index most = 1;  // pieces of a segment
    for (Index i = 0; i < count; ++i) most = std::max(most, piece_count(segments[i].selected));
    Kokkos::parallel_for(
        "scape::kernels::decode_mask_entropy", range(exec, count * most), [=](Index i) {
            const Segment s = segments[i / most];
            const Index pieces = has_code(s) ? piece_count(s.selected) : 1;
            if (i % most >= pieces) return;
            if (s.selected == s.size) {
                count_up(s, 0, 1, positions.data());
            } else if (s.selected > 0) {
                PieceDecoder decoder =
                    piece_decoder(views[phrase_model(s.size, s.selected)],
                                  Piece{s, pieces, i % most}, coded.data(), positions.data());
                decode_fast(decoder);
                decoder.finish();
            }
        });
}

}  // namespace scape::kernels::detail
