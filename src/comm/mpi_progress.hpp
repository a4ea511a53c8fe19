#pragma once
// Transfers move on while the program computes: MPI moves messages only inside its calls, so a
// thread of its own makes some, now and then, as long as transfers are under way.

#include <scape/comm/mpi_native.hpp>

#include <condition_variable>
#include <thread>
#include <vector>

namespace scape::comm {

class MpiTransfer;

class MpiProgress {
   public:
    MpiProgress() = default;
    ~MpiProgress();
    MpiProgress(const MpiProgress&) = delete;
    MpiProgress& operator=(const MpiProgress&) = delete;

    // MPI allows another thread to call it.
    static bool possible();

    // From here on the thread tests it. Does nothing where that is not possible, or no
    // thread is to be had: transfers then move on in test() and wait().
    void add(MpiTransfer& transfer);
    // It is done or given up. In the caller's turn.
    void remove(MpiTransfer& transfer);

   private:
    bool start();
    void run();

    std::vector<MpiTransfer*> under_way_;
    std::condition_variable begun_;
    bool ending_ = false;
    bool failed_ = false;  // there is no thread to be had
    std::thread thread_;  // starts with the first transfer
};

}  // namespace scape::comm
