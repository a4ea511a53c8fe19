#include "region_timer.hpp"

#include <scape/base/fence.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <stdexcept>
#include <utility>

namespace scape::apps {

namespace {

using Clock = std::chrono::steady_clock;

struct Open {
    std::string path;
    Clock::time_point start;
};

// The callbacks are plain functions, so what they write to is here.
struct Listener {
    std::vector<Open> open;
    RegionSeconds seconds;
    bool active = false;
} listener;

void fence_device() {
    if constexpr (!exec_is_host) fence(Exec(), "scape::apps::region_timer");
}

void begin(const char* name) {
    fence_device();
    const std::string path = listener.open.empty() ? name : listener.open.back().path + "/" + name;
    listener.open.push_back({path, Clock::now()});
}

void end() {
    if (listener.open.empty()) return;  // began before listening did
    fence_device();
    const Open& top = listener.open.back();
    listener.seconds[top.path] += std::chrono::duration<double>(Clock::now() - top.start).count();
    listener.open.pop_back();
}

void begin_kernel(const char* name, const std::uint32_t, std::uint64_t* id) {
    *id = 0;
    begin(name);
}
void end_kernel(const std::uint64_t) {
    end();
}

}  // namespace

namespace tools = Kokkos::Tools::Experimental;

RegionTimer::RegionTimer() {
    if (listener.active) throw std::logic_error("region_timer: one at a time");
    listener = {};
    listener.active = true;
    tools::set_push_region_callback(begin);
    tools::set_pop_region_callback(end);
    tools::set_begin_parallel_for_callback(begin_kernel);
    tools::set_end_parallel_for_callback(end_kernel);
    tools::set_begin_parallel_reduce_callback(begin_kernel);
    tools::set_end_parallel_reduce_callback(end_kernel);
}

RegionTimer::~RegionTimer() {
    tools::set_push_region_callback(nullptr);
    tools::set_pop_region_callback(nullptr);
    tools::set_begin_parallel_for_callback(nullptr);
    tools::set_end_parallel_for_callback(nullptr);
    tools::set_begin_parallel_reduce_callback(nullptr);
    tools::set_end_parallel_reduce_callback(nullptr);
    listener.active = false;
}

RegionSeconds RegionTimer::take() {
    return std::exchange(listener.seconds, {});
}

RegionSeconds medians(const std::vector<RegionSeconds>& repeats) {
    std::set<std::string> paths;
    for (const RegionSeconds& r : repeats)
        for (const auto& [path, seconds] : r) paths.insert(path);
    RegionSeconds out;
    for (const std::string& path : paths) {
        std::vector<double> values;
        for (const RegionSeconds& r : repeats) {
            const auto found = r.find(path);
            values.push_back(found == r.end() ? 0 : found->second);
        }
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        out[path] = values[values.size() / 2];
    }
    return out;
}

double seconds_of(const RegionSeconds& times, const std::string& part, const std::string& but) {
    const auto ends_with = [](const std::string& path, const std::string& end) {
        return path == end || path.ends_with("/" + end);
    };
    double sum = 0;
    for (const auto& [path, seconds] : times)
        if (ends_with(path, part) && (but.empty() || !ends_with(path, but))) sum += seconds;
    return sum;
}

}  // namespace scape::apps
