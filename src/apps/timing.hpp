#pragma once
/// @file
/// What the measurements share.

#include <scape/base/types.hpp>

#include <vector>

namespace scape::apps {

/// Of an even number, the mean of the middle two.
double median(std::vector<double> values);

/// Bytes read and written per second when `from` is copied to `to`, by the library's copy or by a
/// loop, whichever is faster here: the median of `repeats`.
double copy_rate(const Exec& exec, Span<const float> from, Span<float> to, int repeats);

}  // namespace scape::apps
