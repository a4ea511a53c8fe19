#pragma once
/// @file
/// The MPI back end, without <mpi.h>.

#include <scape/comm/communicator.hpp>

namespace scape::comm {

/// MPI for the whole program: initialised when made, finalised when destroyed (unless somebody else
/// had initialised it before). Make one, after the deck has been checked, and destroy it after
/// every other object that communicates.
class MpiWorld {
   public:
    virtual ~MpiWorld() = default;
    /// A duplicate of the world; lives as long as this object.
    virtual Communicator& communicator() = 0;
    virtual int ranks_on_node() const = 0;
    virtual int rank_on_node() const = 0;
    virtual std::string library() const = 0;  ///< name and version of the MPI library
    /// Messages move on by a thread while the program computes, not only in its calls.
    virtual bool has_progress_thread() const = 0;
};

/// Initialises MPI with MPI_THREAD_SERIALIZED, so that a thread can move messages on while the
/// program computes; with MPI_THREAD_FUNNELED they move only in calls. Throws user_error: usage, if
/// this build has no MPI or the launcher started several ranks that do not find each other; fault,
/// if the library offers fewer threads than FUNNELED.
std::unique_ptr<MpiWorld> make_mpi_world(int* argc, char*** argv);

/// False if this build has no MPI.
bool mpi_built();

}  // namespace scape::comm
