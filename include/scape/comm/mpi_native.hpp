#pragma once
/// @file
/// The MPI back end over any communicator, for code that speaks MPI itself.

#include <scape/comm/communicator.hpp>

#include <mpi.h>

#include <mutex>

namespace scape::comm {

struct MpiOptions {
    /// Longer messages travel in parts of this many bytes (counts are 32-bit in MPI).
    Index max_message_bytes = Index(1) << 30;
    /// Messages pass through (pinned) host memory, because MPI cannot read the device's.
    bool stage = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible;
    /// How long all transfers that an error left behind are waited for, together.
    double patience_seconds = 5;
};

/// Whoever holds one may call MPI: one thread of the process at a time (MPI_THREAD_SERIALIZED),
/// because a thread of the back end does so too while transfers are under way.
class MpiTurn {
   public:
    MpiTurn() : lock_(mutex()) {}
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    static std::mutex& mutex();
    std::unique_lock<std::mutex> lock_;
};

/// Works on a duplicate of `parent`, which must outlive MPI's use of it. Call collectively.
std::unique_ptr<Communicator> make_mpi(MPI_Comm parent, const MpiOptions& options = {});

/// Throws user_error (ExitCode::lost) that names the call, its place and MPI's own message.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace scape::comm

/// Every MPI call goes through this: in the caller's turn, and its return code is looked at.
#define SCAPE_MPI_CHECK(call)                                                              \
    ::scape::comm::check_mpi((static_cast<void>(::scape::comm::MpiTurn()), (call)), #call, \
                             __FILE__, __LINE__)
