#pragma once
/// @file
/// What the program asks of a network: a few collectives, begun now and awaited later.
///
/// Conventions of every call here:
///  - all ranks of the communicator make the same calls in the same order with the same sizes;
///    Pendings may be awaited in any order;
///  - buffers in `Memory` are read when the work queued on `ready` so far is done (a host back end
///    fences it, a stream back end makes its stream wait), and must stay untouched until the
///    Pending is done; `Pending::wait(exec)` makes work queued on `exec` afterwards see the result;
///  - sums are never formed by the network: pieces travel, and the owner adds them in rank order,
///    so results are reproducible and every rank sends exactly (P-1)/P of a buffer;
///  - sizes that do not fit throw std::logic_error, a network that fails user_error
///  (ExitCode::lost).

#include <scape/base/error.hpp>
#include <scape/base/types.hpp>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace scape::comm {

/// A collective under way. Movable; dropping one that is not done waits for it, except while an
/// exception is on its way: the other ranks may then never do their part, and the back end gives
/// up after a few seconds, so that the error is reported instead of a hang.
class Pending {
   public:
    struct Work {
        virtual ~Work() = default;
        /// Moves the transfer on, without blocking; true when it is done.
        virtual bool test() = 0;
        virtual void wait(const Exec& exec) = 0;
    };

    Pending() = default;  ///< nothing to wait for
    explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}
    Pending(Pending&&) noexcept = default;
    Pending& operator=(Pending&& other) noexcept;
    ~Pending();

    bool test() { return !work_ || work_->test(); }
    void wait(const Exec& exec);
    explicit operator bool() const { return work_ != nullptr; }

   private:
    void drop();
    std::unique_ptr<Work> work_;
};

/// Bytes of a buffer in device memory.
struct Bytes {
    void* data = nullptr;
    Index size = 0;
    template <class T, class... P>
    Bytes(const Kokkos::View<T*, P...>& v)
        : data(const_cast<std::remove_const_t<T>*>(v.data())),
          size(static_cast<Index>(v.extent(0) * sizeof(T))) {}
    Bytes(void* d, Index n) : data(d), size(n) {}
};

class Communicator {
   public:
    virtual ~Communicator() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0;  ///< "self", "mpi", ... for logs
    /// True where the other ranks are only made up, to time what this one does: what arrives is then
    /// as long as what they would send, but a copy of the own (see make_silent).
    virtual bool silent() const { return false; }

    /// send: P equal pieces, piece j goes to rank j. received: P-1 pieces, those of the other
    /// ranks in rank order (rank j's at j, or j-1 above the caller). The own piece stays in `send`.
    virtual Pending all_to_all(const Exec& ready, Bytes send, Bytes received) = 0;

    /// In place: `buffer` is P equal pieces, the caller has filled its own, all others arrive.
    virtual Pending all_gather(const Exec& ready, Bytes buffer) = 0;

    /// The whole buffer of `root` arrives everywhere.
    virtual Pending broadcast(const Exec& ready, Bytes buffer, int root) = 0;

    /// Host memory, a few numbers: `all` receives every rank's `mine`, in rank order. `mine` is
    /// copied; `all` must live, untouched, until the Pending is done.
    virtual Pending all_gather_host(const std::vector<double>& mine, std::vector<double>& all) = 0;

    /// Host memory, blocking: `bytes` of `root` arrive everywhere.
    virtual void broadcast_host(void* data, Index bytes, int root) = 0;
    /// Host memory, blocking: `bytes` of rank `from` arrive at rank `to` (from != to; others do
    /// nothing).
    virtual void send_host(const void* data, Index bytes, int to) = 0;
    virtual void receive_host(void* data, Index bytes, int from) = 0;

    virtual void barrier() = 0;
    /// Ends the program on all ranks at once.
    [[noreturn]] virtual void abort(int exit_code) = 0;

    /// Sum over ranks of each number, formed in rank order: the same bits on every rank. Blocking.
    std::vector<double> all_reduce_sum(const std::vector<double>& mine);
    double all_reduce_max(double mine);
    /// True if any rank says so.
    bool any(bool mine) { return all_reduce_max(mine ? 1 : 0) > 0; }
};

/// What went wrong on one rank; `failed` false: nothing.
struct Failure {
    bool failed = false;
    ExitCode code = ExitCode::fault;
    std::string message;
};

/// Every rank brings its own; if any failed, every rank throws an agreed_error with the message and
/// code of the lowest failing rank. Blocking.
void agree(Communicator& comm, const Failure& mine);

/// Runs `work` on every rank. If it throws anywhere, every rank throws an agreed_error with
/// the message (and code) of the lowest failing rank, so that all end alike and one message is
/// printed. Exceptions other than user_error count as a fault of the program (lack of memory:
/// resources). `work` must not communicate: a rank that fails would leave the others waiting inside
/// it.
template <class Work>
void together(Communicator& comm, Work&& work) {
    Failure mine;
    try {
        std::forward<Work>(work)();
    } catch (const user_error& e) {
        mine = {true, e.code(), e.what()};
    } catch (const std::exception& e) {
        const bool memory = is_out_of_memory(e);
        mine = {true, memory ? ExitCode::resources : ExitCode::fault,
                memory ? out_of_memory : e.what()};
    }
    agree(comm, mine);
}

/// One rank, no network.
std::unique_ptr<Communicator> make_self();

/// What a collective has cost so far.
struct Traffic {
    std::string collective;  ///< "all_to_all", "all_gather", "host", "broadcast"
    Index calls = 0;
    Index bytes_sent = 0;  ///< by this rank, to others
    double seconds = 0;    ///< that the caller spent in beginning, testing and awaiting it
};

}  // namespace scape::comm
