#pragma once
/// @file
/// What the checks of validate() share.

#include "problems.hpp"

#include <scape/config/keys.hpp>
#include <scape/config/validate.hpp>

#include <fmt/format.h>

#include <string>

namespace scape::config {

struct CheckContext {
    const RunConfig& config;
    int ranks;
    const Places& places;
    Problems problems;

    bool given(const std::string& key) const { return places.count(key) > 0; }

    /// "model.width = 100 (deck.toml:7:9)"
    std::string show(const std::string& key) const {
        const auto found = places.find(key);
        const std::string where = found != places.end() ? " (" + found->second.text() + ")"
                                  : places.empty()      ? ""
                                                        : " (default)";
        return fmt::format("{} = {}{}", key, value_text(config, key), where);
    }

    /// `key` is the one whose place orders the message among the others.
    void add(const std::string& key, const std::string& text) {
        const auto found = places.find(key);
        // The text says the places; here they only sort.
        problems.add({"", found != places.end() ? found->second.line : 0, 0}, text);
    }

    /// Refuses a key that changes nothing here, if it was given and is not the default.
    void no_effect(const std::string& key, const std::string& why) {
        if (given(key) && value_text(config, key) != value_text(RunConfig{}, key)) {
            add(key, fmt::format("{} has no effect: {}; delete it", show(key), why));
        }
    }
};

/// Which elements travel, in which code, and what becomes of the rest: optimizer.kind, [scape],
/// [sparsity], [exchange], [loco], [error_feedback], checkpoint.error_feedback.
void check_exchange(CheckContext& c);

}  // namespace scape::config
