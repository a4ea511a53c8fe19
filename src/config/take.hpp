#pragma once
/// @file
/// One value, from the deck or from the command line, into the config.

#include "problems.hpp"

#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>

#include <toml++/toml.h>

#include <string>

namespace scape::config {

/// Checks the value's type, range or word; puts it into the config and notes its place, or adds a
/// problem.
void take(LoadedDeck& deck, Problems& problems, const Key& key, const toml::node& node,
          const Where& where);

/// What to say about a name ("model.layerz") that is no key.
std::string unknown_key(const std::string& name);

/// "a whole number", "a table": the type of a value, for a person.
const char* kind_of(const toml::node& node);

/// "; did you mean X?", or nothing when there is no X.
std::string did_you_mean(const std::string& near);

}  // namespace scape::config
