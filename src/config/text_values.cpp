#include <scape/config/validate.hpp>

#include <scape/base/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace scape::config {
namespace {

/// Reads a number at the start of `text` and moves past it; false when there is none.
template <class T>
bool read_number(const char*& text, const char* end, T& value) {
    const auto result = std::from_chars(text, end, value);
    if (result.ec != std::errc()) {
        return false;
    }
    text = result.ptr;
    return true;
}

}  // namespace

double wall_limit_seconds(const std::string& text) {
    const auto refuse = [&] {
        throw user_error(
            ExitCode::usage,
            fmt::format("run.wall_limit = \"{}\" is not a time; allowed: \"0\" (none) or "
                        "whole numbers with d, h, m, s in this order: \"90s\", "
                        "\"47h30m\", \"1h5m10s\"",
                        text));
    };
    if (text == "0") {
        return 0;
    }
    const std::string units = "dhms";
    const double seconds_of[] = {86400, 3600, 60, 1};
    const char* at = text.data();
    const char* end = at + text.size();
    double total = 0;
    std::size_t next_unit = 0;
    do {
        int count = 0;
        if (!read_number(at, end, count) || count < 0 || at == end) {
            refuse();
        }
        const std::size_t unit = units.find(*at++, next_unit);
        if (unit == std::string::npos) {
            refuse();
        }
        total += count * seconds_of[unit];
        next_unit = unit + 1;
    } while (at != end);
    return total;
}

std::array<double, 3> split_shares(const std::string& text) {
    const auto refuse = [&] {
        throw user_error(ExitCode::usage,
                         fmt::format("data.split = \"{}\" is not a split; allowed: two or three "
                                     "numbers >= 0 for train, validation and test, the first more "
                                     "than 0: \"949,50,1\"",
                                     text));
    };
    std::array<double, 3> shares{};
    const char* at = text.data();
    const char* end = at + text.size();
    const auto skip_blanks = [&] {
        while (at != end && *at == ' ') {
            ++at;
        }
    };
    std::size_t n = 0;
    for (bool more = true; more; ++n) {
        skip_blanks();
        if (n == shares.size() || !read_number(at, end, shares[n]) || !std::isfinite(shares[n]) ||
            shares[n] < 0) {
            refuse();
        }
        skip_blanks();
        more = at != end && *at == ',';
        at += more ? 1 : 0;
    }
    const double sum = shares[0] + shares[1] + shares[2];
    if (at != end || n < 2 || shares[0] <= 0 || !std::isfinite(sum)) {
        refuse();
    }
    for (double& share : shares) {
        share /= sum;
    }
    return shares;
}

}  // namespace scape::config
