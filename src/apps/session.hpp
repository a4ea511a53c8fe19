#pragma once
/// @file
/// What every subcommand that computes needs first: MPI (where it was asked for), Kokkos, threads
/// that do not multiply with ranks, and a communicator.

#include <scape/base/error.hpp>
#include <scape/base/types.hpp>
#include <scape/comm/mpi.hpp>
#include <scape/config/run_config.hpp>

#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace scape::apps {

class Session {
   public:
    /// Throws user_error: usage when the deck's back end does not fit the way the program was
    /// started.
    Session(config::CommBackend backend, int* argc, char*** argv);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    comm::Communicator& comm() { return *comm_; }
    const Exec& exec() const { return *exec_; }
    bool lead() const { return comm_->rank() == 0; }

    int cores() const { return cores_; }  ///< that this process may run on
    int ranks_on_node() const { return ranks_on_node_; }
    int threads() const { return threads_; }  ///< of this rank
    /// Name and version, and what it lacks.
    std::string mpi_library() const;

    /// Runs the parallel part of a command. Errors that all ranks share, or that a single rank of
    /// one has, pass through; an error of one rank among several is printed with its rank and ends
    /// them all, because they would wait for it for ever.
    template <class Work>
    ExitCode run(Work&& work) {
        try {
            return work();
        } catch (const agreed_error&) {
            throw;
        } catch (const user_error& e) {
            if (comm_->size() == 1) throw;
            end_all(e.code(), e.what());
        } catch (const std::exception& e) {
            if (comm_->size() == 1) throw;
            if (is_out_of_memory(e)) end_all(ExitCode::resources, out_of_memory);
            end_all(ExitCode::fault, e.what());
        }
    }

    /// What a user should know about this start: one line each. Measures the rate of matrix
    /// products for some milliseconds and holds it against what the cores could give.
    std::vector<std::string> machine_notes() const;

   private:
    void share_cores();
    [[noreturn]] void end_all(ExitCode code, const std::string& message);

    std::unique_ptr<comm::MpiWorld> world_;
    std::unique_ptr<comm::Communicator> self_;
    comm::Communicator* comm_ = nullptr;
    std::unique_ptr<Kokkos::ScopeGuard> kokkos_;
    std::unique_ptr<Exec> exec_;
    int cores_ = 1;
    int ranks_on_node_ = 1;
    int ranks_on_cores_ = 1;  // that may run on the same cores as this one
    int threads_ = 1;
};

/// Kokkos version and back end, e.g. "Kokkos 3.4.1, Serial".
std::string kokkos_description();

}  // namespace scape::apps
