#include <scape/base/flat_layout.hpp>

#include <algorithm>
#include <stdexcept>

namespace scape {

const Tensor& FlatLayout::add(const std::string& name, const std::vector<Index>& shape,
                              Index padded_rows) {
    if (contains(name)) throw std::logic_error("flat_layout: tensor '" + name + "' added twice");
    Tensor t;
    t.name = name;
    t.shape = shape;
    t.offset = round_up(extent_, tensor_alignment);
    t.size = 1;
    for (const Index n : shape) t.size *= n;
    const Index row = t.size / shape.at(0);
    t.storage = std::max(padded_rows, shape[0]) * row;
    t.decay = shape.size() >= 2;
    t.dense = shape.size() < 2;
    extent_ = t.offset + t.storage;
    parameters_ += t.size;
    by_name_.emplace(name, tensors_.size());
    tensors_.push_back(std::move(t));
    return tensors_.back();
}

bool FlatLayout::contains(const std::string& name) const {
    return by_name_.contains(name);
}

const Tensor& FlatLayout::tensor(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end())
        throw std::logic_error("flat_layout: there is no tensor '" + name + "'");
    return tensors_[found->second];
}

Sharding::Sharding(const FlatLayout& layout, int ranks, Index bucket_bytes)
    : layout_(&layout), ranks_(ranks) {
    // Pieces start at multiples of the alignment, so every rank's piece is aligned too.
    const Index unit = ranks * tensor_alignment;
    const Index wanted = bucket_bytes / static_cast<Index>(sizeof(float));
    const Index bucket = std::max(unit, round_up(wanted, unit));
    extent_ = std::max(unit, round_up(layout.extent(), unit));
    for (Index begin = 0; begin < extent_; begin += bucket) bucket_begin_.push_back(begin);
    bucket_begin_.push_back(extent_);
}

Index Sharding::largest_bucket() const {
    return bucket(0).size();
}

Range Sharding::piece(int b, int rank) const {
    const Range whole = bucket(b);
    const Index size = whole.size() / ranks_;
    return {whole.begin + rank * size, whole.begin + (rank + 1) * size};
}

std::vector<Slice> Sharding::slices(int rank) const {
    std::vector<Slice> out;
    const auto& tensors = layout_->tensors();
    std::size_t first = 0;  // the first tensor that does not end before the piece
    for (int b = 0; b < buckets(); ++b) {
        const Range mine = piece(b, rank);
        while (first < tensors.size() && tensors[first].offset + tensors[first].size <= mine.begin)
            ++first;
        for (std::size_t i = first; i < tensors.size() && tensors[i].offset < mine.end; ++i) {
            const Tensor& t = tensors[i];
            const Range r{std::max(mine.begin, t.offset), std::min(mine.end, t.offset + t.size)};
            if (r.size() <= 0) continue;
            out.push_back({static_cast<int>(i), b, r, r.begin - t.offset,
                           shard_piece(b).begin + (r.begin - mine.begin)});
        }
    }
    return out;
}

}  // namespace scape
