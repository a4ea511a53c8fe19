#include "session.hpp"

#include <scape/base/error.hpp>
#include <scape/config/launcher.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/kernels/machine_rate.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

namespace scape::apps {

namespace {

/// The cores that this process may run on: bit b of word w is core 32 w + b.
std::vector<double> allowed_cores() {
    std::vector<double> words(CPU_SETSIZE / 32, 0.0);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        for (unsigned c = 0; c < std::thread::hardware_concurrency(); ++c) CPU_SET(c, &set);
    }
    for (int c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(c, &set)) words[c / 32] += std::ldexp(1.0, c % 32);
    return words;
}

Index common_cores(const double* a, const double* b, std::size_t words) {
    Index count = 0;
    for (std::size_t w = 0; w < words; ++w)
        count += std::popcount(static_cast<std::uint32_t>(a[w]) & static_cast<std::uint32_t>(b[w]));
    return count;
}

/// This node among others, as a number that a double holds exactly.
double node_number() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return static_cast<double>(std::hash<std::string>{}(name) >> 11);
}

}  // namespace

Session::Session(config::CommBackend backend, int* argc, char*** argv) {
    const int launched = config::ranks_from_launcher();
    const bool with_mpi = backend == config::CommBackend::mpi ||
                          (backend == config::CommBackend::automatic && launched != 1);
    if (with_mpi) {
        world_ = comm::make_mpi_world(argc, argv);
        comm_ = &world_->communicator();
        ranks_on_node_ = world_->ranks_on_node();
    } else {
        self_ = comm::make_self();
        comm_ = self_.get();
    }

    share_cores();
    kernels::flush_subnormals();  // before any thread pool starts: its threads inherit the mode
    setenv("KOKKOS_NUM_THREADS", std::to_string(threads_).c_str(), 0);
    kokkos_ = std::make_unique<Kokkos::ScopeGuard>(*argc, *argv);
    kernels::set_gemm_threads(threads_);
    kernels::flush_subnormals();  // and the threads that run by now
    exec_ = std::make_unique<Exec>();
}

/// Ranks and threads share the cores, they do not multiply: those ranks of a node that may run on
/// the same cores (a launcher that binds gives each its own) divide them. OMP_NUM_THREADS wins.
void Session::share_cores() {
    std::vector<double> mine = allowed_cores();
    const std::size_t words = mine.size();
    mine.push_back(node_number());
    cores_ = static_cast<int>(common_cores(mine.data(), mine.data(), words));
    ranks_on_cores_ = 0;
    for (int r = 0; r < comm_->size(); ++r) {
        // Broadcasts, because other collectives take an Exec and Kokkos is not up yet.
        std::vector<double> theirs = mine;
        comm_->broadcast_host(theirs.data(), static_cast<Index>(theirs.size() * sizeof(double)), r);
        if (theirs[words] == mine[words] && common_cores(mine.data(), theirs.data(), words) > 0)
            ++ranks_on_cores_;
    }
    const char* wish = std::getenv("OMP_NUM_THREADS");
    threads_ = wish && std::atoi(wish) > 0 ? std::atoi(wish)
                                           : std::max(1, cores_ / std::max(1, ranks_on_cores_));
}

std::string Session::mpi_library() const {
    if (!world_) return "not started";
    const char* lacks = world_->has_progress_thread()
                            ? ""
                            : "; without MPI_THREAD_SERIALIZED: messages move in calls only";
    return world_->library() + lacks;
}

Session::~Session() {
    exec_.reset();
    kokkos_.reset();  // before MPI ends: Views may be registered with it
    world_.reset();
}

void Session::end_all(ExitCode code, const std::string& message) {
    fmt::print(stderr, "scape: rank {}: {}\n", comm_->rank(), message);
    std::fflush(stderr);
    comm_->abort(static_cast<int>(code));
    std::abort();  // not reached; some compilers lose abort()s promise across virtual calls
}

std::vector<std::string> Session::machine_notes() const {
    std::vector<std::string> notes;
    notes.push_back(fmt::format("{} ranks ({} back end), {} threads each; {}; {}", comm_->size(),
                                comm_->name(), threads_, kokkos_description(),
                                kernels::gemm_library()));
    const bool crowded = threads_ * ranks_on_cores_ > cores_;
    if (crowded)
        notes.push_back(fmt::format(
            "note: {} ranks x {} threads share {} cores, so each step takes longer. Start fewer "
            "ranks, or lower OMP_NUM_THREADS.",
            ranks_on_cores_, threads_, cores_));
    if (!exec_is_host) return notes;

    constexpr double milliseconds = 30;
    constexpr double least_share = 0.4;
    const double measured = kernels::measure_gemm_gflops(*exec_, milliseconds);
    const kernels::AttainableRate could = kernels::attainable_rate(threads_);
    notes.push_back(fmt::format(
        "matrix products: {:.0f} GFLOP/s, {:.0f} % of what {} threads x {} at {:.2f} GHz could "
        "give",
        measured, 100 * measured / could.gflops, could.threads, could.unit, could.gigahertz));
    if (measured < least_share * could.gflops && !crowded)
        notes.push_back(fmt::format(
            "WARNING: matrix products run at {:.0f} % of this machine's speed. The BLAS may not "
            "know the processor: build with oneDNN (libdnnl-dev; SCAPE_ONEDNN=ON), or tell "
            "OpenBLAS "
            "the kernels to use (OPENBLAS_CORETYPE=SkylakeX, Zen, Haswell, NEOVERSEN1), or look "
            "for "
            "other work on these cores.",
            100 * measured / could.gflops));
    return notes;
}

std::string kokkos_description() {
    return fmt::format("Kokkos {}.{}.{}, {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100,
                       KOKKOS_VERSION % 100, Exec::name());
}

}  // namespace scape::apps
