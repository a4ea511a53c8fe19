#include "mpi_transfer.hpp"

#include <scape/base/fence.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace scape::comm {

void check_mpi(int code, const char* call, const char* file, int line) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    const char* name = std::strrchr(file, '/');
    throw user_error(ExitCode::lost, fmt::format("MPI failed: {}\n  call: {}\n  at: {}:{}", text,
                                                 call, name == nullptr ? file : name + 1, line));
}

namespace {

class Mpi : public Communicator {
   public:
    Mpi(MPI_Comm parent, const MpiOptions& options) : shared_(std::make_shared<MpiShared>()) {
        if (options.max_message_bytes < 1 || options.max_message_bytes > 2147483647)
            throw std::logic_error(
                fmt::format("comm: max_message_bytes is {}, allowed are 1 to 2147483647",
                            options.max_message_bytes));
        MpiShared& s = *shared_;
        s.options = options;
        SCAPE_MPI_CHECK(MPI_Comm_dup(parent, &s.comm));
        SCAPE_MPI_CHECK(MPI_Comm_set_errhandler(s.comm, MPI_ERRORS_RETURN));
        SCAPE_MPI_CHECK(MPI_Comm_rank(s.comm, &s.rank));
        SCAPE_MPI_CHECK(MPI_Comm_size(s.comm, &s.size));
        int* upper = nullptr;
        int found = 0;
        SCAPE_MPI_CHECK(MPI_Comm_get_attr(s.comm, MPI_TAG_UB, &upper, &found));
        if (found != 0) largest_tag_ = *upper;
    }
    ~Mpi() override {
        const MpiTurn turn;
        int finalized = 0;
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0)
            MPI_Comm_free(&shared_->comm);
    }
    Mpi(const Mpi&) = delete;
    Mpi& operator=(const Mpi&) = delete;

    int rank() const override { return shared_->rank; }
    int size() const override { return shared_->size; }
    std::string name() const override { return "mpi"; }

    Pending all_to_all(const Exec& ready, Bytes send, Bytes received) override;
    Pending all_gather(const Exec& ready, Bytes buffer) override;
    Pending broadcast(const Exec& ready, Bytes buffer, int root) override;
    Pending all_gather_host(const std::vector<double>& mine, std::vector<double>& all) override;
    void broadcast_host(void* data, Index bytes, int root) override;
    void send_host(const void* data, Index bytes, int to) override;
    void receive_host(void* data, Index bytes, int from) override;
    void barrier() override { SCAPE_MPI_CHECK(MPI_Barrier(shared_->comm)); }
    [[noreturn]] void abort(int exit_code) override {
        std::fflush(nullptr);
        const MpiTurn turn;
        MPI_Abort(shared_->comm, exit_code);
        std::_Exit(exit_code);
    }

   private:
    static constexpr int host_message_tag = 0;  // send_host and receive_host, which match in order

    std::unique_ptr<MpiTransfer> begin();
    Index piece_of(Bytes buffer) const;
    template <class PieceOf>
    void receive_from_all(MpiTransfer& transfer, Index piece, const PieceOf& from) const;
    template <class PieceOf>
    void send_to_all(MpiTransfer& transfer, Index piece, const PieceOf& to) const;
    template <class Part>
    void in_parts(Index bytes, const Part& part) const;

    std::shared_ptr<MpiShared> shared_;
    int largest_tag_ = 32767;  // the least that MPI promises
    int tag_ = host_message_tag;
};

// One tag per collective, the same on every rank because all make the same calls: a late message of
// one collective is never taken for one of the next.
std::unique_ptr<MpiTransfer> Mpi::begin() {
    tag_ = tag_ < largest_tag_ ? tag_ + 1 : host_message_tag + 1;
    return std::make_unique<MpiTransfer>(shared_, tag_);
}

Index Mpi::piece_of(Bytes buffer) const {
    if (buffer.size % size() != 0)
        throw std::logic_error(
            fmt::format("comm: a buffer of {} bytes is not {} equal pieces", buffer.size, size()));
    return buffer.size / size();
}

// Rank r starts with its neighbours r-1 and r+1, so that not everybody turns to rank 0 first.
template <class PieceOf>
void Mpi::receive_from_all(MpiTransfer& transfer, Index piece, const PieceOf& from) const {
    for (int k = 1; k < size(); ++k) {
        const int peer = (rank() - k + size()) % size();
        transfer.receive(from(peer), piece, peer);
    }
}

template <class PieceOf>
void Mpi::send_to_all(MpiTransfer& transfer, Index piece, const PieceOf& to) const {
    for (int k = 1; k < size(); ++k) {
        const int peer = (rank() + k) % size();
        transfer.send(to(peer), piece, peer);
    }
}

//  send      | to 0 | to 1 | to 2 |        received on rank 1   | from 0 | from 2 |
Pending Mpi::all_to_all(const Exec& ready, Bytes send, Bytes received) {
    const Index piece = piece_of(send);
    if (received.size != piece * (size() - 1))
        throw std::logic_error(fmt::format("comm: all_to_all of {} bytes receives into {} bytes",
                                           send.size, received.size));
    if (size() == 1) return {};
    auto transfer = begin();
    char* out = static_cast<char*>(send.data);
    char* in = static_cast<char*>(received.data);
    if (shared_->options.stage) {
        const Index mine = rank() * piece;
        const Index after = mine + piece;
        const char* device = out;
        out = transfer->stage(send);
        in = transfer->stage(received);
        transfer->copy_in(ready, out, device, mine);
        transfer->copy_in(ready, out + after, device + after, send.size - after);
        transfer->copy_out_later(static_cast<char*>(received.data), in, received.size);
    }
    fence(ready, "scape::comm::all_to_all");
    receive_from_all(*transfer, piece,
                     [&](int peer) { return in + (peer < rank() ? peer : peer - 1) * piece; });
    send_to_all(*transfer, piece, [&](int peer) { return out + peer * piece; });
    transfer->begun();
    return Pending(std::move(transfer));
}

//  buffer on rank 1   | ? | mine | ? |   becomes   | 0's | mine | 2's |
Pending Mpi::all_gather(const Exec& ready, Bytes buffer) {
    const Index piece = piece_of(buffer);
    if (size() == 1) return {};
    auto transfer = begin();
    char* data = static_cast<char*>(buffer.data);
    const Index mine = rank() * piece;
    const Index after = mine + piece;
    if (shared_->options.stage) {
        char* device = data;
        data = transfer->stage(buffer);
        transfer->copy_in(ready, data + mine, device + mine, piece);
        transfer->copy_out_later(device, data, mine);
        transfer->copy_out_later(device + after, data + after, buffer.size - after);
    }
    fence(ready, "scape::comm::all_gather");
    receive_from_all(*transfer, piece, [&](int peer) { return data + peer * piece; });
    send_to_all(*transfer, piece, [&](int) { return data + mine; });
    transfer->begun();
    return Pending(std::move(transfer));
}

// The root sends to each of the others; its network then carries P-1 copies, which is what counting
// says too. What is broadcast here is small.
Pending Mpi::broadcast(const Exec& ready, Bytes buffer, int root) {
    if (root < 0 || root >= size())
        throw std::logic_error(fmt::format("comm: there is no rank {}", root));
    if (size() == 1 || buffer.size == 0) return {};
    auto transfer = begin();
    char* data = static_cast<char*>(buffer.data);
    if (shared_->options.stage) {
        char* device = data;
        data = transfer->stage(buffer);
        if (rank() == root) {
            transfer->copy_in(ready, data, device, buffer.size);
        } else {
            transfer->copy_out_later(device, data, buffer.size);
        }
    }
    fence(ready, "scape::comm::broadcast");
    if (rank() == root) {
        send_to_all(*transfer, buffer.size, [&](int) { return data; });
    } else {
        transfer->receive(data, buffer.size, root);
    }
    transfer->begun();
    return Pending(std::move(transfer));
}

Pending Mpi::all_gather_host(const std::vector<double>& mine, std::vector<double>& all) {
    const std::size_t n = mine.size();
    const Index bytes = static_cast<Index>(n * sizeof(double));
    auto transfer = begin();
    const std::vector<double>& kept = transfer->keep(mine);
    all.resize(n * size());
    std::copy(kept.begin(), kept.end(), all.begin() + static_cast<Index>(n) * rank());
    receive_from_all(*transfer, bytes,
                     [&](int peer) { return reinterpret_cast<char*>(all.data() + n * peer); });
    send_to_all(*transfer, bytes, [&](int) { return reinterpret_cast<const char*>(kept.data()); });
    transfer->begun();
    return Pending(std::move(transfer));
}

template <class Part>
void Mpi::in_parts(Index bytes, const Part& part) const {
    const Index most = shared_->options.max_message_bytes;
    for (Index at = 0; at < bytes; at += most) {
        part(at, static_cast<int>(std::min(most, bytes - at)));
    }
}

void Mpi::broadcast_host(void* data, Index bytes, int root) {
    in_parts(bytes, [&](Index at, int n) {
        SCAPE_MPI_CHECK(MPI_Bcast(static_cast<char*>(data) + at, n, MPI_BYTE, root, shared_->comm));
    });
}

void Mpi::send_host(const void* data, Index bytes, int to) {
    in_parts(bytes, [&](Index at, int n) {
        SCAPE_MPI_CHECK(MPI_Send(static_cast<const char*>(data) + at, n, MPI_BYTE, to,
                                 host_message_tag, shared_->comm));
    });
}

void Mpi::receive_host(void* data, Index bytes, int from) {
    in_parts(bytes, [&](Index at, int n) {
        SCAPE_MPI_CHECK(MPI_Recv(static_cast<char*>(data) + at, n, MPI_BYTE, from, host_message_tag,
                                 shared_->comm, MPI_STATUS_IGNORE));
    });
}

}  // namespace

std::unique_ptr<Communicator> make_mpi(MPI_Comm parent, const MpiOptions& options) {
    return std::make_unique<Mpi>(parent, options);
}

}  // namespace scape::comm
