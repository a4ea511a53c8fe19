#pragma once
/// @file
/// A directory of a test's own, and small files in it.

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace scape::test {

/// Made empty, removed with all that is in it.
class Scratch {
   public:
    Scratch() {
        static std::atomic<int> number{0};
        path_ = std::filesystem::temp_directory_path() /
                ("scape-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
        std::filesystem::create_directories(path_);
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::string path() const { return path_.string(); }
    std::string path(const std::string& name) const { return (path_ / name).string(); }

    /// Writes a file and returns its path.
    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream file(path(name), std::ios::binary);
        file << bytes;
        if (!file) throw std::runtime_error("cannot write " + path(name));
        return path(name);
    }

   private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace scape::test
