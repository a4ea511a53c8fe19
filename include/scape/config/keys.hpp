#pragma once
/// @file
/// The table of all deck keys: what drives parsing, checks, the resolved deck, the list of keys and
/// the nearest-key suggestions. Its rows are in src/config/keys.cpp.

#include <scape/config/run_config.hpp>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace scape::config {

/// The value of a key; words (enumerations) are their text.
using Value = std::variant<bool, Index, double, std::string>;

enum class Type { truth, integer, number, text, word };

struct Bounds {
    double min = 0;
    double max = std::numeric_limits<double>::infinity();
    bool above_min = false;  ///< min itself is not allowed
    bool below_max = false;  ///< max itself is not allowed

    bool contains(double x) const {
        return (above_min ? x > min : x >= min) && (below_max ? x < max : x <= max);
    }
};

/// What a key may be; files other than decks (machine.hpp) have keys too.
struct KeyRule {
    std::string section;  ///< empty: the key stands above all sections
    std::string name;
    Type type = Type::text;
    Bounds bounds;                   ///< integer, number
    std::vector<Index> choices;      ///< integer: if there are any, the only values
    std::vector<std::string> words;  ///< word
    /// Words or choices that are planned and not there yet, with what to say.
    std::vector<std::pair<std::string, std::string>> not_yet;
    std::string help;

    std::string full_name() const { return section.empty() ? name : section + "." + name; }
    /// "a whole number, 1 to 100000", "gpt | llama", "true | false", "text in quotes".
    std::string allowed() const;
    /// Empty when `value` (of the key's type) is allowed, otherwise what is wrong: "out of range".
    std::string problem(const Value& value) const;
};

/// A key of a deck.
struct Key : KeyRule {
    std::function<Value(const RunConfig&)> get;
    std::function<void(RunConfig&, const Value&)> set;  ///< the value must be of the key's type
};

/// The rules of a table of keys, which must outlive them.
using Rules = std::vector<const KeyRule*>;
template <class K>
Rules rules_of(const std::vector<K>& keys) {
    Rules rules;
    for (const KeyRule& key : keys) {
        rules.push_back(&key);
    }
    return rules;
}

/// All keys, section by section, in the order of the resolved deck.
const std::vector<Key>& keys();
std::vector<std::string> sections();
std::vector<std::string> sections(const Rules& rules);
/// nullptr when there is no such key ("model.layers").
const Key* find_key(const std::string& full_name);

/// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(const std::string& a, const std::string& b);
/// The known key (full name) nearest to "section.name"; a key of that name in another section is
/// near too. Empty when nothing is near.
std::string nearest_key(const std::string& full_name);
std::string nearest_key(const std::string& full_name, const Rules& rules);
/// The same among any words.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

/// As a deck writes it; doubles with as many digits as it takes to read the same value back.
std::string to_toml(const Value& value);
/// The value of a key, as a deck writes it. Throws std::logic_error for an unknown key.
std::string value_text(const RunConfig& config, const std::string& full_name);

/// All keys with type, range, default and meaning: a page for a person.
std::string describe_keys();

struct KeyChange {
    std::string key;
    std::string before;
    std::string after;
};
/// Keys whose values differ, in the order of the table.
std::vector<KeyChange> changed_keys(const RunConfig& before, const RunConfig& after);

}  // namespace scape::config
