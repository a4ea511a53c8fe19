#include <scape/config/deck.hpp>

#include "take.hpp"

#include <scape/base/error.hpp>
#include <scape/config/budget.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace scape::config {
namespace {

Where place(const std::string& source, const toml::source_region& region) {
    return {source, static_cast<Index>(region.begin.line), static_cast<Index>(region.begin.column)};
}

void take_section(LoadedDeck& deck, Problems& problems, const std::string& source,
                  const toml::key& name, const toml::node& node) {
    const std::string section(name.str());
    const Where where = place(source, name.source());
    const auto known = sections();
    const auto* table = node.as_table();
    if (std::find(known.begin(), known.end(), section) != known.end()) {
        if (table == nullptr) {
            problems.add(where,
                         fmt::format("{} is {}; it must be a section: write [{}] and its keys "
                                     "below",
                                     section, kind_of(node), section));
            return;
        }
        for (const auto& [key_name, value] : *table) {
            const std::string full_name = section + "." + std::string(key_name.str());
            if (const Key* key = find_key(full_name)) {
                take(deck, problems, *key, value, place(source, value.source()));
            } else {
                problems.add(place(source, key_name.source()), unknown_key(full_name));
            }
        }
    } else if (table != nullptr || node.is_array_of_tables()) {
        const std::string near = nearest_word(section, known);
        problems.add(where, fmt::format("[{}]: unknown section{}; sections: {}", section,
                                        did_you_mean(near.empty() ? "" : "[" + near + "]"),
                                        fmt::join(known, ", ")));
    } else {
        problems.add(where, fmt::format("{}: a key outside of a section{}", section,
                                        did_you_mean(nearest_key(section))));
    }
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

std::string trimmed(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

/// A table whose only element is the value, or nothing when the text is not one TOML value.
std::optional<toml::table> parse_value(const std::string& text) {
    try {
        toml::table table = toml::parse("value = " + text);
        if (table.size() == 1) {
            return table;
        }
    } catch (const toml::parse_error&) {  // not TOML: perhaps a bare word
    }
    return std::nullopt;
}

void take_override(LoadedDeck& deck, Problems& problems, const std::string& text) {
    const Where where{"command line", 0, 0};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
        problems.add(where, fmt::format("\"{}\": neither an option nor section.key=value", text));
        return;
    }
    const std::string name = trimmed(text.substr(0, equals));
    const std::string value = trimmed(text.substr(equals + 1));
    const Key* key = find_key(name);
    if (key == nullptr) {
        problems.add(where, unknown_key(name));
        return;
    }
    auto table = parse_value(value);
    const bool takes_text = key->type == Type::text || key->type == Type::word;
    const bool begins_quoted = !value.empty() && (value[0] == '"' || value[0] == '\'');
    if (takes_text && !begins_quoted && !(table && table->get("value")->is_string())) {
        table = parse_value(to_toml(value));  // nothing if it is not UTF-8
    }
    if (!table) {
        problems.add(where, fmt::format("{}={}: cannot read the value; allowed: {}", name, value,
                                        key->allowed()));
        return;
    }
    take(deck, problems, *key, *table->get("value"), where);
}

void take_overrides(LoadedDeck& deck, Problems& problems, const std::vector<Override>& overrides) {
    std::map<std::string, std::string> given;
    for (const Override& override : overrides) {
        const std::string name = trimmed(override.text.substr(0, override.text.find('=')));
        const auto [first, is_new] = given.emplace(name, override.text);
        if (is_new) {
            take_override(deck, problems, override.text);
        } else {
            problems.add({"command line", 0, 0},
                         fmt::format("{} is given twice: {} and {}; leave one of them out", name,
                                     first->second, override.text));
        }
    }
}

}  // namespace

LoadedDeck parse_deck(const std::string& text, const std::string& name,
                      const std::vector<Override>& overrides) {
    toml::table table;
    try {
        table = toml::parse(text, name);
    } catch (const toml::parse_error& error) {
        throw_syntax(error, text, name);
    }
    LoadedDeck deck;
    Problems problems;
    for (const auto& [key, node] : table) {
        take_section(deck, problems, name, key, node);
    }
    take_overrides(deck, problems, overrides);
    problems.throw_if_any();
    resolve_defaults(deck.config.model);
    if (deck.places.count("scape.score") == 0) {
        deck.config.scape.score = score_of(deck.config);
    }
    apply_budget(deck);
    return deck;
}

LoadedDeck load_deck(const std::string& path, const std::vector<Override>& overrides) {
    const auto refuse = [&](const std::string& why) {
        throw user_error(ExitCode::usage, fmt::format("deck {}: {}", path, why));
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        refuse("is a folder; name a .toml file in it");
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        refuse(fmt::format("cannot be read: {}; the first argument is the path of a deck (.toml)",
                           std::strerror(errno != 0 ? errno : ENOENT)));
    }
    constexpr std::size_t limit = std::size_t(1) << 20;
    std::string text(limit + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > limit) {
        refuse("is larger than 1 MiB, so it is not a deck; name a .toml file");
    }
    return parse_deck(text, path, overrides);
}

std::vector<Override> as_overrides(const std::vector<std::string>& texts) {
    std::vector<Override> overrides;
    for (const std::string& text : texts) {
        overrides.push_back({text});
    }
    return overrides;
}

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides) {
    return load_deck(path, as_overrides(overrides)).config;
}

RunConfig parse_run_config(const std::string& text, const std::string& name,
                           const std::vector<std::string>& overrides) {
    return parse_deck(text, name, as_overrides(overrides)).config;
}

}  // namespace scape::config
