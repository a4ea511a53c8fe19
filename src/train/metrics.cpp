#include <scape/base/error.hpp>
#include <scape/config/launcher.hpp>
#include <scape/train/metrics.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace scape::train {

namespace {

std::FILE* open_for_append(const std::string& path) {
    std::FILE* f = std::fopen(path.c_str(), "a");
    if (!f)
        throw user_error(ExitCode::resources,
                         fmt::format("cannot write '{}': {}. Choose another run.dir, or make room "
                                     "or permission there.",
                                     path, std::strerror(errno)));
    return f;
}

/// Keeps the records up to `step`, whole lines only; the rest will be written again.
void cut_back(const std::string& path, Index step) {
    std::ifstream in(path);
    if (!in) return;
    const std::string shorter = path + ".tmp";
    std::ofstream out(shorter, std::ios::trunc);
    for (std::string line; std::getline(in, line);) {
        const auto record = nlohmann::json::parse(line, nullptr, false);
        if (record.is_discarded() || !record.contains("step") || record["step"] > step) break;
        out << line << '\n';
    }
    out.close();
    if (!out)
        throw user_error(ExitCode::resources,
                         fmt::format("cannot write '{}': {}", shorter, std::strerror(errno)));
    std::filesystem::rename(shorter, path);
}

/// A launcher gives its ranks a terminal of their own and may write what they say into a file.
bool writes_to_terminal() {
    return isatty(STDOUT_FILENO) != 0 && config::ranks_from_launcher() == 1;
}

/// 9 digits tell any two neighbouring floats apart.
nlohmann::json number(double x) {
    if (!std::isfinite(x)) return nullptr;
    return nlohmann::json::parse(fmt::format("{:.9g}", x));
}

}  // namespace

Index StepRecord::bytes_sent() const {
    Index total = 0;
    for (const comm::Traffic& t : traffic) total += t.bytes_sent;
    return total;
}

std::string short_duration(double seconds) {
    if (seconds < 60) return fmt::format("{:.1f}s", seconds);
    const auto s = static_cast<long>(seconds);
    if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
    return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

RunLog::RunLog(const std::string& dir, Index resumed_step)
    : speak_(true), terminal_(writes_to_terminal()), first_step_(resumed_step) {
    const std::string path = dir + "/metrics.jsonl";
    if (resumed_step > 0) {
        cut_back(path, resumed_step);
    } else if (std::error_code none; std::filesystem::file_size(path, none) > 0 && !none) {
        // A run that ended before its first checkpoint: its records are kept, but not continued.
        int n = 1;
        const auto kept = [&] { return fmt::format("{}/metrics.previous-{}.jsonl", dir, n); };
        while (std::filesystem::exists(kept())) ++n;
        std::filesystem::rename(path, kept());
    }
    metrics_.reset(open_for_append(path));
    log_.reset(open_for_append(dir + "/log.txt"));
}

void RunLog::print_line(const std::string& line) {
    if (line_open_) std::fputc('\n', stdout);
    line_open_ = false;
    std::puts(line.c_str());
    std::fflush(stdout);
}

void RunLog::say(const std::string& line) {
    if (!speak_) return;
    print_line(line);
    fmt::print(log_.get(), "{}\n", line);
    std::fflush(log_.get());
}

void RunLog::record(const StepRecord& r, Index last_step, double flops_per_token,
                    double peak_flops) {
    if (!speak_) return;
    const double rate = static_cast<double>(r.step_tokens) / r.seconds;
    nlohmann::ordered_json j{{"step", r.step},
                             {"loss", number(r.loss)},
                             {"lr", number(r.lr)},
                             {"grad_norm", number(r.grad_norm)},
                             {"tokens", r.tokens},
                             {"seconds", number(r.seconds)},
                             {"tokens_per_s", number(rate)},
                             {"bytes_sent", r.bytes_sent()}};
    for (const comm::Traffic& t : r.traffic) j["bytes"][t.collective] = t.bytes_sent;
    j["wait_seconds"] = number(r.wait_seconds);
    j["density"] = number(r.density);
    if (r.mask_wait_seconds > 0) j["mask_wait_seconds"] = number(r.mask_wait_seconds);
    if (r.feedback)
        j["error_feedback"] = {{"bytes", number(r.feedback->bytes)},
                               {"seconds", number(r.feedback->seconds)},
                               {"waited_seconds", number(r.feedback->waited_seconds)}};
    if (r.feedback_norm) j["feedback_norm"] = number(*r.feedback_norm);
    if (r.mask_overlap) j["mask_overlap"] = number(*r.mask_overlap);
    if (r.fill_in) j["fill_in"] = number(*r.fill_in);
    if (r.feedback_lost > 0) j["feedback_lost_on_ranks"] = r.feedback_lost;
    j["memory_bytes"] = r.memory_bytes;
    j["data_hash"] = fmt::format("{:016x}", r.data_hash);
    if (peak_flops > 0) j["mfu"] = number(rate * flops_per_token / peak_flops);
    if (r.valid_loss) j["valid_loss"] = number(*r.valid_loss);
    if (r.skipped) j["skipped"] = true;
    fmt::print(metrics_.get(), "{}\n", j.dump());
    if (std::fflush(metrics_.get()) != 0)
        throw user_error(ExitCode::resources,
                         fmt::format("cannot write metrics.jsonl: {}", std::strerror(errno)));

    // The first step of a process pays for warming up; it says nothing about the ones to come.
    const bool warm = r.step > first_step_ + 1;
    smooth_seconds_ =
        smooth_seconds_ > 0 && warm ? 0.9 * smooth_seconds_ + 0.1 * r.seconds : r.seconds;
    const std::string mfu =
        peak_flops > 0 ? fmt::format("{:4.1f} %", 100 * rate * flops_per_token / peak_flops)
                       : "n/a";
    std::string line = fmt::format(
        "step {:6}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:.0f} tokens/s  MFU {}  ETA {}",
        r.step, last_step, r.loss, r.lr, r.grad_norm, rate, mfu,
        short_duration(smooth_seconds_ * static_cast<double>(last_step - r.step)));
    if (r.valid_loss) line += fmt::format("  valid {:.4f}", *r.valid_loss);
    if (r.density < 1) line += fmt::format("  density {:.3g}", r.density);
    if (r.skipped) line += "  SKIPPED (not finite)";
    if (r.feedback_lost > 0)
        line += fmt::format("; error feedback lost on {} ranks", r.feedback_lost);

    fmt::print(log_.get(), "{}\n", line);
    const bool keep = r.valid_loss || r.skipped || r.step == last_step || r.step == first_step_ + 1;
    if (terminal_) {
        fmt::print("\r{}\033[K", line);
        line_open_ = !keep;
        if (keep) std::fputc('\n', stdout);
        std::fflush(stdout);
    } else if (keep || since_open_.seconds() >= next_plain_line_) {
        constexpr double seconds_between_lines = 5;
        next_plain_line_ = since_open_.seconds() + seconds_between_lines;
        print_line(line);
    }
}

}  // namespace scape::train
