#include <scape/config/deck.hpp>

#include "take.hpp"
#include "toml_file.hpp"

#include <scape/config/budget.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>

#include <optional>

namespace scape::config {
namespace {

void put(LoadedDeck& deck, const Key& key, const Value& value, const Where& where) {
    key.set(deck.config, value);
    deck.places[key.full_name()] = where;
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
        problems.add(where, unknown_key(name, rules_of(keys())));
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
    if (const auto checked_value = checked(problems, *key, *table->get("value"), where)) {
        put(deck, *key, *checked_value, where);
    }
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
    LoadedDeck deck;
    Problems problems;
    take_all(text, name, rules_of(keys()), problems,
             [&](const KeyRule& rule, const Value& value, const Where& where) {
                 put(deck, *find_key(rule.full_name()), value, where);
             });
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
    return parse_deck(read_toml(path, "deck", "the first argument is the path of a deck (.toml)"),
                      path, overrides);
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
