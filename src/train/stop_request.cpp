#include <scape/train/stop_request.hpp>

#include <scape/base/signals.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace scape::train {

StopRequest::StopRequest(const std::string& run_dir, double wall_limit_seconds)
    : stop_file_(run_dir.empty() ? "" : run_dir + "/STOP"),
      wall_limit_seconds_(wall_limit_seconds) {}

bool StopRequest::wanted(double save_seconds) {
    const double margin_seconds = std::min(5.0, 0.1 * wall_limit_seconds_);
    const double left_seconds = wall_limit_seconds_ - since_start_.seconds();
    std::error_code ignored;
    if (const int s = stop_signal(); s != 0) {
        reason_ = fmt::format("signal {}", s);
    } else if (wall_limit_seconds_ > 0 && left_seconds < 3 * save_seconds + margin_seconds) {
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
