// The buffer store on a disk: its file never stays, and a disk that is full or missing is one clear
// error, at once or at the next call.
#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>
#include <scape/io/buffer_store.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>

using namespace scape;
using io::BufferStore;
using io::Storage;

namespace {

constexpr Index chunk = 250000;  // elements: 1 MB
const std::vector<Index> chunks(4, chunk);

std::unique_ptr<BufferStore> make(const std::string& directory) {
    return io::make_buffer_store(Storage::hdf5, chunks, directory, 0);
}

bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    UNSCOPED_INFO("'" << text << "' does not say '" << part << "'");
    return false;
}

std::string refusal(ExitCode code, const std::function<void()>& work) {
    try {
        work();
    } catch (const user_error& e) {
        CHECK(e.code() == code);
        return e.what();
    }
    FAIL_CHECK("nothing was refused");
    return "";
}

/// Open files of this process under `directory`, those without a name included.
std::vector<std::string> open_files(const std::string& directory) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code ignored;
        const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
        if (target.rfind(directory, 0) == 0) found.push_back(entry.path());
    }
    return found;
}

bool empty(const std::string& directory) {
    return std::filesystem::is_empty(directory);
}

/// Every call after a failed write says the same, and nothing hangs.
void check_all_calls_fail(BufferStore& store, const std::string& wanted) {
    const Timer timer;
    const auto values = test::filled<float>(chunk, 1);
    const Exec exec;
    const auto message = refusal(ExitCode::resources, [&] { store.finish(exec); });
    CHECK(has(message, wanted));
    CHECK(has(message, "error_feedback"));
    CHECK(has(message, "1000000 bytes were wanted"));
    CHECK(has(message, "error_feedback.path"));
    CHECK(refusal(ExitCode::resources, [&] { store.write(exec, 1, values); }) == message);
    CHECK(refusal(ExitCode::resources, [&] { store.add_to(exec, 1, values); }) == message);
    CHECK(refusal(ExitCode::resources, [&] { store.expect({1, 2}); }) == message);
    CHECK(refusal(ExitCode::resources, [&] { store.finish(exec); }) == message);
    CHECK(timer.seconds() < 10);
}

}  // namespace

TEST_CASE("the file has no name while it is used, and no room when the store is gone") {
    const test::Scratch dir;
    const auto values = test::filled<float>(chunk, 1);
    {
        const auto store = make(dir.path()), other = make(dir.path());
        CHECK(empty(dir.path()));
        CHECK(open_files(dir.path()).size() == 2);
        for (int c = 0; c < 4; ++c) store->write(Exec(), c, values);  // not finished
    }
    CHECK(open_files(dir.path()).empty());
    try {
        const auto store = make(dir.path());
        store->expect({3, 2, 1, 0});
        store->write(Exec(), 3, values);
        throw std::runtime_error("something else");
    } catch (const std::runtime_error&) {
    }
    CHECK(open_files(dir.path()).empty());
    CHECK(empty(dir.path()));
}

TEST_CASE("a killed process leaves no file") {
    if (!exec_is_host) return;  // no fork from a process that uses a device
    const test::Scratch dir;
    const auto values = test::filled<float>(chunk, 1);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // should this test fail on the way
        const auto store = make(dir.path());
        for (int c = 0; c < 4; ++c) store->write(Exec(), c, values);
        store->finish(Exec());
        const char said = static_cast<char>('0' + open_files(dir.path()).size());
        (void)!::write(ready[1], &said, 1);
        while (true) store->write(Exec(), 0, values), store->finish(Exec());
    }
    char heard = 0;
    CHECK(::read(ready[0], &heard, 1) == 1);
    CHECK(heard == '1');  // it was there
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(empty(dir.path()));
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE("a directory that is missing, none, or not to be written") {
    const test::Scratch dir;
    dir.write("file", "x");
    const auto missing = refusal(ExitCode::usage, [&] { make(dir.path("none")); });
    CHECK(has(missing, "error_feedback.path: '" + dir.path("none") + "' is not there; set it to"));
    CHECK(has(refusal(ExitCode::usage, [&] { make(dir.path("file")); }), "is not a directory"));
    CHECK(has(refusal(ExitCode::usage, [&] { make(""); }), "'' is not there"));
    const auto closed = refusal(ExitCode::resources, [&] { make("/proc/self"); });
    CHECK(has(closed, "no file can be made in '/proc/self'"));
    CHECK(has(closed, "set it to a directory on a disk of this node that can be written"));
}

TEST_CASE("a file size limit is an error, at the start or later") {
    const test::Scratch dir;
    const auto values = test::filled<float>(chunk, 1);
    rlimit limit{}, small{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    small = limit;
    small.rlim_cur = 2500000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const auto refused = refusal(ExitCode::resources, [&] { make(dir.path()); });
    CHECK(has(refused,
              "files may not be larger than 2500000 bytes (ulimit -f); 4000000 bytes "
              "were wanted, 0 were written so far"));
    CHECK(open_files(dir.path()).empty());

    ::setrlimit(RLIMIT_FSIZE, &limit);
    {
        const auto store = make(dir.path());
        store->write(Exec(), 0, values);
        store->write(Exec(), 1, values);
        store->finish(Exec());
        ::setrlimit(RLIMIT_FSIZE, &small);
        store->write(Exec(), 3, values);
        check_all_calls_fail(*store, "File too large (errno 27)");
        CHECK(open_files(dir.path()).empty());
    }
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(empty(dir.path()));
    make(dir.path())->finish(Exec());  // and the next one is well
}

TEST_CASE("a disk that is full: refused at the start, or found when the room is taken away") {
    const test::Scratch dir;
    if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=6m") != 0) {
        WARN("no rights to mount a small disk; skipped");
        return;
    }
    const auto values = test::filled<float>(chunk, 1);
    {
        const auto store = make(dir.path());  // 4 of 6 MB
        const auto refused = refusal(ExitCode::resources, [&] { make(dir.path()); });
        CHECK(has(refused, "reserving room for '" + dir.path()));
        CHECK(has(refused, "No space left on device (errno 28); 4000000 bytes were wanted"));
        CHECK(has(refused, "bytes are free on this disk"));
        CHECK(open_files(dir.path()).size() == 1);
        store->write(Exec(), 0, values);
        store->finish(Exec());
        // Where a file system cannot reserve, others take the room meanwhile: so done here.
        const auto names = open_files(dir.path());
        REQUIRE(names.size() == 1);
        const int file = ::open(names[0].c_str(), O_RDWR);
        REQUIRE(file >= 0);
        REQUIRE(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8 << 20) == 0);
        ::close(file);  // and now nothing is left to HDF5, not even room for what it has in memory
        const std::string most(1 << 20, 'x');
        std::ofstream others(dir.path("others"), std::ios::binary);
        while (others.write(most.data(), static_cast<std::streamsize>(most.size())).flush()) {
        }
        others.close();
        store->write(Exec(), 2, values);
        check_all_calls_fail(*store, "No space left on device (errno 28)");
        CHECK(open_files(dir.path()).empty());
    }
    CHECK(::umount(dir.path().c_str()) == 0);
}
