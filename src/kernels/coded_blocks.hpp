#pragma once
/// @file
/// The walk over a message of codes in blocks: each block's values, scale and codes.

#include "value_levels.hpp"

#include <scape/kernels/pack.hpp>

namespace scape::kernels::detail {

/// A block of a message.
struct Block {
    Index segment;  ///< row of the table
    Index number;   ///< in its segment, which has
    Index of;       ///< so many
    Index values;   ///< how many
    Index at;       ///< the first one, counted as CodedSegment::first
    KOKKOS_FORCEINLINE_FUNCTION bool last() const { return number + 1 == of; }
};

/// Where a block lies in the message, in bytes.
struct BlockBytes {
    Index scale, codes;
    Index end;  ///< of what is the block's to write, codes and padding

    KOKKOS_FORCEINLINE_FUNCTION BlockBytes(const CodedSegment& s, const Block& b, Index block,
                                           int bits) {
        const Index all_codes = s.bytes + (b.of * 2 + 3) / 4 * 4;
        scale = s.bytes + b.number * 2;
        codes = all_codes + b.number * block * bits / 8;
        end = b.last() ? all_codes + (s.values * bits + 31) / 32 * 4  // with what pads the segment
                       : codes + b.values * bits / 8;
    }
};

KOKKOS_FORCEINLINE_FUNCTION Bf16::Stored load_scale(const unsigned char* at) {
    return *reinterpret_cast<const Bf16::Stored*>(at);
}

/// The scale of a block, and the two bytes after the last one of an odd number.
KOKKOS_FORCEINLINE_FUNCTION void store_scale(unsigned char* at, Bf16::Stored scale,
                                             const Block& b) {
    auto* const to = reinterpret_cast<Bf16::Stored*>(at);
    to[0] = scale;
    if (b.last() && b.number % 2 == 0) to[1] = 0;
}

/// A host works through a block in tiles of as many values, in loops of constant length.
inline constexpr Index tile = 64;

/// A word of the 8 / bits codes that share a byte, a byte each; and of sixteen codes.
template <int bits>
using Spread = std::conditional_t<bits == 4, std::uint16_t,
                                  std::conditional_t<bits == 2, std::uint32_t, std::uint64_t>>;
template <int bits>
using Sixteen = std::conditional_t<bits == 4, std::uint64_t,
                                   std::conditional_t<bits == 2, std::uint32_t, std::uint16_t>>;

/// out = the codes of a tile, which stand in a byte each. They slide together in halves.
template <int bits>
KOKKOS_FORCEINLINE_FUNCTION void fold_tile(const unsigned char* code, unsigned char* out) {
    if constexpr (bits == 8) {
        std::memcpy(out, code, tile);
    } else {
        for (Index i = 0; i < tile * bits / 8; ++i) {
            Spread<bits> w;
            std::memcpy(&w, code + i * static_cast<Index>(sizeof w), sizeof w);
            if constexpr (bits == 4) w = static_cast<std::uint16_t>(w | w >> 4);
            if constexpr (bits == 2) w |= w >> 6;
            if constexpr (bits == 2) w |= w >> 12;
            if constexpr (bits == 1) w |= w >> 7;
            if constexpr (bits == 1) w |= w >> 14;
            if constexpr (bits == 1) w |= w >> 28;
            out[i] = static_cast<unsigned char>(w);
        }
    }
}

/// f(j, code) for values j in [0, tile), each code in the highest bits: sixteen at a time, which
/// are one or two words.
template <int bits, class F>
KOKKOS_FORCEINLINE_FUNCTION void each_code_of_tile(const unsigned char* in, const F& f) {
    if constexpr (bits == 8) {
#pragma omp simd
        for (Index j = 0; j < tile; ++j) f(j, std::uint32_t{in[j]} << 24);
    } else {
        constexpr Index lanes = 16;
        for (Index j = 0; j < tile; j += lanes) {
            Sixteen<bits> codes;
            std::memcpy(&codes, in + j * bits / 8, sizeof codes);
            const auto low = static_cast<std::uint32_t>(codes);
            const auto high = static_cast<std::uint32_t>(std::uint64_t{codes} >> 32);
#pragma omp simd
            for (Index l = 0; l < lanes; ++l) {
                const std::uint32_t word = l * bits < 32 ? low : high;
                f(j + l, word << static_cast<int>(32 - bits - l * bits % 32));
            }
        }
    }
}

/// out = the codes code(j) of values j in [0, n), and zeros up to `end`.
template <int bits, class F>
KOKKOS_FORCEINLINE_FUNCTION void store_codes(const ShortRow& row, Index n, unsigned char* out,
                                             unsigned char* end, const F& code) {
    if constexpr (exec_is_host) {
        const Index whole = n / tile * tile;
        alignas(64) unsigned char codes[tile];
        for (Index begin = 0; begin < whole; begin += tile, out += tile * bits / 8) {
#pragma omp simd
            for (Index j = 0; j < tile; ++j) codes[j] = static_cast<unsigned char>(code(begin + j));
            fold_tile<bits>(codes, out);
        }
        if (out == end) return;
        std::memset(codes, 0, tile);
        unsigned char last[tile * bits / 8];
#pragma omp simd
        for (Index j = 0; j < n - whole; ++j)
            codes[j] = static_cast<unsigned char>(code(whole + j));
        fold_tile<bits>(codes, last);
        const Index used = ((n - whole) * bits + 7) / 8;
        std::memcpy(out, last, static_cast<std::size_t>(used));
        std::memset(out + used, 0, static_cast<std::size_t>(end - out - used));
    } else {
        constexpr Index per_byte = 8 / bits;
        row.each(end - out, [&](Index i) {
            std::uint32_t byte = 0;
            for (Index v = 0; v < per_byte; ++v) {
                const Index j = i * per_byte + v;
                if (j < n) byte |= code(j) << (v * bits);
            }
            out[i] = static_cast<unsigned char>(byte);
        });
    }
}

/// f(j, code) for the codes of values j in [0, n), each in the highest bits.
template <int bits, class F>
KOKKOS_FORCEINLINE_FUNCTION void each_code(const ShortRow& row, Index n, const unsigned char* in,
                                           const F& f) {
    const auto code_of = [&](Index j) {
        return std::uint32_t{in[j * bits / 8]} << static_cast<int>(32 - bits - j * bits % 8);
    };
    if constexpr (exec_is_host) {
        const Index whole = n / tile * tile;
        for (Index begin = 0; begin < whole; begin += tile)
            each_code_of_tile<bits>(in + begin * bits / 8,
                                    [&](Index j, std::uint32_t code) { f(begin + j, code); });
        for (Index j = whole; j < n; ++j) f(j, code_of(j));
    } else {
        row.each(n, [&](Index j) { f(j, code_of(j)); });
    }
}

/// work(row, block) for each of some blocks in a row: one search for all of them.
template <class Work>
struct OverBlocks {
    static constexpr Index at_once = exec_is_host ? 32 : 4;
    const CodedSegment* segments;
    Index count;
    Index blocks;
    Index block;
    Work work;

    /// The segment of a block: the last row that does not begin after it.
    KOKKOS_INLINE_FUNCTION Index segment_of(Index b) const {
        Index low = 0, high = count;
        while (high - low > 1) {
            const Index middle = low + (high - low) / 2;
            (segments[middle].block <= b ? low : high) = middle;
        }
        return low;
    }
    KOKKOS_INLINE_FUNCTION void operator()(const ShortRow& row, Index chunk) const {
        const Index first = segments[0].block + chunk * at_once;
        const Index last = segments[0].block + blocks;
        const Index end = first + at_once < last ? first + at_once : last;
        for (Index b = first, s = segment_of(first); b < end; ++s) {
            while (s + 1 < count && segments[s + 1].block <= b) ++s;
            const CodedSegment segment = segments[s];
            const Index of = (segment.values + block - 1) / block;
            for (Index i = b - segment.block; i < of && b < end; ++i, ++b) {
                const Index rest = segment.values - i * block;
                work(row, Block{s, i, of, rest < block ? rest : block, segment.first + i * block});
            }
        }
    }
};

template <class Work>
void for_each_block(const Exec& exec, const std::string& label, const ValueCode& code,
                    const Selected& selected, const Work& work) {
    using Over = OverBlocks<Work>;
    if (selected.blocks == 0) return;
    for_each_short_row(
        exec, label, (selected.blocks + Over::at_once - 1) / Over::at_once,
        Over{selected.segments.data(), static_cast<Index>(selected.segments.extent(0)),
             selected.blocks, code.block, work});
}

}  // namespace scape::kernels::detail
