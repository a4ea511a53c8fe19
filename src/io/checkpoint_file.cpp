#include "checkpoint_file.hpp"
#include "checkpoint_format.hpp"

#include <scape/base/error.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace scape::io {
namespace {

namespace fs = std::filesystem;

/// Metadata of a file, at most; rounded up generously.
constexpr Index overhead_bytes = Index{1} << 20;

std::string reason(int number) {
    return fmt::format("{} (errno {})", std::strerror(number), number);
}

[[noreturn]] void fail(const std::string& message) {
    throw user_error(ExitCode::resources, "checkpoint: " + message);
}

/// fsync of a file or directory.
void flush_to_disk(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool flushed = descriptor >= 0 && ::fsync(descriptor) == 0;
    const int number = errno;
    if (descriptor >= 0) ::close(descriptor);
    // Some file systems cannot flush a directory.
    if (!flushed && number != EINVAL) throw h5::error("fsync failed: " + reason(number));
}

void rename(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
        throw h5::error(fmt::format("renaming it to '{}' failed: {}", to, reason(errno)));
    }
}

void write_latest(const std::string& dir, const std::string& name) {
    const std::string path = dir + "/" + latest_name, temporary = path + temporary_suffix;
    const int descriptor =
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const std::string line = name + "\n";
    bool good =
        descriptor >= 0 &&
        ::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
        ::fsync(descriptor) == 0;
    int number = errno;
    if (descriptor >= 0) good = ::close(descriptor) == 0 && good;
    if (good) {
        good = std::rename(temporary.c_str(), path.c_str()) == 0;
        number = errno;
    }
    if (!good) {
        ::unlink(temporary.c_str());
        fail(fmt::format("cannot write '{}': {}", path, reason(number)));
    }
}

void make_directory(const std::string& dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error || !fs::is_directory(dir)) {
        fail(fmt::format("cannot make the directory '{}': {}; choose another run.dir", dir,
                         error ? error.message() : "it is a file"));
    }
    if (::access(dir.c_str(), W_OK | X_OK) != 0) {
        fail(fmt::format("the directory '{}' is not writable: {}; choose another run.dir", dir,
                         reason(errno)));
    }
}

void check_room(const std::string& dir, Index wanted) {
    struct statvfs disk {};
    if (::statvfs(dir.c_str(), &disk) != 0) return;  // the writing itself will tell
    const double room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (room < static_cast<double>(wanted)) {
        fail(
            fmt::format("the disk of '{}' has {:.0f} bytes free, and {} bytes are wanted; nothing "
                        "was written. Make room (checkpoint.keep_last), or choose another run.dir",
                        dir, room, wanted));
    }
}

}  // namespace

CheckpointFile::CheckpointFile(const std::string& dir, const CheckpointMeta& meta,
                               Index payload_bytes)
    : dir_(dir),
      name_(checkpoint_name(meta.step)),
      temporary_(dir + "/" + name_ + temporary_suffix),
      wanted_(payload_bytes + overhead_bytes),
      // A write beyond a file size limit must fail, not kill.
      size_limit_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    try {
        make_directory(dir);
        check_room(dir, wanted_);
        guarded([&] {
            file_ = h5::create_file(temporary_);
            created_ = true;
            write_meta(meta);
        });
    } catch (...) {
        discard();
        throw;
    }
}

CheckpointFile::~CheckpointFile() {
    discard();
}

// HDF5 can close a file only after writing what it still holds of it: cutting the file off first
// makes room for that on a full disk, and a file size limit is lifted as far as it may be.
void CheckpointFile::discard() noexcept {
    rlimit limit{};
    const bool limited = created_ && ::getrlimit(RLIMIT_FSIZE, &limit) == 0;
    if (limited) {
        const rlimit lifted{limit.rlim_max, limit.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &lifted);
    }
    if (created_) (void)!::truncate(temporary_.c_str(), 0);
    dataset_.reset();
    rank_.reset();
    array_.reset();
    file_.reset();
    if (created_) ::unlink(temporary_.c_str());
    if (limited) ::setrlimit(RLIMIT_FSIZE, &limit);
    created_ = false;
    if (size_limit_handler_ != SIG_ERR) std::signal(SIGXFSZ, size_limit_handler_);
    size_limit_handler_ = SIG_ERR;
}

void CheckpointFile::write_meta(const CheckpointMeta& meta) {
    h5::write_attribute(file_, "format", std::string(format_name));
    h5::write_attribute(file_, "format_version", format_version);
    h5::write_attribute(file_, "step", meta.step);
    h5::write_attribute(file_, "tokens", meta.tokens);
    h5::write_attribute(file_, "samples", meta.samples);
    h5::write_attribute(file_, "ranks", static_cast<Index>(meta.ranks));
    h5::write_attribute(file_, "deck", meta.deck);
    h5::write_attribute(file_, "meta_hash", meta_hash(meta));
    h5::write_attribute(file_, "hdf5_version", h5::version());
    h5::write_attribute(file_, "kokkos_version",
                        fmt::format("{}.{}.{}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100,
                                    KOKKOS_VERSION % 100));
    const h5::Id numbers = h5::create_group(file_, numbers_group);
    for (const auto& [name, value] : meta.numbers) h5::write_attribute(numbers, name, value);
    const h5::Id texts = h5::create_group(file_, texts_group);
    for (const auto& [name, value] : meta.texts) h5::write_attribute(texts, name, value);
}

void CheckpointFile::begin_array(const std::string& name, int ranks) {
    if (name == numbers_group || name == texts_group) {
        throw std::logic_error("checkpoint: an array cannot be called '" + name + "'");
    }
    guarded([&] {
        rank_.close("H5Gclose");
        array_ = h5::create_group(file_, name);
        if (ranks > 0) h5::write_attribute(array_, ranks_attribute, Index{ranks});
    });
}

void CheckpointFile::begin_rank(int rank) {
    guarded([&] { rank_ = h5::create_group(array_, rank_group(rank)); });
}

void CheckpointFile::begin_tensor(const Tensor& tensor, h5::Element element) {
    guarded([&] {
        const hid_t group = rank_ >= 0 ? rank_ : array_;
        dataset_ = h5::create_dataset(group, tensor.name, tensor.shape, element);
    });
    element_ = element;
}

void CheckpointFile::write(Index begin, Index end, const void* values) {
    guarded([&] { h5::write(dataset_, begin, end, values, element_); });
    written_ += (end - begin) * h5::bytes_of(element_);
}

void CheckpointFile::end_tensor() {
    guarded([&] { dataset_.close("H5Dclose"); });
}

Index CheckpointFile::commit() {
    const std::string path = dir_ + "/" + name_;
    Index bytes = 0;
    guarded([&] {
        rank_.close("H5Gclose");
        array_.close("H5Gclose");
        // Everything else is on the disk before the mark that says so.
        h5::flush(file_);
        flush_to_disk(temporary_);
        h5::write_attribute(file_, "complete", Index{1});
        h5::flush(file_);
        file_.close("H5Fclose");
        flush_to_disk(temporary_);
        bytes = static_cast<Index>(fs::file_size(temporary_));
        rename(temporary_, path);
        created_ = false;
        flush_to_disk(dir_);
    });
    write_latest(dir_, name_);
    flush_to_disk(dir_);
    return bytes;
}

void CheckpointFile::guarded(const std::function<void()>& work) {
    try {
        work();
    } catch (const h5::error& e) {
        fail(
            fmt::format("writing '{}' failed: {}; {} of {} bytes were written. The file is "
                        "removed, older checkpoints are as they were. Make room, or choose "
                        "another run.dir",
                        temporary_, e.what(), written_, wanted_));
    }
}

comm::Failure CheckpointFile::attempt(const std::function<void()>& work) {
    try {
        work();
    } catch (const user_error& e) {
        return {true, e.code(), e.what()};
    } catch (const std::bad_alloc&) {
        return {true, ExitCode::resources, "checkpoint: out of memory"};
    } catch (const std::exception& e) {
        return {true, ExitCode::fault, std::string("checkpoint: ") + e.what()};
    }
    return {};
}

}  // namespace scape::io
