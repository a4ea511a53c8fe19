#pragma once
/// @file
/// A layout of odd tensors, and values of all kinds of bits for it.

#include <scape/base/flat_layout.hpp>
#include <scape/io/checkpoint.hpp>

#include "support/compare.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
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

/// Any integers; masks of 0 and 1.
inline std::vector<std::uint32_t> any_counts(Index n, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::uint32_t> values(n);
    for (auto& v : values) v = static_cast<std::uint32_t>(random.bits());
    return values;
}

inline std::vector<std::uint8_t> any_mask(Index n, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::uint8_t> values(n);
    for (auto& v : values) v = random.below(10) == 0 ? 1 : 0;
    return values;
}

/// Finite values of very different size, so that the order and the rounding of sums show.
inline std::vector<float> uneven_values(Index n, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(n);
    for (float& v : values) {
        v = std::ldexp(static_cast<float>(random.normal()), static_cast<int>(random.below(60)));
    }
    return values;
}

/// What a rank's shard holds of a flat buffer; `fill` where no logical element lies.
template <class T>
std::vector<T> shard_of(const std::vector<T>& flat, const Sharding& sharding, int rank,
                        std::type_identity_t<T> fill) {
    std::vector<T> shard(sharding.shard_extent(), fill);
    for (const Slice& s : sharding.slices(rank)) {
        for (Index i = 0; i < s.flat.size(); ++i) {
            shard[s.shard_begin + i] = flat[s.flat.begin + i];
        }
    }
    return shard;
}

/// `flat` with `fill` where no logical element lies.
template <class T>
std::vector<T> logical(const std::vector<T>& flat, const FlatLayout& layout,
                       std::type_identity_t<T> fill) {
    std::vector<T> out(flat.size(), fill);
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
