#pragma once
// The buffer store on a disk. One thread of its own does all that HDF5 does; the caller and it
// share two lists of work under one mutex:
//
//     reads    chunks into slots, each a buffer in host memory; at most `slots` at a time
//     writes   chunks from the caller's memory, or on a device from staging buffers
//
// Reads go first, so that the caller need not wait, but no read passes a write of its own chunk.

#include "memory_store.hpp"
#include "scratch_file.hpp"

#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace scape::io {

class Hdf5Store : public BufferStore {
   public:
    Hdf5Store(const std::vector<Index>& chunks, const std::string& directory, int rank);
    ~Hdf5Store() override;

    void expect(const std::vector<int>& chunks) override;
    void add_to(const Exec& exec, int chunk, Span<float> values) override;
    void write(const Exec& exec, int chunk, Span<const float> values) override;
    void finish(const Exec& exec) override;
    Cost cost() const override;
    void reset_cost() override;
    std::string name() const override { return "hdf5 " + path_; }
    Index device_bytes() const override { return 0; }
    Index host_bytes() const override { return host_bytes(chunks_); }
    static Index host_bytes(const std::vector<Index>& chunks);

   private:
    static constexpr int slots = 2;  // one that the caller adds, one that is read ahead
    static constexpr int staging_buffers = 2;
    using Buffer = Kokkos::View<float*, StagingSpace>;
    using Guard = std::unique_lock<std::mutex>;

    struct Slot {
        enum State { idle, wanted, reading, ready, used };
        State state = idle;
        int chunk = -1;
        bool again = false;   // written to while it was read
        bool unused = false;  // not expected any more while it was read
        Buffer values;
        std::optional<Exec> user;  // on a device: whose kernel may still read it
    };
    struct Write {
        int chunk = 0;
        const float* values = nullptr;
        int staging = -1;
        std::optional<Exec> source;  // on a device: whose copy may still be on its way
    };
    struct Staging {
        bool free = true;
        Buffer values;
    };

    // The caller's side; `guard` holds mutex_.
    void rethrow(const Guard& guard) const;
    Slot* slot_of(int chunk);
    Slot& claim(Guard& guard);
    void request(Slot& slot, int chunk);
    void read_ahead();
    template <class Done>
    void wait(Guard& guard, const Done& done);

    // The thread's side.
    void run(const std::string& directory, int rank);
    void serve(ScratchFile& file);
    Slot* next_read();
    void read(ScratchFile& file, Slot& slot, Guard& guard);
    void write(ScratchFile& file, Guard& guard);
    void count(int chunk, double seconds);

    const std::vector<Index> chunks_;
    std::string path_;
    mutable std::mutex mutex_;
    std::condition_variable work_;  // for the thread
    std::condition_variable done_;  // for the caller
    std::array<Slot, slots> slots_;
    std::array<Staging, staging_buffers> staging_;  // on a host not used
    std::deque<int> expected_;                      // not yet in a slot
    std::deque<Write> writes_;                      // the first is being done
    std::optional<user_error> error_;
    bool open_ = false;
    bool stop_ = false;
    Cost cost_;
    std::thread thread_;
};

}  // namespace scape::io
