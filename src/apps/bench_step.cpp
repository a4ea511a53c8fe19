#include "commands.hpp"
#include "region_timer.hpp"
#include "session.hpp"
#include "timing.hpp"

#include <scape/base/text_file.hpp>
#include <scape/comm/counting.hpp>
#include <scape/comm/silent.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/launcher.hpp>
#include <scape/config/validate.hpp>
#include <scape/data/dataset.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/model/flops.hpp>
#include <scape/train/trainer.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

namespace scape::apps {

namespace {

/// FLOPs of the matrix products of one rank's share of a step, by the part that does them.
struct Work {
    double layers = 0;     // each of forward, input gradient, weight gradient
    double head = 0;       // the same, logits of the padded vocabulary
    double attention = 0;  // forward; backward does 2.5 times that with the recomputed scores
};

Work work_of_step(const config::RunConfig& config, int ranks) {
    const config::ModelConfig& m = config.model;
    const double tokens =
        static_cast<double>(config.train.global_batch / ranks * config.train.seq_len);
    Work w;
    w.head = 2.0 * static_cast<double>(m.width * m.padded_vocab()) * tokens;
    const double all_products =
        model::flops_per_token(m, 0) / 3 * tokens;  // a sequence of length 0 has no attention
    w.layers = all_products - 2.0 * static_cast<double>(m.width * m.vocab) * tokens;
    w.attention = (model::flops_per_token(m, config.train.seq_len) - model::flops_per_token(m, 0)) /
                  3 * tokens;
    return w;
}

void print_row(const std::string& name, double seconds, double step_seconds, double flops,
               double peak_gflops) {
    fmt::print("{:<34}{:>9.1f} ms {:>6.1f} %", name, 1e3 * seconds, 100 * seconds / step_seconds);
    if (flops > 0)
        fmt::print("{:>9.0f} GFLOP/s{:>6.0f} % of peak", 1e-9 * flops / seconds,
                   100e-9 * flops / seconds / peak_gflops);
    fmt::print("\n");
}

/// Of forward or backward: what the exchange does inside is not the model's.
double without_exchange(const RegionSeconds& t, const std::string& region) {
    return seconds_of(t, region) - seconds_of(t, region + "/scape::exchange");
}

double seconds_in_calls(const train::StepRecord& record) {
    double seconds = 0;
    for (const comm::Traffic& t : record.traffic) seconds += t.seconds;
    return seconds;
}

/// Medians of one rank's step. step = compute + local + calls, the latter partly waiting.
struct Figures {
    double step = 0;       // seconds
    double compute = 0;    // forward and backward of the model
    double local = 0;      // all else that the rank does by itself: exchange, optimizer, data
    double wait = 0;       // blocked on the network
    double calls = 0;      // in calls of the communicator; of a silent one: copying in its place
    Index sent = 0;        // bytes, in a step
    Index total_sent = 0;  // since the start
    double peak_gflops = 0;
};

/// A file that `scape project --calibrate` and tools/netlab read.
void write_json(const std::string& path, const config::RunConfig& config, int ranks,
                bool communication, const Figures& f) {
    const nlohmann::ordered_json figures{
        {"kind", "step"},
        {"ranks", ranks},
        {"communication", communication},
        {"step_ms", 1e3 * f.step},
        {"compute_ms", 1e3 * f.compute},
        {"local_ms", 1e3 * f.local},
        {"wait_ms", 1e3 * f.wait},
        {"calls_ms", 1e3 * f.calls},
        {"sent_bytes", f.sent},
        {"total_sent_bytes", f.total_sent},
        {"peak_gflops", f.peak_gflops},
        {"resolved_deck", config::resolved_deck(config)},
    };
    write_text_file(path, figures.dump(1) + "\n");
}

void print_table(const RegionSeconds& t, const Work& w, double step_seconds, double peak_gflops) {
    const auto row = [&](const std::string& name, const std::string& part, double flops = 0) {
        const double seconds = seconds_of(t, part);
        if (seconds > 0) print_row(name, seconds, step_seconds, flops, peak_gflops);
    };
    for (const auto& [name, region] :
         {std::pair{"forward", "scape::forward"}, {"backward (with the loss)", "scape::backward"}})
        print_row(name, without_exchange(t, region), step_seconds, 0, 0);
    row("exchange, its waits included", "scape::exchange");
    row("update", "scape::update");
    fmt::print("of these, matrix products:\n");
    for (const auto& [what, region] :
         {std::pair{"forward", "scape::model::linear"},
          {"input gradient", "scape::model::linear_input_gradient"},
          {"weight gradient", "scape::model::linear_weight_gradient"}}) {
        const std::string in_head = fmt::format("scape::model::head/{}", region);
        const double layers = seconds_of(t, region, in_head);
        const double head = seconds_of(t, in_head);
        print_row(fmt::format("  layers, {}", what), layers, step_seconds, w.layers, peak_gflops);
        print_row(fmt::format("  head, {}", what), head, step_seconds, w.head, peak_gflops);
    }
    row("  attention, forward", "scape::kernels::attention_forward", w.attention);
    row("  attention, backward", "scape::kernels::attention_backward", 2.5 * w.attention);
    fmt::print("and kernels:\n");
    std::map<std::string, double> kernels;
    for (const auto& [path, seconds] : t) {
        const std::string last = path.substr(path.rfind('/') + 1);
        if ((last.starts_with("scape::kernels::") || last.starts_with("scape::optim::")) &&
            last.find("attention") == std::string::npos)
            kernels[last] += seconds;
    }
    std::vector<std::pair<double, std::string>> by_time;
    for (const auto& [name, seconds] : kernels) by_time.emplace_back(seconds, name);
    std::sort(by_time.rbegin(), by_time.rend());
    for (const auto& [seconds, name] : by_time)
        if (seconds > 0.001 * step_seconds) print_row("  " + name, seconds, step_seconds, 0, 0);
}

// A step that lays out memory; and, where the optimizer is sparse, a dense one and two that fill
// the masks of a step and of the next.
constexpr int warm_up = 4;

}  // namespace

ExitCode bench_step(const BenchStepOptions& options, Arguments arguments) {
    const config::LoadedDeck deck =
        config::load_deck(options.deck, config::as_overrides(options.overrides));
    const int launched = config::ranks_from_launcher();
    if (options.ranks > 0 && (options.communication || launched > 1))
        throw user_error(ExitCode::usage,
                         "bench step: --ranks is for --communication off without a launcher; the "
                         "launcher says how many ranks there are");
    config::validate(deck, options.ranks > 0 ? options.ranks : launched);
    config::RunConfig config = deck.config;
    config.check.hash_every = 0;  // not a part of most steps

    Session session(config.comm.backend, &arguments.argc, &arguments.argv);
    return session.run([&] {
        // Without communication every rank that was started works on, but hears nobody.
        std::unique_ptr<comm::Communicator> silent;
        if (!options.communication)
            silent = options.ranks > 0
                         ? comm::make_silent(0, options.ranks)
                         : comm::make_silent(session.comm().rank(), session.comm().size());
        comm::CountingCommunicator comm(silent ? *silent : session.comm());  // from the start on
        data::Dataset dataset;
        comm::together(comm, [&] {
            if (session.lead() && !options.json.empty()) check_writable(options.json);
            dataset = data::open_dataset(config);
        });
        train::Trainer trainer(config, comm, dataset, session.exec());
        trainer.start_fresh();

        // Plain steps for the time that counts, then steps under the region timer for its parts.
        std::vector<double> seconds;
        std::vector<double> wait;
        std::vector<double> in_calls;  // in the communicator; in a silent one: copying
        train::StepRecord last;
        for (int i = 0; i < warm_up; ++i) trainer.step(false);
        session.comm().barrier();
        for (int i = 0; i < options.repeats; ++i) {
            last = trainer.step(false);
            seconds.push_back(last.seconds);
            wait.push_back(last.wait_seconds + last.mask_wait_seconds);
            in_calls.push_back(seconds_in_calls(last));
        }
        std::vector<RegionSeconds> parts;
        std::vector<double> model_share;  // of what the rank does outside the communicator
        {
            RegionTimer timer;
            for (int i = 0; i < options.repeats; ++i) {
                const train::StepRecord record = trainer.step(false);
                parts.push_back(timer.take());
                const double model = without_exchange(parts.back(), "scape::forward") +
                                     without_exchange(parts.back(), "scape::backward");
                model_share.push_back(model / (record.seconds - seconds_in_calls(record)));
            }
        }
        constexpr double milliseconds = 500;
        session.comm().barrier();  // all ranks measure the peak at the same time, as they compute
        const double peak = kernels::measure_gemm_gflops(session.exec(), milliseconds);
        session.comm().barrier();
        if (!session.lead()) return ExitCode::done;

        const RegionSeconds times = medians(parts);
        Figures f;
        f.step = median(seconds);
        f.wait = median(wait);
        f.calls = median(in_calls);
        f.compute = median(model_share) * (f.step - f.calls);
        f.local = f.step - f.calls - f.compute;
        f.sent = last.bytes_sent();
        for (const comm::Traffic& t : comm.traffic()) f.total_sent += t.bytes_sent;
        f.peak_gflops = peak;
        if (!options.json.empty())
            write_json(options.json, config, comm.size(), options.communication, f);
        const train::StepCost cost = train::step_cost(config, comm.size());
        const double share_flops = cost.step_flops / comm.size();
        for (const std::string& note : session.machine_notes()) fmt::print("{}\n", note);
        fmt::print("{}\nrank 0 of {}; medians of {} repeats\n\n", train::describe(cost, config),
                   comm.size(), options.repeats);
        print_row("step", f.step, f.step, share_flops, peak);
        print_row("of it, the model's work", f.compute, f.step, 0, 0);
        print_row("of it, other local work", f.local, f.step, 0, 0);
        print_row("of it, blocked on the network", f.wait, f.step, 0, 0);
        print_row(options.communication ? "in calls of the network, all of them"
                                        : "of it, copying in place of a network",
                  f.calls, f.step, 0, 0);
        fmt::print("sent by this rank: {} bytes in a step, {} bytes since the start\n", f.sent,
                   f.total_sent);
        if (last.skipped) fmt::print("WARNING: the last step was skipped, it was not finite\n");
        fmt::print(
            "{:<34}{:>9.1f} ms {:>6.1f} %   (all its FLOPs at the measured peak of {:.0f} "
            "GFLOP/s)\n",
            "matrix products alone", 1e-6 * share_flops / peak, 1e-7 * share_flops / peak / f.step,
            peak);
        print_table(times, work_of_step(config, comm.size()), seconds_of(times, "scape::step"),
                    peak);
        return ExitCode::done;
    });
}

}  // namespace scape::apps
