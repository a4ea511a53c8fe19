#pragma once
/// @file
/// Checks that need more than one key, or the number of ranks; and keys whose text has a form.

#include <scape/config/deck.hpp>

#include <array>
#include <string>

namespace scape::config {

/// Throws user_error(usage) that lists all contradictions, a line each: the keys, their values and
/// where these were given, and what to change. `ranks` < 1: not known yet, and what depends on it
/// is not checked. Keys without effect for the chosen family or format are refused only where
/// `places` says that they were given, with a value other than the default.
void validate(const RunConfig& config, int ranks, const Places& places = {});
inline void validate(const LoadedDeck& deck, int ranks) {
    validate(deck.config, ranks, deck.places);
}

/// run.wall_limit in seconds: "0" (none), "90s", "47h30m", "1h5m10s", "2d". Throws
/// user_error(usage) on anything else.
double wall_limit_seconds(const std::string& text);

/// data.split as shares of train, validation and test that add up to 1, from "949,50,1" or
/// "95,5". Throws user_error(usage) unless it is two or three numbers >= 0, the first one > 0.
std::array<double, 3> split_shares(const std::string& text);

}  // namespace scape::config
