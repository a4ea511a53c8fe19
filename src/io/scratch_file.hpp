#pragma once
// The file of a buffer store on a disk. It has no name from the moment on that it is open: however
// the process ends, the system takes it away.

#include <scape/base/types.hpp>
#include <scape/io/h5.hpp>

#include <string>
#include <vector>

namespace scape::io {

/// Chunks of fp32, each a data set of its own in one piece. All calls by one thread. Errors are
/// user_error: usage where `directory` is none, resources where the disk is full or broken.
class ScratchFile {
   public:
    /// Has all its room on the disk reserved, where the file system can do that.
    ScratchFile(const std::string& directory, int rank, const std::vector<Index>& chunks);
    ~ScratchFile();
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;

    const std::string& path() const { return path_; }

    void write(int chunk, const float* values);
    /// Zeros, if it was never written.
    void read(int chunk, float* values);

   private:
    void check_size_limit();
    void create(const std::string& directory, int rank);
    void reserve();
    [[noreturn]] void fail(const std::string& what, Index bytes);
    void close() noexcept;

    std::string directory_;
    std::string path_;
    std::vector<Index> chunks_;
    std::vector<bool> written_;
    Index total_bytes_ = 0;
    Index written_bytes_ = 0;
    h5::Id file_;
    std::vector<h5::Id> datasets_;
};

}  // namespace scape::io
