#pragma once
/// @file
/// A communicator that passes every call on and counts what it costs.

#include <scape/comm/communicator.hpp>

namespace scape::comm {

/// Bytes are those that this rank sends to others: (P-1)/P of the buffer of an all_to_all, P-1
/// pieces for an all_gather, P-1 copies of a broadcast at its root, P-1 copies of the numbers of an
/// all_gather_host and of what the root broadcasts. Everything in host memory, barriers too, is
/// counted as "host". `inner` must outlive it; Pendings need not be done before it ends.
class CountingCommunicator : public Communicator {
   public:
    explicit CountingCommunicator(Communicator& inner);

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::string name() const override { return inner_.name(); }
    bool silent() const override { return inner_.silent(); }
    Pending all_to_all(const Exec& ready, Bytes send, Bytes received) override;
    Pending all_gather(const Exec& ready, Bytes buffer) override;
    Pending broadcast(const Exec& ready, Bytes buffer, int root) override;
    Pending all_gather_host(const std::vector<double>& mine, std::vector<double>& all) override;
    void broadcast_host(void* data, Index bytes, int root) override;
    void send_host(const void* data, Index bytes, int to) override;
    void receive_host(void* data, Index bytes, int from) override;
    void barrier() override;
    [[noreturn]] void abort(int exit_code) override;

    /// all_to_all, all_gather, host, broadcast: always these four, in this order.
    std::vector<Traffic> traffic() const;
    void reset();

   private:
    Communicator& inner_;
    std::shared_ptr<std::vector<Traffic>> traffic_;  // shared with the Pendings under way
};

}  // namespace scape::comm
