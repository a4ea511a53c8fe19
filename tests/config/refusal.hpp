#pragma once
// What a user is told: the message of the user_error that an action throws.

#include <scape/base/error.hpp>

#include <string>

#include "support/catch.hpp"

inline const std::string nothing = "(nothing was refused)";

template <class Action>
std::string refusal(Action action) {
    try {
        action();
    } catch (const scape::user_error& error) {
        CHECK(error.code() == scape::ExitCode::usage);
        return error.what();
    }
    return nothing;
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Shows the whole message when a part is missing.
#define CHECK_SAYS(message, part)          \
    do {                                   \
        INFO("message: " << (message));    \
        INFO("expected part: " << (part)); \
        CHECK(has(message, part));         \
    } while (false)
