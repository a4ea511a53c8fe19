#include <scape/optim/density.hpp>
#include <scape/optim/mask_plan.hpp>

#include <algorithm>
#include <numeric>

namespace scape::optim {

kernels::MaskCode mask_code_for(config::MaskCodeChoice choice, double density) {
    using config::MaskCodeChoice;
    using kernels::MaskCode;
    switch (choice) {
        case MaskCodeChoice::bitmap:
            return MaskCode::bitmap;
        case MaskCodeChoice::gaps:
            return MaskCode::gaps;
        case MaskCodeChoice::index:
            return MaskCode::index;
        case MaskCodeChoice::entropy:
            return MaskCode::entropy;
        case MaskCodeChoice::automatic:
            break;
    }
    // Bytes per element of a long slice.
    const double bitmap = 1.0 / 8;
    const double gaps = density + 1.0 / 255;
    const double index = 4 * density;
    if (index < gaps && index < bitmap) return MaskCode::index;
    return gaps < bitmap ? MaskCode::gaps : MaskCode::bitmap;
}

MaskPlan::MaskPlan(const FlatLayout& layout, const Sharding& sharding,
                   const config::SparsitySection& sparsity, CodeOrder order)
    : sharding_(&sharding), sparsity_(sparsity), ranks_(sharding.ranks()), order_(order) {
    const auto pieces = static_cast<std::size_t>(sharding.buckets() * ranks_);
    std::vector<std::vector<Slice>> of_rank;
    for (int r = 0; r < ranks_; ++r) of_rank.push_back(sharding.slices(r));
    std::vector<std::size_t> next(of_rank.size(), 0);
    row_.push_back(0);
    for (int b = 0; b < sharding.buckets(); ++b) {
        for (int r = 0; r < ranks_; ++r) {
            const std::vector<Slice>& slices = of_rank[static_cast<std::size_t>(r)];
            std::size_t& i = next[static_cast<std::size_t>(r)];
            for (; i < slices.size() && slices[i].bucket == b; ++i) {
                kernels::Segment s;
                s.begin = slices[i].flat.begin - sharding.bucket(b).begin;
                s.size = slices[i].flat.size();
                segments_.push_back(s);
                const Tensor& tensor = layout.tensors()[static_cast<std::size_t>(slices[i].tensor)];
                whole_.push_back(tensor.dense && !sparsity.sparsify_1d);
            }
            row_.push_back(static_cast<Index>(segments_.size()));
        }
    }
    selected_.resize(pieces);
    padded_.resize(static_cast<std::size_t>(sharding.buckets()));
    code_end_.resize(static_cast<std::size_t>(ranks_));
    bucket_code_.resize(padded_.size() + 1);
}

void MaskPlan::set(double density) {
    density_ = density;
    code_ = mask_code_for(sparsity_.mask_code, density);
    std::fill(code_end_.begin(), code_end_.end(), 0);
    Index bucket_end = 0;
    for (int b = 0; b < sharding_->buckets(); ++b) {
        Index most = 0;
        for (int r = 0; r < ranks_; ++r) {
            Index count = 0;
            Index& code_end =
                order_ == CodeOrder::by_rank ? code_end_[static_cast<std::size_t>(r)] : bucket_end;
            const Range mine = rows(b, r);
            for (Index i = mine.begin; i < mine.end; ++i) {
                kernels::Segment& s = segments_[static_cast<std::size_t>(i)];
                const bool whole = whole_[static_cast<std::size_t>(i)] != 0;
                s.selected = whole ? s.size : optim::selected(density, s.size);
                s.first = count;
                s.code = code_end;
                count += s.selected;
                code_end += kernels::mask_code_bytes(code_, s.size, s.selected);
            }
            selected_[static_cast<std::size_t>(b * ranks_ + r)] = count;
            most = std::max(most, count);
        }
        padded_[static_cast<std::size_t>(b)] = most;
        bucket_code_[static_cast<std::size_t>(b) + 1] = bucket_end;
    }
    // Places within a rank's part become places in the whole.
    code_bytes_ =
        order_ == CodeOrder::by_rank ? *std::max_element(code_end_.begin(), code_end_.end()) : 0;
    for (int b = 0; b < sharding_->buckets(); ++b) {
        for (int r = 0; r < ranks_; ++r) {
            const Range mine = rows(b, r);
            for (Index i = mine.begin; i < mine.end; ++i) {
                segments_[static_cast<std::size_t>(i)].first += r * padded(b);
                segments_[static_cast<std::size_t>(i)].code += r * code_bytes_;
            }
        }
    }
}

Range MaskPlan::code_range(int bucket, int rank) const {
    const Range mine = rows(bucket, rank);
    if (mine.size() == 0) return {0, 0};
    const kernels::Segment& first = segments_[static_cast<std::size_t>(mine.begin)];
    const kernels::Segment& last = segments_[static_cast<std::size_t>(mine.end - 1)];
    return {first.code, last.code + kernels::mask_code_bytes(code_, last.size, last.selected)};
}

Index MaskPlan::selected_of(int rank) const {
    Index sum = 0;
    for (int b = 0; b < sharding_->buckets(); ++b) sum += selected(b, rank);
    return sum;
}

Index MaskPlan::part_bytes(const kernels::ValueCode& code, int bucket, bool everything) const {
    everything = everything || all();
    if (!code.in_blocks()) {
        const Index values =
            everything ? sharding_->bucket(bucket).size() / ranks_ : padded(bucket);
        return values * code.bits / 8;
    }
    Index most = 0;
    for (int r = 0; r < ranks_; ++r) {
        Index bytes = 0;
        const Range mine = rows(bucket, r);
        for (Index i = mine.begin; i < mine.end; ++i) {
            const kernels::Segment& s = segments_[static_cast<std::size_t>(i)];
            bytes += kernels::coded_bytes(code, everything ? s.size : s.selected);
        }
        most = std::max(most, bytes);
    }
    return most;
}

MaskPlan::Bytes MaskPlan::message_bytes(const kernels::ValueCode& values,
                                        const kernels::ValueCode& deltas,
                                        config::Elements elements) const {
    const bool dense_owner = elements != config::Elements::automatic;
    Bytes bytes;
    for (int b = 0; b < sharding_->buckets(); ++b) {
        bytes.gradients += ranks_ * part_bytes(values, b, false);
        bytes.weights += ranks_ * part_bytes(deltas, b, dense_owner);
    }
    if (all()) return bytes;
    if (elements == config::Elements::topk_ef) {
        const Index piece = std::accumulate(padded_.begin(), padded_.end(), Index(0));
        bytes.masks = ranks_ * piece * static_cast<Index>(sizeof(kernels::Position));
    } else if (elements == config::Elements::clt_k) {
        bytes.masks = bucket_code_.back();
    } else {
        bytes.masks = ranks_ * code_bytes_;
    }
    return bytes;
}

MaskPlan::Bytes MaskPlan::bytes_sent(const kernels::ValueCode& values,
                                     const kernels::ValueCode& deltas,
                                     config::Elements elements) const {
    const auto sent = [this](Index bytes) { return bytes * (ranks_ - 1) / ranks_; };
    const Bytes all = message_bytes(values, deltas, elements);
    return {sent(all.gradients), sent(all.weights), sent(all.masks)};
}

MaskPlan plan_of_everything(const FlatLayout& layout, const Sharding& sharding) {
    MaskPlan plan(layout, sharding, {});
    plan.set(1);
    return plan;
}

}  // namespace scape::optim
