#include "session.hpp"

#include <scape/base/error.hpp>
#include <scape/config/launcher.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/kernels/machine_rate.hpp>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace scape::apps {

namespace {

int allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Ranks and threads share the cores, they do not multiply: a launcher that binds each rank to its
/// own cores has divided already, otherwise the ranks of a node divide here. The user's
/// OMP_NUM_THREADS wins.
int threads_for_rank(int cores, int ranks_on_node) {
    if (const char* wish = std::getenv("OMP_NUM_THREADS"); wish && std::atoi(wish) > 0)
        return std::atoi(wish);
    const bool bound = cores < static_cast<int>(std::thread::hardware_concurrency());
    return bound ? cores : std::max(1, cores / ranks_on_node);
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

    cores_ = allowed_cores();
    threads_ = threads_for_rank(cores_, ranks_on_node_);
    kernels::flush_subnormals();  // before any thread pool starts: its threads inherit the mode
    setenv("KOKKOS_NUM_THREADS", std::to_string(threads_).c_str(), 0);
    kokkos_ = std::make_unique<Kokkos::ScopeGuard>(*argc, *argv);
    kernels::set_gemm_threads(threads_);
    kernels::flush_subnormals();  // and the threads that run by now
    exec_ = std::make_unique<Exec>();
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
    if (threads_ * ranks_on_node_ > static_cast<int>(std::thread::hardware_concurrency()))
        notes.push_back(fmt::format(
            "note: {} ranks x {} threads share {} cores of this node, so each step takes longer. "
            "Start fewer ranks, or set OMP_NUM_THREADS.",
            ranks_on_node_, threads_, std::thread::hardware_concurrency()));
    if (!exec_is_host) return notes;

    constexpr double milliseconds = 30;
    constexpr double least_share = 0.4;
    const double measured = kernels::measure_gemm_gflops(*exec_, milliseconds);
    const kernels::AttainableRate could = kernels::attainable_rate(threads_);
    notes.push_back(fmt::format(
        "matrix products: {:.0f} GFLOP/s, {:.0f} % of what {} threads x {} at {:.2f} GHz could give",
        measured, 100 * measured / could.gflops, could.threads, could.unit, could.gigahertz));
    const bool crowded = threads_ * ranks_on_node_ > cores_ && comm_->size() > 1;
    if (measured < least_share * could.gflops && !crowded)
        notes.push_back(fmt::format(
            "WARNING: matrix products run at {:.0f} % of this machine's speed. The BLAS may not "
            "know the processor: build with oneDNN (libdnnl-dev; SCAPE_ONEDNN=ON), or tell OpenBLAS "
            "the kernels to use (OPENBLAS_CORETYPE=SkylakeX, Zen, Haswell, NEOVERSEN1), or look for "
            "other work on these cores.",
            100 * measured / could.gflops));
    return notes;
}

std::string kokkos_description() {
    return fmt::format("Kokkos {}.{}.{}, {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100,
                       KOKKOS_VERSION % 100, Exec::name());
}

}  // namespace scape::apps
