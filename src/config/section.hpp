#pragma once
/// @file
/// How the rows of the table of keys are written: a section of the deck, and its keys one by one.

#include <scape/config/keys.hpp>

namespace scape::config {

template <class E>
using Words = std::vector<std::pair<std::string, E>>;

inline Bounds at_least(double min) {
    return {.min = min};
}
inline Bounds between(double min, double max) {
    return {.min = min, .max = max};
}
inline Bounds above(double min) {
    return {.min = min, .above_min = true};
}
inline Bounds above_to(double min, double max) {
    return {.min = min, .max = max, .above_min = true};
}
inline Bounds from_to_below(double min, double max) {
    return {.min = min, .max = max, .below_max = true};
}

/// Appends the keys of one section; `S` is its struct in RunConfig.
template <class S>
class Section {
   public:
    Section(std::vector<Key>& keys, std::string name, S RunConfig::*section)
        : keys_(keys), name_(std::move(name)), section_(section) {}

    Key& integer(const char* name, Index S::*member, Bounds bounds, const char* help) {
        return number_like<Index>(name, member, Type::integer, bounds, help);
    }
    /// A whole number that can only be one of `choices`.
    Key& choice(const char* name, Index S::*member, std::vector<Index> choices, const char* help) {
        Key& key = number_like<Index>(name, member, Type::integer, {}, help);
        key.choices = std::move(choices);
        return key;
    }
    Key& number(const char* name, double S::*member, Bounds bounds, const char* help) {
        return number_like<double>(name, member, Type::number, bounds, help);
    }
    Key& truth(const char* name, bool S::*member, const char* help) {
        return number_like<bool>(name, member, Type::truth, {}, help);
    }
    Key& text(const char* name, std::string S::*member, const char* help) {
        return number_like<std::string>(name, member, Type::text, {}, help);
    }
    template <class E>
    Key& word(const char* name, E S::*member, const Words<E>& words, const char* help) {
        Key& key = add(name, Type::word, help);
        for (const auto& [text, value] : words) {
            key.words.push_back(text);
        }
        auto section = section_;
        key.get = [=](const RunConfig& config) -> Value {
            for (const auto& [text, value] : words) {
                if (value == config.*section.*member) {
                    return text;
                }
            }
            return std::string("?");
        };
        key.set = [=](RunConfig& config, const Value& value) {
            for (const auto& [text, word] : words) {
                if (text == std::get<std::string>(value)) {
                    config.*section.*member = word;
                }
            }
        };
        return key;
    }

   private:
    Key& add(const char* name, Type type, const char* help) {
        Key key;
        key.section = name_;
        key.name = name;
        key.type = type;
        key.help = help;
        keys_.push_back(std::move(key));
        return keys_.back();
    }
    template <class T>
    Key& number_like(const char* name, T S::*member, Type type, Bounds bounds, const char* help) {
        Key& key = add(name, type, help);
        key.bounds = bounds;
        auto section = section_;
        key.get = [=](const RunConfig& config) -> Value { return config.*section.*member; };
        key.set = [=](RunConfig& config, const Value& value) {
            config.*section.*member = std::get<T>(value);
        };
        return key;
    }

    std::vector<Key>& keys_;
    std::string name_;
    S RunConfig::*section_;
};

}  // namespace scape::config
