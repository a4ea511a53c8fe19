#pragma once
// What the writer and the reader of checkpoints share.

#include <scape/base/random.hpp>
#include <scape/base/types.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/io/h5.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace scape::io {

inline constexpr const char* format_name = "scape checkpoint";
inline constexpr Index format_version = 1;

inline constexpr const char* numbers_group = "numbers";
inline constexpr const char* texts_group = "texts";

inline constexpr const char* temporary_suffix = ".tmp";
inline constexpr const char* latest_name = "latest";

/// The most that is copied, sent, written or read at once: 64 MiB.
inline constexpr Index block_elements = Index{16} << 20;

/// Elements of a tensor to move at a time: whole chunks, where those are small enough.
inline Index block_of(const std::vector<Index>& shape) {
    Index slab = h5::chunk_shape(shape)[0];
    for (std::size_t d = 1; d < shape.size(); ++d) slab *= shape[d];
    return slab > block_elements ? block_elements : block_elements / slab * slab;
}

/// Hash of everything in the description: HDF5 keeps no checksum of large attributes.
inline Index meta_hash(const CheckpointMeta& meta) {
    std::string all = fmt::format("{} {} {} {}\n{}\n", meta.step, meta.tokens, meta.samples,
                                  meta.ranks, meta.deck);
    for (const auto& [name, value] : meta.numbers) all += fmt::format("{} {:a}\n", name, value);
    for (const auto& [name, value] : meta.texts) all += fmt::format("{} {}\n", name, value);
    return static_cast<Index>(stream_of(all));
}

inline std::string text_of(const std::vector<Index>& shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace scape::io
