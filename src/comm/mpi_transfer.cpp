#include "mpi_transfer.hpp"

#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace scape::comm {

namespace {

using DeviceBytes = Kokkos::View<char*, Memory, Unmanaged>;
using StagedBytes = Kokkos::View<char*, StagingSpace, Unmanaged>;

// Calls part(offset, n) for parts of at most `most` bytes.
template <class Part>
void cut(Index bytes, Index most, const Part& part) {
    for (Index at = 0; at < bytes; at += most) {
        part(at, static_cast<int>(std::min(most, bytes - at)));
    }
}

}  // namespace

// Buffers of exactly this size: steps that make the same calls then find what the first one left,
// in whatever order transfers end.
Staging MpiShared::take_staging(Index bytes) {
    const auto fits = [&](const Staging& s) { return static_cast<Index>(s.extent(0)) == bytes; };
    const auto found = std::find_if(free_staging.begin(), free_staging.end(), fits);
    if (found == free_staging.end()) {
        return Staging(Kokkos::view_alloc(Kokkos::WithoutInitializing, "scape::comm::staging"),
                       static_cast<std::size_t>(bytes));
    }
    Staging taken = *found;
    free_staging.erase(found);
    return taken;
}

MpiTransfer::~MpiTransfer() {
    {
        const MpiTurn turn;
        shared_->progress.remove(*this);
    }
    if (!done_) abandon();
    for (Staging& s : staging_) shared_->free_staging.push_back(s);
}

char* MpiTransfer::stage(Bytes device) {
    staging_.push_back(shared_->take_staging(device.size));
    return staging_.back().data();
}

void MpiTransfer::copy_in(const Exec& ready, char* host, const char* device, Index n) {
    if (n == 0) return;
    Kokkos::deep_copy(ready, StagedBytes(host, n), DeviceBytes(const_cast<char*>(device), n));
}

void MpiTransfer::copy_out_later(char* device, const char* host, Index n) {
    if (n != 0) copies_out_.push_back({device, host, n});
}

const std::vector<double>& MpiTransfer::keep(const std::vector<double>& numbers) {
    kept_ = numbers;
    return kept_;
}

void MpiTransfer::receive(char* data, Index bytes, int from) {
    cut(bytes, shared_->options.max_message_bytes, [&](Index at, int n) {
        requests_.push_back(MPI_REQUEST_NULL);
        ++receives_;
        SCAPE_MPI_CHECK(
            MPI_Irecv(data + at, n, MPI_BYTE, from, tag_, shared_->comm, &requests_.back()));
    });
}

void MpiTransfer::send(const char* data, Index bytes, int to) {
    cut(bytes, shared_->options.max_message_bytes, [&](Index at, int n) {
        requests_.push_back(MPI_REQUEST_NULL);
        SCAPE_MPI_CHECK(
            MPI_Isend(data + at, n, MPI_BYTE, to, tag_, shared_->comm, &requests_.back()));
    });
}

// Waitall and Testall say only that some message failed; the statuses say which error it was.
void MpiTransfer::complain(int code) const {
    for (const MPI_Status& s : statuses_) {
        if (code == MPI_ERR_IN_STATUS && s.MPI_ERROR != MPI_SUCCESS &&
            s.MPI_ERROR != MPI_ERR_PENDING) {
            code = s.MPI_ERROR;
        }
    }
    check_mpi(code, "MPI_Waitall(messages of one collective)", __FILE__, __LINE__);
}

void MpiTransfer::test_all() {
    statuses_.resize(requests_.size());
    int flag = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, statuses_.data());
    if (code != MPI_SUCCESS) complain(code);
    done_ = flag != 0;
}

bool MpiTransfer::advance() noexcept {
    try {
        test_all();
    } catch (...) {
        error_ = std::current_exception();
    }
    return done_ || error_ != nullptr;
}

bool MpiTransfer::test() {
    const MpiTurn turn;
    if (error_) std::rethrow_exception(error_);
    if (!done_) test_all();
    return done_;
}

void MpiTransfer::finish() {
    const MpiTurn turn;
    shared_->progress.remove(*this);
    if (error_) std::rethrow_exception(error_);
    if (done_) return;
    statuses_.resize(requests_.size());
    const int code =
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses_.data());
    if (code != MPI_SUCCESS) complain(code);
    done_ = true;
}

void MpiTransfer::wait(const Exec& exec) {
    finish();
    for (const CopyOut& c : copies_out_) {
        Kokkos::deep_copy(exec, DeviceBytes(c.device, c.bytes),
                          StagedBytes(const_cast<char*>(c.host), c.bytes));
    }
    // The staging memory goes back to the pool, where another stream may take it.
    if (!copies_out_.empty()) fence(exec, "scape::comm::unstage");
    copies_out_.clear();
}

// An error is on its way up on this rank. The others may have failed too, or have done their part;
// what cannot be completed soon is cancelled, so that no message lands in freed memory.
void MpiTransfer::abandon() {
    const int n = static_cast<int>(requests_.size());
    double& patience = shared_->options.patience_seconds;  // what is left of it
    const Timer timer;
    int all = 0;
    do {
        const MpiTurn turn;
        if (MPI_Testall(n, requests_.data(), &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
        if (all == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (all == 0 && timer.seconds() < patience);
    patience = std::max(0.0, patience - timer.seconds());
    const MpiTurn turn;
    for (int i = 0; i < n && all == 0; ++i) {
        if (requests_[i] == MPI_REQUEST_NULL) continue;
        int ended = 0;
        if (i < static_cast<int>(receives_)) {
            MPI_Cancel(&requests_[i]);
            MPI_Test(&requests_[i], &ended, MPI_STATUS_IGNORE);
        }
        if (ended == 0) MPI_Request_free(&requests_[i]);
    }
}

}  // namespace scape::comm
