// Rates of the two collectives of a step, on buckets of 25 MB: test_comm_mpi "[.bench]".
#include "support/catch.hpp"

#include <scape/base/profiling.hpp>
#include <scape/comm/mpi_native.hpp>

#include <algorithm>
#include <cstdio>

using namespace scape;
using namespace scape::comm;

namespace {

template <class Begin>
double best_seconds(Communicator& comm, const Begin& begin) {
    double best = 1e9;
    for (int repeat = 0; repeat < 20; ++repeat) {
        comm.barrier();
        const Timer timer;
        begin().wait(Exec());
        best = std::min(best, comm.all_reduce_max(timer.seconds()));
    }
    return best;
}

}  // namespace

TEST_CASE("rates of 25 MB buckets", "[.bench]") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    const Index p = comm->size();
    const Index n = 25'000'000 / 4 / (p * 64) * (p * 64);
    const Vec<float> bucket("scape::bench::bucket", n);
    const Vec<float> received("scape::bench::received", n / p * (p - 1));
    const double sent = static_cast<double>(n / p * (p - 1)) * 4e-9;
    const double exchange =
        best_seconds(*comm, [&] { return comm->all_to_all(Exec(), bucket, received); });
    const double gather = best_seconds(*comm, [&] { return comm->all_gather(Exec(), bucket); });
    if (comm->rank() == 0)
        std::printf(
            "%d ranks, 25 MB: all_to_all %.2f ms, all_gather %.2f ms; %.2f and %.2f GB/s "
            "sent by each rank\n",
            comm->size(), 1e3 * exchange, 1e3 * gather, sent / exchange, sent / gather);
    CHECK(exchange > 0);
}
