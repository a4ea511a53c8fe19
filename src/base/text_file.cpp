#include <scape/base/error.hpp>
#include <scape/base/text_file.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace scape {

namespace {

[[noreturn]] void fail(const std::string& path, const char* reason) {
    throw user_error(ExitCode::resources, "cannot write '" + path + "': " + reason +
                                              ". Choose another place, or make room or permission "
                                              "there.");
}

}  // namespace

void write_text_file(const std::string& path, const std::string& text) {
    if (std::filesystem::is_directory(path)) fail(path, "it is a directory");
    const std::string temporary = path + ".tmp";
    std::ofstream out(temporary, std::ios::trunc);
    out << text;
    out.close();
    const int number = errno;
    if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
        const char* reason = std::strerror(out ? errno : number);
        std::remove(temporary.c_str());
        fail(path, reason);
    }
}

void check_writable(const std::string& path) {
    if (std::filesystem::is_directory(path)) fail(path, "it is a directory");
    const std::string temporary = path + ".tmp";
    std::ofstream out(temporary, std::ios::app);
    const int number = errno;
    const bool good = static_cast<bool>(out);
    out.close();
    if (!good) fail(path, std::strerror(number));
    std::remove(temporary.c_str());
}

}  // namespace scape
