#pragma once
/// @file
/// Sharded data-parallel training: one optimizer step, and the state that it moves on.

#include <scape/base/flat_layout.hpp>
#include <scape/comm/counting.hpp>
#include <scape/config/run_config.hpp>
#include <scape/data/batch.hpp>
#include <scape/data/dataset.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/model/model.hpp>
#include <scape/optim/sharded_optimizer.hpp>
#include <scape/train/evaluator.hpp>
#include <scape/train/metrics.hpp>
#include <scape/train/step_cost.hpp>

#include <memory>
#include <string>
#include <vector>

namespace scape::train {

class Trainer {
   public:
    /// Allocates everything that training needs; nothing is allocated after the first step.
    /// `config` must have passed validate() for comm.size() ranks. Collective, like every call.
    Trainer(const config::RunConfig& config, comm::Communicator& comm, const data::Dataset& dataset,
            const Exec& exec);

    /// Starts from the seed.
    void start_fresh();
    /// Starts from the weights alone of a checkpoint file, at step 0.
    void start_from_weights(const std::string& checkpoint_file);
    /// Goes on where a checkpoint stopped: the same ranks give the same bits; other ranks the same
    /// losses to rounding (dense), or the same first loss and then another, equally good run
    /// (sparse, algorithm section 2.9). Returns what the log should say. Communicates.
    std::vector<std::string> resume(const io::CheckpointReader& checkpoint);
    io::SaveResult save(const std::string& checkpoints_dir);

    /// One optimizer step (house: the page). `stop_wanted` is this rank's; stop_agreed() then says
    /// whether any rank's was set. Throws agreed_error(numbers) when check.skip_nonfinite steps in
    /// a row had to be skipped, or when the replicas differ.
    StepRecord step(bool stop_wanted);
    bool stop_agreed() const { return stop_agreed_; }

    /// Loss on the validation split, with the replicas as they are. dataset.valid must exist.
    Evaluation evaluate();

    Index step_number() const { return step_; }  ///< steps done
    Index tokens_seen() const { return tokens_; }
    const FlatLayout& layout() const { return model_->layout(); }
    /// Memory that this rank really allocated, by purpose.
    MemoryAccount memory() const;
    /// All parameters (padded flat buffer) as they are trained with, up to date on every rank.
    Span<const float> parameters();
    std::uint64_t parameter_hash();

   private:
    struct Agreed {
        double loss_sum = 0;
        double grad_norm = 0;
        bool finite = true;
        std::uint64_t data_hash = 0;
    };
    bool forward_and_backward();
    bool outputs_finite();
    Agreed agree(bool stop_wanted);
    Index drop_spoiled_feedback();
    void measure_feedback(StepRecord& record);
    void check_replicas();
    void read_weights(const io::CheckpointReader& checkpoint);
    void read_feedback(const io::CheckpointReader& checkpoint);
    optim::Exchange& exchange() { return optimizer_.exchange(); }
    bool restore_mask(const io::CheckpointReader& checkpoint);
    io::CheckpointMeta meta() const;

    const config::RunConfig config_;
    comm::CountingCommunicator comm_;
    const data::Dataset& dataset_;
    const Exec exec_;
    std::unique_ptr<model::Model<float>> model_;
    const Sharding sharding_;
    const Vec<float> parameters_;  // (sharding extent): the replica; the own pieces are the master,
                                   // unless the exchange has it apart
    const Vec<float> gradients_;   // (sharding extent)
    const Vec<double> sums_;       // [0] loss, [1] squares of the gradient, [2] of a, if kept
    const HostVec<double> sums_host_;
    const Vec<double> partial_sums_;  // workspace
    optim::ShardedOptimizer optimizer_;
    data::BatchLoader loader_;
    model::Hooks awaiting_;    // parameters are awaited where they are used
    model::Hooks exchanging_;  // and gradients leave when they are final

    Index step_ = 0;
    Index tokens_ = 0;
    Index samples_ = 0;  // of the training stream, over all ranks: the data position
    Index skipped_in_a_row_ = 0;
    double all_targets_ = 0;  // of the step under way, over all ranks
    bool stop_agreed_ = false;
};

}  // namespace scape::train
