#pragma once
/// @file
/// Error feedback, what this rank has not sent yet: R_i, algorithm sections 2.5 and 5.
///
///     fused    R is the gradient buffer itself: backward adds onto it, and what a message did not
///              take stays there. No memory, no pass.
///     others   the gradient buffer starts at 0; a = g + R is formed in it bucket by bucket before
///              it is packed, and what is left becomes R once the step is sure to count:
///
///              backward ── g ──► add: g += R ──► pack: what is sent is taken out ──► commit: R = g
///
///              A step that is skipped is not committed, so nothing is lost.

#include <scape/base/flat_layout.hpp>
#include <scape/config/run_config.hpp>
#include <scape/io/buffer_store.hpp>
#include <scape/optim/squares.hpp>

#include <memory>

namespace scape::optim {

class ErrorFeedback {
   public:
    /// Throws as make_buffer_store does.
    ErrorFeedback(const config::ErrorFeedbackSection& config, const Sharding& sharding, int rank);

    bool fused() const { return store_ == nullptr; }
    void begin_step(const Exec& exec);
    /// The buckets will be asked for from the last to the first.
    void expect();
    /// a = g + R.   gradients: the bucket
    void add(const Exec& exec, int bucket, Span<float> gradients);
    /// result[0] += a number that is finite exactly if every a of this step was. An element off
    /// the mask reaches nobody, so only its own rank can tell; fused error feedback does without,
    /// and loses R when such an element is sent.
    void add_check(const Exec& exec, Span<double> result);
    /// R = what is left in `gradients` (all buckets), which must stay until finish().
    void commit(const Exec& exec, Span<const float> gradients);
    /// R = 0.
    void commit_zero() { zero_ = true; }
    /// gradients = R, for checkpoints.
    void load(const Exec& exec, Span<float> gradients);
    void finish(const Exec& exec);

    io::BufferStore::Cost cost() const;
    void reset_cost();
    /// Bytes that it holds in the memory that kernels work in: on a host back end all of them.
    Index memory_bytes() const;
    /// The same before there is one.
    static Index memory_bytes(const config::ErrorFeedbackSection& config, const Sharding& sharding);

   private:
    const Sharding& sharding_;
    std::unique_ptr<io::BufferStore> store_;
    std::unique_ptr<Squares> squares_;  // of a
    bool zero_ = true;                  // nothing is kept, and the store need not be read
};

}  // namespace scape::optim
