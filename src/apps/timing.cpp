#include "timing.hpp"

#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>
#include <scape/kernels/loops.hpp>

#include <algorithm>

namespace scape::apps {

namespace {

template <class Work>
double median_time(const Exec& exec, int repeats, const Work& work) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats + 1; ++i) {
        const Timer timer;
        work();
        fence(exec, "scape::apps::median_time");
        if (i > 0) seconds.push_back(timer.seconds());
    }
    return median(seconds);
}

void copy_by_kernel(const Exec& exec, Span<const float> from, Span<float> to) {
    kernels::for_each(
        exec, "scape::apps::copy", static_cast<Index>(to.extent(0)),
        KOKKOS_LAMBDA(Index i) { to(i) = from(i); });
}

}  // namespace

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double copy_rate(const Exec& exec, Span<const float> from, Span<float> to, int repeats) {
    const double library = median_time(exec, repeats, [&] { Kokkos::deep_copy(exec, to, from); });
    const double loop = median_time(exec, repeats, [&] { copy_by_kernel(exec, from, to); });
    return 2 * sizeof(float) * static_cast<double>(to.extent(0)) / std::min(library, loop);
}

}  // namespace scape::apps
