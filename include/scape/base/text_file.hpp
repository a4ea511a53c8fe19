#pragma once
/// @file
/// Whole text files.

#include <string>

namespace scape {

/// Replaces a file in one go: a reader sees the old text or the new one. Links are followed; devices
/// and pipes are written into. Throws user_error(resources) that names the file and the reason.
void write_text_file(const std::string& path, const std::string& text);

/// Throws user_error(resources) if write_text_file could not work there; leaves nothing behind. For
/// programs that measure for a while before they have something to write.
void check_writable(const std::string& path);

}  // namespace scape
