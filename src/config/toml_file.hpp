#pragma once
/// @file
/// TOML files that a user writes: decks and machine files.

#include "problems.hpp"

#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>

#include <functional>
#include <set>
#include <string>

namespace scape::config {

/// Gets a key's value, which is of the right type and in range, and its place.
using Taker = std::function<void(const KeyRule&, const Value&, const Where&)>;

/// Hands all values of a text to `taker`; those that are wrong, and names that are none of the
/// keys, are problems instead. Returns the full names of the keys that were given, rightly or not.
/// Throws user_error(usage) when the text is no TOML, or gives a key twice.
std::set<std::string> take_all(const std::string& text, const std::string& source,
                               const Rules& rules, Problems& problems, const Taker& taker);

/// The text of a file. Throws user_error(usage) if there is none, or it is too large to be a
/// `kind` ("deck"); `hint` says what to do.
std::string read_toml(const std::string& path, const std::string& kind, const std::string& hint);

}  // namespace scape::config
