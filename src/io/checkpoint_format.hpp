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
inline constexpr Index format_version = 2;
inline constexpr Index oldest_format_version = 1;  // that is read

inline constexpr const char* numbers_group = "numbers";
inline constexpr const char* texts_group = "texts";

/// Of the group of an array that every rank has its own of: how many ranks.
inline constexpr const char* ranks_attribute = "ranks";
inline std::string rank_group(int rank) {
    return fmt::format("rank-{:04}", rank);
}

inline constexpr const char* temporary_suffix = ".tmp";
inline constexpr const char* latest_name = "latest";

/// The most that is copied, sent, written or read at once: 64 MiB.
inline constexpr Index block_elements = Index{16} << 20;

/// The most that is added up at once: a mean needs 12 bytes an element beside the result.
inline constexpr Index mean_elements = Index{1} << 20;

/// Elements of a tensor to move at a time, `most`: whole chunks, where those are small enough.
inline Index block_of(const std::vector<Index>& shape, Index most = block_elements) {
    Index slab = h5::chunk_shape(shape)[0];
    for (std::size_t d = 1; d < shape.size(); ++d) slab *= shape[d];
    return slab > most ? most : most / slab * slab;
}

/// The mean over ranks, of blocks of elements: added in rank order in double, rounded once.
class Mean {
   public:
    void add(int rank, const float* values, Index n) {
        if (rank == 0) sum_.assign(n, 0.0);
        for (Index i = 0; i < n; ++i) sum_[i] += values[i];
    }
    void round(int ranks, float* values) const {
        for (std::size_t i = 0; i < sum_.size(); ++i) {
            values[i] = static_cast<float>(sum_[i] / ranks);
        }
    }

   private:
    std::vector<double> sum_;
};

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
