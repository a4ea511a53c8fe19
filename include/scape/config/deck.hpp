#pragma once
/// @file
/// From a deck (TOML) and the command line to a RunConfig, and back.

#include <scape/config/run_config.hpp>

#include <map>
#include <string>
#include <vector>

namespace scape::config {

/// "section.key=value" from the command line. The value is a TOML value; for text and words the
/// quotes may be left out: `optimizer.kind=adams`, `data.train=/a/b.txt`.
struct Override {
    std::string text;
};

/// Where a value was given.
struct Where {
    std::string source;        ///< deck's name, or "command line"
    Index line = 0;            ///< from 1; 0: no line
    Index column = 0;          ///< from 1
    std::string text() const;  ///< "deck.toml:3:10", "command line"
};

/// The keys that a deck or the command line gave, by full name ("model.layers"), and where. Keys
/// that are not in it have their defaults.
using Places = std::map<std::string, Where>;

struct LoadedDeck {
    RunConfig config;  ///< defaults resolved (resolve_defaults)
    Places places;
};

/// Reads a deck, then the overrides. Each key is checked by itself: known, given once, right type,
/// in range; validate() does the cross-checks. Throws user_error(usage) that lists all problems, a
/// line each: place, key, value seen, value allowed, nearest known key.
LoadedDeck load_deck(const std::string& path, const std::vector<Override>& overrides = {});

/// The same from a deck's text, for instance the one in a checkpoint; `name` is used in messages.
LoadedDeck parse_deck(const std::string& text, const std::string& name,
                      const std::vector<Override>& overrides = {});

/// The configs alone.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides = {});
RunConfig parse_run_config(const std::string& text, const std::string& name,
                           const std::vector<std::string>& overrides = {});

/// For command lines.
std::vector<Override> as_overrides(const std::vector<std::string>& texts);

/// A complete deck: every key with its value and a comment; automatic values are shown as the
/// numbers they stand for. parse_run_config of it gives the same config, bit for bit.
std::string resolved_deck(const RunConfig& config);

}  // namespace scape::config
