#pragma once
/// @file
/// A layout of odd tensors, and values of all kinds of bits for it.

#include <scape/base/flat_layout.hpp>
#include <scape/io/checkpoint.hpp>

#include "support/compare.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace scape::test {

/// Padded rows, one element, prime sizes, three dimensions, a slash in a name, several chunks.
inline FlatLayout odd_layout(Index big_rows = 1103) {
    FlatLayout layout;
    layout.add("wte", {50, 7}, 64);
    layout.add("one", {1});
    layout.add("layer.0/norm", {13});
    layout.add("cube", {3, 5, 7});
    layout.add("big", {big_rows, 1009});  // over one chunk, unless asked otherwise
    layout.add("last", {2, 3});
    return layout;
}

/// Any 32 bits: NaNs with payloads, subnormals and -0 among them.
inline std::vector<float> any_bits(Index n, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(n);
    for (Index i = 0; i < n; ++i) {
        const auto bits = static_cast<std::uint32_t>(random.bits());
        std::memcpy(&values[i], &bits, sizeof bits);
    }
    const std::uint32_t special[] = {0x80000000, 0x00000001, 0x7fc01234, 0x7f800001, 0xff800000};
    std::memcpy(values.data(), special, std::min<std::size_t>(n * 4, sizeof special));
    return values;
}

/// What a rank's shard holds of a flat buffer; `fill` where no logical element lies.
inline std::vector<float> shard_of(const std::vector<float>& flat, const Sharding& sharding,
                                   int rank, float fill) {
    std::vector<float> shard(sharding.shard_extent(), fill);
    for (const Slice& s : sharding.slices(rank)) {
        for (Index i = 0; i < s.flat.size(); ++i) {
            shard[s.shard_begin + i] = flat[s.flat.begin + i];
        }
    }
    return shard;
}

/// `flat` with `fill` where no logical element lies.
inline std::vector<float> logical(const std::vector<float>& flat, const FlatLayout& layout,
                                  float fill) {
    std::vector<float> out(flat.size(), fill);
    for (const Tensor& t : layout.tensors()) {
        std::copy_n(flat.begin() + t.offset, t.size, out.begin() + t.offset);
    }
    return out;
}

inline io::CheckpointMeta sample_meta(Index step) {
    io::CheckpointMeta meta;
    meta.step = step;
    meta.tokens = Index{1} << 50;
    meta.samples = 123456789012;
    meta.ranks = 1;
    meta.deck = "[run]\ndir = \"x\"  # \xc3\xa4\n";
    meta.numbers = {{"loss", 0.1}, {"tiny", 5e-324}};
    meta.texts = {{"family", "gpt"}, {"empty", ""}, {"long", std::string(200000, 'x')}};
    return meta;
}

}  // namespace scape::test
