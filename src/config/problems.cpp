#include "problems.hpp"

#include <scape/base/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace scape::config {

std::string Where::text() const {
    return line > 0 ? fmt::format("{}:{}:{}", source, line, column) : source;
}

void Problems::throw_if_any() {
    if (list_.empty()) {
        return;
    }
    // What has no line (the command line) comes last.
    const auto line = [](const Problem& p) {
        return p.where.line > 0 ? p.where.line : std::numeric_limits<Index>::max();
    };
    std::stable_sort(list_.begin(), list_.end(),
                     [&](const Problem& a, const Problem& b) { return line(a) < line(b); });
    constexpr std::size_t shown = 20;
    std::string message;
    for (std::size_t i = 0; i < std::min(shown, list_.size()); ++i) {
        const Problem& p = list_[i];
        const std::string where = p.where.source.empty() ? "" : p.where.text() + ": ";
        message += fmt::format("{}{}{}", i > 0 ? "\n" : "", where, p.text);
    }
    if (list_.size() > shown) {
        message += fmt::format("\nand {} more", list_.size() - shown);
    }
    throw user_error(ExitCode::usage, message);
}

}  // namespace scape::config
