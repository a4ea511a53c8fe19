// Every collective, at 1, 2, 3 and 4 ranks.
//
//     all_to_all, P = 3            before                        after, in `received`
//         rank 0     send   | 0>0 | 0>1 | 0>2 |             | 1>0 | 2>0 |
//         rank 1            | 1>0 | 1>1 | 1>2 |             | 0>1 | 2>1 |
//         rank 2            | 2>0 | 2>1 | 2>2 |             | 0>2 | 1>2 |
//
//     all_gather, P = 3            before                        after
//         rank 0            |  0  |  ?  |  ?  |             |  0  |  1  |  2  |
//         rank 1            |  ?  |  1  |  ?  |             |  0  |  1  |  2  |
//         rank 2            |  ?  |  ?  |  2  |             |  0  |  1  |  2  |
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/comm/counting.hpp>
#include <scape/comm/mpi_native.hpp>

#include <numeric>

using namespace scape;
using namespace scape::comm;
using namespace scape::test;

namespace {

float value(int from, int to, Index i) {
    return static_cast<float>(1000 * from + 100 * to) + static_cast<float>(i % 97) / 128.f;
}

// An exchange of pieces of n floats, with what it should bring.
struct AllToAll {
    Vec<float> send, received;
    std::vector<float> sent, wanted;
    AllToAll(const Communicator& c, Index n, int salt) {
        const int me = c.rank();
        for (int r = 0; r < c.size(); ++r) {
            for (Index i = 0; i < n; ++i) {
                sent.push_back(value(me, r, i + salt));
                if (r != me) wanted.push_back(value(r, me, i + salt));
            }
        }
        send = to_device(sent);
        received = filled<float>(static_cast<Index>(wanted.size()), -1.f);
    }
    Pending begin(Communicator& c) { return c.all_to_all(Exec(), send, received); }
    void check() const {
        check_same_bits("received", to_host(received), wanted);
        check_same_bits("send is untouched", to_host(send), sent);
    }
};

struct AllGather {
    Vec<float> buffer;
    std::vector<float> wanted;
    AllGather(const Communicator& c, Index n, int salt) {
        std::vector<float> start(n * c.size(), -1.f);
        for (int r = 0; r < c.size(); ++r) {
            for (Index i = 0; i < n; ++i) {
                wanted.push_back(value(r, 7, i + salt));
                if (r == c.rank()) start[r * n + i] = wanted.back();
            }
        }
        buffer = to_device(start);
    }
    Pending begin(Communicator& c) { return c.all_gather(Exec(), buffer); }
    void check() const { check_same_bits("gathered", to_host(buffer), wanted); }
};

MpiOptions options(Index max_message_bytes, bool stage) {
    MpiOptions o;
    o.max_message_bytes = max_message_bytes;
    if (stage) o.stage = true;
    return o;
}

}  // namespace

TEST_CASE("pieces arrive where they belong, whatever their size and however they are cut") {
    for (const bool stage : {false, true}) {
        for (const Index cut : {Index(7), Index(4096), Index(1) << 30}) {
            const auto comm = make_mpi(MPI_COMM_WORLD, options(cut, stage));
            for (const Index n : {0, 1, 3, 64, 1021, 65537}) {
                if (cut == 7 && n > 1021) continue;
                INFO("rank " << comm->rank() << ", " << n << " floats, cut at " << cut
                             << " bytes, staged " << stage);
                AllToAll exchange(*comm, n, 0);
                exchange.begin(*comm).wait(Exec());
                exchange.check();
                AllGather gather(*comm, n, 0);
                gather.begin(*comm).wait(Exec());
                gather.check();
            }
        }
    }
}

TEST_CASE("collectives under way at once may be awaited in any order") {
    for (const bool stage : {false, true}) {
        const auto comm = make_mpi(MPI_COMM_WORLD, options(1000, stage));
        INFO("rank " << comm->rank());
        std::vector<AllToAll> exchanges;
        std::vector<AllGather> gathers;
        std::vector<std::vector<double>> numbers(6);
        std::vector<Pending> pending;
        for (int k = 0; k < 6; ++k) {
            exchanges.emplace_back(*comm, 501 + 8 * k, k);
            gathers.emplace_back(*comm, 333, k);
        }
        for (int k = 0; k < 6; ++k) {
            pending.push_back(exchanges[k].begin(*comm));
            pending.push_back(gathers[k].begin(*comm));
            pending.push_back(comm->all_gather_host({1.0 * comm->rank(), 1.0 * k}, numbers[k]));
        }
        // Even ranks from the last to the first, odd ranks in an order of their own.
        std::vector<int> order(pending.size());
        std::iota(order.rbegin(), order.rend(), 0);
        if (comm->rank() % 2 == 1) {
            for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i * 5 % 18);
        }
        for (const int i : order) pending[i].wait(Exec());
        for (int k = 0; k < 6; ++k) {
            exchanges[k].check();
            gathers[k].check();
            for (int r = 0; r < comm->size(); ++r) {
                CHECK(numbers[k][2 * r] == r);
                CHECK(numbers[k][2 * r + 1] == k);
            }
        }
    }
}

TEST_CASE("testing alone completes a transfer, and dropping one waits for it") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    INFO("rank " << comm->rank());
    AllToAll tested(*comm, 40001, 1);
    Pending pending = tested.begin(*comm);
    while (!pending.test()) {
    }
    pending.wait(Exec());
    tested.check();

    AllToAll dropped(*comm, 40001, 2);
    AllGather replaced(*comm, 40001, 3);
    { const Pending p = dropped.begin(*comm); }
    pending = replaced.begin(*comm);
    pending = Pending();
    dropped.check();
    replaced.check();
}

TEST_CASE("sums are formed in rank order, and everybody has the same bits") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    INFO("rank " << comm->rank());
    // 1e16 + 1 loses the 1: any other order gives another sum.
    const std::vector<double> terms = {1e16, 1.0, -1e16, 1.0};
    double wanted = 0;
    for (int r = 0; r < comm->size(); ++r) wanted += terms[r % 4];
    const auto sum = comm->all_reduce_sum({terms[comm->rank() % 4], 1.0});
    CHECK(sum[0] == wanted);
    CHECK(sum[1] == comm->size());
    CHECK(comm->all_reduce_max(-1.0 - comm->rank()) == -1.0);
    CHECK(comm->all_reduce_sum({}).empty());
    CHECK(comm->any(comm->rank() == comm->size() - 1));
    CHECK_FALSE(comm->any(false));
}

TEST_CASE("broadcasts from every root under way at once, whole or cut") {
    for (const Index most : {Index(1) << 30, Index(100)}) {
        const auto comm = make_mpi(MPI_COMM_WORLD, {.max_message_bytes = most});
        INFO("rank " << comm->rank() << ", messages of at most " << most << " bytes");
        std::vector<Vec<float>> buffers;
        std::vector<Pending> pending;
        for (int root = 0; root < comm->size(); ++root) {
            const Index n = 1 + 97 * root;
            buffers.push_back(
                filled(n, comm->rank() == root ? static_cast<float>(root + 1) : -1.f));
            pending.push_back(comm->broadcast(Exec(), buffers.back(), root));
        }
        for (auto p = pending.rbegin(); p != pending.rend(); ++p) p->wait(Exec());
        for (int root = 0; root < comm->size(); ++root)
            check_same_bits("broadcast", to_host(buffers[root]),
                            std::vector<float>(buffers[root].extent(0), root + 1.f));
        CHECK_THROWS_AS(comm->broadcast(Exec(), buffers[0], comm->size()), std::logic_error);
    }
}

TEST_CASE("host memory: broadcast from every root, and messages between two ranks") {
    for (const Index cut : {Index(5), Index(1) << 30}) {
        const auto comm = make_mpi(MPI_COMM_WORLD, options(cut, false));
        INFO("rank " << comm->rank());
        for (int root = 0; root < comm->size(); ++root) {
            std::string text(17, '?');
            const std::string wanted = "rank " + std::to_string(root) + " says hello";
            if (comm->rank() == root) text = wanted;
            comm->broadcast_host(text.data(), static_cast<Index>(text.size()), root);
            CHECK(text == wanted);
        }
        // Everybody sends to rank 0, which hears the last rank first.
        if (comm->rank() == 0) {
            for (int from = comm->size() - 1; from > 0; --from) {
                std::vector<int> numbers(11, -1);
                comm->receive_host(numbers.data(), 44, from);
                CHECK(numbers == std::vector<int>(11, from));
            }
        } else {
            const std::vector<int> numbers(11, comm->rank());
            comm->send_host(numbers.data(), 44, 0);
        }
        comm->barrier();
    }
}

TEST_CASE("what is counted is what the formula says") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    CountingCommunicator counting(*comm);
    const Index others = comm->size() - 1;
    INFO("rank " << comm->rank());
    CHECK(counting.size() == comm->size());
    CHECK(counting.rank() == comm->rank());
    CHECK(counting.name() == "mpi");

    AllToAll exchange(counting, 1021, 0);
    AllGather gather(counting, 77, 0);
    Pending first = exchange.begin(counting);
    Pending second = exchange.begin(counting);
    gather.begin(counting).wait(Exec());
    second.wait(Exec());
    first.wait(Exec());
    exchange.check();
    gather.check();
    counting.all_reduce_sum({1, 2, 3});
    int number = comm->rank();
    counting.broadcast_host(&number, sizeof number, 0);
    CHECK(number == 0);
    const int root = comm->size() - 1;
    counting.broadcast(Exec(), Vec<float>("scape::test::broadcast", 33), root).wait(Exec());

    const std::vector<Traffic> traffic = counting.traffic();
    CHECK(traffic[0].calls == 2);
    CHECK(traffic[0].bytes_sent == 2 * others * 1021 * 4);
    CHECK(traffic[1].calls == 1);
    CHECK(traffic[1].bytes_sent == others * 77 * 4);
    CHECK(traffic[2].calls == 2);
    CHECK(traffic[2].bytes_sent == others * 24 + (comm->rank() == 0 ? others * 4 : 0));
    CHECK(traffic[3].calls == 1);
    CHECK(traffic[3].bytes_sent == (comm->rank() == root ? others * 33 * 4 : 0));
    for (const Traffic& t : traffic) CHECK((t.seconds > 0 && t.seconds < 60));
    counting.reset();
    for (const Traffic& t : counting.traffic()) {
        CHECK(t.calls == 0);
        CHECK(t.bytes_sent == 0);
        CHECK(t.seconds == 0);
    }
}
