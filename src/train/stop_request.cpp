#include <scape/train/stop_request.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>

namespace scape::train {

namespace {

constexpr std::array signals{SIGINT, SIGTERM, SIGUSR1};
std::atomic<int> received{0};

extern "C" void note_signal(int signal_number) {
    // Only async-signal-safe work here: remember it, or leave at once when asked twice.
    if (received.exchange(signal_number) != 0) _exit(128 + signal_number);
}

}  // namespace

StopRequest::StopRequest(const std::string& run_dir, double wall_limit_seconds)
    : stop_file_(run_dir.empty() ? "" : run_dir + "/STOP"), wall_limit_seconds_(wall_limit_seconds) {
    received = 0;
    for (const int s : signals) std::signal(s, note_signal);
}

StopRequest::~StopRequest() {
    for (const int s : signals) std::signal(s, SIG_DFL);
}

bool StopRequest::wanted(double save_seconds) {
    const double margin_seconds = std::min(5.0, 0.1 * wall_limit_seconds_);
    std::error_code ignored;
    if (const int s = received.load(); s != 0) {
        reason_ = fmt::format("signal {}", s);
    } else if (wall_limit_seconds_ > 0 && since_start_.seconds() + 3 * save_seconds +
                                                  margin_seconds >
                                              wall_limit_seconds_) {
        reason_ = fmt::format("wall limit of {:.0f} s", wall_limit_seconds_);
    } else if (!stop_file_.empty() && std::filesystem::exists(stop_file_, ignored)) {
        reason_ = "file " + stop_file_;
    }
    return !reason_.empty();
}

void StopRequest::obeyed() const {
    std::error_code ignored;
    if (!stop_file_.empty()) std::filesystem::remove(stop_file_, ignored);
}

}  // namespace scape::train
