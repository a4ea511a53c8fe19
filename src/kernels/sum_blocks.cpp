// Decoding codes in blocks: sums of messages, and a message added to an array.
#include "coded_blocks.hpp"
#include "pack_detail.hpp"
#include "places.hpp"

namespace scape::kernels::detail {

namespace {

template <class Code, class Place>
struct SumBlocks {
    Index block;
    const CodedSegment* segments;
    const unsigned char* mine;
    const unsigned char* others;  // (P-1, stride)
    Index stride;                 // bytes of a message
    int ranks, rank;
    float factor;
    Place place;
    float* out;

    KOKKOS_FORCEINLINE_FUNCTION const unsigned char* message(int p) const {
        return p == rank ? mine : others + (p < rank ? p : p - 1) * stride;
    }

    static constexpr Index read_ahead = 1024;  // bytes

    /// Tile by tile, message by message.
    void on_host(const ShortRow& row, const Block& b, const BlockBytes& from) const {
        const SumBlocks self = *this;
        for (Index begin = 0; begin < b.values; begin += tile) {
            const Index n = b.values - begin < tile ? b.values - begin : tile;
            alignas(64) float sum[tile];
            for (int p = 0; p < self.ranks; ++p) {
                const unsigned char* const in = self.message(p);
                const Code levels(load_scale(in + from.scale));
                const unsigned char* const codes = in + from.codes + begin * Code::bits / 8;
                prefetch_to_read(codes + read_ahead);
                if (p == 0) {
                    each_code<Code::bits>(row, n, codes, [&](Index j, std::uint32_t code) {
                        sum[j] = levels.decode(code);
                    });
                } else {
                    each_code<Code::bits>(row, n, codes, [&](Index j, std::uint32_t code) {
                        sum[j] += levels.decode(code);
                    });
                }
            }
            row.each(n, [&](Index j) {
                self.place.store(self.out, b.at + begin + j, self.factor * sum[j]);
            });
        }
    }

    /// Byte by byte, a thread each.
    KOKKOS_INLINE_FUNCTION void on_device(const ShortRow& row, const Block& b,
                                          const BlockBytes& from) const {
        constexpr Index per_byte = 8 / Code::bits;
        row.each((b.values + per_byte - 1) / per_byte, [&](Index i) {
            float sum[per_byte] = {};
            for (int p = 0; p < ranks; ++p) {
                const Code levels(load_scale(message(p) + from.scale));
                const std::uint32_t byte = message(p)[from.codes + i];
                for (Index v = 0; v < per_byte; ++v) {
                    const float x = levels.decode(byte << (32 - Code::bits - v * Code::bits));
                    sum[v] = p == 0 ? x : sum[v] + x;
                }
            }
            for (Index v = 0; v < per_byte; ++v) {
                const Index j = i * per_byte + v;
                if (j < b.values) place.store(out, b.at + j, factor * sum[v]);
            }
        });
    }

    KOKKOS_INLINE_FUNCTION void operator()(const ShortRow& row, const Block& b) const {
        const BlockBytes from(segments[b.segment], b, block, Code::bits);
        place.fetch_to_fill(out, b.at, b.at + b.values);
        if constexpr (exec_is_host) {
            on_host(row, b, from);
        } else {
            on_device(row, b, from);
        }
    }
};

template <class Code, class Place>
struct AddBlocks {
    Index block;
    const CodedSegment* segments;
    const unsigned char* message;
    float factor;
    Place place;
    float* out;

    KOKKOS_INLINE_FUNCTION void operator()(const ShortRow& row, const Block& b) const {
        const BlockBytes from(segments[b.segment], b, block, Code::bits);
        const Place to = place;
        float* const where = out;
        const float times = factor;
        to.fetch(where, b.at + b.values, b.at + 2 * b.values);
        const Code levels(load_scale(message + from.scale));
        each_code<Code::bits>(
            row, b.values, message + from.codes, [&](Index j, std::uint32_t code) {
                const Index i = b.at + j;
                to.store(where, i, to.load(where, i) + times * levels.decode(code));
            });
    }
};

}  // namespace

void sum_blocks(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> mine, Span<const unsigned char> others, int rank,
                float scale, bool compact, Span<float> out, Index origin) {
    if (selected.blocks == 0) return;
    const auto stride = static_cast<Index>(mine.extent(0));
    const int ranks = static_cast<int>(static_cast<Index>(others.extent(0)) / stride) + 1;
    const auto sum = [&](auto place) {
        with_levels(code, [&]<class Code>() {
            for_each_block(exec, "scape::kernels::sum_values", code, selected,
                           SumBlocks<Code, decltype(place)>{code.block, selected.segments.data(),
                                                            mine.data(), others.data(), stride,
                                                            ranks, rank, scale, place, out.data()});
        });
    };
    if (compact) {
        sum(InOrder{0});
    } else {
        with_place(selected, origin, sum);
    }
}

void add_blocks(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> message, float scale, Span<float> out, Index origin) {
    with_place(selected, origin, [&](auto place) {
        with_levels(code, [&]<class Code>() {
            for_each_block(
                exec, "scape::kernels::add_values", code, selected,
                AddBlocks<Code, decltype(place)>{code.block, selected.segments.data(),
                                                 message.data(), scale, place, out.data()});
        });
    });
}

}  // namespace scape::kernels::detail
