#pragma once
/// @file
/// The static geometry of a mask: how many elements of every slice of every rank are in it, and
/// where their positions, values and codes lie. It follows from the density alone, so all ranks
/// know all counts without asking (algorithm sections 2.1, 2.6).
///
///     message of a bucket     | to rank 0 . | to rank 1 . | to rank 2 . |   equal parts: the
///       (. padding)             slice|slice   slice|slice|..               largest shard's count
///     coded mask              | rank 0's  . | rank 1's  . | rank 2's  . |   the same
///
/// Tensors marked `dense` (norm gains, biases) are in it as a whole, unless sparsify_1d.

#include <scape/base/flat_layout.hpp>
#include <scape/config/run_config.hpp>
#include <scape/kernels/mask_code.hpp>
#include <scape/kernels/value_code.hpp>

#include <vector>

namespace scape::optim {

/// The code that the deck names; automatic: of those that cost next to no time the one that makes
/// d's mask smallest.
kernels::MaskCode mask_code_for(config::MaskCodeChoice choice, double density);

class MaskPlan {
   public:
    /// Which part of a coded mask lies together: a rank's, or a bucket's.
    enum class CodeOrder { by_rank, by_bucket };
    /// Nothing is planned yet: density 1.
    MaskPlan(const FlatLayout& layout, const Sharding& sharding,
             const config::SparsitySection& sparsity, CodeOrder order = CodeOrder::by_rank);

    /// Works the counts out for another density, (0, 1]. Allocates nothing.
    void set(double density);
    double density() const { return density_; }
    /// Everything travels: there is no mask, and no message buffer.
    bool all() const { return density_ >= 1; }
    kernels::MaskCode code() const { return code_; }

    /// Elements of the mask in the piece of `rank` of a bucket, and the count that all ranks'
    /// pieces are padded to.
    Index selected(int bucket, int rank) const {
        return selected_[static_cast<std::size_t>(bucket * ranks_ + rank)];
    }
    Index padded(int bucket) const { return padded_[static_cast<std::size_t>(bucket)]; }
    /// Elements of the mask in all pieces of `rank`.
    Index selected_of(int rank) const;
    /// By rank: bytes of one rank's coded mask, padded to the largest.
    Index code_bytes() const { return code_bytes_; }
    /// By bucket: the bytes of a bucket in the coded mask.
    Range code_range(int bucket) const {
        return {bucket_code_[static_cast<std::size_t>(bucket)],
                bucket_code_[static_cast<std::size_t>(bucket) + 1]};
    }

    /// Every slice of every rank: by bucket, then rank, then place in the buffer. begin: from the
    /// start of the bucket; first: from the start of the bucket's positions (rank * padded + ...);
    /// code: from the start of the coded mask (by rank: rank * code_bytes + ...).
    const std::vector<kernels::Segment>& segments() const { return segments_; }
    /// Rows of segments() that belong to a bucket; and to one rank in it.
    Range rows(int bucket) const { return {row_[bucket * ranks_], row_[(bucket + 1) * ranks_]}; }
    Range rows(int bucket, int rank) const {
        return {row_[bucket * ranks_ + rank], row_[bucket * ranks_ + rank + 1]};
    }
    /// The bytes of one rank's code of a bucket in the coded mask, in either order.
    Range code_range(int bucket, int rank) const;
    const Sharding& sharding() const { return *sharding_; }

    /// Bytes of the values of one rank's piece of a bucket in a message, padded to the largest
    /// rank's. `everything`: of all elements, whatever the density. Numbers (fp32, bf16) of all
    /// elements include what lies between tensors; codes in blocks do not.
    Index part_bytes(const kernels::ValueCode& code, int bucket, bool everything) const;
    /// Bytes of one step: values to the owners, weights (fp32) or their differences back, and the
    /// mask (topk_ef: the positions of the values). At density 1 all elements, and no mask.
    struct Bytes {
        Index gradients = 0;
        Index weights = 0;
        Index masks = 0;
        Index total() const { return gradients + weights + masks; }
    };
    /// Of the messages of all P pieces: dense fp32 is 8 bytes an element.
    Bytes message_bytes(const kernels::ValueCode& values, const kernels::ValueCode& deltas,
                        config::Elements elements = config::Elements::automatic) const;
    /// Sent by one rank, which keeps its own piece: (P-1)/P of that (clt_k: of the mask its share
    /// over P steps).
    Bytes bytes_sent(const kernels::ValueCode& values, const kernels::ValueCode& deltas,
                     config::Elements elements = config::Elements::automatic) const;

   private:
    const Sharding* sharding_;
    config::SparsitySection sparsity_;
    int ranks_;
    CodeOrder order_;
    double density_ = 1;
    kernels::MaskCode code_ = kernels::MaskCode::bitmap;
    Index code_bytes_ = 0;
    std::vector<kernels::Segment> segments_;
    std::vector<char> whole_;  // a row of segments_: always all of it
    std::vector<Index> row_;   // (buckets x ranks + 1)
    std::vector<Index> selected_;
    std::vector<Index> padded_;
    std::vector<Index> code_end_;     // (ranks)
    std::vector<Index> bucket_code_;  // (buckets + 1)
};

/// The plan of all elements, density 1.
MaskPlan plan_of_everything(const FlatLayout& layout, const Sharding& sharding);

}  // namespace scape::optim
