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

void copy_to_host(Span<const float> from, float* to) {
    Kokkos::deep_copy(HostSpan<float>(to, from.extent(0)), from);
}

/// Moves elements [begin, end) of one tensor from their owners into `block` on rank 0.
class Gather {
   public:
    Gather(comm::Communicator& comm, Index elements) : comm_(comm) {
        if (comm.rank() == 0 || !exec_is_host) {
            block_ = HostVec<float>(
                Kokkos::view_alloc(std::string("scape::io::block"), Kokkos::WithoutInitializing),
                elements);
        }
    }

    float* block() { return block_.data(); }

    void sharded(const std::vector<Part>& parts, Index begin, Index end, Span<const float> shard) {
        for (const Part& part : parts) {
            const Index from = std::max(begin, part.begin), to = std::min(end, part.end);
            if (from >= to) continue;
            const Index at = part.shard_begin + (from - part.begin);
            const Index bytes = (to - from) * static_cast<Index>(sizeof(float));
            if (comm_.rank() == 0 && part.rank == 0) {
                copy_to_host(slice(shard, at, at + (to - from)), block_.data() + (from - begin));
            } else if (comm_.rank() == 0) {
                comm_.receive_host(block_.data() + (from - begin), bytes, part.rank);
            } else if (comm_.rank() == part.rank) {
                send(slice(shard, at, at + (to - from)), bytes);
            }
        }
    }

   private:
    void send(Span<const float> values, Index bytes) {
        const float* host = values.data();
        if constexpr (!exec_is_host) {
            copy_to_host(values, block_.data());
            host = block_.data();
        }
        comm_.send_host(host, bytes, 0);
    }

    comm::Communicator& comm_;
    HostVec<float> block_;
};

}  // namespace

// Rank 0 writes; what fails there is kept until all ranks have done their part of an array, so that
// nobody waits for a message that never comes.
SaveResult save(comm::Communicator& comm, const std::string& dir, const CheckpointMeta& meta,
                const FlatLayout& layout, const Sharding& sharding,
                const std::vector<ArrayOut>& arrays) {
    const Region region("scape::io::save");
    const Timer timer;
    const bool root = comm.rank() == 0;
    Kokkos::fence();  // what is saved may still be on its way, on any stream

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
    const Index payload = layout.parameters() * static_cast<Index>(arrays.size() * sizeof(float));
    attempt([&] { file = std::make_unique<CheckpointFile>(dir, meta, payload); });
    comm::agree(comm, failure);

    for (const ArrayOut& array : arrays) {
        attempt([&] { file->begin_array(array.name); });
        for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
            const Tensor& tensor = layout.tensors()[i];
            attempt([&] { file->begin_tensor(tensor); });
            const Index block = block_of(tensor.shape);
            for (Index begin = 0; begin < tensor.size; begin += block) {
                const Index end = std::min(begin + block, tensor.size);
                if (!array.replicated) {
                    gather.sharded(parts[i], begin, end, array.values);
                } else if (root) {
                    copy_to_host(slice(array.values, tensor.offset + begin, tensor.offset + end),
                                 gather.block());
                }
                attempt([&] { file->write(begin, end, gather.block()); });
            }
            attempt([&] { file->end_tensor(); });
        }
        comm::agree(comm, failure);
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
