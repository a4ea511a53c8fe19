#pragma once
/// @file
/// The dense exchange of algorithm.md section 1, bucket by bucket, so that it overlaps with
/// backward and with the next forward:
///
///     reduce-scatter   gradients   | r0 | r1 | r2 |   each rank's own piece becomes
///                                                     (1/P) sum_i g_i, added in rank order
///     all-gather       parameters  | r0 | r1 | r2 |   each rank's own piece arrives everywhere
///
/// Padding between tensors and of the vocabulary travels along. With one rank nothing moves and
/// nothing is copied.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/comm/communicator.hpp>

#include <deque>
#include <vector>

namespace scape::optim {

/// One step is: begin_step; gradients_final during the last backward; finish_reduce; the owner
/// updates my_weights from my_gradient, with gather_begin after each bucket; before_use during the
/// next forward (or finish_gathers). All ranks make the same calls in the same order.
class DenseExchange {
   public:
    static constexpr int default_buffers = 4;
    /// parameters, gradients (sharding.extent() elements): the flat buffers. `buffers` receive
    /// buffers of a bucket's size bound how many reduce-scatters are under way; they are all that
    /// is ever allocated. Everything given must outlive the exchange. Throws std::logic_error on
    /// sizes that do not fit.
    DenseExchange(comm::Communicator& communicator, const Sharding& sharding,
                  Span<float> parameters, Span<float> gradients, int buffers = default_buffers);

    /// Forgets which buckets were sent.
    void begin_step();
    /// Gradients from element `begin` on are final: begins the reduce-scatter of every bucket that
    /// lies there and was not begun yet, the highest first. Where no buffer is free, the oldest is
    /// finished first.
    void gradients_final(const Exec& exec, Index begin);
    /// Begins the rest and finishes all.
    void finish_reduce(const Exec& exec);

    /// This rank's own piece of a bucket.
    Span<float> my_gradient(int bucket) const { return own(gradients_, bucket); }
    Span<float> my_weights(int bucket) const { return own(parameters_, bucket); }
    /// result[0] += sum of the squares of my_gradient of all buckets, in double, in a fixed order,
    /// on the device: the local part of the squared global norm. NaN and Inf come through.
    void add_sum_of_squares(const Exec& exec, Span<double> result);

    void gather_begin(const Exec& exec, int bucket);
    /// Waits for the gathers of the buckets that begin before element `end`.
    void before_use(const Exec& exec, Index end);
    void finish_gathers(const Exec& exec);

    /// Lets the network move on; to be called now and then while computing.
    void progress();
    /// Time that was really spent blocked in waits since the last reset.
    double wait_seconds() const { return wait_seconds_; }
    void reset_wait() { wait_seconds_ = 0; }
    Index buffer_bytes() const {
        return buffer_bytes(sharding_, static_cast<int>(buffers_.size()));
    }
    /// The same before there is an exchange.
    static Index buffer_bytes(const Sharding& sharding, int buffers = default_buffers);

    const Sharding& sharding() const { return sharding_; }

   private:
    struct Reduction {
        int bucket;
        int buffer;
        comm::Pending pending;
    };
    Span<float> own(Span<float> flat, int bucket) const;
    void begin_reduce(const Exec& exec, int bucket);
    void finish_oldest(const Exec& exec);
    void wait(const Exec& exec, comm::Pending& pending);

    comm::Communicator& comm_;
    const Sharding& sharding_;
    Span<float> parameters_;
    Span<float> gradients_;
    std::vector<Vec<float>> buffers_;  // (P-1) pieces of the largest bucket each
    std::vector<int> free_;
    std::deque<Reduction> reducing_;  // oldest first
    int unsent_;                      // buckets [0, unsent_) are not begun
    std::vector<comm::Pending> gathering_;
    Vec<double> partial_squares_;  // workspace of one piece
    double wait_seconds_ = 0;
};

}  // namespace scape::optim
