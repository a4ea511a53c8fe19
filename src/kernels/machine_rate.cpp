#include <scape/base/profiling.hpp>
#include <scape/kernels/machine_rate.hpp>

#include <dlfcn.h>
#include <sched.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace scape::kernels {

namespace {

/// Value of the first "key : value" line of /proc/cpuinfo; empty where there is none.
std::string cpuinfo(const std::string& key) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, key.size(), key) != 0) continue;
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        if (line.find_first_not_of(" \t", key.size()) != colon) continue;
        const auto begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return "";
}

bool has_flag(const std::string& flags, const std::string& wanted) {
    std::istringstream words(flags);
    for (std::string word; words >> word;) {
        if (word == wanted) return true;
    }
    return false;
}

struct VectorUnit {
    double flops_per_cycle;
    const char* name;
};

VectorUnit vector_unit() {
    const std::string flags = cpuinfo("flags");
    if (has_flag(flags, "avx512f")) {
        // AMD before family 26 (Zen 5) runs 512-bit instructions through 256-bit units.
        const bool halved =
            cpuinfo("vendor_id") == "AuthenticAMD" && std::atoi(cpuinfo("cpu family").c_str()) < 26;
        return halved ? VectorUnit{32, "AVX-512 in 256-bit units"} : VectorUnit{64, "AVX-512"};
    }
    if (has_flag(flags, "avx2") && has_flag(flags, "fma")) return {32, "AVX2"};
    if (has_flag(flags, "avx")) return {16, "AVX"};
    // Arm's part numbers: Neoverse N1 and N2 have two 128-bit units, V1 and V2 the worth of four.
    const std::string part = cpuinfo("CPU part");
    if (part == "0xd0c" || part == "0xd49") return {16, "NEON, two units"};
    if (!part.empty()) return {32, "NEON, four units"};
    return {8, "128-bit vectors"};
}

/// Clock of a chain of additions, each waiting for the one before: one cycle each.
double measured_gigahertz() {
#if defined(__x86_64__) || defined(__aarch64__)
    constexpr int repeats = 4000;
    double best = 0;
    for (const Timer total; total.seconds() < 5e-3;) {
        const Timer timer;
        std::uint64_t x = 1;
        const std::uint64_t step = 3;
        for (int i = 0; i < repeats; ++i) {
#if defined(__x86_64__)
#define SCAPE_ADD "add %1, %0\n\t"
#else
#define SCAPE_ADD "add %0, %0, %1\n\t"
#endif
#define SCAPE_ADD_5 SCAPE_ADD SCAPE_ADD SCAPE_ADD SCAPE_ADD SCAPE_ADD
            asm volatile(SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5
                             SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5 SCAPE_ADD_5
                         : "+r"(x)
                         : "r"(step)
                         : "cc");
#undef SCAPE_ADD_5
#undef SCAPE_ADD
        }
        best = std::max(best, repeats * 50.0 / timer.seconds());
    }
    return best * 1e-9;
#else
    return 0;
#endif
}

struct Clock {
    double gigahertz;
    const char* source;
};

Clock highest_clock() {
    double kilohertz = 0;
    if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") >> kilohertz) {
        return {kilohertz * 1e-6, "cpufreq"};
    }
    const double reported = std::atof(cpuinfo("cpu MHz").c_str()) * 1e-3;
    const double measured = measured_gigahertz();
    if (measured > reported) return {measured, "measured"};
    return {reported, "/proc/cpuinfo"};
}

int usable_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void flush_in_this_thread() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u);  // flush to zero, denormals are zero
#elif defined(__aarch64__)
    std::uint64_t fpcr = 0;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    asm volatile("msr fpcr, %0" : : "r"(fpcr | (std::uint64_t(1) << 24)));
#endif
}

/// OpenBLAS with threads of its own starts them when it is loaded. Stopped here, they are started
/// anew by its next call, as children of a thread that flushes.
void restart_openblas_threads() {
    const auto find = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
    const auto kind = reinterpret_cast<int (*)()>(find("openblas_get_parallel"));
    const auto stop = reinterpret_cast<int (*)()>(find("blas_thread_shutdown_"));
    constexpr int pthreads = 1;
    if (kind != nullptr && stop != nullptr && kind() == pthreads) stop();
}

}  // namespace

AttainableRate attainable_rate(int threads) {
    const VectorUnit unit = vector_unit();
    const Clock clock = highest_clock();
    AttainableRate rate;
    rate.threads = std::max(1, std::min(threads, usable_cores()));
    rate.flops_per_cycle = unit.flops_per_cycle;
    rate.gigahertz = clock.gigahertz;
    rate.unit = unit.name;
    rate.clock = clock.source;
    rate.gflops = rate.threads * rate.flops_per_cycle * rate.gigahertz;
    return rate;
}

void flush_subnormals() {
    flush_in_this_thread();
    // Without OpenMP the line below is a comment and the calling thread does it once more.
#pragma omp parallel
    flush_in_this_thread();
    restart_openblas_threads();
}

bool subnormals_are_flushed() {
    volatile float smallest = 1.17549435e-38f;  // 2^-126
    volatile float half = smallest * 0.5f;
    return half == 0.f;
}

}  // namespace scape::kernels
