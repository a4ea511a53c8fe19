#include "take.hpp"

#include <fmt/format.h>

#include <optional>
#include <sstream>

namespace scape::config {
namespace {

/// The value in a type that the key may have; nothing when the types do not fit. A whole number is
/// a number; a number is not a whole number, even if it has no fraction.
std::optional<Value> convert(const KeyRule& key, const toml::node& node) {
    switch (key.type) {
        case Type::truth:
            if (const auto* v = node.as_boolean()) {
                return Value(v->get());
            }
            break;
        case Type::integer:
            if (const auto* v = node.as_integer()) {
                return Value(Index(v->get()));
            }
            break;
        case Type::number:
            if (const auto* v = node.as_floating_point()) {
                return Value(v->get());
            }
            if (const auto* v = node.as_integer()) {
                return Value(static_cast<double>(v->get()));
            }
            break;
        case Type::text:
        case Type::word:
            if (const auto* v = node.as_string()) {
                return Value(v->get());
            }
            break;
    }
    return std::nullopt;
}

std::string shown(const toml::node& node) {
    if (const auto value = node.value<std::string>(); value && node.is_string()) {
        return to_toml(*value);
    }
    if (const auto* number = node.as_floating_point()) {
        return to_toml(number->get());
    }
    if (node.is_table() || node.is_array()) {
        return node.is_table() ? "{...}" : "[...]";
    }
    std::ostringstream text;
    node.visit([&](const auto& n) { text << n; });
    return text.str();
}

}  // namespace

const char* kind_of(const toml::node& node) {
    switch (node.type()) {
        case toml::node_type::table:
            return "a table";
        case toml::node_type::array:
            return "a list";
        case toml::node_type::string:
            return "text";
        case toml::node_type::integer:
            return "a whole number";
        case toml::node_type::floating_point:
            return "a number with a fraction or exponent";
        case toml::node_type::boolean:
            return "a truth value";
        default:
            return "a date or time";
    }
}

std::string did_you_mean(const std::string& near) {
    return near.empty() ? "" : "; did you mean " + near + "?";
}

std::optional<Value> checked(Problems& problems, const KeyRule& key, const toml::node& node,
                             const Where& where) {
    const std::string seen = fmt::format("{} = {}", key.full_name(), shown(node));
    const auto value = convert(key, node);
    if (!value) {
        problems.add(where,
                     fmt::format("{} is {}; allowed: {}", seen, kind_of(node), key.allowed()));
        return std::nullopt;
    }
    if (const std::string problem = key.problem(*value); !problem.empty()) {
        const bool word = key.type == Type::word;
        std::string near = word ? nearest_word(std::get<std::string>(*value), key.words) : "";
        problems.add(where, fmt::format("{}: {}; allowed: {}{}", seen, problem, key.allowed(),
                                        did_you_mean(near.empty() ? "" : to_toml(near))));
        return std::nullopt;
    }
    return value;
}

std::string unknown_key(const std::string& name, const Rules& rules) {
    const std::string near = nearest_key(name, rules);
    std::string text = fmt::format("{}: unknown key{}", name, did_you_mean(near));
    const std::string section = name.substr(0, name.find('.'));
    std::vector<std::string> known;
    for (const KeyRule* key : rules) {
        if (key->section == section) {
            known.push_back(key->name);
        }
    }
    if (near.empty() && !known.empty()) {
        text += fmt::format("; keys of [{}]: {}", section, fmt::join(known, ", "));
    }
    return text;
}

}  // namespace scape::config
