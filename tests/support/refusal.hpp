#pragma once
/// @file
/// What a user is told about data that cannot be used.

#include "support/catch.hpp"

#include <scape/base/error.hpp>

#include <string>

namespace scape::test {

inline bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    UNSCOPED_INFO("'" << text << "' does not say '" << part << "'");
    return false;
}

/// The message of the user_error(data) that `work` must throw.
template <class Work>
std::string refusal(Work&& work) {
    try {
        work();
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::data);
        return e.what();
    }
    FAIL_CHECK("nothing was refused");
    return "";
}

}  // namespace scape::test
