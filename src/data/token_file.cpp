#include <scape/base/error.hpp>
#include <scape/data/token_file.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>

namespace scape::data {
namespace {

namespace fs = std::filesystem;

/// Bytes read by one call at most; the buffer lives on the stack.
constexpr Index buffer_bytes = Index{64} << 10;
/// More files than this are opened for each read instead of being kept open.
constexpr std::size_t most_open_files = 256;

[[noreturn]] void fail(const std::string& message) {
    throw user_error(ExitCode::data, message);
}

const char* name_of(config::DataFormat format) {
    switch (format) {
        case config::DataFormat::text:
            return "text";
        case config::DataFormat::raw_u16:
            return "raw_u16";
        case config::DataFormat::raw_u32:
            return "raw_u32";
        case config::DataFormat::synthetic:
            break;
    }
    throw std::logic_error("TokenFiles: synthetic data has no files");
}

bool is_pattern(const std::string& path) {
    return path.find_first_of("*?[") != std::string::npos;
}

/// Where relative paths start.
std::string here() {
    std::error_code ignored;
    return fs::current_path(ignored).string();
}

/// What the pattern matches, sorted; a path that exists as it is written is taken so.
std::vector<std::string> matches(const std::string& pattern) {
    std::error_code ignored;
    if (!is_pattern(pattern) || fs::exists(pattern, ignored)) return {pattern};
    glob_t found{};
    const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    if (status != 0 && status != GLOB_NOMATCH) {
        fail(fmt::format("data: the pattern '{}' could not be expanded: {}", pattern,
                         std::strerror(errno)));
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::vector<std::string> real_files(const std::string& pattern) {
    const auto paths = matches(pattern);
    std::vector<std::string> files;
    std::set<std::string> seen;
    int directories = 0;
    for (const auto& path : paths) {
        std::error_code error;
        if (fs::is_directory(path, error)) {
            ++directories;
            continue;
        }
        const fs::path real = fs::canonical(path, error);
        if (error) {
            fail(fmt::format("data: cannot find '{}': {} (looked from {})", path, error.message(),
                             here()));
        }
        if (seen.insert(real.string()).second) files.push_back(real.string());
    }
    if (files.empty() && directories > 0) {
        fail(
            fmt::format("data: '{0}' leads to {1}, not to files; name the files, for instance "
                        "'{0}/*.bin'",
                        pattern, directories == 1 ? "a directory" : "directories"));
    }
    if (files.empty()) {
        fail(fmt::format("data: no file matches '{}' (looked from {})", pattern, here()));
    }
    return files;
}

/// Size in bytes of a regular file that can be read.
Index size_of(const std::string& path, int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) {
        fail(fmt::format("data: cannot read '{}': {}", path, std::strerror(errno)));
    }
    if (!S_ISREG(status.st_mode)) fail(fmt::format("data: '{}' is not a regular file", path));
    return status.st_size;
}

std::uint32_t decode(const unsigned char* bytes, Index width) {
    std::uint32_t id = 0;
    for (Index i = 0; i < width; ++i) id |= std::uint32_t{bytes[i]} << (8 * i);
    return id;
}

/// What the ids around a bad one look like, if the file seems to be of the other width.
std::string hint(config::DataFormat format, Index vocab, const unsigned char* bytes, Index count) {
    if (format == config::DataFormat::raw_u16 && count >= 2) {
        bool zero[2] = {true, true};
        for (Index i = 0; i < count; ++i) zero[i % 2] &= decode(bytes + 2 * i, 2) == 0;
        if (zero[0] != zero[1]) {
            return "; every second value is 0, so this is probably raw_u32 (set data.format)";
        }
    }
    if (format == config::DataFormat::raw_u32 && count >= 1) {
        bool small = true;
        for (Index i = 0; i < 2 * count; ++i) small &= decode(bytes + 2 * i, 2) < vocab;
        if (small) return "; as 16-bit values all are below it: raw_u16? (set data.format)";
    }
    return "";
}

}  // namespace

Index token_bytes(config::DataFormat format) {
    switch (format) {
        case config::DataFormat::raw_u16:
            return 2;
        case config::DataFormat::raw_u32:
            return 4;
        default:
            return 1;
    }
}

TokenFiles::TokenFiles(const std::string& pattern, config::DataFormat format, Index vocab)
    : format_(format), vocab_(vocab) {
    if (pattern.empty()) {
        fail(fmt::format("data.train is empty: format {} needs a file", name_of(format)));
    }
    const Index width = token_bytes(format);
    const auto paths = real_files(pattern);
    for (const auto& path : paths) {
        Descriptor descriptor(path);
        const Index bytes = size_of(path, descriptor);
        if (bytes == 0) fail(fmt::format("data: '{}' is empty (0 bytes)", path));
        if (bytes % width != 0) {
            fail(
                fmt::format("data: '{}' has {} bytes, which is no multiple of the {} bytes of a "
                            "{} token: cut short, or of another format",
                            path, bytes, width, name_of(format)));
        }
        files_.push_back({path, tokens_, bytes / width});
        tokens_ += bytes / width;
        if (paths.size() <= most_open_files) open_.push_back(std::move(descriptor));
    }
}

// O_NONBLOCK: a pipe must be refused, not waited for.
TokenFiles::Descriptor::Descriptor(const std::string& path)
    : number_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    if (number_ < 0) fail(fmt::format("data: cannot read '{}': {}", path, std::strerror(errno)));
}

TokenFiles::Descriptor::~Descriptor() {
    if (number_ >= 0) ::close(number_);
}

void TokenFiles::read(Index first, Index count, Token* out) const {
    if (first < 0 || count < 0 || first + count > tokens_) {
        throw std::out_of_range(
            fmt::format("TokenFiles: tokens [{}, {}) of {}", first, first + count, tokens_));
    }
    auto file = std::upper_bound(files_.begin(), files_.end(), first,
                                 [](Index token, const File& f) { return token < f.first; }) -
                1;
    while (count > 0) {
        const Index inside = first - file->first;
        const Index part = std::min(count, file->tokens - inside);
        if (!open_.empty()) {
            read_part(*file, open_[file - files_.begin()], inside, part, out);
        } else {
            read_part(*file, Descriptor(file->path), inside, part, out);
        }
        first += part;
        count -= part;
        out += part;
        ++file;
    }
}

void TokenFiles::read_part(const File& file, int descriptor, Index first, Index count,
                           Token* out) const {
    const Index width = token_bytes(format_);
    std::array<unsigned char, buffer_bytes> buffer;
    while (count > 0) {
        const Index part = std::min(count, buffer_bytes / width);
        for (Index have = 0; have < part * width;) {
            const ssize_t got = ::pread(descriptor, buffer.data() + have, part * width - have,
                                        first * width + have);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) {
                fail(fmt::format("data: reading '{}' at byte {} failed: {}", file.path,
                                 first * width + have, std::strerror(errno)));
            }
            if (got == 0) {
                fail(
                    fmt::format("data: '{}' ends at byte {}, but had {} bytes when it was opened: "
                                "it was changed during the run",
                                file.path, first * width + have, file.tokens * width));
            }
            have += got;
        }
        for (Index i = 0; i < part; ++i) {
            const std::uint32_t id = decode(buffer.data() + i * width, width);
            if (id >= vocab_) {
                fail(fmt::format("file {}, token {} (byte {}): id {} >= vocab {}{}", file.path,
                                 first + i, (first + i) * width, id, vocab_,
                                 hint(format_, vocab_, buffer.data(), part)));
            }
            out[i] = static_cast<Token>(id);
        }
        first += part;
        count -= part;
        out += part;
    }
}

}  // namespace scape::data
