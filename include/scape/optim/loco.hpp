#pragma once
/// @file
/// LoCo's error (arXiv 2407.04480), algorithm section 3: of what low-bit codes of a dense gradient
/// lost, a moving average, which is kept as 8-bit codes in blocks and added to the next gradient.
///
///     h = g + e;   q = code(h);   e = beta e + (1-beta) (h - decoded q)
///
/// There are two arrays of it, so that a step that is skipped leaves it as it was: packing reads
/// one and writes the other, and commit() changes their places.

#include <scape/optim/message_layout.hpp>

namespace scape::optim {

class Loco {
   public:
    /// code: of the messages. everything: a plan at density 1.
    Loco(const config::LocoSection& config, const kernels::ValueCode& code,
         const MaskPlan& everything, int rank);

    /// message = coded (gradients + error).   gradients: the bucket; selected: all of it
    void pack(const Exec& exec, int bucket, const kernels::Selected& selected,
              Span<const float> gradients, Span<unsigned char> message);
    /// The step counts: its errors are the next step's, or zero every `reset_every` steps.
    void commit();

    /// gradients = error, all buckets, padding 0; and the other way round. An error that was loaded
    /// is stored without a loss.
    void load(const Exec& exec, Span<float> gradients);
    void store(const Exec& exec, Span<float> gradients);
    /// Steps that counted since the last reset.
    Index steps() const { return steps_; }
    void set_steps(Index steps) { steps_ = steps; }

    Index memory_bytes() const;
    static Index memory_bytes(const kernels::ValueCode& code, const MaskPlan& everything);

   private:
    Span<unsigned char> error(int which, int bucket) const;

    const config::LocoSection config_;
    const kernels::ValueCode code_;  // of the messages
    const Sharding& sharding_;
    MessageLayout layout_;      // of the error
    std::vector<Index> begin_;  // (buckets + 1) bytes
    Vec<unsigned char> errors_[2];
    int current_ = 0;
    bool zero_ = true;  // the current error, whatever the array holds
    Index steps_ = 0;
};

}  // namespace scape::optim
