#pragma once
// Decks that are written in a test, for one rank.

#include "refusal.hpp"

#include <scape/config/deck.hpp>
#include <scape/config/validate.hpp>

inline std::string refused(const std::string& text) {
    return refusal([&] { scape::config::validate(scape::config::parse_deck(text, "d"), 1); });
}
