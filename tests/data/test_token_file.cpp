// Token files: formats, several files as one sequence, ids that do not fit, files that cannot be
// used. Each error has its own message with its numbers.
#include <scape/base/error.hpp>
#include <scape/data/token_file.hpp>

#include "support/catch.hpp"
#include "support/random.hpp"
#include "support/refusal.hpp"
#include "support/scratch.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <numeric>

using namespace scape;
using config::DataFormat;
using data::TokenFiles;
using test::has;
using test::refusal;
using test::Scratch;

namespace {

std::string encode(const std::vector<std::uint32_t>& ids, int width) {
    std::string bytes;
    for (const std::uint32_t id : ids) {
        for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(id >> (8 * i)));
    }
    return bytes;
}

std::vector<Token> all(const TokenFiles& files) {
    std::vector<Token> tokens(files.tokens());
    files.read(0, files.tokens(), tokens.data());
    return tokens;
}

}  // namespace

TEST_CASE("formats: bytes, little-endian 16 and 32 bits") {
    const Scratch dir;
    const std::string text = dir.write("t.txt", std::string("a\0\xff\n", 4));
    CHECK(all(TokenFiles(text, DataFormat::text, 256)) == std::vector<Token>{97, 0, 255, 10});
    const std::vector<std::uint32_t> ids{0, 1, 258, 50256, 65535};
    const std::vector<Token> wanted(ids.begin(), ids.end());
    CHECK(all(TokenFiles(dir.write("t.16", encode(ids, 2)), DataFormat::raw_u16, 65536)) == wanted);
    CHECK(all(TokenFiles(dir.write("t.32", encode({7, 65536, 131071}, 4)), DataFormat::raw_u32,
                         131072)) == std::vector<Token>{7, 65536, 131071});
    CHECK(data::token_bytes(DataFormat::text) == 1);
    CHECK(data::token_bytes(DataFormat::raw_u16) == 2);
    CHECK(data::token_bytes(DataFormat::raw_u32) == 4);
}

TEST_CASE("several files are one sequence, in sorted order, and reads may span them") {
    const Scratch dir;
    // c.bin is longer than the buffer of a read; a and b are short.
    std::vector<std::uint32_t> ids(100003);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = (i * 7919) % 50000;
    const auto part = [&](int a, int b) {
        return encode(std::vector<std::uint32_t>(ids.begin() + a, ids.begin() + b), 2);
    };
    dir.write("b.bin", part(3, 10));
    dir.write("a.bin", part(0, 3));
    dir.write("c.bin", part(10, ids.size()));
    std::filesystem::create_directory(dir.path("d.bin"));         // skipped
    std::filesystem::create_symlink("b.bin", dir.path("e.bin"));  // counted once
    std::filesystem::create_symlink(
        "../" + std::filesystem::path(dir.path()).filename().string() + "/a.bin",
        dir.path("0.bin"));  // first now, through the link

    const TokenFiles files(dir.path("*.bin"), DataFormat::raw_u16, 50257);
    REQUIRE(files.files().size() == 3);
    CHECK(files.files()[2].first == 10);
    CHECK(files.files()[2].tokens == static_cast<Index>(ids.size()) - 10);
    CHECK(all(files) == std::vector<Token>(ids.begin(), ids.end()));
    for (Index first : {0, 1, 2, 3, 9, 10, 40000}) {
        for (Index count : {0, 1, 2, 9, 33000}) {
            std::vector<Token> out(count + 1, -7);
            files.read(first, count, out.data());
            CHECK(std::equal(out.begin(), out.end() - 1, ids.begin() + first));
            CHECK(out.back() == -7);
        }
    }
    Token one = 0;
    CHECK_THROWS_AS(files.read(files.tokens(), 1, &one), std::out_of_range);
    CHECK_THROWS_AS(files.read(-1, 1, &one), std::out_of_range);
}

TEST_CASE("a path that looks like a pattern but exists is that file") {
    const Scratch dir;
    dir.write("x1.txt", "one");
    const std::string odd = dir.write("x[1].txt", "other");
    CHECK(TokenFiles(odd, DataFormat::text, 256).tokens() == 5);
}

TEST_CASE("more files than are kept open") {
    const Scratch dir;
    std::vector<Token> wanted;
    for (int i = 0; i < 300; ++i) {
        dir.write("f" + std::to_string(1000 + i), std::string(1, static_cast<char>(i % 256)));
        wanted.push_back(i % 256);
    }
    CHECK(all(TokenFiles(dir.path("f*"), DataFormat::text, 256)) == wanted);
}

TEST_CASE("files that cannot be used") {
    const Scratch dir;
    const auto open = [](const std::string& path, DataFormat format) {
        return refusal([&] { TokenFiles(path, format, 256); });
    };
    const auto text = [&](const std::string& path) { return open(path, DataFormat::text); };
    CHECK(has(text(dir.path("none.txt")), dir.path("none.txt") + "': No such file"));
    CHECK(has(text(dir.path("none*.txt")), "no file matches"));
    CHECK(has(text(dir.path("none*.txt")), dir.path("none*.txt")));
    CHECK(has(text(""), "data.train is empty"));
    CHECK(has(text(dir.path()), "leads to a directory"));
    CHECK(has(text(dir.write("empty", "")), "is empty (0 bytes)"));
    REQUIRE(::mkfifo(dir.path("pipe").c_str(), 0600) == 0);
    CHECK(has(text(dir.path("pipe")), "is not a regular file"));
    std::filesystem::create_symlink("nowhere", dir.path("dangling"));
    CHECK(has(text(dir.path("dangling")), "cannot find"));
    CHECK(has(open(dir.write("one", "x"), DataFormat::raw_u16),
              "has 1 bytes, which is no multiple of the 2 bytes of a raw_u16 token"));
    CHECK(has(open(dir.write("six", "xxxxxx"), DataFormat::raw_u32),
              "has 6 bytes, which is no multiple of the 4 bytes of a raw_u32 token"));
    // The bad one among several is named.
    dir.write("m1", "xx");
    dir.write("m2", "");
    CHECK(has(text(dir.path("m*")), dir.path("m2")));

    const std::string locked = dir.write("locked", "text");
    ::chmod(locked.c_str(), 0);
    if (::geteuid() != 0) CHECK(has(text(locked), "cannot read"));  // root may read everything
}

TEST_CASE("a file that shrinks during the run") {
    const Scratch dir;
    const std::string path = dir.write("t.txt", std::string(1000, 'x'));
    const TokenFiles files(path, DataFormat::text, 256);
    std::filesystem::resize_file(path, 600);
    std::vector<Token> out(1000);
    files.read(0, 600, out.data());
    CHECK(has(refusal([&] { files.read(500, 400, out.data()); }),
              "ends at byte 600, but had 1000 bytes when it was opened"));
}

TEST_CASE("an id that the vocabulary does not have is named with file, token, byte and value") {
    const Scratch dir;
    std::vector<std::uint32_t> ids(130000, 17);
    ids[123456] = 50300;
    dir.write("a.bin", encode({1, 2, 3}, 2));
    const std::string path = dir.write("b.bin", encode(ids, 2));
    const TokenFiles files(dir.path("*.bin"), DataFormat::raw_u16, 50257);
    std::vector<Token> out(files.tokens());
    const std::string message = refusal([&] { files.read(0, files.tokens(), out.data()); });
    CHECK(has(message, "b.bin, token 123456 (byte 246912): id 50300 >= vocab 50257"));
    CHECK(message.find("raw_u32") == std::string::npos);
    files.read(0, 123459, out.data());  // up to it
    // Bytes and unsigned 32-bit ids.
    CHECK(has(refusal([&] { all(TokenFiles(dir.write("t", "ab\x80"), DataFormat::text, 128)); }),
              "token 2 (byte 2): id 128 >= vocab 128"));
    CHECK(has(
        refusal([&] {
            all(TokenFiles(dir.write("u", encode({1, 0xfffffffe}, 4)), DataFormat::raw_u32, 50257));
        }),
        "token 1 (byte 4): id 4294967294 >= vocab 50257"));
}

TEST_CASE("the wrong width is hinted at where an id gives it away") {
    const Scratch dir;
    const std::vector<std::uint32_t> ids{11, 50256, 300, 60000, 12};
    const std::string wide = dir.write("wide", encode(ids, 4));
    const std::string narrow = dir.write("narrow", encode({11, 50256, 300, 400}, 2));
    CHECK(has(refusal([&] { all(TokenFiles(wide, DataFormat::raw_u16, 50257)); }),
              "id 60000 >= vocab 50257; every second value is 0, so this is probably raw_u32"));
    CHECK(has(refusal([&] { all(TokenFiles(narrow, DataFormat::raw_u32, 50257)); }), "raw_u16?"));
}

TEST_CASE("a file over 4 GiB: positions and messages beyond 32 bits") {
    const Scratch dir;
    const Index tokens = (Index{1} << 32) + 11;  // over 2^32 tokens, and so over 4 GiB
    const std::string path = dir.write("sparse.bin", "");
    const int file = ::open(path.c_str(), O_WRONLY);
    REQUIRE(file >= 0);
    if (::ftruncate(file, tokens) != 0) {
        WARN("no room for a sparse file; skipped");
        ::close(file);
        return;
    }
    REQUIRE(::pwrite(file, "abc\xff", 4, tokens - 5) == 4);
    ::close(file);
    const TokenFiles files(path, DataFormat::text, 200);
    CHECK(files.tokens() == tokens);
    std::vector<Token> out(4);
    files.read(tokens - 6, 4, out.data());
    CHECK(out == std::vector<Token>{0, 97, 98, 99});
    CHECK(has(refusal([&] { files.read(tokens - 4, 4, out.data()); }),
              "token " + std::to_string(tokens - 2) + " (byte " + std::to_string(tokens - 2) +
                  "): id 255"));
}
