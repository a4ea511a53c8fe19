// The directory of checkpoints: which one is found, which ones go, and what a failed save leaves.
#include "io/checkpoint_file.hpp"

#include <scape/base/error.hpp>
#include <scape/io/checkpoint.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>

using namespace scape;

namespace {

bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    UNSCOPED_INFO("'" << text << "' does not say '" << part << "'");
    return false;
}

std::vector<std::string> names_in(const std::string& dir) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

io::SaveResult save(const std::string& dir, Index step, Index elements = 10) {
    FlatLayout layout;
    layout.add("w", {elements});
    const Sharding sharding(layout, 1, 1000);
    const Vec<float> w = test::to_device(test::any_bits(sharding.extent(), 1));
    const auto comm = comm::make_self();
    return io::save(*comm, dir, test::sample_meta(step), layout, sharding, {{"weights", true, w}});
}

/// The message of the failure that saving must end in; afterwards the directory is as it was.
std::string failing_save(const std::string& dir, Index step, Index elements) {
    try {
        save(dir, step, elements);
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::resources);
        return e.what();
    }
    FAIL_CHECK("the save went well");
    return "";
}

}  // namespace

TEST_CASE("names of checkpoints") {
    CHECK(io::checkpoint_name(500) == "step-00000500.h5");
    CHECK(io::checkpoint_name(1234567890123) == "step-1234567890123.h5");
    CHECK(io::checkpoint_step("step-00000500.h5") == 500);
    CHECK(io::checkpoint_step("step-1234567890123.h5") == 1234567890123);
    for (const char* other : {"step-00000500.h5.tmp", "step-.h5", "latest", "step-x1.h5", "step-1",
                              "astep-1.h5", "step-99999999999999999999.h5", ""}) {
        CHECK_FALSE(io::checkpoint_step(other).has_value());
    }
}

TEST_CASE("find_latest: the newest that is whole, and why others were passed over") {
    const test::Scratch dir;
    std::vector<std::string> log;
    CHECK_FALSE(io::find_latest(dir.path("none"), log).has_value());
    CHECK_FALSE(io::find_latest(dir.path(), log).has_value());
    CHECK(log.empty());
    for (Index step : {9, 10, 200000000}) save(dir.path(), step);
    dir.write("step-99999999999999999.h5.tmp", "being written");
    CHECK(io::find_latest(dir.path(), log) == dir.path("step-200000000.h5"));
    CHECK(log.empty());

    std::filesystem::resize_file(dir.path("step-200000000.h5"), 3000);
    dir.write("step-00000011.h5", "not HDF5");
    CHECK(io::find_latest(dir.path(), log) == dir.path("step-00000010.h5"));
    REQUIRE(log.size() == 3);
    CHECK(has(log[0], "step-200000000.h5' (3000 bytes) is cut short"));
    CHECK(has(log[1], "step-00000011.h5' (8 bytes) is no HDF5 file"));
    CHECK(has(log[2], "falling back to '" + dir.path("step-00000010.h5")));
}

TEST_CASE("find_latest when no checkpoint is whole") {
    const test::Scratch dir;
    dir.write("step-00000011.h5", "");
    std::vector<std::string> log;
    CHECK_FALSE(io::find_latest(dir.path(), log).has_value());
    CHECK(log.size() == 1);
}

TEST_CASE("prune keeps the last ones and every n-th, and clears temporaries") {
    const test::Scratch dir;
    const auto fill = [&] {
        for (Index step : {5, 10, 15, 20, 25}) dir.write(io::checkpoint_name(step), "x");
        dir.write("latest", "step-00000025.h5\n");
        dir.write("step-00000030.h5.tmp", "x");
        dir.write("latest.tmp", "x");
        dir.write("notes.tmp", "a user's");
    };
    const auto left = [&] {
        std::vector<Index> steps;
        for (const auto& name : names_in(dir.path())) {
            if (const auto step = io::checkpoint_step(name)) steps.push_back(*step);
        }
        return steps;
    };
    fill();
    io::prune(dir.path(), 1000000, 0, 0);
    CHECK(left() == std::vector<Index>{5, 10, 15, 20, 25});
    CHECK_FALSE(std::filesystem::exists(dir.path("step-00000030.h5.tmp")));
    CHECK_FALSE(std::filesystem::exists(dir.path("latest.tmp")));
    CHECK(std::filesystem::exists(dir.path("notes.tmp")));
    io::prune(dir.path(), 1000000, 2, 10);
    CHECK(left() == std::vector<Index>{10, 20, 25});
    io::prune(dir.path(), 1000000, 1, 0);
    CHECK(left() == std::vector<Index>{25});
    CHECK(std::filesystem::exists(dir.path("latest")));
    io::prune(dir.path("none"), 1000000, 1, 0);
}

TEST_CASE("a directory that cannot be made or written") {
    const test::Scratch dir;
    dir.write("file", "x");
    CHECK(has(failing_save(dir.path("file/checkpoints"), 1, 10), "file/checkpoints"));
    CHECK(has(failing_save(dir.path("file"), 1, 10), "cannot make the directory"));
    CHECK(test::read_file(dir.path("file")) == "x");
    std::filesystem::create_directory(dir.path("locked"));
    std::filesystem::permissions(dir.path("locked"), std::filesystem::perms::owner_read);
    if (::geteuid() != 0) {  // root may write everywhere
        CHECK(has(failing_save(dir.path("locked"), 1, 10), "is not writable"));
    }
    std::filesystem::permissions(dir.path("locked"), std::filesystem::perms::owner_all);
}

TEST_CASE("a file size limit: a message, no temporary, the previous checkpoint untouched") {
    const test::Scratch dir;
    save(dir.path(), 1);
    const std::string before = test::read_file(dir.path("step-00000001.h5"));
    rlimit limit{}, small{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    small = limit;
    small.rlim_cur = 6 << 20;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const std::string message = failing_save(dir.path(), 2, 5000000);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(has(message, "step-00000002.h5.tmp' failed"));
    CHECK(has(message, "File too large"));
    CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001.h5"});
    CHECK(test::read_file(dir.path("step-00000001.h5")) == before);
    CHECK(test::read_file(dir.path("latest")) == "step-00000001.h5\n");
    save(dir.path(), 2, 5000000);  // and the next one goes well
    CHECK(test::read_file(dir.path("latest")) == "step-00000002.h5\n");
}

TEST_CASE("a full disk: refused before, or stopped on the way") {
    const test::Scratch dir;
    if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=4m") != 0) {
        WARN("no rights to mount a small disk; skipped");
        return;
    }
    save(dir.path(), 1);
    const std::string refused = failing_save(dir.path(), 2, 2000000);
    CHECK(has(refused, "bytes free, and 9049600 bytes are wanted; nothing was written"));
    std::string stopped;
    try {
        // The room is used up by somebody else after it was found sufficient.
        io::CheckpointFile file(dir.path(), test::sample_meta(2), 0);
        FlatLayout layout;
        const std::vector<float> values(2000000, 1);
        file.begin_array("weights");
        file.begin_tensor(layout.add("w", {2000000}));
        file.write(0, 2000000, values.data());
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::resources);
        stopped = e.what();
    }
    CHECK(has(stopped, "step-00000002.h5.tmp' failed"));
    CHECK(has(stopped, "No space left on device (errno 28)"));
    CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001.h5"});
    std::vector<std::string> log;
    CHECK(io::find_latest(dir.path(), log) == dir.path("step-00000001.h5"));
    CHECK(::umount(dir.path().c_str()) == 0);
}

TEST_CASE("a save that does not end leaves nothing behind") {
    const test::Scratch dir;
    {
        io::CheckpointFile file(dir.path(), test::sample_meta(3), 0);
        file.begin_array("weights");
        CHECK(names_in(dir.path()) == std::vector<std::string>{"step-00000003.h5.tmp"});
    }
    CHECK(names_in(dir.path()).empty());
}
