// Which checkpoints a directory holds, which is the newest good one, and which can go.
#include "checkpoint_format.hpp"

#include <scape/base/error.hpp>
#include <scape/io/checkpoint.hpp>

#include <algorithm>
#include <filesystem>

namespace scape::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step-", suffix = ".h5";

/// Steps of the checkpoints in `dir`, newest first. Empty when there is no such directory.
std::vector<std::pair<Index, std::string>> checkpoints(const std::string& dir) {
    std::vector<std::pair<Index, std::string>> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(dir, error)) {
        const std::string name = entry.path().filename().string();
        if (const auto step = checkpoint_step(name)) found.emplace_back(*step, dir + "/" + name);
    }
    std::sort(found.rbegin(), found.rend());
    return found;
}

/// What a run that was killed while it wrote left behind.
std::vector<fs::path> temporaries(const std::string& dir) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(dir, error)) {
        const fs::path& path = entry.path();
        if (path.extension() != temporary_suffix) continue;
        const std::string whole = path.stem().string();
        if (checkpoint_step(whole) || whole == latest_name) found.push_back(path);
    }
    return found;
}

}  // namespace

std::string checkpoint_name(Index step) {
    return fmt::format("{}{:08}{}", prefix, step, suffix);
}

std::optional<Index> checkpoint_step(const std::string& file_name) {
    const std::string_view name = file_name;
    if (name.size() < prefix.size() + suffix.size() + 1 || name.size() > 32) return {};
    if (name.substr(0, prefix.size()) != prefix) return {};
    if (name.substr(name.size() - suffix.size()) != suffix) return {};
    const auto digits = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    Index step = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9' || digits.size() > 18) return {};
        step = 10 * step + (c - '0');
    }
    return step;
}

std::optional<std::string> find_latest(const std::string& dir, std::vector<std::string>& log) {
    for (const auto& [step, path] : checkpoints(dir)) {
        try {
            const CheckpointReader reader(path);
            if (!log.empty()) log.push_back(fmt::format("falling back to '{}'", path));
            return path;
        } catch (const user_error& e) {
            log.push_back(fmt::format("passed over: {}", e.what()));
        }
    }
    return {};
}

void prune(const std::string& dir, Index newest, Index keep_last, Index keep_every) {
    std::error_code error;
    for (const auto& path : temporaries(dir)) fs::remove(path, error);
    if (keep_last < 1) return;
    auto found = checkpoints(dir);
    // Later steps come from another attempt, or cannot be read: they must not count as the newest.
    std::erase_if(found, [&](const auto& c) { return c.first > newest; });
    for (std::size_t i = static_cast<std::size_t>(keep_last); i < found.size(); ++i) {
        const bool kept = keep_every > 0 && found[i].first % keep_every == 0;
        if (!kept) fs::remove(found[i].second, error);
    }
}

}  // namespace scape::io
