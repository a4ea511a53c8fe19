#include <scape/base/profiling.hpp>
#include <scape/comm/counting.hpp>

#include <cstdlib>

namespace scape::comm {

namespace {

enum Collective { all_to_all_row, all_gather_row, host_row, broadcast_row };
using Counters = std::shared_ptr<std::vector<Traffic>>;

// Adds the time until the end of its scope.
class Stopwatch {
   public:
    explicit Stopwatch(Traffic& row) : row_(row) {}
    ~Stopwatch() { row_.seconds += timer_.seconds(); }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

   private:
    Traffic& row_;
    Timer timer_;
};

class Counted : public Pending::Work {
   public:
    Counted(Pending inner, Counters counters, Collective row)
        : inner_(std::move(inner)), counters_(std::move(counters)), row_(row) {}
    bool test() override {
        const Stopwatch watch((*counters_)[row_]);
        return inner_.test();
    }
    void wait(const Exec& exec) override {
        const Stopwatch watch((*counters_)[row_]);
        inner_.wait(exec);
    }

   private:
    Pending inner_;
    Counters counters_;
    Collective row_;
};

// Counts one call; `begin` makes it and returns what is to be awaited.
template <class Begin>
Pending counted(const Counters& counters, Collective row, Index bytes, const Begin& begin) {
    Traffic& traffic = (*counters)[row];
    const Stopwatch watch(traffic);
    ++traffic.calls;
    traffic.bytes_sent += bytes;
    Pending pending = begin();
    if (!pending) return pending;
    return Pending(std::make_unique<Counted>(std::move(pending), counters, row));
}

}  // namespace

CountingCommunicator::CountingCommunicator(Communicator& inner)
    : inner_(inner), traffic_(std::make_shared<std::vector<Traffic>>()) {
    for (const char* name : {"all_to_all", "all_gather", "host", "broadcast"}) {
        traffic_->push_back({name, 0, 0, 0.0});
    }
}

Pending CountingCommunicator::all_to_all(const Exec& ready, Bytes send, Bytes received) {
    const Index bytes = send.size / size() * (size() - 1);
    return counted(traffic_, all_to_all_row, bytes,
                   [&] { return inner_.all_to_all(ready, send, received); });
}

Pending CountingCommunicator::all_gather(const Exec& ready, Bytes buffer) {
    const Index bytes = buffer.size / size() * (size() - 1);
    return counted(traffic_, all_gather_row, bytes,
                   [&] { return inner_.all_gather(ready, buffer); });
}

Pending CountingCommunicator::broadcast(const Exec& ready, Bytes buffer, int root) {
    const Index bytes = rank() == root ? buffer.size * (size() - 1) : 0;
    return counted(traffic_, broadcast_row, bytes,
                   [&] { return inner_.broadcast(ready, buffer, root); });
}

Pending CountingCommunicator::all_gather_host(const std::vector<double>& mine,
                                              std::vector<double>& all) {
    const Index bytes = static_cast<Index>(mine.size() * sizeof(double)) * (size() - 1);
    return counted(traffic_, host_row, bytes, [&] { return inner_.all_gather_host(mine, all); });
}

void CountingCommunicator::broadcast_host(void* data, Index bytes, int root) {
    counted(traffic_, host_row, rank() == root ? bytes * (size() - 1) : 0, [&] {
        inner_.broadcast_host(data, bytes, root);
        return Pending();
    });
}

void CountingCommunicator::send_host(const void* data, Index bytes, int to) {
    counted(traffic_, host_row, bytes, [&] {
        inner_.send_host(data, bytes, to);
        return Pending();
    });
}

void CountingCommunicator::receive_host(void* data, Index bytes, int from) {
    counted(traffic_, host_row, 0, [&] {
        inner_.receive_host(data, bytes, from);
        return Pending();
    });
}

void CountingCommunicator::barrier() {
    counted(traffic_, host_row, 0, [&] {
        inner_.barrier();
        return Pending();
    });
}

void CountingCommunicator::abort(int exit_code) {
    inner_.abort(exit_code);
    std::abort();  // never reached; inner_ does not return
}

std::vector<Traffic> CountingCommunicator::traffic() const {
    return *traffic_;
}

void CountingCommunicator::reset() {
    for (Traffic& row : *traffic_) row = {row.collective, 0, 0, 0.0};
}

}  // namespace scape::comm
