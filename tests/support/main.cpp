// Starts MPI (where the build has it) and Kokkos around Catch2. Failures say the rank; every rank
// runs the same tests, so collective calls match.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

#include <Kokkos_Core.hpp>

#include <iostream>

#ifdef SCAPE_TEST_MPI
#include <mpi.h>
#endif

int main(int argc, char** argv) {
    int rank = 0;
#ifdef SCAPE_TEST_MPI
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    Kokkos::initialize(argc, argv);
    int failed = Catch::Session().run(argc, argv);
    if (failed != 0) std::cerr << "rank " << rank << ": " << failed << " failed\n";
    Kokkos::finalize();
#ifdef SCAPE_TEST_MPI
    int failed_anywhere = failed;
    MPI_Allreduce(&failed, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    failed = failed_anywhere;
    MPI_Finalize();
#endif
    return failed == 0 ? 0 : 1;
}
