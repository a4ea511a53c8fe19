#pragma once
/// @file
/// Comparison of computed values with a reference: on a difference it prints the first elements
/// that differ, with their indices.

#include "support/catch.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace scape::test {

namespace detail {

inline bool close(double actual, double wanted, double rel, double abs) {
    if (std::isnan(actual) || std::isnan(wanted)) return std::isnan(actual) && std::isnan(wanted);
    if (std::isinf(actual) || std::isinf(wanted)) return actual == wanted;
    return std::abs(actual - wanted) <= abs + rel * std::abs(wanted);
}

inline std::string position(std::size_t i, Index columns) {
    std::ostringstream s;
    if (columns == 0) {
        s << "[" << i << "]";
    } else {
        s << "(" << i / columns << ", " << i % columns << ")";
    }
    return s.str();
}

}  // namespace detail

/// Empty when every |actual - wanted| <= abs + rel |wanted|; else what differs. NaN equals NaN,
/// and infinities equal themselves. columns: print indices as (row, column).
template <class T, class U>
std::string difference(const std::string& what, const std::vector<T>& actual,
                       const std::vector<U>& wanted, double rel, double abs, Index columns = 0) {
    std::ostringstream s;
    s.precision(9);
    if (actual.size() != wanted.size()) {
        s << what << ": " << actual.size() << " elements, wanted " << wanted.size();
        return s.str();
    }
    std::size_t different = 0, worst = 0;
    double worst_error = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const double a = static_cast<double>(actual[i]), w = static_cast<double>(wanted[i]);
        if (detail::close(a, w, rel, abs)) continue;
        if (++different <= 5) {
            s << "\n  " << detail::position(i, columns) << "  " << a << "  wanted " << w;
        }
        if (!(std::abs(a - w) <= worst_error)) {
            worst_error = std::abs(a - w);
            worst = i;
        }
    }
    if (different == 0) return "";
    s << "\n  largest difference " << worst_error << " at " << detail::position(worst, columns);
    std::ostringstream head;
    head << what << ": " << different << " of " << actual.size() << " elements differ by more than "
         << abs << " + " << rel << " |wanted|; the first:" << s.str();
    return head.str();
}

/// One assertion of Catch2: the vectors agree.
template <class T, class U>
void check_close(const std::string& what, const std::vector<T>& actual,
                 const std::vector<U>& wanted, double rel, double abs, Index columns = 0) {
    const std::string message = difference(what, actual, wanted, rel, abs, columns);
    if (message.empty()) {
        SUCCEED(what);
    } else {
        FAIL_CHECK(message);
    }
}

/// The same for a view on the device or the host; a matrix prints (row, column).
template <class T, class... P, class U>
void check_close(const std::string& what, const Kokkos::View<T, P...>& actual,
                 const std::vector<U>& wanted, double rel, double abs) {
    const Index columns = Kokkos::View<T, P...>::rank == 2 ? actual.extent(1) : 0;
    check_close(what, to_host(actual), wanted, rel, abs, columns);
}

/// Bit for bit (so -0 and 0 differ, and a NaN equals only itself).
template <class T>
void check_same_bits(const std::string& what, const std::vector<T>& actual,
                     const std::vector<T>& wanted) {
    REQUIRE(actual.size() == wanted.size());
    std::size_t first = actual.size();
    for (std::size_t i = actual.size(); i-- > 0;) {
        if (std::memcmp(&actual[i], &wanted[i], sizeof(T)) != 0) first = i;
    }
    if (first == actual.size()) {
        SUCCEED(what);
    } else {
        std::ostringstream s;
        s.precision(17);
        s << what << ": first differs at [" << first << "]: " << actual[first] << ", wanted "
          << wanted[first];
        FAIL_CHECK(s.str());
    }
}

}  // namespace scape::test
