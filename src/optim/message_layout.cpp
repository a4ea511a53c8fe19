#include <scape/base/fence.hpp>
#include <scape/optim/message_layout.hpp>

namespace scape::optim {

using kernels::CodedSegment;
using kernels::Position;
using kernels::Segment;
using kernels::Selected;

MessageLayout::MessageLayout(const kernels::ValueCode& code, const MaskPlan& geometry, int rank)
    : code_(code), ranks_(geometry.sharding().ranks()), rank_(rank) {
    const int buckets = geometry.sharding().buckets();
    const auto parts = static_cast<std::size_t>(buckets * ranks_);
    part_bytes_.resize(static_cast<std::size_t>(buckets));
    if (!code.in_blocks()) return;
    blocks_.resize(parts);
    for (int b = 0; b < buckets; ++b)
        for (int r = 0; r < ranks_; ++r) row_.push_back(geometry.rows(b, r).begin);
    row_.push_back(static_cast<Index>(geometry.segments().size()));
    whole_ = Vec<CodedSegment>("scape::optim::message_rows", geometry.segments().size());
    own_ = Vec<CodedSegment>("scape::optim::message_own_rows", geometry.segments().size());
    upload_ = HostVec<CodedSegment>("scape::optim::message_upload", geometry.segments().size());
}

void MessageLayout::set(const Exec& exec, const MaskPlan& plan) {
    if (plan.density() == density_) return;
    density_ = plan.density();
    const int buckets = plan.sharding().buckets();
    for (int b = 0; b < buckets; ++b)
        part_bytes_[static_cast<std::size_t>(b)] = plan.part_bytes(code_, b, false);
    if (!code_.in_blocks()) return;
    for (int b = 0; b < buckets; ++b) {
        Index block = 0;
        for (int r = 0; r < ranks_; ++r) {
            const Range mine = plan.rows(b, r);
            Index bytes = r * part_bytes(b);
            const Index before = block;
            for (Index i = mine.begin; i < mine.end; ++i) {
                const Segment& s = plan.segments()[static_cast<std::size_t>(i)];
                upload_(i) = {s.selected, plan.all() ? s.begin : s.first, bytes, block};
                bytes += kernels::coded_bytes(code_, s.selected);
                block += kernels::blocks_of(code_, s.selected);
            }
            blocks_[static_cast<std::size_t>(b * ranks_ + r)] = block - before;
        }
    }
    Kokkos::deep_copy(exec, whole_, upload_);
    fence(exec, "scape::optim::message_upload");
    for (int b = 0; b < buckets; ++b) {
        const Range mine = plan.rows(b, rank_);
        const Index first =
            plan.all() ? plan.sharding().piece(b, rank_).begin - plan.sharding().bucket(b).begin
                       : rank_ * plan.padded(b);
        for (Index i = mine.begin; i < mine.end; ++i) {
            upload_(i).first -= first;
            upload_(i).bytes -= rank_ * part_bytes(b);
        }
    }
    Kokkos::deep_copy(exec, own_, upload_);
    fence(exec, "scape::optim::message_upload");
}

Selected MessageLayout::whole(int bucket, Span<const Position> positions) const {
    Selected s;
    s.positions = positions;
    if (!code_.in_blocks()) return s;
    const auto begin = static_cast<std::size_t>(bucket * ranks_);
    s.segments = slice(whole_, row_[begin], row_[begin + static_cast<std::size_t>(ranks_)]);
    for (int r = 0; r < ranks_; ++r) s.blocks += blocks_[begin + static_cast<std::size_t>(r)];
    return s;
}

Selected MessageLayout::own(int bucket, Span<const Position> positions) const {
    Selected s;
    s.positions = positions;
    if (!code_.in_blocks()) return s;
    const auto part = static_cast<std::size_t>(bucket * ranks_ + rank_);
    s.segments = slice(own_, row_[part], row_[part + 1]);
    s.blocks = blocks_[part];
    return s;
}

Index MessageLayout::device_bytes() const {
    return static_cast<Index>((whole_.span() + own_.span()) * sizeof(CodedSegment));
}

Index MessageLayout::device_bytes(const kernels::ValueCode& code, const MaskPlan& geometry) {
    return code.in_blocks() ? 2 * static_cast<Index>(geometry.segments().size()) *
                                  static_cast<Index>(sizeof(CodedSegment))
                            : 0;
}

}  // namespace scape::optim
