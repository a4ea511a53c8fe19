#include <scape/kernels/pack.hpp>
#include <scape/optim/decay.hpp>

#include <algorithm>

namespace scape::optim {

Decay::Decay(const FlatLayout& layout, const Sharding& sharding, int rank)
    : sharding_(sharding), rank_(rank) {
    for (int b = 0; b < sharding.buckets(); ++b) {
        std::vector<Range> ranges;  // neighbours joined; what lies between them is padding
        const Range bucket = sharding.bucket(b);
        bool open = false;
        for (const Tensor& t : layout.tensors()) {
            const Range part{std::max(bucket.begin, t.offset) - bucket.begin,
                             std::min(bucket.end, t.offset + t.size) - bucket.begin};
            if (part.size() <= 0) continue;
            if (t.decay && open) {
                ranges.back().end = part.end;
            } else if (t.decay) {
                ranges.push_back(part);
            }
            open = t.decay;
        }
        decaying_.push_back(std::move(ranges));
    }
}

void Decay::bucket(const Exec& exec, float keep, int bucket, Span<float> weights) const {
    if (keep == 1.f) return;
    for (const Range r : decaying_[static_cast<std::size_t>(bucket)])
        kernels::scale(exec, keep, slice(weights, r.begin, r.end));
}

void Decay::piece(const Exec& exec, float keep, int bucket, Span<float> weights) const {
    if (keep == 1.f) return;
    const Index begin = sharding_.piece(bucket, rank_).begin - sharding_.bucket(bucket).begin;
    const Index size = sharding_.shard_piece(bucket).size();
    for (const Range r : decaying_[static_cast<std::size_t>(bucket)]) {
        const Range part{std::max(r.begin - begin, Index(0)), std::min(r.end - begin, size)};
        if (part.size() > 0) kernels::scale(exec, keep, slice(weights, part.begin, part.end));
    }
}

}  // namespace scape::optim
