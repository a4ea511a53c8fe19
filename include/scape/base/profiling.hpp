#pragma once
/// @file
/// Named regions of a run, seen by every Kokkos tool (and by NVTX through Kokkos' connector).

#include <Kokkos_Core.hpp>

#include <chrono>
#include <string>

namespace scape {

/// Region that lasts as long as the object.
class Region {
   public:
    explicit Region(const std::string& name) { Kokkos::Profiling::pushRegion(name); }
    ~Region() { Kokkos::Profiling::popRegion(); }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
};

/// Wall-clock stopwatch.
class Timer {
   public:
    double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

   private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

}  // namespace scape
