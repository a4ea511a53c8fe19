#include <scape/comm/communicator.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace scape::comm {

namespace {

class Self : public Communicator {
   public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::string name() const override { return "self"; }
    Pending all_to_all(const Exec&, Bytes, Bytes received) override {
        if (received.size != 0)
            throw std::logic_error(fmt::format(
                "comm: one rank receives nothing, but the buffer has {} bytes", received.size));
        return {};
    }
    Pending all_gather(const Exec&, Bytes) override { return {}; }
    Pending broadcast(const Exec&, Bytes, int root) override {
        only_rank_zero(root);
        return {};
    }
    Pending all_gather_host(const std::vector<double>& mine, std::vector<double>& all) override {
        all = mine;
        return {};
    }
    void broadcast_host(void*, Index, int root) override { only_rank_zero(root); }
    void send_host(const void*, Index, int) override { nobody(); }
    void receive_host(void*, Index, int) override { nobody(); }
    void barrier() override {}
    [[noreturn]] void abort(int exit_code) override {
        std::fflush(nullptr);
        std::_Exit(exit_code);
    }

   private:
    static void only_rank_zero(int root) {
        if (root != 0) throw std::logic_error(fmt::format("comm: there is no rank {}", root));
    }
    [[noreturn]] static void nobody() {
        throw std::logic_error("comm: one rank has nobody to exchange messages with");
    }
};

}  // namespace

std::unique_ptr<Communicator> make_self() {
    return std::make_unique<Self>();
}

}  // namespace scape::comm
