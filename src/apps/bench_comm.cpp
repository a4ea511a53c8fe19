#include "comm_rig.hpp"
#include "commands.hpp"
#include "session.hpp"
#include "timing.hpp"

#include <scape/base/text_file.hpp>
#include <scape/config/launcher.hpp>
#include <scape/config/machine.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/train/cost_model.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>

namespace scape::apps {

namespace {

/// Shares of the time that the user allows. The rest goes by in starts and warm-ups.
constexpr double share_of_products = 0.05;
constexpr double share_of_collective = 0.2;  // each of three
constexpr double share_of_sums = 0.02;
constexpr double share_of_overlap = 0.15;

/// To begin with: what a well-tuned program reaches.
constexpr double usual_efficiency = 0.6;

/// To the digits that a measurement has.
double rounded(double x) {
    return std::stod(fmt::format("{:.4g}", x));
}

[[noreturn]] void refuse(const std::string& why) {
    throw user_error(ExitCode::usage, "bench comm: " + why);
}

void refuse_one_rank(int ranks) {
    if (ranks == 1)
        refuse(
            "one rank has no network to time; start several, on as many nodes as there are: "
            "mpirun -n 2 --map-by ppr:1:node scape bench comm (or srun -N 2 -n 2, ibrun), and on "
            "one machine mpirun -n 2 scape bench comm");
}

config::Machine named_machine(const BenchCommOptions& o) {
    if (o.write.empty() && !o.name.empty())
        refuse("--name has no effect without --write; leave it out");
    config::Machine m;
    m.name = o.name.empty() ? std::filesystem::path(o.write).stem().string() : o.name;
    m.peak_tflops = m.memory_gb_per_s = m.network_gb_per_s = 1;  // so that the file is complete
    m.efficiency = usual_efficiency;
    try {
        config::parse_machine(config::machine_file(m), "--name");
    } catch (const user_error&) {
        refuse("the name for the machine file is not valid UTF-8; give another --name");
    }
    return m;
}

/// Memory of this rank's device, 0 if nobody says.
template <class E>
double device_bytes(const E& exec) {
    if constexpr (requires { exec.cuda_device_prop(); }) {
        return static_cast<double>(exec.cuda_device_prop().totalGlobalMem);
    } else {
        return 0;
    }
}

double capacity_bytes(const Session& session) {
    if (!exec_is_host) return device_bytes(session.exec());
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<double>(sysconf(_SC_PAGE_SIZE)) / session.ranks_on_node();
}

/// Memory for two buffers of the largest size, on every rank of the node.
void refuse_too_large(const BenchCommOptions& options, const Session& session) {
    constexpr double share = 0.8;
    const double needed = 2e6 * options.max_mb;
    const double there = capacity_bytes(session);
    if (there > 0 && needed > share * there)
        throw user_error(
            ExitCode::resources,
            fmt::format(
                "bench comm: --max-mb {:g} needs {:.3g} GB on each of {} ranks of this node, "
                "and {:.3g} GB are a rank's share of its memory; say less",
                options.max_mb, 1e-9 * needed, session.ranks_on_node(), 1e-9 * there));
}

/// Of buffers that no cache holds, as far as the node has memory for them on each rank.
double memory_rate(const Session& session) {
    const double most = 512e6;
    const double least = 32e6;
    const auto n = static_cast<std::size_t>(std::clamp(1e9 / session.ranks_on_node(), least, most) /
                                            sizeof(float) / 2);
    const Vec<float> from("scape::apps::copy_from", n);
    const Vec<float> to("scape::apps::copy_to", n);
    constexpr int repeats = 7;
    return copy_rate(session.exec(), from, to, repeats);
}

void print_rows(const std::vector<CommRow>& rows, int ranks, Index largest) {
    for (const CommRow& r : rows) {
        const double sent = static_cast<double>((ranks - 1) * r.part_bytes);
        fmt::print("{:<16}{:>10}{:>14}{:>14}{:>12}\n", r.collective,
                   train::short_bytes(r.buffer_bytes),
                   train::short_bytes((ranks - 1) * r.part_bytes), rounded(1e6 * r.seconds),
                   rounded(1e-9 * sent / r.seconds));
    }
    if (rows.back().buffer_bytes < largest)
        fmt::print("{} of more is left out: it takes longer than --seconds allows\n",
                   rows.back().collective);
    std::fflush(stdout);
}

/// The largest buffer that can be exchanged `times` times in the seconds `allowed`.
Index largest_buffer(const std::vector<CommRow>& rows, double times, double allowed) {
    Index bytes = rows.front().buffer_bytes;
    for (const CommRow& r : rows)
        if (times * r.seconds <= allowed) bytes = std::max(bytes, r.buffer_bytes);
    return bytes;
}

/// Where the model is farthest from what was measured: "+38 % at all_gather of 64 kB".
std::string worst_deviation(const config::Machine& m, const std::vector<CommRow>& rows, int ranks) {
    double worst = 0;
    const CommRow* at = &rows.front();
    for (const CommRow& r : rows) {
        const double deviation = train::collective_seconds(m, ranks, r.part_bytes) / r.seconds - 1;
        if (std::abs(deviation) > std::abs(worst)) {
            worst = deviation;
            at = &r;
        }
    }
    return fmt::format("{:+.0f} % at {} of {}", 100 * worst, at->collective,
                       train::short_bytes(at->buffer_bytes));
}

std::string how_measured(Session& session, const std::string& deviation) {
    return fmt::format(
        "Measured by `scape bench comm`, scape {}, {:%Y-%m-%d}:\n"
        "{} ranks, {} of them on the node of rank 0, {} threads each; {} back end\n"
        "{}\n{}; {}\n"
        "latency_us and network.gb_per_s are fitted to all_to_all and all_gather; at worst\n"
        "they are off by {}.\n"
        "efficiency and local_work are not measured but a start: `scape project DECK --calibrate\n"
        "FILE` fits them to a step (FILE: of `scape bench step DECK --json FILE`); or edit them.\n",
        SCAPE_VERSION, fmt::gmtime(std::time(nullptr)), session.comm().size(),
        session.ranks_on_node(), session.threads(), session.comm().name(), session.mpi_library(),
        kokkos_description(), kernels::gemm_library(), deviation);
}

/// What a rank does by itself, all ranks at once; the slowest counts.
void measure_node(Session& session, CommRig& rig, double seconds, config::Machine& m) {
    session.comm().barrier();
    const double milliseconds = 1e3 * std::min(2.0, share_of_products * seconds);
    m.peak_tflops =
        rounded(1e-3 * rig.least(kernels::measure_gemm_gflops(session.exec(), milliseconds)));
    session.comm().barrier();
    m.memory_gb_per_s = rounded(1e-9 * rig.least(memory_rate(session)));
    m.capacity_gb = rounded(1e-9 * rig.least(capacity_bytes(session)));
}

/// Prints the table; gives the rows of the two collectives that carry nearly all bytes of a step.
std::vector<CommRow> measure_collectives(Session& session, CommRig& rig, double seconds) {
    const int ranks = session.comm().size();
    const double allowed = share_of_collective * seconds;
    const auto shown = [&](std::vector<CommRow> rows, Index largest) {
        if (session.lead()) print_rows(rows, ranks, largest);
        return rows;
    };
    if (session.lead())
        fmt::print("\n{:<16}{:>10}{:>14}{:>14}{:>12}\n", "collective", "buffer", "a rank sends",
                   "microseconds", "GB/s");
    std::vector<CommRow> rows = shown(rig.all_to_all(allowed), rig.largest());
    const std::vector<CommRow> gather = shown(rig.all_gather(allowed), rig.largest());
    rows.insert(rows.end(), gather.begin(), gather.end());
    shown(rig.broadcast(allowed), rig.largest());
    shown({rig.all_gather_host(share_of_sums * seconds)}, 0);
    return rows;
}

void print_machine(const config::Machine& m, const Overlapped& o, Index bytes,
                   const std::string& deviation) {
    fmt::print("\nmatrix products {:.4g} TFLOP/s of a rank, in fp32\n", m.peak_tflops);
    fmt::print("memory          {:.4g} GB/s of a rank, read and written by a copy; {} GB of it\n",
               m.memory_gb_per_s,
               m.capacity_gb > 0 ? fmt::format("{:.3g}", m.capacity_gb) : "unknown");
    fmt::print(
        "network         {:.4g} us and {:.4g} GB/s of a rank fit all_to_all and all_gather; at "
        "worst {}\n",
        m.latency_us, m.network_gb_per_s, deviation);
    fmt::print(
        "overlap         {:.2f}: all_to_all of {} takes {:.3f} ms, matrix products {:.3f} ms, both "
        "at once {:.3f} ms\n",
        m.overlap, train::short_bytes(bytes), 1e3 * o.transfer, 1e3 * o.compute, 1e3 * o.both);
}

}  // namespace

ExitCode bench_comm(const BenchCommOptions& options, Arguments arguments) {
    config::Machine machine = named_machine(options);
    refuse_one_rank(options.backend == config::CommBackend::self ? 1
                                                                 : config::ranks_from_launcher());
    Session session(options.backend, &arguments.argc, &arguments.argv);
    return session.run([&] {
        comm::Communicator& comm = session.comm();
        const int ranks = comm.size();
        refuse_one_rank(ranks);
        const bool writes = session.lead() && !options.write.empty();
        comm::together(comm, [&] {
            if (writes) check_writable(options.write);
            refuse_too_large(options, session);
        });
        const std::vector<std::string> notes = session.machine_notes();  // measures: on all ranks
        if (session.lead()) {
            for (const std::string& note : notes) fmt::print("{}\n", note);
            if (session.ranks_on_node() == ranks)
                fmt::print("note: all ranks share one node, so no cable between nodes is timed\n");
        }

        CommRig rig(session.exec(), comm, static_cast<Index>(1e6 * options.max_mb));
        measure_node(session, rig, options.seconds, machine);
        const std::vector<CommRow> rows = measure_collectives(session, rig, options.seconds);
        const double allowed = share_of_overlap * options.seconds;
        const Index bytes = largest_buffer(rows, CommRig::transfers_of_overlap, allowed);
        const Overlapped overlapped = rig.overlap(bytes, allowed);
        const NetworkFit fit = fit_network(rows, ranks);
        machine.latency_us = rounded(1e6 * fit.latency);
        machine.network_gb_per_s = rounded(1e-9 * fit.bandwidth);
        machine.overlap = rounded(overlapped.share());
        const std::string deviation = worst_deviation(machine, rows, ranks);
        if (session.lead()) print_machine(machine, overlapped, bytes, deviation);
        comm::together(comm, [&] {
            if (writes)
                write_text_file(options.write,
                                machine_file(machine, how_measured(session, deviation)));
        });
        if (writes)
            fmt::print("\nwrote {}; next: scape project DECK --machine {} --gpus {},{},{}\n",
                       options.write, options.write, ranks, 2 * ranks, 4 * ranks);
        return ExitCode::done;
    });
}

}  // namespace scape::apps
