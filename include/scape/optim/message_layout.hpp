#pragma once
/// @file
/// Where the values of every slice lie in a bucket's messages, in one code: the plan's geometry as
/// kernels take it. Codes in blocks begin anew at each slice, so that ranks agree about their
/// places without asking.
///
///     message of a bucket     | to rank 0 . | to rank 1 . | to rank 2 . |   equal parts
///       a part                | slice: scales, codes | slice: scales, codes | . |

#include <scape/kernels/pack.hpp>
#include <scape/optim/mask_plan.hpp>

namespace scape::optim {

class MessageLayout {
   public:
    /// Tables for plans of that geometry; set() before use.
    MessageLayout(const kernels::ValueCode& code, const MaskPlan& geometry, int rank);

    const kernels::ValueCode& code() const { return code_; }
    /// For the plan's density; nothing is done if it is the same. Waits for the upload.
    void set(const Exec& exec, const MaskPlan& plan);

    /// Bytes of one rank's part of a message of a bucket.
    Index part_bytes(int bucket) const { return part_bytes_[static_cast<std::size_t>(bucket)]; }
    /// A message of all parts. positions: (P * padded) counted from the start of the bucket; empty
    /// where everything travels.
    kernels::Selected whole(int bucket, Span<const kernels::Position> positions) const;
    /// The own part alone. positions: the own ones; empty: elements count from the own piece.
    kernels::Selected own(int bucket, Span<const kernels::Position> positions) const;

    Index device_bytes() const;
    static Index device_bytes(const kernels::ValueCode& code, const MaskPlan& geometry);

   private:
    kernels::ValueCode code_;
    int ranks_;
    int rank_;
    double density_ = 0;             // of the plan that is set
    std::vector<Index> row_;         // (buckets x ranks + 1) of the tables
    std::vector<Index> blocks_;      // (buckets x ranks)
    std::vector<Index> part_bytes_;  // (buckets)
    Vec<kernels::CodedSegment> whole_;
    Vec<kernels::CodedSegment> own_;  // only this rank's rows count
    HostVec<kernels::CodedSegment> upload_;
};

}  // namespace scape::optim
