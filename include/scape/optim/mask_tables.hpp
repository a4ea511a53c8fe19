#pragma once
/// @file
/// A mask's plan with its tables on the device, as kernels take them.

#include <scape/kernels/pack.hpp>
#include <scape/optim/mask_plan.hpp>

namespace scape::optim {

/// What the plans of a run need at most.
struct MaskSizes {
    Index positions = 0;        ///< of a bucket, all ranks, padding included
    Index coded = 0;            ///< bytes of all ranks' codes
    Index largest_segment = 1;  ///< elements
    Index rows = 0;             ///< slices of all ranks
    Index rows_in_bucket = 0;   ///< of one rank
    Index all_rows_in_bucket = 0;
};
/// At `largest_density` (below 1; 0: there will be no mask). Leaves the plan at density 1.
MaskSizes mask_sizes(MaskPlan& plan, double largest_density);

class MaskTables {
   public:
    /// plan: at density 1.
    MaskTables(MaskPlan plan, int rank);

    const MaskPlan& plan() const { return plan_; }
    /// The plan and its tables for another density; waits for the upload. Allocates nothing.
    void set(const Exec& exec, double density);

    /// Slices of all ranks in a bucket, as in the plan; and of one rank.
    Span<const kernels::Segment> segments(int bucket) const {
        return rows(segments_, plan_.rows(bucket));
    }
    Span<const kernels::Segment> segments(int bucket, int rank) const {
        return rows(segments_, plan_.rows(bucket, rank));
    }
    /// This rank's slices, counted within its piece: begin from the start of the piece, first
    /// from 0.
    Span<const kernels::Segment> own(int bucket) const {
        return rows(own_, plan_.rows(bucket, rank_));
    }
    /// positions (P * padded): the padding of every rank's part becomes no_position.
    void pad(const Exec& exec, int bucket, Span<kernels::Position> positions) const;

    /// Where the own piece begins in the bucket.
    Index piece_begin(int bucket) const {
        return plan_.sharding().piece(bucket, rank_).begin - plan_.sharding().bucket(bucket).begin;
    }
    Index device_bytes() const;
    static Index device_bytes(const MaskSizes& sizes, Index pieces);

   private:
    static Span<const kernels::Segment> rows(const Vec<kernels::Segment>& table, Range r) {
        return slice(table, r.begin, r.end);
    }
    MaskPlan plan_;
    int rank_;
    Vec<kernels::Segment> segments_;
    Vec<kernels::Segment> own_;  // only this rank's rows count
    Vec<Index> selected_;        // (buckets x ranks)
    HostVec<kernels::Segment> upload_;
    HostVec<Index> upload_counts_;
};

}  // namespace scape::optim
