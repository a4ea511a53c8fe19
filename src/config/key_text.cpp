#include <scape/config/keys.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace scape::config {
namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            out += fmt::format("\\u{:04X}", static_cast<int>(static_cast<unsigned char>(c)));
        } else {
            out += c;
        }
    }
    return out + '"';
}

/// Shortest text that reads back as the same double, always with a point or an exponent.
std::string number_text(double x) {
    std::string text = fmt::format("{}", x);
    if (text.find_first_not_of("-0123456789") == std::string::npos) {
        text += ".0";
    }
    return text;
}

std::string bounds_text(const Bounds& b, bool integer) {
    const auto show = [integer](double x) {
        return integer ? fmt::format("{}", static_cast<Index>(x)) : fmt::format("{}", x);
    };
    std::string low = b.above_min ? "more than " + show(b.min) : show(b.min);
    if (std::isinf(b.max)) {
        return b.above_min ? low : low + " or more";
    }
    if (b.below_max) {
        return low + " or more, less than " + show(b.max);
    }
    return b.above_min ? low + ", at most " + show(b.max) : low + " to " + show(b.max);
}

}  // namespace

std::string KeyRule::allowed() const {
    switch (type) {
        case Type::truth:
            return "true | false";
        case Type::integer:
            if (!choices.empty()) {
                return fmt::format("{}", fmt::join(choices, " | "));
            }
            return "a whole number, " + bounds_text(bounds, true);
        case Type::number:
            return "a number, " + bounds_text(bounds, false);
        case Type::word:
            return fmt::format("{}", fmt::join(words, " | "));
        case Type::text:
            break;
    }
    return "text in quotes";
}

std::string KeyRule::problem(const Value& value) const {
    const auto later = [this](const std::string& text) {
        const auto is_it = [&](const auto& word) { return word.first == text; };
        const auto found = std::find_if(not_yet.begin(), not_yet.end(), is_it);
        return found == not_yet.end() ? std::string() : found->second;
    };
    if (type == Type::integer) {
        const auto x = std::get<Index>(value);
        if (choices.empty()) {
            return bounds.contains(static_cast<double>(x)) ? "" : "out of range";
        }
        const std::string reason = later(fmt::format("{}", x));
        const bool known = std::find(choices.begin(), choices.end(), x) != choices.end();
        return !reason.empty() ? reason : known ? "" : "unknown value";
    }
    if (type == Type::number) {
        const double x = std::get<double>(value);
        return !std::isfinite(x) ? "not a finite number" : bounds.contains(x) ? "" : "out of range";
    }
    if (type == Type::word) {
        const auto& word = std::get<std::string>(value);
        const std::string reason = later(word);
        const bool known = std::find(words.begin(), words.end(), word) != words.end();
        return !reason.empty() ? reason : known ? "" : "unknown word";
    }
    return "";
}

std::vector<std::string> sections(const Rules& rules) {
    std::vector<std::string> names;
    for (const KeyRule* key : rules) {
        if (!key->section.empty() && (names.empty() || names.back() != key->section)) {
            names.push_back(key->section);
        }
    }
    return names;
}

std::vector<std::string> sections() {
    return sections(rules_of(keys()));
}

const Key* find_key(const std::string& full_name) {
    for (const Key& key : keys()) {
        if (key.full_name() == full_name) {
            return &key;
        }
    }
    return nullptr;
}

int edit_distance(const std::string& a, const std::string& b) {
    const std::size_t m = b.size();
    // Rows i-2, i-1 and i of the table of distances between prefixes.
    std::vector<int> before(m + 1), last(m + 1), now(m + 1);
    for (std::size_t j = 0; j <= m; ++j) {
        last[j] = static_cast<int>(j);
    }
    for (std::size_t i = 1; i <= a.size(); ++i) {
        now[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= m; ++j) {
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = std::min(now[j], before[j - 2] + 1);
            }
        }
        std::swap(before, last);
        std::swap(last, now);
    }
    return last[m];
}

std::string nearest_key(const std::string& full_name) {
    return nearest_key(full_name, rules_of(keys()));
}

std::string nearest_key(const std::string& full_name, const Rules& rules) {
    const auto split = [](const std::string& text) {
        const std::size_t dot = text.find('.');
        return dot == std::string::npos ? std::pair<std::string, std::string>("", text)
                                        : std::pair(text.substr(0, dot), text.substr(dot + 1));
    };
    const auto [section, name] = split(full_name);
    std::string best;
    int best_distance = std::max<int>(3, static_cast<int>(name.size()) / 3 + 1);  // and not this
    for (const KeyRule* key : rules) {
        // The right name in a wrong section is a slip like any other.
        const int d =
            edit_distance(name, key->name) + std::min(edit_distance(section, key->section), 2);
        if (d < best_distance) {
            best_distance = d;
            best = key->full_name();
        }
    }
    return best;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
    std::string best;
    int best_distance = std::max<int>(3, static_cast<int>(word.size()) / 3 + 1);
    for (const std::string& candidate : words) {
        const int d = edit_distance(word, candidate);
        if (d < best_distance && d < static_cast<int>(candidate.size())) {
            best_distance = d;
            best = candidate;
        }
    }
    return best;
}

std::string to_toml(const Value& value) {
    if (const auto* truth = std::get_if<bool>(&value)) {
        return *truth ? "true" : "false";
    }
    if (const auto* integer = std::get_if<Index>(&value)) {
        return fmt::format("{}", *integer);
    }
    if (const auto* number = std::get_if<double>(&value)) {
        return number_text(*number);
    }
    return quoted(std::get<std::string>(value));
}

std::string value_text(const RunConfig& config, const std::string& full_name) {
    const Key* key = find_key(full_name);
    if (key == nullptr) {
        throw std::logic_error("no deck key is called " + full_name);
    }
    return to_toml(key->get(config));
}

std::string describe_keys() {
    const RunConfig defaults;
    std::string out;
    for (const std::string& section : sections()) {
        out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
        for (const Key& key : keys()) {
            if (key.section == section) {
                out += fmt::format("  {:<16} {}\n  {:<16} {}; default {}\n", key.name, key.help, "",
                                   key.allowed(), to_toml(key.get(defaults)));
            }
        }
    }
    return out;
}

std::vector<KeyChange> changed_keys(const RunConfig& before, const RunConfig& after) {
    std::vector<KeyChange> changes;
    for (const Key& key : keys()) {
        const Value old_value = key.get(before);
        const Value new_value = key.get(after);
        if (old_value != new_value) {
            changes.push_back({key.full_name(), to_toml(old_value), to_toml(new_value)});
        }
    }
    return changes;
}

}  // namespace scape::config
