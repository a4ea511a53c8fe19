#include <scape/base/fence.hpp>
#include <scape/config/deck.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/model/initial_weights.hpp>
#include <scape/optim/density.hpp>
#include <scape/train/trainer.hpp>

#include <fmt/format.h>

// Where training starts, and what a checkpoint holds: the trainer's state.

namespace scape::train {

void Trainer::start_fresh() {
    // Each rank makes the weights that it owns; the others arrive as after any update.
    HostVec<float> host("scape::train::initial", sharding_.shard_piece(0).size());
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range piece = sharding_.piece(b, comm_.rank());
        const auto values = slice(host, 0, piece.size());
        model::fill_initial(
            layout(), [this](int tensor) { return model_->init(tensor); },
            static_cast<std::uint64_t>(config_.run.seed), piece, values);
        Kokkos::deep_copy(exec_, exchange().own_weights(b), values);
        fence(exec_, "scape::train::initial");  // `host` is filled again for the next bucket
        exchange().gather_parameters(exec_, b);
    }
    exchange().finish_gathers(exec_);
    exchange().take_master(exec_);
}

void Trainer::start_from_weights(const std::string& checkpoint_file) {
    const io::CheckpointReader checkpoint(checkpoint_file);
    checkpoint.read_flat("weights", layout(), parameters_);
    exchange().take_master(exec_);
}

std::vector<std::string> Trainer::resume(const io::CheckpointReader& checkpoint) {
    std::vector<std::string> lines;
    const io::CheckpointMeta& m = checkpoint.meta();
    comm::together(comm_, [&] {
        std::vector<std::string> arrays{"weights"};
        for (const optim::State& s : optimizer_.owner().state()) arrays.push_back(s.name);
        if (checkpoint.has("replica")) arrays.emplace_back("replica");
        if (checkpoint.has("error_feedback")) arrays.emplace_back("error_feedback");
        if (optimizer_.scape() != nullptr && checkpoint.has("next_mask"))
            arrays.emplace_back("next_mask");
        checkpoint.expect_arrays(arrays);
        read_weights(checkpoint);
        for (const optim::State& s : optimizer_.owner().state())
            std::visit(
                [&](const auto& values) {
                    using Values = std::decay_t<decltype(values)>;
                    checkpoint.read_shard(s.name, layout(), sharding_, comm_.rank(),
                                          Span<typename Values::value_type>(values));
                },
                s.values);
        step_ = m.step;
        tokens_ = m.tokens;
        samples_ = m.samples;
        skipped_in_a_row_ = static_cast<Index>(m.numbers.at("skipped_in_a_row"));
        if (optim::Scape* const scape = optimizer_.scape()) scape->set_numbers(m.numbers);
        const auto loco_steps = m.numbers.find("loco_steps");
        if (optimizer_.loco() != nullptr && loco_steps != m.numbers.end())
            optimizer_.loco()->set_steps(static_cast<Index>(loco_steps->second));
        read_feedback(checkpoint);
    });
    if (!optimizer_.keeps() && checkpoint.has("error_feedback"))
        lines.emplace_back("checkpoint: what its ranks had not sent goes with the first step");
    if (m.ranks != comm_.size())
        lines.push_back(fmt::format("checkpoint: {} ranks -> now {}", m.ranks, comm_.size()));
    if (optimizer_.scape() != nullptr && !restore_mask(checkpoint))
        lines.emplace_back("checkpoint: other slices than before, so the next mask is chosen anew");
    return lines;
}

/// The master, and where it is apart from it the replica.
void Trainer::read_weights(const io::CheckpointReader& checkpoint) {
    checkpoint.read_flat("weights", layout(), parameters_);
    exchange().take_master(exec_);
    fence(exec_, "scape::train::read_weights");
    if (exchange().master().extent(0) > 0 && checkpoint.has("replica"))
        checkpoint.read_flat("replica", layout(), parameters_);
}

/// What this rank had kept; on another number of ranks, the mean of what all had.
void Trainer::read_feedback(const io::CheckpointReader& checkpoint) {
    kernels::fill_zero<float>(exec_, gradients_);
    fence(exec_, "scape::train::read_feedback");
    const bool kept = checkpoint.has("error_feedback");
    if (kept && checkpoint.ranks_of("error_feedback") == comm_.size()) {
        checkpoint.read_rank("error_feedback", comm_.rank(), layout(), gradients_);
    } else if (kept) {
        checkpoint.read_mean("error_feedback", layout(), gradients_);
    }
    optimizer_.store_kept(exec_, kept);
}

/// The mask of the next step, as it was, and its exchange begun. False: the slices are others, and
/// it was made anew from the score of the state.
bool Trainer::restore_mask(const io::CheckpointReader& checkpoint) {
    const io::CheckpointMeta& m = checkpoint.meta();
    const config::RunConfig before = config::parse_run_config(m.deck, checkpoint.path());
    const double density = m.numbers.at("next_mask_density");
    const bool same_slices =
        m.ranks == comm_.size() &&
        optim::bucket_bytes(before, m.ranks) == optim::bucket_bytes(config_, comm_.size()) &&
        before.sparsity.sparsify_1d == config_.sparsity.sparsify_1d;
    const bool fits = density >= 1 || density <= optim::largest_sparse_density(config_);
    if (density >= 1 && optim::density(config_, step_ + 1) >= 1) return true;  // everything
    if (same_slices && fits) {
        if (density >= 1) return true;
        const Vec<std::uint8_t> flags("scape::train::next_mask", sharding_.shard_extent());
        comm::together(comm_, [&] {
            checkpoint.read_shard("next_mask", layout(), sharding_, comm_.rank(),
                                  Span<std::uint8_t>(flags));
        });
        optimizer_.masks()->restore(exec_, density, flags);
        return true;
    }
    optimizer_.masks()->plan_next(exec_, optim::density(config_, step_ + 1));
    if (!optimizer_.masks()->next_plan().all())
        for (int b = 0; b < sharding_.buckets(); ++b)
            optimizer_.scape()->select(exec_, b, exchange().own_gradients(b));
    optimizer_.masks()->begin(exec_);
    return false;
}

io::SaveResult Trainer::save(const std::string& checkpoints_dir) {
    const Region region("scape::checkpoint");
    using io::Placement;
    std::vector<io::ArrayOut> arrays;
    const Span<const float> replica = parameters();
    if (exchange().master().extent(0) > 0) {
        arrays.emplace_back("weights", Placement::sharded, Span<const float>(exchange().master()));
        arrays.emplace_back("replica", Placement::replicated, replica);
    } else {
        arrays.emplace_back("weights", Placement::replicated, replica);
    }
    for (const optim::State& s : optimizer_.owner().state())
        std::visit(
            [&](const auto& values) {
                using Values = std::decay_t<decltype(values)>;
                arrays.emplace_back(s.name, Placement::sharded,
                                    Span<const typename Values::value_type>(values));
            },
            s.values);
    if (optimizer_.keeps()) {
        using config::FeedbackInCheckpoint;
        optimizer_.load_kept(exec_);
        const FeedbackInCheckpoint which = config_.checkpoint.error_feedback;
        if (which != FeedbackInCheckpoint::none)
            arrays.emplace_back(
                "error_feedback",
                which == FeedbackInCheckpoint::full ? Placement::per_rank : Placement::mean,
                Span<const float>(gradients_));
    }
    Vec<std::uint8_t> flags;
    if (optimizer_.scape() != nullptr && !optimizer_.masks()->coming_plan().all()) {
        flags = Vec<std::uint8_t>("scape::train::next_mask", sharding_.shard_extent());
        optimizer_.masks()->coming_flags(exec_, flags);
        arrays.emplace_back("next_mask", Placement::sharded, Span<const std::uint8_t>(flags));
    }
    return io::save(comm_, checkpoints_dir, meta(), layout(), sharding_, arrays);
}

io::CheckpointMeta Trainer::meta() const {
    io::CheckpointMeta m;
    m.step = step_;
    m.tokens = tokens_;
    m.samples = samples_;
    m.ranks = comm_.size();
    m.deck = config::resolved_deck(config_);
    m.numbers["skipped_in_a_row"] = static_cast<double>(skipped_in_a_row_);
    if (const optim::Loco* const loco = optimizer_.loco())
        m.numbers["loco_steps"] = static_cast<double>(loco->steps());
    if (optimizer_.scape() != nullptr) {
        m.numbers["next_mask_density"] = optimizer_.masks()->coming_plan().density();
        m.numbers.merge(optimizer_.scape()->numbers());
    }
    return m;
}

}  // namespace scape::train
