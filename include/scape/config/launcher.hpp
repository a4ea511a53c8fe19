#pragma once
/// @file
/// What the launcher (mpirun, srun) tells a process through its environment. Decks are checked
/// before MPI_Init, which takes seconds; so the number of ranks and who prints come from here.

#include <functional>
#include <string>

namespace scape::config {

struct Launcher {
    std::string name;  ///< whose variables were found; empty: started by hand
    int rank = 0;
    int ranks = 1;  ///< -1: there is a launcher, and it does not say
};

using Environment = std::function<const char*(const char*)>;

/// Open MPI, Hydra and Intel MPI (PMI), MVAPICH2, then srun (only inside a step that it started: in
/// a batch script SLURM_NTASKS says what was asked for, not how often this program was started).
Launcher read_launcher(const Environment& get);

/// Number of ranks of this process's launcher; 1 without one, -1 where it does not say.
int ranks_from_launcher();
/// This process's rank; 0 without a launcher.
int rank_from_launcher();

}  // namespace scape::config
