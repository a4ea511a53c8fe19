#include <scape/comm/communicator.hpp>

#include <algorithm>

namespace scape::comm {

void Pending::wait(const Exec& exec) {
    if (!work_) return;
    const std::unique_ptr<Work> work = std::move(work_);
    work->wait(exec);
}

// During unwinding the Work's own destructor decides how long it is patient.
void Pending::drop() {
    if (work_ && std::uncaught_exceptions() == 0) wait(Exec());
    work_.reset();
}

Pending::~Pending() {
    drop();
}

Pending& Pending::operator=(Pending&& other) noexcept {
    if (this != &other) {
        drop();
        work_ = std::move(other.work_);
    }
    return *this;
}

std::vector<double> Communicator::all_reduce_sum(const std::vector<double>& mine) {
    std::vector<double> all;
    all_gather_host(mine, all).wait(Exec());
    std::vector<double> sum(mine.size(), 0.0);
    for (int r = 0; r < size(); ++r) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += all[r * sum.size() + i];
    }
    return sum;
}

double Communicator::all_reduce_max(double mine) {
    std::vector<double> all;
    all_gather_host({mine}, all).wait(Exec());
    return *std::max_element(all.begin(), all.end());
}

void agree(Communicator& comm, const Failure& mine) {
    // The lowest failing rank r gives the largest size - r.
    const int size = comm.size();
    const double first = comm.all_reduce_max(mine.failed ? size - comm.rank() : 0);
    if (first == 0) return;
    const int root = size - static_cast<int>(first);
    Index header[2] = {static_cast<Index>(mine.code), static_cast<Index>(mine.message.size())};
    comm.broadcast_host(header, sizeof header, root);
    std::string message = mine.message;
    message.resize(header[1]);
    comm.broadcast_host(message.data(), header[1], root);
    throw agreed_error(static_cast<ExitCode>(header[0]), message);
}

}  // namespace scape::comm
