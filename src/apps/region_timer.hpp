#pragma once
/// @file
/// Times every profiling region and every kernel by listening to Kokkos' tool callbacks: the
/// program that is measured has no clocks in it.

#include <scape/base/types.hpp>

#include <map>
#include <string>
#include <vector>

namespace scape::apps {

/// Seconds by path: "scape::step/scape::backward/scape::kernels::gelu_backward".
using RegionSeconds = std::map<std::string, double>;

class RegionTimer {
   public:
    /// Starts listening; there can be one at a time. On a device every region and kernel is fenced,
    /// so that its time is its own.
    RegionTimer();
    ~RegionTimer();
    RegionTimer(const RegionTimer&) = delete;
    RegionTimer& operator=(const RegionTimer&) = delete;

    /// What was measured since the last call.
    RegionSeconds take();
};

/// Medians over repeats of each path's seconds (0 where a repeat lacks it).
RegionSeconds medians(const std::vector<RegionSeconds>& repeats);

/// Sum over all paths whose last parts are `part` ("a" or "a/b"), but not `but`.
double seconds_of(const RegionSeconds& times, const std::string& part, const std::string& but = "");

}  // namespace scape::apps
