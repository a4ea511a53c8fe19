#pragma once
/// @file
/// Where every tensor lies in the one flat parameter buffer (and, element for element, in the flat
/// gradient buffer), and how that buffer is cut into buckets, pieces, shards and slices.
///
///     tensors   in the order in which the forward pass first needs them, each starting at a
///               multiple of `tensor_alignment` elements; backward finishes them from the end
///     buckets   equal ranges of the buffer (the last one may be shorter); the unit of exchange
///     piece     the part of a bucket that one rank owns; all P pieces of a bucket are equal
///     shard     all pieces of one rank, one after another
///     slice     the part of one tensor that lies in one piece
///
///     buffer    | bucket 0          | bucket 1          | bucket 2  |
///     pieces    | r0 | r1 | r2 | r3 | r0 | r1 | r2 | r3 | ...       |
///     tensors   | wte        |wpe|ln| qkv ...                  |pad|
///
/// Notation: algorithm "P ranks, W parameters in one flat buffer".

#include <scape/base/types.hpp>

#include <string>
#include <unordered_map>
#include <vector>

namespace scape {

inline constexpr Index tensor_alignment = 64;  // elements

struct Tensor {
    std::string name;
    std::vector<Index> shape;  ///< logical shape, as in checkpoints
    Index offset = 0;          ///< first element in the flat buffer
    Index size = 0;            ///< logical elements; they come first in the storage
    Index storage = 0;         ///< elements with the padding rows (vocabulary)
    bool decay = false;        ///< weight decay applies: two or more dimensions
    bool dense = false;        ///< always sent whole by a sparse optimizer: norm gains, biases
};

class FlatLayout {
   public:
    /// Appends a tensor of the given logical shape. `padded_rows` >= shape[0] rows are stored
    /// (0: no padding); the padding stays zero. Throws std::logic_error on a name given twice.
    const Tensor& add(const std::string& name, const std::vector<Index>& shape,
                      Index padded_rows = 0);

    const std::vector<Tensor>& tensors() const { return tensors_; }
    /// Throws std::logic_error when there is no such tensor.
    const Tensor& tensor(const std::string& name) const;
    bool contains(const std::string& name) const;

    /// Logical parameters, padding not counted.
    Index parameters() const { return parameters_; }
    /// Elements from the start of the buffer to the end of the last tensor's storage.
    Index extent() const { return extent_; }

   private:
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string, std::size_t> by_name_;
    Index parameters_ = 0;
    Index extent_ = 0;
};

struct Range {
    Index begin = 0;
    Index end = 0;
    Index size() const { return end - begin; }
};

/// The part of one tensor's logical elements in one rank's piece of one bucket.
struct Slice {
    int tensor = 0;  ///< index into FlatLayout::tensors()
    int bucket = 0;
    Range flat;              ///< in the flat buffer
    Index tensor_begin = 0;  ///< flat.begin counted from the tensor's first element
    Index shard_begin = 0;   ///< the same element in the shard
};

/// The cut of one layout for P ranks. Any parameter count on any rank count: the buffer is padded
/// at its end to a multiple of P * tensor_alignment.
class Sharding {
   public:
    /// `bucket_bytes`: wanted size of a bucket of fp32 values, rounded up to whole pieces.
    Sharding(const FlatLayout& layout, int ranks, Index bucket_bytes);

    int ranks() const { return ranks_; }
    Index extent() const { return extent_; }  ///< elements of the padded flat buffer
    Index shard_extent() const { return extent_ / ranks_; }
    int buckets() const { return static_cast<int>(bucket_begin_.size()) - 1; }
    Range bucket(int b) const { return {bucket_begin_[b], bucket_begin_[b + 1]}; }
    Index largest_bucket() const;  ///< elements
    /// Elements of the flat buffer that `rank` owns in bucket b.
    Range piece(int b, int rank) const;
    /// Where that piece lies in the rank's shard (the same for every rank).
    Range shard_piece(int b) const {
        return {bucket_begin_[b] / ranks_, bucket_begin_[b + 1] / ranks_};
    }
    /// Slices of `rank` in buffer order; bucket by bucket.
    std::vector<Slice> slices(int rank) const;

   private:
    const FlatLayout* layout_;
    int ranks_;
    Index extent_;
    std::vector<Index> bucket_begin_;
};

}  // namespace scape
