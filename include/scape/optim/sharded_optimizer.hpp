#pragma once
/// @file
/// Everything between backward and the next forward, as the deck asks for it: the exchange, its
/// three choices (which elements, which code, where the rest lives), and the owner of the shard.

#include <scape/optim/baselines.hpp>
#include <scape/optim/exchange.hpp>
#include <scape/optim/scape.hpp>

#include <memory>

namespace scape::optim {

/// Size of a bucket, as Sharding takes it: comm.bucket_mb, or by itself 25 MB, and on many ranks so
/// much that a rank's part of a dense message takes longer than its latency.
Index bucket_bytes(const config::RunConfig& config, int ranks);

/// Codes, and whether the rest is kept.
Exchange::Options exchange_options(const config::RunConfig& config);

/// Bytes on one rank, by purpose.
struct OptimizerMemory {
    Index state = 0;     ///< this rank's shard of the moments, and of the weights if apart
    Index masks = 0;     ///< coded masks of this step and the next, positions of a bucket
    Index feedback = 0;  ///< error feedback outside the gradient buffer
    Index exchange = 0;  ///< message buffers
};
/// Of a run before it begins.
OptimizerMemory optimizer_memory(const config::RunConfig& config, const FlatLayout& layout,
                                 const Sharding& sharding, int rank);

/// A step is begin_step; exchange().gradients_final during the last backward and finish_reduce;
/// then, if all ranks agree that it counts, update, otherwise skip. All ranks make the same calls
/// in the same order.
class ShardedOptimizer {
   public:
    /// parameters, gradients (sharding extent): the flat buffers. All arguments must outlive it.
    ShardedOptimizer(const config::RunConfig& config, comm::Communicator& comm,
                     const FlatLayout& layout, const Sharding& sharding, Span<float> parameters,
                     Span<float> gradients, int buffers = Exchange::default_buffers);

    /// Step t, from 1. Leaves in the gradient buffer what backward adds to: zero, or fused error
    /// feedback.
    void begin_step(const Exec& exec, Index t);
    /// squares[0] += the square of the norm of what arrived, in double; finite[0] += a number that
    /// is finite exactly if all that this rank sent or keeps is.
    void add_checks(const Exec& exec, Span<double> squares, Span<double> finite);
    /// Moves the own weights; each bucket travels as soon as it is done, in the order in which the
    /// next forward asks for them. Then keeps what was not sent, and chooses the next mask.
    void update(const Exec& exec, const StepNumbers& numbers);
    /// The step does not count: weights, moments and masks stay as they are, and so does what is
    /// kept. True: fused error feedback may have been spoiled by a number that is not finite.
    bool skip(const Exec& exec);
    /// Error feedback = 0.
    void forget(const Exec& exec);

    /// What is kept outside the gradients, by name as in checkpoints; gradients = that.
    bool keeps() const { return feedback_ != nullptr || loco_ != nullptr; }
    void load_kept(const Exec& exec);
    /// The other way round. Where nothing is kept, the next step sends it.
    void store_kept(const Exec& exec, bool any);

    Exchange& exchange() { return *exchange_; }
    const Exchange& exchange() const { return *exchange_; }
    Owner& owner() { return *owner_; }
    /// Null where there is none.
    Elements* elements() const { return elements_.get(); }
    ErrorFeedback* feedback() const { return feedback_.get(); }
    Loco* loco() const { return loco_.get(); }
    Masks* masks() const { return masks_; }
    Scape* scape() const { return scape_; }
    bool fused() const { return feedback_ != nullptr && feedback_->fused(); }
    OptimizerMemory memory() const;

   private:
    void make_next_mask(const Exec& exec);

    const config::RunConfig config_;
    const Sharding& sharding_;
    const Span<float> gradients_;
    std::unique_ptr<Elements> elements_;  // null where everything travels
    // What becomes of the rest: kept in full, an average of it, or (both null) lost.
    std::unique_ptr<ErrorFeedback> feedback_;
    std::unique_ptr<Loco> loco_;
    std::unique_ptr<Owner> owner_;
    Masks* masks_ = nullptr;  // elements_, of the scape optimizer
    Scape* scape_ = nullptr;  // owner_, if it is one
    std::unique_ptr<Exchange> exchange_;
    bool kept_in_gradients_ = true;  // the gradient buffer holds R, between steps
    bool left_over_ = false;         // it holds what another kind of run had kept
};

}  // namespace scape::optim
