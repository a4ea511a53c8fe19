#pragma once
// The file that a checkpoint is written to: under a temporary name until it is whole.

#include <scape/base/flat_layout.hpp>
#include <scape/comm/communicator.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/io/h5.hpp>

#include <functional>
#include <string>

namespace scape::io {

/// Calls in order: constructor, { begin_array, { begin_tensor, write ..., end_tensor } }, commit.
/// Each throws user_error(resources). Destroyed without commit, it leaves nothing behind.
class CheckpointFile {
   public:
    /// `payload_bytes`: of all arrays, to refuse a disk that is too full before anything is
    /// written.
    CheckpointFile(const std::string& dir, const CheckpointMeta& meta, Index payload_bytes);
    ~CheckpointFile();
    CheckpointFile(const CheckpointFile&) = delete;
    CheckpointFile& operator=(const CheckpointFile&) = delete;

    /// `ranks` > 0: the array is made of that many, each begun with begin_rank.
    void begin_array(const std::string& name, int ranks = 0);
    void begin_rank(int rank);
    void begin_tensor(const Tensor& tensor, h5::Element element = h5::Element::f32);
    void write(Index begin, Index end, const void* values);
    void end_tensor();
    /// Completes, flushes and renames the file, points `latest` to it; bytes of the file.
    Index commit();

    /// What `work` threw, or no failure.
    static comm::Failure attempt(const std::function<void()>& work);

   private:
    void discard() noexcept;
    void guarded(const std::function<void()>& work);
    void write_meta(const CheckpointMeta& meta);

    using Handler = void (*)(int);
    std::string dir_;
    std::string name_;
    std::string temporary_;
    Index wanted_;       ///< bytes
    Index written_ = 0;  ///< bytes
    Handler size_limit_handler_;
    bool created_ = false;
    h5::Id file_, array_, rank_, dataset_;
    h5::Element element_ = h5::Element::f32;
};

}  // namespace scape::io
