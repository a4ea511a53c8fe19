// Codes of a mask on a host: a thread per segment, one pass over positions and code.
#include "key_words.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/mask_code_detail.hpp>

#include <algorithm>
#include <cstring>

namespace scape::kernels::detail {

namespace {

inline constexpr Position skip = 255;  // in a code of gaps: that many elements, and no position

void encode_bitmap(const Position* in, Index k, unsigned char* out, Index bytes) {
    std::memset(out, 0, static_cast<std::size_t>(bytes));
    Word word = 0;
    Position at = 0;
    for (Index j = 0; j < k; ++j) {  // a word is stored anew for each of its bits: nothing waits
        const Position next = in[j] / word_bits;
        word = (word & -Word{next == at}) | Word{1} << in[j] % word_bits;
        at = next;
        std::memcpy(out + Index{at} * 8, &word, 8);
    }
}

unsigned char* put_gap(Position gap, unsigned char* out) {
    for (; gap >= skip; gap -= skip) *out++ = skip;
    *out++ = static_cast<unsigned char>(gap);
    return out;
}

void encode_gaps(const Position* in, Index k, unsigned char* out, Index bytes) {
    constexpr Index block = 32;
    unsigned char* const end = out + bytes;
    if (k > 0) out = put_gap(in[0], out);
    Index j = 1;
    for (; j + block <= k; j += block) {
        Position gaps[block];
        Position largest = 0;
#pragma omp simd reduction(max : largest)
        for (Index l = 0; l < block; ++l) {
            gaps[l] = in[j + l] - in[j + l - 1] - 1;
            largest = gaps[l] > largest ? gaps[l] : largest;
        }
        if (largest < skip) {
            for (Index l = 0; l < block; ++l) out[l] = static_cast<unsigned char>(gaps[l]);
            out += block;
        } else {
            for (Index l = 0; l < block; ++l) out = put_gap(gaps[l], out);
        }
    }
    for (; j < k; ++j) out = put_gap(in[j] - in[j - 1] - 1, out);
    std::memset(out, skip, static_cast<std::size_t>(end - out));
}

void encode_index(const Position* in, Index k, unsigned char* out, Index bytes) {
    const Index used = k * static_cast<Index>(sizeof(Position));
    std::memcpy(out, in, static_cast<std::size_t>(used));
    std::memset(out + used, 0, static_cast<std::size_t>(bytes - used));
}

/// The decoders return the end of what they wrote: at most k positions from `out` on, in
/// [begin, begin + n), whatever the code is.
Position* decode_bitmap(const unsigned char* in, Index n, Position begin, Position* out, Index k) {
    const Position* end = out + k;
    for (Index i = 0; i < n; i += word_bits) {
        Word word;
        std::memcpy(&word, in + i / 8, 8);
        if (n - i < word_bits) word &= (Word{1} << (n - i)) - 1;
        out = append_within(out, end, word, begin + static_cast<Position>(i));
    }
    return out;
}

#if defined(SCAPE_KEY_WORDS_AVX512)
/// Sixteen codes at a time: the position after each is the running sum of codes, plus one for each
/// code that is a position.
struct SixteenGaps {
    __m512i next;  // position after the last one, in each lane
    __m512i last;  // n - 1
    __m512i begin;

    static __m512i shifted_in(__m512i x, __m512i lanes, __mmask16 inside) {
        return _mm512_add_epi32(x, _mm512_maskz_permutexvar_epi32(inside, lanes, x));
    }
    Index decode(const unsigned char* in, Position* out) {
        constexpr __mmask16 every = 0xffff;
        const __m512i lane =
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i one = _mm512_set1_epi32(1);
        const auto back = [&](int by) { return _mm512_sub_epi32(lane, _mm512_set1_epi32(by)); };
        __m512i sum = _mm512_maskz_cvtepu8_epi32(
            every, _mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
        const __mmask16 found = _mm512_cmplt_epu32_mask(sum, _mm512_set1_epi32(skip));
        sum = _mm512_mask_add_epi32(sum, found, sum, one);
        sum = shifted_in(sum, back(1), 0xfffe);
        sum = shifted_in(sum, back(2), 0xfffc);
        sum = shifted_in(sum, back(4), 0xfff0);
        sum = shifted_in(sum, back(8), 0xff00);
        const __m512i position = _mm512_sub_epi32(_mm512_add_epi32(next, sum), one);
        const __m512i inside =
            _mm512_add_epi32(begin, _mm512_maskz_min_epu32(every, position, last));
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(found, inside));
        next = _mm512_add_epi32(next,
                                _mm512_maskz_permutexvar_epi32(every, _mm512_set1_epi32(15), sum));
        return std::popcount(static_cast<unsigned>(found));
    }
};
#endif

Position* decode_gaps(const unsigned char* in, Index bytes, Index n, Position begin, Position* out,
                      Index k) {
    const Position* end = out + k;
    const unsigned char* const in_end = in + bytes;
    const Position last = static_cast<Position>(n - 1);
    Position next = 0;
#if defined(SCAPE_KEY_WORDS_AVX512)
    SixteenGaps sixteen{_mm512_setzero_si512(), _mm512_set1_epi32(static_cast<int>(last)),
                        _mm512_set1_epi32(static_cast<int>(begin))};
    for (; in_end - in >= 16 && end - out >= 16; in += 16) out += sixteen.decode(in, out);
    next = static_cast<Position>(
        _mm_cvtsi128_si32(_mm512_maskz_extracti32x4_epi32(0xff, sixteen.next, 0)));
#endif
    for (; in != in_end && out != end; ++in) {
        const Position found = *in != skip;
        next += *in + found;
        *out = begin + std::min(next - 1, last);
        out += found;
    }
    return out;
}

Position* decode_index(const unsigned char* in, Index n, Position begin, Position* out, Index k) {
    const Position last = static_cast<Position>(n - 1);
#pragma omp simd
    for (Index j = 0; j < k; ++j) {
        Position position;
        std::memcpy(&position, in + j * static_cast<Index>(sizeof position), sizeof position);
        out[j] = begin + (position < last ? position : last);
    }
    return out + k;
}

void encode_segment(MaskCode code, const Segment& s, const Position* in, unsigned char* out) {
    const Index bytes = mask_code_bytes(code, s.size, s.selected);
    switch (code) {
        case MaskCode::bitmap:
            return encode_bitmap(in, s.selected, out, bytes);
        case MaskCode::gaps:
            return encode_gaps(in, s.selected, out, bytes);
        case MaskCode::index:
            return encode_index(in, s.selected, out, bytes);
        case MaskCode::entropy:
            return;  // has kernels of its own
    }
}

void decode_segment(MaskCode code, const Segment& s, const unsigned char* in, Position* out) {
    const Position begin = static_cast<Position>(s.begin);
    const Index bytes = mask_code_bytes(code, s.size, s.selected);
    Position* const end = out + s.selected;
    if (s.selected == s.size) {
        for (Index j = 0; j < s.size; ++j) out[j] = begin + static_cast<Position>(j);
        return;
    }
    switch (code) {
        case MaskCode::bitmap:
            out = decode_bitmap(in, s.size, begin, out, s.selected);
            break;
        case MaskCode::gaps:
            out = decode_gaps(in, bytes, s.size, begin, out, s.selected);
            break;
        case MaskCode::index:
            out = decode_index(in, s.size, begin, out, s.selected);
            break;
        case MaskCode::entropy:
            break;
    }
    std::fill(out, end, begin + static_cast<Position>(s.size - 1));  // a damaged code was too short
}

}  // namespace

void encode_mask_host(const Exec& exec, MaskCode code, Span<const Segment> segments,
                      Span<const Position> positions, Span<unsigned char> coded) {
    if (code == MaskCode::entropy) return encode_entropy_host(exec, segments, positions, coded);
    Kokkos::parallel_for("scape::kernels::encode_mask",
                         range(exec, static_cast<Index>(segments.extent(0))), [=](Index i) {
                             const Segment s = segments[i];
                             if (s.selected == s.size) return;
                             encode_segment(code, s, positions.data() + s.first,
                                            coded.data() + s.code);
                         });
}

void decode_mask_host(const Exec& exec, MaskCode code, Span<const Segment> segments,
                      Span<const unsigned char> coded, Span<Position> positions) {
    if (code == MaskCode::entropy) return decode_entropy_host(exec, segments, coded, positions);
    Kokkos::parallel_for("scape::kernels::decode_mask",
                         range(exec, static_cast<Index>(segments.extent(0))), [=](Index i) {
                             const Segment s = segments[i];
                             decode_segment(code, s, coded.data() + s.code,
                                            positions.data() + s.first);
                         });
}

}  // namespace scape::kernels::detail
