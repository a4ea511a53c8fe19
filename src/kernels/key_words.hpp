#pragma once
/// @file
/// 64 elements at a time, on a host: a test gives one bit an element in a 64-bit word, and what the
/// set bits name is appended to a list. The key of an element is its bits without the sign; an
/// order of integers, so no flush mode has a say in it.
///
///     word_at_least(x, limit)           bit l: key of x[l] >= limit
///     split_word(x, low, high, out)     bits of keys >= high, and of those in [low, high), whose
///                                       keys are appended to out, if with_keys
///     keep_at_least(among, keys, limit) the l-th set bit of `among` stays if keys[l] >= limit
///     append_positions(out, word, base) base + l for every set bit l
///     append_keys(out, word, x)         key of x[l] for every set bit l; out may be x, or lie
///                                       before it
///
/// The appending ones store whole vectors: up to `append_slack` elements after the last appended
/// one are overwritten (and keep_at_least reads as many). They are written twice: for AVX-512 as of
/// Ice Lake and Zen 4, whose compressing instructions have no portable counterpart, and plainly.

#include <scape/kernels/segment.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512VBMI2__) && defined(__BMI2__)
#include <immintrin.h>
#define SCAPE_KEY_WORDS_AVX512
#endif

namespace scape::kernels::detail {

using Key = std::uint32_t;
using Word = std::uint64_t;

inline constexpr Index word_bits = 64;
inline constexpr Index append_slack = 64;
inline constexpr Key key_mask = 0x7fffffffu;
inline constexpr Key key_end = 0x80000000u;  // above every key

template <class T>
inline Key key_of(T x) {
    return std::bit_cast<Key>(x) & key_mask;
}

struct SplitWord {
    Word above;
    Word between;
};

/// word_at_least of the first `count` elements.
template <class T>
inline Word part_at_least(const T* x, Index count, Key limit) {
    Word word = 0;
    for (Index l = 0; l < count; ++l) word |= Word{key_of(x[l]) >= limit} << l;
    return word;
}

#if defined(SCAPE_KEY_WORDS_AVX512)

inline __m512i sixteen_keys(const void* x) {
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(key_mask));
}

inline __mmask16 sixteenth(Word word, int quarter) {
    return static_cast<__mmask16>(word >> 16 * quarter);
}

template <class T>
inline Word word_at_least(const T* x, Key limit) {
    const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
    Word word = 0;
    for (int q = 0; q < 4; ++q) {
        word |= Word{_mm512_cmpge_epu32_mask(sixteen_keys(x + 16 * q), limits)} << 16 * q;
    }
    return word;
}

inline Index append_positions(Position* out, Word word, Position base) {
    alignas(64) static constexpr unsigned char lanes[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    const __m512i bases = _mm512_set1_epi32(static_cast<int>(base));
    const __m512i set = _mm512_maskz_compress_epi8(word, _mm512_load_si512(lanes));
    constexpr __mmask8 four = 0xff;
    constexpr __mmask16 every = 0xffff;  // the forms without a mask warn with GCC 12
    const auto put = [&](__m128i sixteen, int at) {
        _mm512_storeu_si512(out + at,
                            _mm512_add_epi32(bases, _mm512_maskz_cvtepu8_epi32(every, sixteen)));
    };
    const Index count = std::popcount(word);
    put(_mm512_maskz_extracti32x4_epi32(four, set, 0), 0);
    if (count > 16) {
        put(_mm512_maskz_extracti32x4_epi32(four, set, 1), 16);
        put(_mm512_maskz_extracti32x4_epi32(four, set, 2), 32);
        put(_mm512_maskz_extracti32x4_epi32(four, set, 3), 48);
    }
    return count;
}

template <class T>
inline Index append_keys(Key* out, Word word, const T* x) {
    __m512i all[4];
    for (int q = 0; q < 4; ++q) all[q] = sixteen_keys(x + 16 * q);
    Index count = 0;
    for (int q = 0; q < 4; ++q) {
        _mm512_storeu_si512(out + count, _mm512_maskz_compress_epi32(sixteenth(word, q), all[q]));
        count += std::popcount(static_cast<unsigned>(sixteenth(word, q)));
    }
    return count;
}

inline Word joined(const __mmask16 m[4]) {
    return Word{m[0]} | Word{m[1]} << 16 | Word{m[2]} << 32 | Word{m[3]} << 48;
}

template <bool with_keys>
inline SplitWord split_word(const float* x, Key low, Key high, Key* out) {
    const __m512i lows = _mm512_set1_epi32(static_cast<int>(low));
    const __m512i highs = _mm512_set1_epi32(static_cast<int>(high));
    __m512i keys[4];
    __mmask16 above[4];
    __mmask16 between[4];
    for (int q = 0; q < 4; ++q) {
        keys[q] = sixteen_keys(x + 16 * q);
        above[q] = _mm512_cmpge_epu32_mask(keys[q], highs);
        between[q] =
            _mm512_mask_cmplt_epu32_mask(_mm512_cmpge_epu32_mask(keys[q], lows), keys[q], highs);
    }
    const SplitWord word{joined(above), joined(between)};
    if constexpr (with_keys) {
        for (int q = 0; q < 4; ++q) {
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(between[q], keys[q]));
            out += std::popcount(static_cast<unsigned>(sixteenth(word.between, q)));
        }
    }
    return word;
}

inline Word keep_at_least(Word among, const Key* keys, Key limit) {
    const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
    const auto sixteen = [&](int at) {
        return Word{_mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + at), limits)} << at;
    };
    Word take = sixteen(0);
    if (std::popcount(among) > 16) take |= sixteen(16) | sixteen(32) | sixteen(48);
    return _pdep_u64(take, among);
}

#else

template <class T>
inline Word word_at_least(const T* x, Key limit) {
    const auto below = static_cast<std::int32_t>(limit - 1);  // vectors compare signed numbers
    unsigned char bytes[word_bits];
#pragma omp simd
    for (Index l = 0; l < word_bits; ++l) {
        bytes[l] = static_cast<std::int32_t>(key_of(x[l])) > below;
    }
    Word word = 0;
    for (int b = 0; b < 8; ++b) {
        Word eight;
        std::memcpy(&eight, bytes + 8 * b, 8);
        if constexpr (std::endian::native == std::endian::big) eight = __builtin_bswap64(eight);
        word |= (eight * 0x0102040810204080u >> 56) << 8 * b;
    }
    return word;
}

/// f(lowest bit of word, its place) for every set bit, in fours: that there are one, two or three
/// is hard to predict, and costs more than the idle calls with bit 0.
template <class F>
inline void each_bit(Word word, const F& f) {
    do {
        for (int l = 0; l < 4; ++l, word &= word - 1) {
            f(word & (~word + 1), std::countr_zero(word));
        }
    } while (word != 0);
}

inline Index append_positions(Position* out, Word word, Position base) {
    const Index count = std::popcount(word);
    each_bit(word, [&](Word, int place) { *out++ = base + static_cast<Position>(place); });
    return count;
}

template <class T>
inline Index append_keys(Key* out, Word word, const T* x) {
    const Index count = std::popcount(word);
    Key keys[word_bits];
    Key* next = keys;
    each_bit(word, [&](Word, int place) { *next++ = key_of(x[place % word_bits]); });
    std::copy(keys, keys + count, out);
    return count;
}

template <bool with_keys>
inline SplitWord split_word(const float* x, Key low, Key high, Key* out) {
    SplitWord word{0, word_at_least(x, low)};
    if (word.between == 0) return word;
    word.above = word_at_least(x, high);
    word.between &= ~word.above;
    if constexpr (with_keys) {
        each_bit(word.between, [&](Word, int place) { *out++ = key_of(x[place % word_bits]); });
    }
    return word;
}

inline Word keep_at_least(Word among, const Key* keys, Key limit) {
    Word kept = 0;
    each_bit(among, [&](Word bit, int) { kept |= *keys++ >= limit ? bit : 0; });
    return kept;
}

#endif

/// append_positions to a list that ends at `end`: nothing is written there or beyond, whatever the
/// word.
inline Position* append_within(Position* out, const Position* end, Word word, Position base) {
    if (end - out >= append_slack) return out + append_positions(out, word, base);
    for (; word != 0 && out != end; word &= word - 1) {
        *out++ = base + static_cast<Position>(std::countr_zero(word));
    }
    return out;
}

}  // namespace scape::kernels::detail
