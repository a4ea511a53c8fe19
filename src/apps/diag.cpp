#include "commands.hpp"
#include "session.hpp"

#include <scape/comm/mpi.hpp>
#include <scape/config/launcher.hpp>
#include <scape/io/h5.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/kernels/machine_rate.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <thread>

namespace scape::apps {

ExitCode diag(Arguments arguments) {
    Session session(config::CommBackend::automatic, &arguments.argc, &arguments.argv);
    if (!session.lead()) {
        session.comm().barrier();
        return ExitCode::done;
    }
    const auto row = [](const char* what, const std::string& value) {
        fmt::print("{:<16}{}\n", what, value);
    };
    const config::Launcher launcher =
        config::read_launcher([](const char* name) -> const char* { return std::getenv(name); });
    row("scape", SCAPE_VERSION);
    row("compiler", SCAPE_COMPILER);
    row("launcher", launcher.name.empty() ? "none (started by hand)" : launcher.name);
    row("ranks", fmt::format("{} ({} back end), {} on this node", session.comm().size(),
                             session.comm().name(), session.ranks_on_node()));
    row("MPI", comm::mpi_built() ? session.mpi_library() : "not in this build");
    row("NCCL", "not in this build");
    row("HDF5", "HDF5 " + io::h5::version());
    row("Kokkos", kokkos_description());
    row("precision", "fp32 parameters and activations; subnormals are flushed to zero: " +
                         std::string(kernels::subnormals_are_flushed() ? "yes" : "no"));
    row("BLAS", fmt::format("{}, {} threads", kernels::gemm_library(), kernels::gemm_threads()));
    row("cores", fmt::format("{} of {} usable by this process", session.cores(),
                             std::thread::hardware_concurrency()));
    row("memory", fmt::format("{} in this node",
                              train::short_bytes(static_cast<Index>(sysconf(_SC_PHYS_PAGES)) *
                                                 sysconf(_SC_PAGE_SIZE))));
    for (const std::string& note : session.machine_notes()) row("", note);
    fmt::print("\nKokkos configuration\n");
    std::fflush(stdout);
    Kokkos::print_configuration(std::cout, false);
    session.comm().barrier();
    return ExitCode::done;
}

}  // namespace scape::apps
