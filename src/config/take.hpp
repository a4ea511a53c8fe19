#pragma once
/// @file
/// One value, from a TOML file or from the command line, checked.

#include "problems.hpp"

#include <scape/config/keys.hpp>

#include <toml++/toml.h>

#include <optional>
#include <string>

namespace scape::config {

/// The value, if its type and its range or word are right; otherwise nothing, and a problem more.
std::optional<Value> checked(Problems& problems, const KeyRule& key, const toml::node& node,
                             const Where& where);

/// What to say about a name ("model.layerz") that is no key.
std::string unknown_key(const std::string& name, const Rules& rules);

/// "a whole number", "a table": the type of a value, for a person.
const char* kind_of(const toml::node& node);

/// "; did you mean X?", or nothing when there is no X.
std::string did_you_mean(const std::string& near);

}  // namespace scape::config
