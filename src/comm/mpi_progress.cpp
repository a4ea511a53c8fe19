#include "mpi_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <system_error>

namespace scape::comm {

namespace {

// Long enough that a core that computes does not notice, short enough that what the kernel's
// socket buffers hold (megabytes) lasts at 100 Gbit/s.
constexpr std::chrono::microseconds between_looks(200);

}  // namespace

std::mutex& MpiTurn::mutex() {
    static std::mutex one;
    return one;
}

bool MpiProgress::possible() {
    int level = MPI_THREAD_SINGLE;
    return MPI_Query_thread(&level) == MPI_SUCCESS && level >= MPI_THREAD_SERIALIZED;
}

MpiProgress::~MpiProgress() {
    if (!thread_.joinable()) return;
    {
        const MpiTurn turn;
        ending_ = true;
    }
    begun_.notify_one();
    thread_.join();
}

void MpiProgress::add(MpiTransfer& transfer) {
    const MpiTurn turn;
    if (!thread_.joinable() && !start()) return;
    under_way_.push_back(&transfer);
    begun_.notify_one();
}

bool MpiProgress::start() {
    if (failed_ || !possible()) return false;
    // Signals are for the thread that runs the program, but those of its own faults.
    sigset_t others;
    sigset_t before;
    sigfillset(&others);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&others, fault);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        failed_ = true;  // no more threads are allowed: it goes without
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return !failed_;
}

void MpiProgress::remove(MpiTransfer& transfer) {
    std::erase(under_way_, &transfer);
}

void MpiProgress::run() {
    for (;;) {
        {
            MpiTurn turn;
            begun_.wait(turn.lock(), [this] { return ending_ || !under_way_.empty(); });
            if (ending_) return;
            std::erase_if(under_way_, [](MpiTransfer* t) { return t->advance(); });
        }
        std::this_thread::sleep_for(between_looks);
    }
}

}  // namespace scape::comm
