// Reading the values of a checkpoint's arrays.
#include "checkpoint_format.hpp"
#include "checkpoint_reading.hpp"

#include <scape/base/profiling.hpp>
#include <scape/io/checkpoint.hpp>

namespace scape::io {

using reader::reading;

namespace {

/// Elements [begin, end) of a data set into `out`, in bounded blocks of whole chunks.
template <class T>
void read_elements(hid_t dataset, const std::vector<Index>& shape, Index begin, Index end,
                   Span<T> out) {
    const Index block = block_of(shape);
    HostVec<T> staging;
    if constexpr (!exec_is_host) {
        staging = HostVec<T>(
            Kokkos::view_alloc(std::string("scape::io::block"), Kokkos::WithoutInitializing),
            std::min(block, end - begin));
    }
    for (Index from = begin; from < end;) {
        const Index to = std::min(end, (from / block + 1) * block);
        const auto target = slice(out, from - begin, to - begin);
        if constexpr (exec_is_host) {
            h5::read(dataset, from, to, target.data());
        } else {
            h5::read(dataset, from, to, staging.data());
            Kokkos::deep_copy(target, slice(staging, 0, to - from));
        }
        from = to;
    }
}

}  // namespace

template <class T>
void CheckpointReader::flat(const std::string& array, const std::string& group,
                            const FlatLayout& layout, Span<T> values) const {
    check_tensors(array, group, layout, h5::name_of(h5::element_of<T>));
    for (const Tensor& t : layout.tensors()) {
        const std::string name = group + "/" + t.name;
        reading(path_, "data set '" + name + "'", [&] {
            const h5::Id dataset = h5::open_dataset(file_->id, name);
            read_elements(dataset, t.shape, 0, t.size, slice(values, t.offset, t.offset + t.size));
        });
    }
}

template <class T>
void CheckpointReader::shard(const std::string& array, const FlatLayout& layout,
                             const Sharding& sharding, int rank, Span<T> values) const {
    check_whole(array);
    check_tensors(array, array, layout, h5::name_of(h5::element_of<T>));
    h5::Id dataset;
    int opened = -1;
    for (const Slice& s : sharding.slices(rank)) {
        const Tensor& t = layout.tensors()[s.tensor];
        const std::string name = array + "/" + t.name;
        reading(path_, "data set '" + name + "'", [&] {
            if (opened != s.tensor) dataset = h5::open_dataset(file_->id, name);
            opened = s.tensor;
            read_elements(dataset, t.shape, s.tensor_begin, s.tensor_begin + s.flat.size(),
                          slice(values, s.shard_begin, s.shard_begin + s.flat.size()));
        });
    }
}

void CheckpointReader::read_flat(const std::string& array, const FlatLayout& layout,
                                 Span<float> values) const {
    const Region region("scape::io::read_flat");
    check_whole(array);
    flat(array, array, layout, values);
}

void CheckpointReader::read_shard(const std::string& array, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Span<float> values) const {
    const Region region("scape::io::read_shard");
    shard(array, layout, sharding, rank, values);
}

void CheckpointReader::read_rank(const std::string& array, int rank, const FlatLayout& layout,
                                 Span<float> values) const {
    const Region region("scape::io::read_rank");
    check_rank(array, rank);
    flat(array, array + "/" + rank_group(rank), layout, values);
}

void CheckpointReader::read_flat(const std::string& array, const FlatLayout& layout,
                                 Span<std::uint32_t> values) const {
    const Region region("scape::io::read_flat");
    check_whole(array);
    flat(array, array, layout, values);
}

void CheckpointReader::read_shard(const std::string& array, const FlatLayout& layout,
                                  const Sharding& sharding, int rank,
                                  Span<std::uint32_t> values) const {
    const Region region("scape::io::read_shard");
    shard(array, layout, sharding, rank, values);
}

void CheckpointReader::read_rank(const std::string& array, int rank, const FlatLayout& layout,
                                 Span<std::uint32_t> values) const {
    const Region region("scape::io::read_rank");
    check_rank(array, rank);
    flat(array, array + "/" + rank_group(rank), layout, values);
}

void CheckpointReader::read_flat(const std::string& array, const FlatLayout& layout,
                                 Span<std::uint8_t> values) const {
    const Region region("scape::io::read_flat");
    check_whole(array);
    flat(array, array, layout, values);
}

void CheckpointReader::read_shard(const std::string& array, const FlatLayout& layout,
                                  const Sharding& sharding, int rank,
                                  Span<std::uint8_t> values) const {
    const Region region("scape::io::read_shard");
    shard(array, layout, sharding, rank, values);
}

void CheckpointReader::read_rank(const std::string& array, int rank, const FlatLayout& layout,
                                 Span<std::uint8_t> values) const {
    const Region region("scape::io::read_rank");
    check_rank(array, rank);
    flat(array, array + "/" + rank_group(rank), layout, values);
}

void CheckpointReader::read_mean(const std::string& array, const FlatLayout& layout,
                                 Span<float> values) const {
    const Region region("scape::io::read_mean");
    const int ranks = ranks_of(array);
    if (ranks == 0) return flat(array, array, layout, values);
    for (int rank = 0; rank < ranks; ++rank) {
        check_tensors(array, array + "/" + rank_group(rank), layout, h5::name_of(h5::Element::f32));
    }
    Mean mean;
    std::vector<float> block;
    for (const Tensor& t : layout.tensors()) {
        std::vector<h5::Id> datasets(ranks);
        const Index step = block_of(t.shape, mean_elements);
        for (Index begin = 0; begin < t.size; begin += step) {
            const Index end = std::min(begin + step, t.size);
            block.resize(end - begin);
            for (int rank = 0; rank < ranks; ++rank) {
                const std::string name = array + "/" + rank_group(rank) + "/" + t.name;
                reading(path_, "data set '" + name + "'", [&] {
                    if (begin == 0) datasets[rank] = h5::open_dataset(file_->id, name);
                    h5::read(datasets[rank], begin, end, block.data());
                });
                mean.add(rank, block.data(), end - begin);
            }
            mean.round(ranks, block.data());
            Kokkos::deep_copy(slice(values, t.offset + begin, t.offset + end),
                              HostSpan<const float>(block.data(), end - begin));
        }
    }
}

}  // namespace scape::io
