#pragma once
/// @file
/// What the host's cores could do at best, to hold a measured rate against; and the mode in which
/// they treat subnormal numbers.

#include <string>

namespace scape::kernels {

/// gflops = threads x flops_per_cycle x gigahertz.
struct AttainableRate {
    double gflops = 0;
    int threads = 0;             ///< asked for, or the cores this process may use if fewer
    double flops_per_cycle = 0;  ///< fp32, one core: lanes x 2 (multiply, add) x units
    double gigahertz = 0;
    std::string unit;   ///< e.g. "AVX-512"
    std::string clock;  ///< where gigahertz comes from: "cpufreq", "/proc/cpuinfo" or "measured"
};

/// fp32 rate that `threads` threads of this host could reach. Vector width and units follow from
/// /proc/cpuinfo; the clock is the highest one of cpufreq where the system shows it, otherwise the
/// larger of /proc/cpuinfo's and that of a chain of dependent additions timed for about 5 ms
/// (virtual machines report the nominal clock and run at another).
AttainableRate attainable_rate(int threads);
inline double attainable_gflops(int threads) {
    return attainable_rate(threads).gflops;
}

/// From here on this thread, threads it starts, the OpenMP threads that already run (where the
/// build has OpenMP; as many as the next parallel region would have) and those of OpenBLAS take
/// subnormal numbers as zero, on input and on output. Saturated logits have subnormal gradients,
/// and arithmetic on those is many times slower on most processors. To be called at the start, by
/// the main thread, while no BLAS call is under way.
void flush_subnormals();
/// Whether this thread does.
bool subnormals_are_flushed();

}  // namespace scape::kernels
