#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/top_k.hpp>
#include <scape/optim/masks.hpp>

#include <utility>
#include <vector>

namespace scape::optim {

namespace {

using kernels::Position;

void set_flags(const Exec& exec, Span<const Position> positions, Index shift,
               Span<std::uint8_t> flags) {
    kernels::for_each(
        exec, "scape::optim::mask_flags", static_cast<Index>(positions.extent(0)),
        KOKKOS_LAMBDA(Index j) { flags(shift + static_cast<Index>(positions(j))) = 1; });
}

void to_score(const Exec& exec, Span<const std::uint8_t> flags, Span<float> score) {
    kernels::for_each(
        exec, "scape::optim::mask_score", static_cast<Index>(flags.extent(0)),
        KOKKOS_LAMBDA(Index i) { score(i) = static_cast<float>(flags(i)); });
}

Index count_common(const Exec& exec, Span<const std::uint8_t> flags, Index shift,
                   Span<const Position> positions) {
    Index common = 0;
    Kokkos::parallel_reduce(
        "scape::optim::mask_overlap", kernels::range(exec, static_cast<Index>(positions.extent(0))),
        KOKKOS_LAMBDA(Index j, Index & sum) {
            sum += flags(shift + static_cast<Index>(positions(j)));
        },
        common);
    return common;
}

}  // namespace

Masks::Masks(comm::Communicator& comm, const FlatLayout& layout, const Sharding& sharding,
             const config::SparsitySection& sparsity, double largest_density, Lateness lateness)
    : comm_(comm),
      sharding_(sharding),
      late_(lateness == Lateness::one_step),
      current_{MaskTables(MaskPlan(layout, sharding, sparsity), comm.rank()), {}},
      next_{MaskTables(MaskPlan(layout, sharding, sparsity), comm.rank()), {}} {
    MaskPlan plan(layout, sharding, sparsity);
    const MaskSizes sizes = mask_sizes(plan, largest_density);
    for (Mask* mask : {&current_, &next_})
        mask->coded =
            Vec<unsigned char>("scape::optim::mask_coded", static_cast<std::size_t>(sizes.coded));
    positions_ =
        Vec<Position>("scape::optim::positions", static_cast<std::size_t>(sizes.positions));
    if (largest_density <= 0) return;
    workspace_ = Vec<unsigned char>("scape::optim::top_k_workspace",
                                    static_cast<std::size_t>(kernels::top_k_workspace(
                                        sizes.largest_segment, sizes.rows_in_bucket)));
}

void Masks::ready(const Exec& exec, const StepPlan& step) {
    const Region region("scape::optim::mask_ready");
    if (next_made_) {
        const Timer timer;
        arriving_.wait(exec);
        arriving_ = comm::Pending();
        wait_seconds_ += timer.seconds();
        std::swap(current_, next_);
        next_made_ = false;
    }
    // Skipped steps can leave an older mask to a step that is dense.
    if (step.density >= 1 && !plan().all()) current_.tables.set(exec, 1);
    if (step.density >= 1) current_.tables.set(exec, 1);  // kept through a skipped step
    if (late_) {
        plan_next(exec, step.next_density);
    } else {
        current_.tables.set(exec, step.density);
    }
}

void Masks::choose(const Exec& exec, int bucket, Span<const float>, Span<Position>) {
    if (late_) return;
    const Timer timer;
    std::vector<comm::Pending> parts;
    for (int r = 0; r < comm_.size(); ++r) {
        const Range code = plan().code_range(bucket, r);
        if (code.size() > 0)
            parts.push_back(comm_.broadcast(exec, slice(current_.coded, code.begin, code.end), r));
    }
    for (comm::Pending& part : parts) part.wait(exec);
    wait_seconds_ += timer.seconds();
}

Span<const Position> Masks::positions(const Exec& exec, int bucket) {
    const Span<Position> positions = slice(positions_, 0, comm_.size() * plan().padded(bucket));
    kernels::decode_mask(exec, plan().code(), current_.tables.segments(bucket), current_.coded,
                         positions);
    current_.tables.pad(exec, bucket, positions);
    return positions;
}

Span<const Position> Masks::decode_own(const Exec& exec, const Mask& mask, int bucket) {
    const MaskPlan& plan = mask.tables.plan();
    const Index begin = comm_.rank() * plan.padded(bucket);
    kernels::decode_mask(exec, plan.code(), mask.tables.segments(bucket, comm_.rank()), mask.coded,
                         positions_);
    return slice(positions_, begin, begin + plan.selected(bucket, comm_.rank()));
}

Span<const Position> Masks::own_positions(const Exec& exec, int bucket) {
    return decode_own(exec, current_, bucket);
}

void Masks::select(const Exec& exec, int bucket, Span<const float> score) {
    const Region region("scape::optim::select");
    Mask& mask = late_ ? next_ : current_;
    const auto segments = mask.tables.own(bucket);
    const auto chosen = slice(positions_, 0, next_plan().selected(bucket, comm_.rank()));
    kernels::top_k(exec, score, segments, chosen, workspace_);
    kernels::encode_mask(exec, next_plan().code(), segments, chosen, mask.coded);
}

void Masks::begin(const Exec& exec) {
    if (!late_) return;
    next_made_ = true;
    if (next_plan().all()) return;
    arriving_ =
        comm_.all_gather(exec, slice(next_.coded, 0, comm_.size() * next_plan().code_bytes()));
}

void Masks::keep() {
    next_made_ = false;
}

void Masks::coming_flags(const Exec& exec, Span<std::uint8_t> flags) {
    const Mask& mask = next_made_ ? next_ : current_;
    if (mask.tables.plan().all()) {
        Kokkos::deep_copy(exec, flags, std::uint8_t(1));
        return;
    }
    Kokkos::deep_copy(exec, flags, std::uint8_t(0));
    for (int b = 0; b < sharding_.buckets(); ++b) {
        set_flags(exec, decode_own(exec, mask, b),
                  sharding_.shard_piece(b).begin - mask.tables.piece_begin(b), flags);
    }
}

void Masks::restore(const Exec& exec, double density, Span<const std::uint8_t> flags) {
    plan_next(exec, density);
    if (!next_plan().all()) {
        const Vec<float> score("scape::optim::mask_score",
                               static_cast<std::size_t>(sharding_.shard_piece(0).size()));
        for (int b = 0; b < sharding_.buckets(); ++b) {
            const Range piece = sharding_.shard_piece(b);
            const auto mine = slice(score, 0, piece.size());
            to_score(exec, slice(flags, piece.begin, piece.end), mine);
            select(exec, b, mine);
        }
        fence(exec, "scape::optim::mask_restore");
    }
    begin(exec);
}

Index Masks::overlap(const Exec& exec) {
    if (plan().all() || !next_made_ || next_plan().all()) return 0;
    const Vec<std::uint8_t> flags("scape::optim::mask_flags",
                                  static_cast<std::size_t>(sharding_.shard_extent()));
    coming_flags(exec, flags);
    Index common = 0;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        common += count_common(exec, flags,
                               sharding_.shard_piece(b).begin - current_.tables.piece_begin(b),
                               decode_own(exec, current_, b));
    }
    return common;
}

Index Masks::device_bytes(const FlatLayout& layout, const Sharding& sharding,
                          const config::SparsitySection& sparsity, double largest_density) {
    MaskPlan plan(layout, sharding, sparsity);
    const MaskSizes sizes = mask_sizes(plan, largest_density);
    const Index pieces = sharding.buckets() * sharding.ranks();
    Index bytes = 2 * (MaskTables::device_bytes(sizes, pieces) + sizes.coded) +
                  sizes.positions * static_cast<Index>(sizeof(Position));
    if (largest_density > 0)
        bytes += kernels::top_k_workspace(sizes.largest_segment, sizes.rows_in_bucket);
    return bytes;
}

Index Masks::device_bytes() const {
    Index bytes = static_cast<Index>(positions_.span() * sizeof(Position) + workspace_.span());
    for (const Mask* m : {&current_, &next_})
        bytes += m->tables.device_bytes() + static_cast<Index>(m->coded.span());
    return bytes;
}

}  // namespace scape::optim
