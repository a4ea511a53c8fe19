#include <scape/base/profiling.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/top_k.hpp>
#include <scape/optim/baselines.hpp>
#include <scape/optim/mask_tables.hpp>

namespace scape::optim {

namespace {

using kernels::Position;
using kernels::Segment;

void count_from_bucket(const Exec& exec, Span<const Segment> segments, Span<Position> positions) {
    kernels::for_each_row(
        exec, "scape::optim::positions_in_bucket", static_cast<Index>(segments.extent(0)),
        KOKKOS_LAMBDA(const kernels::Row& row, Index i) {
            const Segment s = segments(i);
            const auto begin = static_cast<Position>(s.begin);
            Position* const first = positions.data() + s.first;
            row.each(s.selected, [&](Index j) { first[j] += begin; });
        });
}

/// Top k of the magnitude of a itself, in every slice of every rank.
class TopK : public Elements {
   public:
    TopK(MaskPlan plan, int rank, const MaskSizes& sizes)
        : tables_(std::move(plan), rank),
          workspace_("scape::optim::top_k_workspace",
                     static_cast<std::size_t>(kernels::top_k_workspace(
                         sizes.largest_segment, sizes.all_rows_in_bucket))) {}
    void ready(const Exec& exec, const StepPlan& step) override { tables_.set(exec, step.density); }
    const MaskPlan& plan() const override { return tables_.plan(); }
    bool dense_owner() const override { return true; }
    Index device_bytes() const override {
        return tables_.device_bytes() + static_cast<Index>(workspace_.span());
    }

   protected:
    void top_k(const Exec& exec, int bucket, Span<const float> a, Span<Position> positions) {
        const Region region("scape::optim::select");
        kernels::top_k(exec, a, tables_.segments(bucket), positions, workspace_);
    }

    MaskTables tables_;
    Vec<unsigned char> workspace_;
};

class OwnTopK : public TopK {
   public:
    using TopK::TopK;
    bool own_choice() const override { return true; }
    void choose(const Exec& exec, int bucket, Span<const float> a,
                Span<Position> message) override {
        top_k(exec, bucket, a, message);
        count_from_bucket(exec, tables_.segments(bucket), message);
        tables_.pad(exec, bucket, message);
    }
    // They travel in the messages.
    Span<const Position> positions(const Exec&, int) override { return {}; }
    Span<const Position> own_positions(const Exec&, int) override { return {}; }
};

class LeaderTopK : public TopK {
   public:
    LeaderTopK(comm::Communicator& comm, MaskPlan plan, const MaskSizes& sizes)
        : TopK(std::move(plan), comm.rank(), sizes),
          comm_(comm),
          positions_("scape::optim::positions", static_cast<std::size_t>(sizes.positions)),
          coded_("scape::optim::mask_coded", static_cast<std::size_t>(sizes.coded)) {}

    void ready(const Exec& exec, const StepPlan& step) override {
        TopK::ready(exec, step);
        leader_ = static_cast<int>(step.step % comm_.size());
    }
    void choose(const Exec& exec, int bucket, Span<const float> a, Span<Position>) override {
        if (comm_.rank() == leader_) {
            top_k(exec, bucket, a, positions_);
            kernels::encode_mask(exec, plan().code(), tables_.segments(bucket), positions_, coded_);
        }
        const Range code = plan().code_range(bucket);
        const Timer timer;
        comm_.broadcast(exec, slice(coded_, code.begin, code.end), leader_).wait(exec);
        wait_seconds_ += timer.seconds();
    }
    Span<const Position> positions(const Exec& exec, int bucket) override {
        const auto positions = slice(positions_, 0, comm_.size() * plan().padded(bucket));
        kernels::decode_mask(exec, plan().code(), tables_.segments(bucket), coded_, positions);
        tables_.pad(exec, bucket, positions);
        return positions;
    }
    Span<const Position> own_positions(const Exec& exec, int bucket) override {
        kernels::decode_mask(exec, plan().code(), tables_.segments(bucket, comm_.rank()), coded_,
                             positions_);
        const Index begin = comm_.rank() * plan().padded(bucket);
        return slice(positions_, begin, begin + plan().selected(bucket, comm_.rank()));
    }
    double wait_seconds() const override { return wait_seconds_; }
    void reset_wait() override { wait_seconds_ = 0; }
    Index device_bytes() const override {
        return TopK::device_bytes() +
               static_cast<Index>(positions_.span() * sizeof(Position) + coded_.span());
    }

   private:
    comm::Communicator& comm_;
    Vec<Position> positions_;   // of one bucket
    Vec<unsigned char> coded_;  // of the whole mask, bucket by bucket
    int leader_ = 0;
    double wait_seconds_ = 0;
};

MaskPlan by_bucket(const FlatLayout& layout, const Sharding& sharding,
                   const config::SparsitySection& sparsity) {
    return {layout, sharding, sparsity, MaskPlan::CodeOrder::by_bucket};
}

}  // namespace

std::unique_ptr<Elements> make_baseline(config::Elements elements, comm::Communicator& comm,
                                        const FlatLayout& layout, const Sharding& sharding,
                                        const config::SparsitySection& sparsity,
                                        double largest_density) {
    MaskPlan plan = by_bucket(layout, sharding, sparsity);
    const MaskSizes sizes = mask_sizes(plan, largest_density);
    if (elements == config::Elements::topk_ef)
        return std::make_unique<OwnTopK>(std::move(plan), comm.rank(), sizes);
    return std::make_unique<LeaderTopK>(comm, std::move(plan), sizes);
}

Index baseline_device_bytes(config::Elements elements, const FlatLayout& layout,
                            const Sharding& sharding, const config::SparsitySection& sparsity,
                            double largest_density) {
    MaskPlan plan = by_bucket(layout, sharding, sparsity);
    const MaskSizes sizes = mask_sizes(plan, largest_density);
    Index bytes = MaskTables::device_bytes(sizes, sharding.buckets() * sharding.ranks()) +
                  kernels::top_k_workspace(sizes.largest_segment, sizes.all_rows_in_bucket);
    if (elements == config::Elements::clt_k)
        bytes += sizes.positions * static_cast<Index>(sizeof(Position)) + sizes.coded;
    return bytes;
}

}  // namespace scape::optim
