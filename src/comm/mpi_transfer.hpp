#pragma once
// A set of nonblocking point-to-point messages that make up one collective.

#include "mpi_progress.hpp"

#include <scape/comm/mpi_native.hpp>

#include <exception>
#include <vector>

namespace scape::comm {

// Where messages rest on their way between the device and MPI: pinned where Kokkos has such memory.
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
using StagingSpace = Kokkos::SharedHostPinnedSpace;
#else
using StagingSpace = Kokkos::HostSpace;
#endif
using Staging = Kokkos::View<char*, StagingSpace>;

// What a communicator and its transfers under way have in common.
struct MpiShared {
    MPI_Comm comm = MPI_COMM_NULL;
    MpiOptions options;
    int rank = 0;
    int size = 1;
    std::vector<Staging>
        free_staging;  // used again, so that steps after the first allocate nothing

    MpiProgress progress;  // last: its thread ends before the rest does

    Staging take_staging(Index bytes);
};

class MpiTransfer : public Pending::Work {
   public:
    MpiTransfer(std::shared_ptr<MpiShared> shared, int tag)
        : shared_(std::move(shared)), tag_(tag) {}
    ~MpiTransfer() override;
    MpiTransfer(const MpiTransfer&) = delete;
    MpiTransfer& operator=(const MpiTransfer&) = delete;

    // Host memory that stands for `device`, until the transfer ends.
    char* stage(Bytes device);
    // Queues the copy of n bytes; the caller fences `ready` before the messages start.
    void copy_in(const Exec& ready, char* host, const char* device, Index n);
    // To be copied when the messages have arrived.
    void copy_out_later(char* device, const char* host, Index n);
    // Keeps the numbers that are being sent.
    const std::vector<double>& keep(const std::vector<double>& numbers);

    // Messages of any length; post all receives before the first send.
    void receive(char* data, Index bytes, int from);
    void send(const char* data, Index bytes, int to);

    // All messages are posted: they move on while the program computes.
    void begun() { shared_->progress.add(*this); }
    // One look at them, in the caller's turn; true when nothing is left to be done. An error is
    // kept for test() and wait().
    bool advance() noexcept;

    bool test() override;
    void wait(const Exec& exec) override;

   private:
    struct CopyOut {
        char* device;
        const char* host;
        Index bytes;
    };
    void test_all();
    void finish();
    void complain(int code) const;
    void abandon();

    std::shared_ptr<MpiShared> shared_;
    int tag_;
    bool done_ = false;         // like requests_, only looked at in turn once they have begun
    std::exception_ptr error_;  // met by advance()
    std::vector<MPI_Request> requests_;
    std::vector<MPI_Status> statuses_;
    std::size_t receives_ = 0;  // they come first in requests_
    std::vector<Staging> staging_;
    std::vector<CopyOut> copies_out_;
    std::vector<double> kept_;
};

}  // namespace scape::comm
