#include "toml_file.hpp"

#include "take.hpp"

#include <scape/base/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace scape::config {
namespace {

Where place(const std::string& source, const toml::source_region& region) {
    return {source, static_cast<Index>(region.begin.line), static_cast<Index>(region.begin.column)};
}

/// The line of the same section that gave `key` before `line`; 0 when it is not found. The TOML
/// library tells the second place only.
Index earlier_line(const std::string& text, Index line, const std::string& key) {
    std::istringstream in(text);
    std::string row;
    Index found = 0;
    for (Index n = 1; n < line && std::getline(in, row); ++n) {
        const std::size_t start = row.find_first_not_of(" \t");
        if (start == std::string::npos) {
            continue;
        }
        if (row[start] == '[') {
            found = 0;
        } else if (row.compare(start, key.size(), key) == 0) {
            const std::size_t next = row.find_first_not_of(" \t", start + key.size());
            found = next != std::string::npos && row[next] == '=' ? n : found;
        }
    }
    return found;
}

[[noreturn]] void throw_syntax(const toml::parse_error& error, const std::string& text,
                               const std::string& source) {
    const Where where = place(source, error.source());
    std::string what(error.description());
    Problems problems;
    if (const std::size_t at = what.find("cannot redefine existing"); at != std::string::npos) {
        const std::size_t open = what.find('\'', at);
        const std::size_t close = what.rfind('\'');
        const std::string key = close > open ? what.substr(open + 1, close - open - 1) : "";
        const Index first = earlier_line(text, where.line, key.substr(key.rfind('.') + 1));
        const std::string lines = first > 0 ? fmt::format(" (first in line {})", first) : "";
        problems.add(where, fmt::format("{} is given twice{}; delete one of them", key, lines));
    } else {
        problems.add(where, what);
    }
    problems.throw_if_any();
    throw std::logic_error("unreachable");
}

/// The content of a file, checked and handed on.
class Reader {
   public:
    Reader(const std::string& source, const Rules& rules, Problems& problems, const Taker& taker)
        : source_(source), rules_(rules), problems_(problems), taker_(taker) {}

    std::set<std::string> file(const toml::table& table) {
        const auto known = sections(rules_);
        for (const auto& [key, node] : table) {
            const std::string name(key.str());
            if (const KeyRule* rule = find(name)) {
                value(*rule, node);
            } else if (std::find(known.begin(), known.end(), name) != known.end()) {
                section(name, key, node);
            } else {
                problems_.add(place(source_, key.source()), unknown(name, node, known));
            }
        }
        return given_;
    }

   private:
    const KeyRule* find(const std::string& full_name) const {
        const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const KeyRule* rule) {
            return rule->full_name() == full_name;
        });
        return found == rules_.end() ? nullptr : *found;
    }

    void value(const KeyRule& rule, const toml::node& node) {
        given_.insert(rule.full_name());
        const Where where = place(source_, node.source());
        if (const auto value = checked(problems_, rule, node, where)) {
            taker_(rule, *value, where);
        }
    }

    void section(const std::string& name, const toml::key& key, const toml::node& node) {
        const auto* table = node.as_table();
        if (table == nullptr) {
            problems_.add(place(source_, key.source()),
                          fmt::format("{} is {}; it must be a section: write [{}] and its keys "
                                      "below",
                                      name, kind_of(node), name));
            return;
        }
        for (const auto& [key_name, key_value] : *table) {
            const std::string full_name = name + "." + std::string(key_name.str());
            if (const KeyRule* rule = find(full_name)) {
                value(*rule, key_value);
            } else {
                problems_.add(place(source_, key_name.source()), unknown_key(full_name, rules_));
            }
        }
    }

    std::string unknown(const std::string& name, const toml::node& node,
                        const std::vector<std::string>& known) const {
        if (node.is_table() || node.is_array_of_tables()) {
            const std::string near = nearest_word(name, known);
            return fmt::format("[{}]: unknown section{}; sections: {}", name,
                               did_you_mean(near.empty() ? "" : "[" + near + "]"),
                               fmt::join(known, ", "));
        }
        return fmt::format("{}: a key outside of a section{}", name,
                           did_you_mean(nearest_key(name, rules_)));
    }

    const std::string& source_;
    const Rules& rules_;
    Problems& problems_;
    const Taker& taker_;
    std::set<std::string> given_;
};

}  // namespace

std::set<std::string> take_all(const std::string& text, const std::string& source,
                               const Rules& rules, Problems& problems, const Taker& taker) {
    toml::table table;
    try {
        table = toml::parse(text, source);
    } catch (const toml::parse_error& error) {
        throw_syntax(error, text, source);
    }
    return Reader(source, rules, problems, taker).file(table);
}

std::string read_toml(const std::string& path, const std::string& kind, const std::string& hint) {
    const auto refuse = [&](const std::string& why) {
        throw user_error(ExitCode::usage, fmt::format("{} {}: {}", kind, path, why));
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        refuse("is a folder; name a .toml file in it");
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        refuse(fmt::format("cannot be read: {}; {}", std::strerror(errno != 0 ? errno : ENOENT),
                           hint));
    }
    constexpr std::size_t limit = std::size_t(1) << 20;
    std::string text(limit + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > limit) {
        refuse(fmt::format("is larger than 1 MiB, so it is not a {}; name a .toml file", kind));
    }
    return text;
}

}  // namespace scape::config
