// In place of the MPI back end where MPI was not found.
#include <scape/comm/mpi.hpp>

namespace scape::comm {

std::unique_ptr<MpiWorld> make_mpi_world(int*, char***) {
    throw user_error(ExitCode::usage,
                     "comm.backend = \"mpi\": this build has no MPI. Allowed here: \"auto\", "
                     "\"self\". Install MPI's development files and configure again.");
}

bool mpi_built() {
    return false;
}

}  // namespace scape::comm
