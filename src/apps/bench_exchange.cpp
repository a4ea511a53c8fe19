#include "commands.hpp"
#include "exchange_rig.hpp"
#include "region_timer.hpp"
#include "session.hpp"
#include "timing.hpp"

#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>
#include <scape/config/keys.hpp>
#include <scape/config/launcher.hpp>
#include <scape/config/validate.hpp>
#include <scape/kernels/pack.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/format.h>

#include <cmath>

namespace scape::apps {

namespace {

/// One row of the table: kernels of a part of the step, and the memory that it must touch.
struct Part {
    const char* name;
    std::vector<std::string> kernels;
    double bytes = 0;  // of the elements themselves, each array once
    double lines = 0;  // of the cache lines that hold them
};

/// Bytes of the cache lines that hold k of n elements, drawn anywhere, of `size` bytes each.
double lines_of(double k, double n, double size) {
    constexpr double line = 64;
    if (n == 0) return 0;
    return n * size * (1 - std::pow(1 - k / n, line / size));
}

/// What a step touches on this rank. n elements in the buffer, s in the shard; k and c of them
/// travel, of all ranks and of this one; dense: all.
std::vector<Part> parts_of(ExchangeRig& rig, const config::RunConfig& config) {
    const optim::MaskPlan& plan = rig.plan();
    const Sharding& sharding = rig.sharding();
    const optim::Exchange::Options options = optim::exchange_options(config);
    const double ranks = sharding.ranks();
    const auto n = static_cast<double>(sharding.extent());
    const double s = n / ranks;
    double k = 0;
    for (int r = 0; r < sharding.ranks(); ++r) k += static_cast<double>(plan.selected_of(r));
    const auto c = static_cast<double>(plan.selected_of(0));
    const auto code = static_cast<double>(plan.code_bytes());
    const auto message = plan.message_bytes(options.values, options.deltas);
    const auto there = static_cast<double>(message.gradients);
    const auto back = static_cast<double>(message.weights);
    const auto error = static_cast<double>(
        plan.message_bytes({kernels::Levels::linear, 8, options.values.block}, {}).gradients);
    double decaying = 0;
    for (const Tensor& t : rig.layout().tensors())
        if (t.decay) decaying += static_cast<double>(t.size);
    const bool dense = plan.all();
    const bool deltas = !options.deltas.exact();
    const bool paper = config.scape.rule == config::ScapeRule::paper;
    const bool stored = config.error_feedback.storage != config::FeedbackStorage::fused;
    const bool rest = options.rest == kernels::Rest::kept;
    const double moments = config.optimizer.kind == config::OptimizerKind::adamw ? 2 : 1;

    const double position = dense ? 0 : 4;
    const double beside = paper ? 1 : 4;  // bytes of an element's flag, or of its visit
    const double own = lines_of(c, s, 4);
    const double own_beside = lines_of(c, s, beside);
    const double all = lines_of(k, n, 4);
    const double settle = paper ? s * (4 + 4 + 1 + 1) : 0;
    const auto row = [](const char* name, std::vector<std::string> kernels, double stream,
                        double at_elements, double at_lines) {
        return Part{name, std::move(kernels), stream + at_elements, stream + at_lines};
    };
    const double to_and_fro = rest ? 2 : 1;  // a is read, and written where the rest stays
    // Positions are decoded for pack, for the sums, for the update and to unpack.
    std::vector<Part> parts{
        row("decode",
            {"kernels::decode_mask", "kernels::decode_mask_entropy", "optim::mask_padding"},
            2 * (ranks + 1) * code + 4 * 2 * (k + c), 0, 0),
        row("error feedback", {}, stored ? 4 * n * (3 + 1 + 2) : 0, 0, 0),
        row("pack", {"kernels::pack"}, position * k + there, to_and_fro * 4 * k, to_and_fro * all),
        row("pack, LoCo", {"kernels::pack_loco"}, there + 2 * error, 4 * k, all),
        row("reduce-scatter, the sums", {"kernels::sum_values", "kernels::add_pieces"},
            there + position * c, 4 * c, dense ? own : 2 * own),
        row("norm",
            {"optim::catch_up_norms", "optim::paper_gradient", "kernels::add_sum_of_squares",
             "kernels::add_partial_sums", "optim::sum_squares"},
            dense ? 4 * c : 4 * c + 8 * c, dense ? 0 : (4 + beside) * c + (paper ? 8 : 0) * c,
            dense ? 0 : own + own_beside + (paper ? 2 : 0) * own),
        row("decay", {"kernels::scale"}, 8 * decaying * (deltas ? 1 + 1 / ranks : 1), 0, 0),
        row("update",
            {"optim::catch_up", "optim::catch_up_all", "optim::scape_dense", "optim::paper",
             "optim::paper_all", "optim::paper_base"},
            (position + (deltas ? 0 : 4)) * c + settle, 2 * (3 * 4 + beside) * c,
            2 * (3 * own + own_beside)),
        row("update, dense", {"optim::adamw", "optim::adams", "optim::sgd"},
            4 * (3 + 2 * moments) * c, 0, 0),
        row("pack, back", {"kernels::pack_differences"}, position * c + back / ranks, 2 * 4 * c,
            2 * own),
    };
    const double elsewhere = lines_of(k - c, n - s, 4);
    parts.push_back(
        deltas ? row("unpack", {"kernels::add_values"}, back + position * k, 2 * 4 * k, 2 * all)
               : row("unpack", {"kernels::unpack"}, 8 * (k - c), 4 * (k - c), 2 * elsewhere));
    parts.push_back(row("score", {"optim::catch_up_score", "optim::paper_score"},
                        (4 + 4 + beside + 4) * s, 0, 0));
    parts.push_back(row("select (top k)", {"kernels::top_k"}, 4 * s + 4 * c, 0, 0));
    parts.push_back(row("encode", {"kernels::encode_mask", "kernels::encode_mask_entropy"},
                        4 * c + code, 0, 0));
    return parts;
}

double seconds_of_part(const RegionSeconds& times, const Part& part) {
    const std::string kept = "scape::optim::error_feedback";
    double seconds = part.kernels.empty() ? seconds_of(times, kept) : 0;
    for (const auto& [path, t] : times) {
        if (path.find(kept + "/") != std::string::npos) continue;
        for (const std::string& kernel : part.kernels)
            if (path == "scape::" + kernel || path.ends_with("/scape::" + kernel)) seconds += t;
    }
    return seconds;
}

/// Options that would do nothing are refused, as keys of a deck are.
void refuse_idle(const BenchExchangeOptions& o, config::OptimizerKind kind) {
    const auto refuse = [](const std::string& what, const std::string& why) {
        throw user_error(
            ExitCode::usage,
            fmt::format("bench exchange: {} has no effect: {}; leave it out", what, why));
    };
    if (o.error != config::ErrorKind::full && o.value_bits == 32)
        refuse("--error", "--value-bits is 32, which loses nothing");
    if (o.block != 0 && o.value_bits > 8 && o.delta_bits > 8)
        refuse("--block", "--value-bits and --delta-bits are 16 or 32, which have no scale");
    if (kind == config::OptimizerKind::scape) return;
    const BenchExchangeOptions usual;
    const std::string why = "only --optimizer scape has a mask";
    if (o.density) refuse("--density", why);
    if (o.rule != usual.rule) refuse("--rule", why);
    if (o.score != usual.score) refuse("--score", why);
    if (o.mask_code != usual.mask_code) refuse("--mask-code", why);
    if (o.storage != usual.storage && (o.value_bits == 32 || o.error != config::ErrorKind::full))
        refuse("--storage", "nothing is kept");
}

config::RunConfig config_of(const BenchExchangeOptions& o) {
    using config::OptimizerKind;
    config::RunConfig c;
    const bool kept = o.error == config::ErrorKind::full;
    c.optimizer.kind = o.optimizer.value_or(kept ? OptimizerKind::scape : OptimizerKind::adamw);
    refuse_idle(o, c.optimizer.kind);
    c.optimizer.weight_decay = 0.1;
    c.scape.rule = o.rule;
    c.scape.score = o.score;
    c.sparsity.density = o.density.value_or(0.01);
    c.sparsity.density_start = c.sparsity.density;
    c.sparsity.warmup_steps = 0;
    c.sparsity.dense_steps = 0;
    c.sparsity.mask_code = o.mask_code;
    c.exchange.value_bits = o.value_bits;
    c.exchange.delta_bits = o.delta_bits;
    c.exchange.block = o.block;
    c.exchange.error = o.error;
    c.error_feedback.storage = o.storage;
    c.error_feedback.path = o.path;
    c.comm.bucket_mb = o.bucket_mb;
    c.train.steps = 1000000;
    config::validate(c, 1);  // what the options may be combined with
    return c;
}

void print_rates(double seconds, double bytes, double copy) {
    fmt::print("{:>10.1f} MB{:>8.2f} GB/s{:>6.0f} %", 1e-6 * bytes, 1e-9 * bytes / seconds,
               100 * bytes / seconds / copy);
}

void print_table(const std::vector<Part>& parts, const RegionSeconds& times, double whole,
                 double copy) {
    fmt::print("{:<26}{:>10}   {:>30}   {:>30}\n", "", "time", "elements touched, of copy",
               "cache lines touched, of copy");
    double sum = 0;
    const auto row = [&](const Part& p, double seconds) {
        fmt::print("{:<26}{:>7.2f} ms", p.name, 1e3 * seconds);
        if (p.bytes > 0 && seconds > 0) {
            print_rates(seconds, p.bytes, copy);
            print_rates(seconds, p.lines, copy);
        }
        fmt::print("\n");
    };
    Part total{"all of these", {}, 0, 0};
    for (const Part& p : parts) {
        const double seconds = seconds_of_part(times, p);
        if (seconds == 0) continue;
        row(p, seconds);
        sum += seconds;
        total.bytes += p.bytes;
        total.lines += p.lines;
    }
    row(total, sum);
    fmt::print("{:<26}{:>7.2f} ms\n", "the rest of the step", 1e3 * (whole - sum));
}

}  // namespace

ExitCode bench_exchange(const BenchExchangeOptions& options, Arguments arguments) {
    if (config::ranks_from_launcher() > 1)
        throw user_error(ExitCode::usage,
                         "bench exchange: this is the work of one rank without a network; start it "
                         "without a launcher, and say --ranks");
    const config::RunConfig config = config_of(options);
    Session session(config::CommBackend::self, &arguments.argc, &arguments.argv);
    const Exec& exec = session.exec();
    return session.run([&] {
        ExchangeRig rig(exec, config, static_cast<Index>(options.parameters), options.ranks);
        constexpr int warm_up = 4;  // a dense step, and both masks filled
        for (int i = 0; i < warm_up; ++i) {
            rig.backward();
            rig.step();
        }
        std::vector<double> seconds;
        std::vector<double> passes;
        for (int i = 0; i < options.repeats; ++i) {
            rig.backward();
            const Timer timer;
            rig.step();
            seconds.push_back(timer.seconds() - rig.comm_seconds());
            // One pass over the gradients and one over the parameters: y = 1 y.
            const Timer pass;
            kernels::scale(exec, 1.f, rig.gradients());
            kernels::scale(exec, 1.f, rig.parameters());
            fence(exec, "scape::apps::passes");
            passes.push_back(pass.seconds());
        }
        std::vector<RegionSeconds> timed;
        for (int i = 0; i < options.repeats; ++i) {
            rig.backward();
            RegionTimer timer;
            rig.step();
            timed.push_back(timer.take());
        }
        const std::vector<Part> parts = parts_of(rig, config);
        const Span<float> all = rig.gradients();
        const auto half = static_cast<Index>(all.extent(0) / 2);
        const double copy =
            copy_rate(exec, slice(all, 0, half), slice(all, half, 2 * half), options.repeats);
        const double step = median(seconds);
        const double two_passes = median(passes);
        const auto options_used = optim::exchange_options(config);
        const auto sent = rig.plan().bytes_sent(options_used.values, options_used.deltas);
        const auto line_rate = 16 * static_cast<double>(rig.sharding().extent()) / two_passes;

        fmt::print(
            "{}, {} threads; rank 0 of {}, {} parameters in {} tensors and {} buckets, "
            "{}, density {}, {}/{} bits, error {}; medians of {} repeats\n",
            kokkos_description(), session.threads(), options.ranks, rig.layout().parameters(),
            rig.layout().tensors().size(), rig.sharding().buckets(),
            config::value_text(config, "optimizer.kind"), rig.plan().density(), options.value_bits,
            options.delta_bits, config::value_text(config, "exchange.error"), options.repeats);
        fmt::print("to be sent in a step: gradients {}, weights {}, masks {}\n",
                   train::short_bytes(sent.gradients), train::short_bytes(sent.weights),
                   train::short_bytes(sent.masks));
        fmt::print(
            "copy of half the gradients onto the other half: {:.2f} GB/s, read and written\n"
            "\n",
            1e-9 * copy);
        print_table(parts, medians(timed), step, copy);
        fmt::print(
            "\nlocal work of the step    {:>7.2f} ms\n"
            "y = c y over gradients and parameters {:.2f} ms ({:.2f} GB/s)\n"
            "ratio                     {:>7.2f}\n",
            1e3 * step, 1e3 * two_passes, 1e-9 * line_rate, step / two_passes);
        return ExitCode::done;
    });
}

}  // namespace scape::apps
