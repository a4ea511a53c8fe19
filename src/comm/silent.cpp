#include <scape/comm/silent.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace scape::comm {

namespace {

class Silent : public Communicator {
   public:
    Silent(int rank, int size) : rank_(rank), size_(size) {
        if (rank < 0 || rank >= size)
            throw std::logic_error(fmt::format("comm: there is no rank {} of {}", rank, size));
    }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return "silent"; }
    bool silent() const override { return true; }

    Pending all_to_all(const Exec& ready, Bytes send, Bytes received) override {
        const Index piece = piece_of(send);
        if (received.size != piece * (size_ - 1))
            throw std::logic_error(fmt::format(
                "comm: all_to_all of {} bytes receives into {} bytes", send.size, received.size));
        for (int i = 0; i + 1 < size_; ++i)
            copy(ready, at(received, i * piece), at(send, rank_ * piece), piece);
        return {};
    }
    Pending all_gather(const Exec& ready, Bytes buffer) override {
        const Index piece = piece_of(buffer);
        for (int r = 0; r < size_; ++r)
            if (r != rank_) copy(ready, at(buffer, r * piece), at(buffer, rank_ * piece), piece);
        return {};
    }
    Pending broadcast(const Exec&, Bytes, int root) override {
        check_rank(root);
        return {};
    }
    Pending all_gather_host(const std::vector<double>& mine, std::vector<double>& all) override {
        all.clear();
        for (int r = 0; r < size_; ++r) all.insert(all.end(), mine.begin(), mine.end());
        return {};
    }
    void broadcast_host(void*, Index, int root) override { check_rank(root); }
    void send_host(const void*, Index, int to) override { check_rank(to); }
    void receive_host(void*, Index, int from) override { check_rank(from); }
    void barrier() override {}
    [[noreturn]] void abort(int exit_code) override {
        std::fflush(nullptr);
        std::_Exit(exit_code);
    }

   private:
    static char* at(Bytes buffer, Index offset) { return static_cast<char*>(buffer.data) + offset; }
    static void copy(const Exec& exec, char* to, char* from, Index n) {
        const auto bytes = static_cast<std::size_t>(n);
        if (n > 0) Kokkos::deep_copy(exec, Span<char>(to, bytes), Span<const char>(from, bytes));
    }
    Index piece_of(Bytes buffer) const {
        if (buffer.size % size_ != 0)
            throw std::logic_error(fmt::format("comm: a buffer of {} bytes is not {} equal pieces",
                                               buffer.size, size_));
        return buffer.size / size_;
    }
    void check_rank(int rank) const {
        if (rank < 0 || rank >= size_)
            throw std::logic_error(fmt::format("comm: there is no rank {}", rank));
    }

    const int rank_;
    const int size_;
};

}  // namespace

std::unique_ptr<Communicator> make_silent(int rank, int size) {
    return std::make_unique<Silent>(rank, size);
}

}  // namespace scape::comm
