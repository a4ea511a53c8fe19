#include <scape/config/launcher.hpp>

#include <map>

#include "support/catch.hpp"

using namespace scape::config;

namespace {

Launcher under(const std::map<std::string, std::string>& environment) {
    return read_launcher([&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    });
}

void check(const Launcher& launcher, const std::string& name, int rank, int ranks) {
    INFO(launcher.name);
    CHECK(launcher.name == name);
    CHECK(launcher.rank == rank);
    CHECK(launcher.ranks == ranks);
}

}  // namespace

TEST_CASE("each launcher's variables are understood") {
    check(under({}), "", 0, 1);
    check(under({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "Open MPI", 2, 4);
    check(under({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), "PMI", 1, 3);
    check(under({{"MV2_COMM_WORLD_RANK", "5"}, {"MV2_COMM_WORLD_SIZE", "8"}}), "MVAPICH2", 5, 8);
    check(under({{"PMIX_RANK", "3"}}), "PMIx", 3, -1);
}

TEST_CASE("Slurm counts only inside a step of srun") {
    check(under({{"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}}), "", 0, 1);
    check(under({{"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967291"}}),
          "", 0, 1);
    check(under({{"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "0"}}), "srun", 3,
          16);
    check(under({{"SLURM_NTASKS", "16"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_PROCID", "3"},
                 {"SLURM_STEP_ID", "0"},
                 {"PMIX_RANK", "3"}}),
          "srun", 3, 4);
    // mpirun inside of a job is what started this process
    check(under({{"SLURM_NTASKS", "16"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_STEP_ID", "0"},
                 {"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "2"}}),
          "Open MPI", 1, 2);
}

TEST_CASE("nonsense in the environment is not believed") {
    check(under({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "", 0, 1);
    check(under({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "", 0, 1);
    check(under({{"PMI_RANK", "-1"}, {"PMI_SIZE", "4"}}), "", 0, 1);
    check(under({{"PMI_RANK", "0"}, {"PMI_SIZE", ""}}), "", 0, 1);
}
