#include <scape/base/fence.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/optim/mask_tables.hpp>

#include <algorithm>
#include <vector>

namespace scape::optim {

using kernels::no_position;
using kernels::Position;
using kernels::Segment;

namespace {

void fill_padding(const Exec& exec, Index ranks, Index padded, Span<const Index> selected,
                  Span<Position> positions) {
    kernels::for_each(
        exec, "scape::optim::mask_padding", ranks, KOKKOS_LAMBDA(Index r) {
            for (Index j = selected(r); j < padded; ++j) positions(r * padded + j) = no_position;
        });
}

}  // namespace

MaskSizes mask_sizes(MaskPlan& plan, double largest_density) {
    MaskSizes sizes;
    const Sharding& sharding = plan.sharding();
    const int ranks = sharding.ranks();
    sizes.rows = static_cast<Index>(plan.segments().size());
    for (const Segment& s : plan.segments())
        sizes.largest_segment = std::max(sizes.largest_segment, s.size);
    std::vector<Index> rows_of_rank(static_cast<std::size_t>(ranks), 0);
    for (int b = 0; b < sharding.buckets(); ++b) {
        sizes.all_rows_in_bucket = std::max(sizes.all_rows_in_bucket, plan.rows(b).size());
        for (int r = 0; r < ranks; ++r) {
            const Index rows = plan.rows(b, r).size();
            sizes.rows_in_bucket = std::max(sizes.rows_in_bucket, rows);
            rows_of_rank[static_cast<std::size_t>(r)] += rows;
        }
    }
    if (largest_density <= 0) return sizes;
    plan.set(largest_density);
    for (int b = 0; b < sharding.buckets(); ++b)
        sizes.positions = std::max(sizes.positions, ranks * plan.padded(b));
    // Rounding up in each slice can make a sparser mask's code longer by some bytes.
    const Index slack = 16 * *std::max_element(rows_of_rank.begin(), rows_of_rank.end());
    sizes.coded = ranks * slack +
                  std::max(ranks * plan.code_bytes(), plan.code_range(sharding.buckets() - 1).end);
    plan.set(1);
    return sizes;
}

MaskTables::MaskTables(MaskPlan plan, int rank)
    : plan_(std::move(plan)),
      rank_(rank),
      segments_("scape::optim::mask_segments", plan_.segments().size()),
      own_("scape::optim::mask_own_segments", plan_.segments().size()),
      selected_("scape::optim::mask_selected",
                static_cast<std::size_t>(plan_.sharding().buckets() * plan_.sharding().ranks())),
      upload_("scape::optim::mask_upload", segments_.extent(0)),
      upload_counts_("scape::optim::mask_upload_counts", selected_.extent(0)) {}

void MaskTables::set(const Exec& exec, double density) {
    if (density == plan_.density()) return;
    plan_.set(density);
    if (plan_.all()) return;
    const Sharding& sharding = plan_.sharding();
    const auto& segments = plan_.segments();
    std::copy(segments.begin(), segments.end(), upload_.data());
    for (int b = 0; b < sharding.buckets(); ++b)
        for (int r = 0; r < sharding.ranks(); ++r)
            upload_counts_(b * sharding.ranks() + r) = plan_.selected(b, r);
    Kokkos::deep_copy(exec, segments_, upload_);
    Kokkos::deep_copy(exec, selected_, upload_counts_);
    fence(exec, "scape::optim::mask_upload");
    for (int b = 0; b < sharding.buckets(); ++b) {
        const Range mine = plan_.rows(b, rank_);
        for (Index i = mine.begin; i < mine.end; ++i) {
            upload_(i).begin -= piece_begin(b);
            upload_(i).first -= rank_ * plan_.padded(b);
        }
    }
    Kokkos::deep_copy(exec, own_, upload_);
    fence(exec, "scape::optim::mask_upload");
}

void MaskTables::pad(const Exec& exec, int bucket, Span<Position> positions) const {
    const int ranks = plan_.sharding().ranks();
    fill_padding(exec, ranks, plan_.padded(bucket),
                 slice(selected_, bucket * ranks, (bucket + 1) * ranks), positions);
}

Index MaskTables::device_bytes() const {
    return static_cast<Index>((segments_.span() + own_.span()) * sizeof(Segment) +
                              selected_.span() * sizeof(Index));
}

Index MaskTables::device_bytes(const MaskSizes& sizes, Index pieces) {
    return 2 * sizes.rows * static_cast<Index>(sizeof(Segment)) +
           pieces * static_cast<Index>(sizeof(Index));
}

}  // namespace scape::optim
