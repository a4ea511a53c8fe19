#include "project.hpp"

#include <scape/base/text_file.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/validate.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace scape::apps {

namespace {

using config::Machine;
using config::RunConfig;
using nlohmann::ordered_json;

Machine machine_of(const ProjectOptions& options) {
    const Machine machine = config::load_machine(options.machine);
    std::vector<train::MeasuredStep> steps;
    for (const std::string& path : options.calibrate) steps.push_back(read_measured_step(path));
    return train::calibrate(machine, steps);
}

void print_machine(const Machine& m, bool calibrated) {
    fmt::print(
        "machine  {}{}: {:g} TFLOP/s at {:.3g} %, memory {:g} GB/s (local work {:.3g} x a "
        "copy), network {:g} GB/s, {:g} us a message, {:.3g} % of it while computing\n",
        m.name, calibrated ? ", calibrated" : "", m.peak_tflops, 100 * m.efficiency,
        m.memory_gb_per_s, m.local_work, m.network_gb_per_s, m.latency_us, 100 * m.overlap);
}

/// One prediction, and what a user makes of it.
struct Row {
    int ranks;
    double bandwidth;
    train::StepPrediction p;
    double tokens_per_second;
    double ideal;  // share of the step that is computing
    double memory_gb;
    double capacity_gb;  // 0: unknown
    double latency;      // seconds of the wire's that no bandwidth makes shorter

    Row(const RunConfig& config, const train::StepWork& work, const Machine& machine)
        : ranks(work.ranks),
          bandwidth(machine.network_gb_per_s),
          p(train::predict_step(work, machine)),
          tokens_per_second(static_cast<double>(config.train.global_batch * config.train.seq_len) /
                            p.seconds),
          ideal(p.compute / p.seconds),
          memory_gb(1e-9 * static_cast<double>(p.memory.total())),
          capacity_gb(machine.capacity_gb),
          latency(train::predict_step(work, with_bandwidth(machine, 1e30)).wire) {}

    bool fits() const { return capacity_gb <= 0 || memory_gb <= capacity_gb; }

    void print() const {
        fmt::print(
            "{:>6}{:>9.3g}{:>11.1f}{:>11.1f}{:>9.1f}{:>11.1f}{:>11.1f}{:>12.4g}{:>8.1f} %"
            "{:>10}{:>9.1f} GB{}\n",
            ranks, bandwidth, 1e3 * p.seconds, 1e3 * p.compute, 1e3 * p.local, 1e3 * p.wire,
            1e3 * p.wait, tokens_per_second, 100 * ideal, train::short_bytes(p.bytes_sent),
            memory_gb, fits() ? "" : fmt::format("  does not fit into {:g} GB", capacity_gb));
    }
    ordered_json json() const {
        ordered_json j{{"gpus", ranks},
                       {"gb_per_s", bandwidth},
                       {"step_ms", 1e3 * p.seconds},
                       {"compute_ms", 1e3 * p.compute},
                       {"local_ms", 1e3 * p.local},
                       {"wire_ms", 1e3 * p.wire},
                       {"latency_ms", 1e3 * latency},
                       {"wait_ms", 1e3 * p.wait},
                       {"tokens_per_s", tokens_per_second},
                       {"of_ideal", ideal},
                       {"sent_bytes", p.bytes_sent},
                       {"memory_bytes", p.memory.total()}};
        if (capacity_gb > 0) j["fits"] = fits();
        return j;
    }
};

void print_head() {
    fmt::print("{:>6}{:>9}{:>11}{:>11}{:>9}{:>11}{:>11}{:>12}{:>10}{:>10}{:>12}\n", "GPUs", "GB/s",
               "step ms", "compute", "local", "wire", "wait", "tokens/s", "of ideal", "sent",
               "memory");
}

ordered_json describe(const Machine& m) {
    return {{"name", m.name},
            {"peak_tflops", m.peak_tflops},
            {"efficiency", m.efficiency},
            {"memory_gb_per_s", m.memory_gb_per_s},
            {"capacity_gb", m.capacity_gb},
            {"local_work", m.local_work},
            {"network_gb_per_s", m.network_gb_per_s},
            {"latency_us", m.latency_us},
            {"overlap", m.overlap}};
}

}  // namespace

Machine with_bandwidth(Machine machine, double gb_per_s) {
    machine.network_gb_per_s = gb_per_s;
    return machine;
}

std::string why_not(const RunConfig& config, int ranks) {
    const config::TrainSection& t = config.train;
    const Index unit = ranks * t.micro_batch;
    if (t.global_batch % unit == 0) return "";
    std::string change;
    if (t.global_batch % ranks == 0) {
        Index micro = std::min(t.micro_batch, t.global_batch / ranks);
        while (t.global_batch / ranks % micro != 0) --micro;
        change = fmt::format("train.micro_batch={} or ", micro);
    }
    return fmt::format(
        "global batch {} is not a multiple of {} x train.micro_batch {}: set "
        "{}train.global_batch={}",
        t.global_batch, ranks, t.micro_batch, change, round_up(t.global_batch, unit));
}

ExitCode project(const ProjectOptions& options) {
    // 1. What was asked for
    const config::LoadedDeck deck =
        config::load_deck(options.deck, config::as_overrides(options.overrides));
    config::validate(deck, 0);
    const RunConfig& config = deck.config;
    const Machine machine = machine_of(options);
    const std::set<int> gpus(options.gpus.begin(), options.gpus.end());
    std::vector<double> bandwidths = options.bandwidths;
    if (bandwidths.empty()) bandwidths.push_back(machine.network_gb_per_s);
    if (!options.json.empty()) check_writable(options.json);

    std::vector<int> possible;
    std::string refusals;
    for (const int ranks : gpus) {
        const std::string reason = why_not(config, ranks);
        if (reason.empty()) possible.push_back(ranks);
        if (!reason.empty()) refusals += fmt::format("\n  {} GPUs: {}", ranks, reason);
    }
    if (possible.empty())
        throw user_error(ExitCode::usage, fmt::format("project: nothing to predict{}", refusals));

    // 2. The deck's own step
    ordered_json out{{"kind", "projection"},
                     {"deck", options.deck},
                     {"settings", options.overrides},
                     {"machine", describe(machine)}};
    print_machine(machine, !options.calibrate.empty());
    if (config::is_sparse(config))
        fmt::print("density  {:g}, where the deck's schedule leads\n", config.sparsity.density);
    print_head();
    std::string note;
    for (const int ranks : gpus) {
        if (const std::string reason = why_not(config, ranks); !reason.empty()) {
            fmt::print("{:>6}  {}\n", ranks, reason);
            out["rows"].push_back({{"gpus", ranks}, {"impossible", reason}});
            continue;
        }
        const train::StepWork work = train::step_work(config, ranks);
        for (const double b : bandwidths) {
            const Row row(config, work, with_bandwidth(machine, b));
            row.print();
            out["rows"].push_back(row.json());
            constexpr double much = 0.1;
            if (work.buckets.size() > 1 && row.latency > much * row.p.seconds)
                note = fmt::format(
                    "note: on {} GPUs {:.0f} ms of the wire's are latency: {} messages "
                    "for each of {} buckets, there and back; a larger comm.bucket_mb "
                    "(now {:.5g}) needs fewer\n",
                    ranks, 1e3 * row.latency, ranks - 1, work.buckets.size(),
                    1e-6 * static_cast<double>(optim::bucket_bytes(config, ranks)));
        }
    }
    fmt::print("{}", note);

    // 3. And the others'
    if (options.compare) out["compare"] = compare_methods(config, possible, machine, bandwidths);
    if (!options.json.empty()) write_text_file(options.json, out.dump(1) + "\n");
    return ExitCode::done;
}

}  // namespace scape::apps
