#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <scape/base/error.hpp>
#include <scape/base/text_file.hpp>

#include <sys/stat.h>

#include <sstream>

using namespace scape;
using namespace scape::test;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::ptrdiff_t files_in(const fs::path& dir) {
    return std::distance(fs::directory_iterator(dir), fs::directory_iterator());
}

ExitCode code_of(const std::string& path) {
    ExitCode codes[2] = {ExitCode::done, ExitCode::done};
    for (int i = 0; i < 2; ++i) {
        try {
            if (i == 0) check_writable(path);
            if (i == 1) write_text_file(path, "text");
        } catch (const user_error& e) {
            codes[i] = e.code();
            CHECK(std::string(e.what()).find(path) != std::string::npos);
        }
    }
    CHECK(codes[0] == codes[1]);
    return codes[1];
}

}  // namespace

TEST_CASE("text files are replaced as a whole, and nothing else is touched") {
    const Scratch scratch;
    const std::string dir = scratch.path();
    const std::string file = dir + "/a.json";
    std::ofstream(file + ".tmp") << "a user's own";
    check_writable(file);
    CHECK_FALSE(fs::exists(file));
    write_text_file(file, "one");
    write_text_file(file, "two");
    check_writable(file);
    CHECK(content(file) == "two");
    CHECK(content(file + ".tmp") == "a user's own");
    CHECK(files_in(dir) == 2);
}

TEST_CASE("text files: links are followed, devices and pipes stay what they are") {
    const Scratch scratch;
    const std::string dir = scratch.path();
    std::ofstream(dir + "/target") << "old";
    fs::create_symlink("target", dir + "/link");
    fs::create_symlink("nothing yet", dir + "/dangling");
    write_text_file(dir + "/link", "new");
    write_text_file(dir + "/dangling", "new");
    CHECK(fs::is_symlink(dir + "/link"));
    CHECK(content(dir + "/target") == "new");
    CHECK(content(dir + "/nothing yet") == "new");
    CHECK(code_of("/dev/null") == ExitCode::done);
    CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("text files that cannot be written are refused with the reason") {
    const Scratch scratch;
    const std::string dir = scratch.path();
    fs::create_symlink("loop", dir + "/loop");
    for (const std::string& path :
         {dir, dir + "/nowhere/a.json", dir + "/loop", dir + "/" + std::string(300, 'x')})
        CHECK(code_of(path) == ExitCode::resources);
    CHECK(files_in(dir) == 1);
}
