#pragma once
// What the parts of the reader of checkpoints share.

#include <scape/base/error.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/io/h5.hpp>

#include <fmt/format.h>

#include <string>

namespace scape::io {

struct CheckpointReader::File {
    h5::Id id;
};

namespace reader {

[[noreturn]] inline void fail(const std::string& path, const std::string& what) {
    throw user_error(ExitCode::data, fmt::format("checkpoint '{}' {}", path, what));
}

/// Runs `work`; what HDF5 says against it becomes a message about `what` of the file.
template <class Work>
void reading(const std::string& path, const std::string& what, Work&& work) {
    try {
        work();
    } catch (const h5::error& e) {
        const bool sum = std::string(e.what()).find("hecksum") != std::string::npos;
        fail(path,
             fmt::format("is damaged: {} {} ({}). Move it away, and the run goes on from the "
                         "checkpoint before it.",
                         what, sum ? "does not match its checksum" : "cannot be read", e.what()));
    }
}

}  // namespace reader
}  // namespace scape::io
