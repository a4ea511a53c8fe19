#include "scratch_file.hpp"

#include <scape/base/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace scape::io {
namespace {

namespace fs = std::filesystem;

std::string reason(int number) {
    return fmt::format("{} (errno {})", std::strerror(number), number);
}

void check_directory(const std::string& directory) {
    std::error_code error;
    const bool there = fs::exists(directory, error);
    if (!there || !fs::is_directory(directory, error)) {
        throw user_error(
            ExitCode::usage,
            fmt::format("error_feedback.path: '{}' {}; set it to a directory on a disk of this "
                        "node (error_feedback.storage = \"hdf5\" keeps its file there)",
                        directory, there ? "is not a directory" : "is not there"));
    }
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory, int rank, const std::vector<Index>& chunks)
    : directory_(directory), chunks_(chunks), written_(chunks.size(), false) {
    for (const Index n : chunks) total_bytes_ += n * static_cast<Index>(sizeof(float));
    check_directory(directory);
    check_size_limit();
    create(directory, rank);
    try {
        datasets_.resize(chunks.size());
        for (std::size_t i = 0; i < chunks.size(); ++i) {
            if (chunks[i] == 0) continue;
            datasets_[i] = h5::create_scratch_dataset(file_, std::to_string(i), chunks[i]);
        }
        h5::flush(file_);  // from here on nothing but values is written
        reserve();
    } catch (const h5::error& e) {
        const std::string what = e.what();
        close();
        fail("setting up '" + path_ + "' failed: " + what, total_bytes_);
    } catch (...) {
        close();
        throw;
    }
}

ScratchFile::~ScratchFile() {
    close();
}

void ScratchFile::check_size_limit() {
    constexpr Index overhead_bytes = 65536;  // of HDF5, and a little for each data set
    const Index wanted = total_bytes_ + overhead_bytes + 1024 * static_cast<Index>(chunks_.size());
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (limit.rlim_cur >= static_cast<rlim_t>(wanted)) return;
    fail(fmt::format("files may not be larger than {} bytes (ulimit -f)", limit.rlim_cur),
         total_bytes_);
}

void ScratchFile::create(const std::string& directory, int rank) {
    const std::string stem =
        fmt::format("{}/scape-error-feedback-{}-{}", directory, ::getpid(), rank);
    std::error_code ignored;
    int number = 0;
    do {
        path_ = fmt::format("{}-{}.h5", stem, number++);
    } while (fs::exists(path_, ignored));
    try {
        file_ = h5::create_scratch_file(path_);
    } catch (const h5::error& e) {
        throw user_error(ExitCode::resources,
                         fmt::format("error_feedback.path: no file can be made in '{}': {}; set it "
                                     "to a directory on a disk of this node that can be written",
                                     directory, e.what()));
    }
    ::unlink(path_.c_str());
}

// Running out of room is better known now than after hours.
void ScratchFile::reserve() {
    const int descriptor = h5::descriptor(file_);
    const off_t bytes = ::lseek(descriptor, 0, SEEK_END);
    if (bytes <= 0) return;
    int failed = 0;
    do {
        failed = ::fallocate(descriptor, 0, 0, bytes) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed == ENOSPC || failed == EDQUOT || failed == EFBIG) {
        const std::string why = reason(failed);
        close();
        fail("reserving room for '" + path_ + "' failed: " + why, total_bytes_);
    }
}

void ScratchFile::fail(const std::string& what, Index bytes) {
    struct statvfs disk {};
    std::string room;
    if (::statvfs(directory_.c_str(), &disk) == 0) {
        room = fmt::format(" {:.0f} bytes are free on this disk.",
                           static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize));
    }
    throw user_error(ExitCode::resources,
                     fmt::format("error_feedback: {}; {} bytes were wanted, {} were written so "
                                 "far.{} The file is removed. Make room, set error_feedback.path "
                                 "to a directory on another disk, or choose another "
                                 "error_feedback.storage",
                                 what, bytes, written_bytes_, room));
}

void ScratchFile::write(int chunk, const float* values) {
    if (chunks_[chunk] == 0) return;
    const Index bytes = chunks_[chunk] * static_cast<Index>(sizeof(float));
    try {
        h5::write(datasets_[chunk], 0, chunks_[chunk], values);
    } catch (const h5::error& e) {
        fail(fmt::format("writing '{}' failed: {}", path_, e.what()), bytes);
    }
    written_[chunk] = true;
    written_bytes_ += bytes;
}

void ScratchFile::read(int chunk, float* values) {
    if (!written_[chunk]) {
        std::fill_n(values, chunks_[chunk], 0.0f);
        return;
    }
    try {
        h5::read(datasets_[chunk], 0, chunks_[chunk], values);
    } catch (const h5::error& e) {
        throw user_error(ExitCode::resources,
                         fmt::format("error_feedback: reading '{}' failed: {}; is the disk of '{}' "
                                     "in order? Set error_feedback.path to a directory on another",
                                     path_, e.what(), directory_));
    }
}

// HDF5 closes a file only after writing what it still holds of it, which a full disk refuses (and
// what is not closed, a parallel HDF5 crashes over when MPI ends). The file goes here, and HDF5
// writes its last few bytes into memory instead.
void ScratchFile::close() noexcept {
    try {
        const int sink = file_ >= 0 ? ::memfd_create("scape", MFD_CLOEXEC) : -1;
        if (sink >= 0) {
            ::dup2(sink, h5::descriptor(file_));
            ::close(sink);
        }
    } catch (const h5::error&) {
    }
    datasets_.clear();
    file_.reset();
}

}  // namespace scape::io
