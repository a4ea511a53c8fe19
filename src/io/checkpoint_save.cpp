#include "checkpoint_file.hpp"
#include "checkpoint_format.hpp"

#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>
#include <scape/io/checkpoint.hpp>

#include <algorithm>

namespace scape::io {
namespace {

/// Logical elements [begin, end) of a tensor, owned by `rank`, from `shard_begin` in its shard.
struct Part {
    Index begin;
    Index end;
    int rank;
    Index shard_begin;
};

/// The parts of every tensor, in the order of its elements.
std::vector<std::vector<Part>> parts_of(const FlatLayout& layout, const Sharding& sharding) {
    std::vector<std::vector<Part>> parts(layout.tensors().size());
    for (int rank = 0; rank < sharding.ranks(); ++rank) {
        for (const Slice& s : sharding.slices(rank)) {
            parts[s.tensor].push_back(
                {s.tensor_begin, s.tensor_begin + s.flat.size(), rank, s.shard_begin});
        }
    }
    for (auto& p : parts) {
        std::sort(p.begin(), p.end(),
                  [](const Part& a, const Part& b) { return a.begin < b.begin; });
    }
    return parts;
}

using ByteSpan = Span<const std::uint8_t>;

/// What save needs of an array, whatever its type.
struct Array {
    explicit Array(const ArrayOut& array) : name(array.name), placement(array.placement) {
        std::visit(
            [&](const auto& values) {
                using T = typename std::decay_t<decltype(values)>::non_const_value_type;
                element = h5::element_of<T>;
                bytes = ByteSpan(reinterpret_cast<const std::uint8_t*>(values.data()),
                                 values.extent(0) * sizeof(T));
            },
            array.values);
    }

    std::string name;
    Placement placement;
    h5::Element element;
    ByteSpan bytes;

    ByteSpan part(Index begin, Index end) const {
        return slice(bytes, begin * h5::bytes_of(element), end * h5::bytes_of(element));
    }
};

void copy_to_host(ByteSpan from, std::uint8_t* to) {
    Kokkos::deep_copy(HostSpan<std::uint8_t>(to, from.extent(0)), from);
}

/// Moves elements [begin, end) of one tensor from their owners into `block` on rank 0.
class Gather {
   public:
    Gather(comm::Communicator& comm, Index elements) : comm_(comm) {
        if (comm.rank() == 0 || !exec_is_host) {
            block_ = HostVec<std::uint8_t>(
                Kokkos::view_alloc(std::string("scape::io::block"), Kokkos::WithoutInitializing),
                elements * static_cast<Index>(sizeof(float)));
        }
    }

    std::uint8_t* block() { return block_.data(); }

    /// From the one rank that has them.
    void bring(int rank, ByteSpan values) { bring(rank, values, block_.data()); }

    void sharded(const std::vector<Part>& parts, Index begin, Index end, const Array& array) {
        for (const Part& part : parts) {
            const Index from = std::max(begin, part.begin), to = std::min(end, part.end);
            if (from >= to) continue;
            const Index at = part.shard_begin + (from - part.begin);
            bring(part.rank, array.part(at, at + (to - from)),
                  block_.data() + (from - begin) * h5::bytes_of(array.element));
        }
    }

    /// Elements [begin, end) of all ranks' flat buffers.
    void mean(Index begin, Index end, const Array& array) {
        if (comm_.rank() == 0) received_.resize(std::min(mean_elements, end - begin));
        auto* to = reinterpret_cast<std::uint8_t*>(received_.data());
        for (Index from = begin; from < end; from += mean_elements) {
            const Index n = std::min(mean_elements, end - from);
            for (int rank = 0; rank < comm_.size(); ++rank) {
                bring(rank, array.part(from, from + n), to);
                if (comm_.rank() == 0) mean_.add(rank, received_.data(), n);
            }
            if (comm_.rank() == 0) {
                mean_.round(comm_.size(), reinterpret_cast<float*>(block_.data()) + (from - begin));
            }
        }
    }

   private:
    /// `values`: of `rank`; on other ranks their size alone counts.
    void bring(int rank, ByteSpan values, std::uint8_t* to) {
        const auto bytes = static_cast<Index>(values.extent(0));
        if (comm_.rank() == 0 && rank == 0) {
            copy_to_host(values, to);
        } else if (comm_.rank() == 0) {
            comm_.receive_host(to, bytes, rank);
        } else if (comm_.rank() == rank) {
            send(values, bytes);
        }
    }

    void send(ByteSpan values, Index bytes) {
        const std::uint8_t* host = values.data();
        if constexpr (!exec_is_host) {
            copy_to_host(values, block_.data());
            host = block_.data();
        }
        comm_.send_host(host, bytes, 0);
    }

    comm::Communicator& comm_;
    HostVec<std::uint8_t> block_;  // 64 MiB at most
    std::vector<float> received_;
    Mean mean_;
};

/// Throws std::logic_error for what no caller may ask.
void check_array(const Array& array, const FlatLayout& layout, const Sharding& sharding) {
    const bool sharded = array.placement == Placement::sharded;
    const Index wanted = sharded ? sharding.shard_extent() : layout.extent();
    if (static_cast<Index>(array.bytes.extent(0)) < wanted * h5::bytes_of(array.element)) {
        throw std::logic_error("checkpoint: array '" + array.name + "' is too short");
    }
    if (array.placement == Placement::mean && array.element != h5::Element::f32) {
        throw std::logic_error("checkpoint: array '" + array.name + "' has no mean");
    }
}

/// Of the file: elements, and something for the description of every data set.
Index payload_bytes(const std::vector<Array>& arrays, const FlatLayout& layout, int ranks) {
    constexpr Index description = 1024;
    Index bytes = 0;
    for (const Array& array : arrays) {
        const Index each = layout.parameters() * h5::bytes_of(array.element) +
                           static_cast<Index>(layout.tensors().size()) * description;
        bytes += each * (array.placement == Placement::per_rank ? ranks : 1);
    }
    return bytes;
}

}  // namespace

// Rank 0 writes; what fails there is kept until all ranks have done their part of an array, so that
// nobody waits for a message that never comes.
SaveResult save(comm::Communicator& comm, const std::string& dir, const CheckpointMeta& meta,
                const FlatLayout& layout, const Sharding& sharding,
                const std::vector<ArrayOut>& given) {
    const Region region("scape::io::save");
    const Timer timer;
    const bool root = comm.rank() == 0;
    Kokkos::fence();  // what is saved may still be on its way, on any stream

    std::vector<Array> arrays;
    for (const ArrayOut& array : given) {
        arrays.emplace_back(array);
        check_array(arrays.back(), layout, sharding);
    }
    Index largest = 0;
    for (const Tensor& t : layout.tensors()) {
        largest = std::max(largest, std::min(t.size, block_of(t.shape)));
    }
    Gather gather(comm, largest);
    const auto parts = parts_of(layout, sharding);

    std::unique_ptr<CheckpointFile> file;
    comm::Failure failure;
    const auto attempt = [&](auto&& work) {
        if (root && !failure.failed) failure = CheckpointFile::attempt(work);
    };
    attempt([&] {
        const Index payload = payload_bytes(arrays, layout, comm.size());
        file = std::make_unique<CheckpointFile>(dir, meta, payload);
    });
    comm::agree(comm, failure);

    // All tensors of an array; of one rank's own where rank >= 0.
    const auto write = [&](const Array& array, int rank) {
        for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
            const Tensor& tensor = layout.tensors()[i];
            attempt([&] { file->begin_tensor(tensor, array.element); });
            const Index block = block_of(tensor.shape);
            for (Index begin = 0; begin < tensor.size; begin += block) {
                const Index end = std::min(begin + block, tensor.size);
                const Index from = tensor.offset + begin, to = tensor.offset + end;
                if (array.placement == Placement::sharded) {
                    gather.sharded(parts[i], begin, end, array);
                } else if (array.placement == Placement::mean) {
                    gather.mean(from, to, array);
                } else {
                    gather.bring(std::max(rank, 0), array.part(from, to));
                }
                attempt([&] { file->write(begin, end, gather.block()); });
            }
            attempt([&] { file->end_tensor(); });
        }
        comm::agree(comm, failure);
    };
    for (const Array& array : arrays) {
        const int ranks = array.placement == Placement::per_rank ? comm.size() : 0;
        attempt([&] { file->begin_array(array.name, ranks); });
        if (ranks == 0) write(array, -1);
        for (int rank = 0; rank < ranks; ++rank) {
            attempt([&] { file->begin_rank(rank); });
            write(array, rank);
        }
    }

    SaveResult result;
    attempt([&] { result.bytes = file->commit(); });
    comm::agree(comm, failure);
    comm.broadcast_host(&result.bytes, sizeof result.bytes, 0);
    result.path = dir + "/" + checkpoint_name(meta.step);
    result.seconds = timer.seconds();
    return result;
}

}  // namespace scape::io
