#include <scape/base/error.hpp>
#include <scape/base/text_file.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace scape {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const char* reason) {
    throw user_error(ExitCode::resources, "cannot write '" + path + "': " + reason +
                                              ". Choose another place, or make room or permission "
                                              "there.");
}

struct Place {
    std::string path;  // links followed
    bool replaced;     // a regular file, or none yet; devices and pipes are written into
};

Place place_of(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) fail(path, "it is a directory");
    if (status.type() == fs::file_type::none) fail(path, error.message().c_str());
    if (fs::exists(status) && !fs::is_regular_file(status)) return {path, false};
    if (!fs::is_symlink(fs::symlink_status(path, error))) return {path, true};
    const fs::path target = fs::canonical(path, error);
    return error ? Place{path, false} : Place{target.string(), true};
}

std::string temporary_of(const std::string& path) {
    return path + ".tmp-" + std::to_string(getpid());
}

void put(const std::string& path, const std::string& text, const std::string& named) {
    std::ofstream out(path, std::ios::trunc);
    out << text;
    out.close();
    if (out) return;
    const char* reason = std::strerror(errno);
    if (path != named) std::remove(path.c_str());
    fail(named, reason);
}

}  // namespace

void write_text_file(const std::string& path, const std::string& text) {
    const Place place = place_of(path);
    if (!place.replaced) return put(place.path, text, place.path);
    const std::string temporary = temporary_of(place.path);
    put(temporary, text, path);
    if (std::rename(temporary.c_str(), place.path.c_str()) == 0) return;
    const char* reason = std::strerror(errno);
    std::remove(temporary.c_str());
    fail(path, reason);
}

void check_writable(const std::string& path) {
    const Place place = place_of(path);
    if (place.replaced) {
        const std::string temporary = temporary_of(place.path);
        put(temporary, "", path);
        std::remove(temporary.c_str());
    } else if (access(place.path.c_str(), W_OK) != 0) {
        fail(path, std::strerror(errno));
    }
}

}  // namespace scape
