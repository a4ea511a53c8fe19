#pragma once
/// @file
/// A fence with a label, also where Kokkos is too old to take one.

#include <scape/base/types.hpp>

#include <string>

namespace scape {

/// Blocks until the work queued on `exec` is done.
template <class E>
void fence(const E& exec, const char* label) {
    if constexpr (requires { exec.fence(std::string(label)); }) {
        exec.fence(std::string(label));
    } else {
        exec.fence();
    }
}

}  // namespace scape
