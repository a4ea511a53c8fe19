#pragma once
/// @file
/// Gradients to their owners and new weights back, bucket by bucket, so that it overlaps with
/// backward and with the next forward (algorithm sections 1, 2.10, 3 and 4). Three things decide
/// what a message is, and each has its own place:
///
///     which elements      elements.hpp: the scape optimizer's mask, a baseline's top k; or all
///     in which code       kernels::ValueCode, there and back; message_layout.hpp
///     what becomes of     error_feedback.hpp: kept in full; loco.hpp: an average of it; neither:
///     the rest            lost
///
///     reduce-scatter   gradients   | r0 | r1 | r2 |   a at the mask is packed, travels, and the
///                                                     owner forms (1/P) sum_i a_i in rank order
///     all-gather       parameters  | r0 | r1 | r2 |   the owner's new weights at the mask arrive
///                                                     everywhere, and are unpacked
///
/// Where everything travels as fp32 there is no packing: values go straight from the gradient
/// buffer and the sums take the own piece's place in it; weights are gathered in place. Padding
/// between tensors and of the vocabulary then travels along.
///
/// Weights that travel in a code (`deltas`) do so as differences. The owner keeps its weights, the
/// master, apart; parameters are the replica, equal on all ranks. What travels is code(master -
/// replica), and every rank, the owner too, adds what it decodes to its replica: what the code lost
/// is still in master - replica, and goes out later.
///
/// The sums of a mask take the place of what was sent, in the gradient buffer. Only where that
/// place is taken, because a code loses something that is kept, or where a dense optimizer wants a
/// gradient for every element (the baselines), they have an array of their own.

#include <scape/comm/communicator.hpp>
#include <scape/optim/elements.hpp>
#include <scape/optim/error_feedback.hpp>
#include <scape/optim/loco.hpp>
#include <scape/optim/message_layout.hpp>
#include <scape/optim/message_pool.hpp>
#include <scape/optim/owner.hpp>

#include <deque>
#include <vector>

namespace scape::optim {

/// One step is: begin_step; gradients_final during the last backward; finish_reduce; for each
/// bucket the owner updates and gather_begin follows; before_use during the next forward (or
/// finish_gathers). All ranks make the same calls in the same order.
class Exchange {
   public:
    static constexpr int default_buffers = 4;
    struct Options {
        kernels::ValueCode values = kernels::fp32_values;
        kernels::ValueCode deltas = kernels::fp32_values;  ///< fp32: weights, not differences
        /// untouched: without error feedback, for optimizers that clear their gradients.
        kernels::Rest rest = kernels::Rest::untouched;
        /// Messages under way take at most `buffers` times the memory of the largest.
        int buffers = default_buffers;
        /// Densities below 1 up to this one will occur; 0: none.
        double largest_density = 0;
    };
    /// Null where everything travels (elements), nothing is kept in full (feedback), or there is no
    /// average error (loco).
    struct Parts {
        Owner& owner;
        Elements* elements = nullptr;
        ErrorFeedback* feedback = nullptr;
        Loco* loco = nullptr;
    };
    /// parameters, gradients (sharding.extent() elements): the flat buffers. Everything given must
    /// outlive the exchange. Throws std::logic_error on sizes that do not fit.
    Exchange(comm::Communicator& communicator, const FlatLayout& layout, const Sharding& sharding,
             Span<float> parameters, Span<float> gradients, const Parts& parts,
             const Options& options);

    /// Forgets which buckets were sent.
    void begin_step(const Exec& exec, const StepPlan& step);
    /// Gradients from element `begin` on are final: sends every bucket that lies there and was not
    /// sent yet, the highest first. Where no buffer is free, the oldest is finished first.
    void gradients_final(const Exec& exec, Index begin);
    /// Sends the rest and finishes all: the owner has been told of everything that arrived.
    void finish_reduce(const Exec& exec);
    /// Elements of the own shard that something arrived for, where every rank chose its own (the
    /// fill-in of topk_ef: the union over ranks); otherwise 0. Blocking.
    Index filled(const Exec& exec) const;
    /// What arrived for a bucket; its positions stay until Elements is asked again.
    Arrived arrived(const Exec& exec, int bucket);
    /// The step will not count: takes the sums out of the gradients.
    void give_up(const Exec& exec);

    /// What the owner moves; then what arrived for it says what goes back.
    Weights weights(const Exec& exec, int bucket);
    void gather_begin(const Exec& exec, const Arrived& arrived);
    /// Waits for the weights of the buckets that begin before element `end`, and unpacks them.
    void before_use(const Exec& exec, Index end);
    void finish_gathers(const Exec& exec);

    /// The own pieces of the parameters as they are become the master, where it is apart.
    void take_master(const Exec& exec);
    /// (shard) The master; empty where it is not apart.
    Span<float> master() const { return master_; }

    /// The own piece of a bucket of gradients: what is kept, once the step has counted.
    Span<float> own_gradients(int bucket) const { return own(gradients_, bucket); }
    /// The own piece of a bucket of parameters.
    Span<float> own_weights(int bucket) const { return own(parameters_, bucket); }
    /// Sends a bucket of own_weights as they are: a start.
    void gather_parameters(const Exec& exec, int bucket);

    /// Whether only a part of the elements travels in this step.
    bool sparse() const { return elements_ != nullptr && !elements_->all(); }

    /// Whether values go straight from the gradients to the network: the gradient buffer then holds
    /// nothing that is kept.
    bool straight() const { return !sparse() && options_.values.exact(); }

    /// Lets the network move on; to be called now and then while computing.
    void progress();
    /// Time that was really spent blocked in waits since the last reset, masks apart.
    double wait_seconds() const { return wait_seconds_; }
    void reset_wait() { wait_seconds_ = 0; }
    /// Message buffers and their tables, and sums of their own.
    Index buffer_bytes() const;
    Index master_bytes() const { return static_cast<Index>(master_.span() * sizeof(float)); }
    /// The same before there is an exchange. plan: of the elements that travel; of any where
    /// everything does.
    static Index buffer_bytes(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
                              const Options& options);
    /// Of them, those of messages under way.
    static Index pool_bytes(MaskPlan plan, int rank, bool dense_owner, bool own_choice,
                            const Options& options);

    const Sharding& sharding() const { return sharding_; }

   private:
    struct Reduction {
        int bucket = 0;
        bool pooled = false;                 // the messages are a block of the pool
        Span<unsigned char> send;            // (P pieces); empty: straight from the gradients
        Span<unsigned char> received;        // (P-1 pieces)
        Span<unsigned char> send_positions;  // the same of their positions, if every rank chose
        Span<unsigned char> received_positions;
        comm::Pending pending;
        comm::Pending pending_positions;
    };
    struct Gather {
        bool unpacked = false;        // from a message; otherwise in place
        Span<unsigned char> message;  // (P parts)
        comm::Pending pending;
        bool begun = false;
    };
    Span<float> bucket_of(Span<float> flat, int bucket) const;
    Span<float> own(Span<float> flat, int bucket) const;
    bool dense_owner() const { return elements_ != nullptr && elements_->dense_owner(); }
    bool own_choice() const { return elements_ != nullptr && elements_->own_choice(); }
    bool deltas() const { return !options_.deltas.exact(); }
    /// Weights of all elements come back.
    bool all_back() const { return !sparse() || dense_owner(); }
    Index arriving_values(int bucket) const;
    Index own_origin(int bucket) const;
    Span<float> sums_of(int bucket) const;
    Span<unsigned char> take(const Exec& exec, Index bytes);
    void begin(const Exec& exec);
    void send(const Exec& exec, int bucket);
    void pack(const Exec& exec, Reduction& message);
    void sum(const Exec& exec, const Reduction& message, const Arrived& arrived);
    void finish_oldest(const Exec& exec);
    void finish_gather(const Exec& exec, int bucket);
    void clear_parts_of_others(const Exec& exec, Span<unsigned char> message) const;
    void wait(const Exec& exec, comm::Pending& pending);

    comm::Communicator& comm_;
    const Sharding& sharding_;
    Span<float> parameters_;
    Span<float> gradients_;
    Owner& owner_;
    Elements* elements_;
    ErrorFeedback* feedback_;
    Loco* loco_;
    const Options options_;
    MaskPlan everything_;  // the plan of all elements
    MessageLayout values_;
    MessageLayout deltas_;
    MessagePool pool_;
    Vec<float> master_;  // (shard) if weights travel as differences
    Vec<float> sums_;    // what arrived, bucket by bucket, where it has no place in the gradients
    std::vector<Index> sums_begin_;
    bool sums_all_ = true;            // the last sums were of all elements: padding is zero
    std::deque<Reduction> reducing_;  // oldest first
    std::vector<Gather> gathering_;   // by bucket
    int first_gather_ = 0;            // buckets before it have arrived
    StepPlan step_;
    int unsent_ = 0;  // buckets [0, unsent_) are not sent
    bool begun_ = false;
    double wait_seconds_ = 0;
};

}  // namespace scape::optim
