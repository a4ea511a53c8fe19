#pragma once
/// @file
/// Errors that a user can cause and mend, and the exit codes of the program.

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace scape {

/// Exit codes, the same on every rank and so of the launcher. `scape --help` lists them.
enum class ExitCode : int {
    done = 0,       ///< finished, or stopped in good order with more to do
    fault = 1,      ///< a fault of the program
    usage = 2,      ///< command line or deck
    data = 3,       ///< data or checkpoint
    complete = 4,   ///< nothing to do: the run is complete
    numbers = 5,    ///< non-finite for too long, or replicas differ
    lost = 6,       ///< a rank or the network was lost
    resources = 7,  ///< disk or memory
};

/// What is wrong, the value seen, the value allowed, where, and what to do: one message for a
/// person, and the exit code that the program ends with.
class user_error : public std::runtime_error {
   public:
    user_error(ExitCode code, const std::string& message)
        : std::runtime_error(message), code_(code) {}
    ExitCode code() const { return code_; }

   private:
    ExitCode code_;
};

/// The same, thrown on every rank alike (after the ranks agreed): rank 0 prints it, all end in good
/// order. A plain user_error inside a parallel run is one rank's alone, and ends the others.
class agreed_error : public user_error {
   public:
    using user_error::user_error;
};

/// Whether an exception says that memory ran out. Kokkos says so in words only.
inline bool is_out_of_memory(const std::exception& e) {
    return dynamic_cast<const std::bad_alloc*>(&e) != nullptr ||
           std::string(e.what()).find("failed to allocate memory") != std::string::npos;
}

inline constexpr const char* out_of_memory =
    "out of memory. `scape train DECK --dry-run` shows what a deck needs; more ranks, a smaller "
    "train.micro_batch or model.recompute = \"layer\" need less on each.";

}  // namespace scape
