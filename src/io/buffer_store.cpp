// Which store, and those in memory.
#include <scape/io/buffer_store.hpp>

#include "hdf5_store.hpp"
#include "memory_store.hpp"

#include <scape/base/profiling.hpp>

#include <fmt/format.h>

#include <stdexcept>

namespace scape::io {
namespace {

/// Elements of one call: on a device neighbouring threads have neighbouring elements.
constexpr Index block = exec_is_host ? 4096 : 1;

struct Add {
    float* values;
    const float* stored;
    Index n;
    KOKKOS_INLINE_FUNCTION void operator()(Index b) const {
        const Index begin = b * block, end = begin + block < n ? begin + block : n;
#pragma omp simd
        for (Index i = begin; i < end; ++i) values[i] += stored[i];
    }
};

/// All chunks in one buffer of `Space`. Everything is ordered by `exec`, nothing waits: on a device
/// the time that the device takes is not in the cost.
template <class Space>
class MemoryStore : public BufferStore {
   public:
    MemoryStore(const std::vector<Index>& chunks, const std::string& name)
        : name_(name), chunks_(chunks), begin_{0} {
        for (const Index n : chunks) begin_.push_back(begin_.back() + n);
        values_ = Kokkos::View<float*, Space>("scape::io::" + name, begin_.back());
    }

    void expect(const std::vector<int>&) override {}

    void add_to(const Exec& exec, int chunk, Span<float> values) override {
        const Timer timer;
        check_chunk(chunks_, chunk, values.extent(0));
        add_stored(exec, values, values_.data() + begin_[chunk]);
        count(chunk, timer);
    }

    void write(const Exec& exec, int chunk, Span<const float> values) override {
        const Timer timer;
        check_chunk(chunks_, chunk, values.extent(0));
        Kokkos::deep_copy(exec, slice(values_, begin_[chunk], begin_[chunk + 1]), values);
        count(chunk, timer);
    }

    void finish(const Exec&) override {}

    Cost cost() const override { return cost_; }
    void reset_cost() override { cost_ = {}; }
    std::string name() const override { return name_; }
    Index device_bytes() const override { return on_device ? bytes() : 0; }
    Index host_bytes() const override { return on_device ? 0 : bytes(); }

   private:
    // On a host back end the two stores are the same, and so is what they are called.
    static constexpr bool on_device = std::is_same_v<Space, Memory> && !exec_is_host;

    Index bytes() const { return begin_.back() * static_cast<Index>(sizeof(float)); }

    void count(int chunk, const Timer& timer) {
        const double seconds = timer.seconds();
        cost_.bytes += static_cast<double>(chunks_[chunk]) * sizeof(float);
        cost_.seconds += seconds;
        cost_.waited_seconds += seconds;
    }

    std::string name_;
    std::vector<Index> chunks_;
    std::vector<Index> begin_;  // of every chunk, and the end of the last
    Kokkos::View<float*, Space> values_;
    Cost cost_;
};

}  // namespace

void add_stored(const Exec& exec, Span<float> values, const float* stored) {
    const auto n = static_cast<Index>(values.extent(0));
    Kokkos::parallel_for(
        "scape::io::add_stored",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, (n + block - 1) / block),
        Add{values.data(), stored, n});
}

void check_chunk(const std::vector<Index>& chunks, int chunk, std::size_t elements) {
    const bool known = chunk >= 0 && chunk < static_cast<int>(chunks.size());
    if (!known || static_cast<std::size_t>(chunks[chunk]) != elements) {
        throw std::logic_error(fmt::format("buffer store: chunk {} of {} with {} elements", chunk,
                                           chunks.size(), elements));
    }
}

std::unique_ptr<BufferStore> make_buffer_store(Storage storage, const std::vector<Index>& chunks,
                                               const std::string& directory, int rank) {
    switch (storage) {
        case Storage::device:
            return std::make_unique<MemoryStore<Memory>>(chunks, "device");
        case Storage::host:
            return std::make_unique<MemoryStore<StagingSpace>>(chunks, "host");
        case Storage::hdf5:
            return make_hdf5_store(chunks, directory, rank);
    }
    throw std::logic_error("buffer store: no such storage");
}

StoreBytes buffer_store_bytes(Storage storage, const std::vector<Index>& chunks) {
    StoreBytes bytes;
    if (storage == Storage::hdf5) {
        bytes.host = Hdf5Store::host_bytes(chunks);
        return bytes;
    }
    const bool on_device = storage == Storage::device && !exec_is_host;
    Index& where = on_device ? bytes.device : bytes.host;
    for (const Index n : chunks) where += n * static_cast<Index>(sizeof(float));
    return bytes;
}

}  // namespace scape::io
