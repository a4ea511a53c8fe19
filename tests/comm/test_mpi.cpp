// What is particular to the MPI back end: errors, other communicators, the world.
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/base/profiling.hpp>
#include <scape/comm/mpi.hpp>
#include <scape/comm/mpi_native.hpp>

#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

using namespace scape;
using namespace scape::comm;
using namespace scape::test;

namespace {

// What `together` throws when the ranks of `failing` fail with `error(rank)`.
template <class Error>
std::pair<ExitCode, std::string> thrown(Communicator& comm, const std::vector<int>& failing,
                                        const Error& error) {
    try {
        together(comm, [&] {
            for (const int r : failing) {
                if (comm.rank() == r) throw error(r);
            }
        });
    } catch (const agreed_error& e) {
        return {e.code(), e.what()};
    }
    return {ExitCode::done, ""};
}

}  // namespace

TEST_CASE("together: a failure on one rank is everybody's, the lowest rank's first") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    INFO("rank " << comm->rank());
    const auto user = [](int r) {
        return user_error(r == 0 ? ExitCode::data : ExitCode::resources,
                          std::string(100 * r, 'x') + "file of rank " + std::to_string(r));
    };
    CHECK(thrown(*comm, {}, user).first == ExitCode::done);
    for (int r = 0; r < comm->size(); ++r) {
        const auto seen = thrown(*comm, {r}, user);
        CHECK(seen.first == user(r).code());
        CHECK(seen.second == user(r).what());
        const auto both = thrown(*comm, {comm->size() - 1, r}, user);
        CHECK(both.first == user(r).code());
        CHECK(both.second == user(r).what());
    }
    const int last = comm->size() - 1;
    const auto fault =
        thrown(*comm, {last}, [](int) { return std::runtime_error("index out of range"); });
    CHECK(fault.first == ExitCode::fault);
    CHECK(fault.second == "index out of range");
    const auto memory = thrown(*comm, {last}, [](int) { return std::bad_alloc(); });
    CHECK(memory.first == ExitCode::resources);
    comm->barrier();
}

TEST_CASE("sizes that do not fit are refused on every rank") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    const int p = comm->size();
    const Vec<float> send("scape::test::send", 4 * p);
    const Vec<float> received("scape::test::received", 4 * p);
    CHECK_THROWS_AS(comm->all_to_all(Exec(), send, received), std::logic_error);
    if (p > 1) {
        CHECK_THROWS_AS(comm->all_gather(Exec(), Bytes(send.data(), 4 * p + 1)), std::logic_error);
    }
    MpiOptions options;
    options.max_message_bytes = 0;
    CHECK_THROWS_AS(make_mpi(MPI_COMM_WORLD, options), std::logic_error);
}

TEST_CASE("an error of MPI names the call, the place and the reason") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    int number = 0;
    try {
        comm->send_host(&number, sizeof number, comm->size());
        FAIL("nothing was thrown");
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::lost);
        const std::string text = e.what();
        for (const char* part : {"MPI_Send(", "mpi.cpp:", "MPI_ERR_RANK"}) {
            INFO(text);
            CHECK(text.find(part) != std::string::npos);
        }
    }
}

// Rank 0 begins a gather, fails and unwinds. The others never take part.
TEST_CASE("an error on one rank does not hang in the transfers it leaves behind") {
    const auto world = make_mpi(MPI_COMM_WORLD);
    MpiOptions options;
    options.patience_seconds = 0.1;
    const auto comm = make_mpi(MPI_COMM_WORLD, options);
    if (comm->size() > 1 && comm->rank() == 0) {
        const Timer timer;
        std::string seen;
        try {
            const Vec<float> a("scape::test::a", 100 * comm->size());
            const Vec<float> b("scape::test::b", 100 * comm->size());
            const Pending first = comm->all_gather(Exec(), a);
            const Pending second = comm->all_gather(Exec(), b);
            throw std::runtime_error("the real error");
        } catch (const std::runtime_error& e) {
            seen = e.what();
        }
        CHECK(seen == "the real error");
        CHECK(timer.seconds() < 3);
    }
    world->barrier();
}

// Rank 0 begins and then does something else for a while. What the others need of it (large
// messages end only when their receiver takes part) must not have to wait for its next call.
TEST_CASE("messages move on while a rank computes") {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) return;
    const auto comm = make_mpi(MPI_COMM_WORLD);
    const Index p = comm->size();
    const Index piece = 1 << 20;
    const Vec<float> send("scape::test::send", p * piece);
    const Vec<float> received("scape::test::received", (p - 1) * piece);
    Kokkos::deep_copy(send, static_cast<float>(comm->rank()));
    comm->barrier();
    const Timer timer;
    Pending pending = comm->all_to_all(Exec(), send, received);
    const std::chrono::milliseconds busy(1500);
    if (comm->rank() == 0) std::this_thread::sleep_for(busy);
    pending.wait(Exec());
    if (comm->rank() != 0) CHECK(timer.seconds() < 1.0);
    const auto arrived = to_host(received);
    for (int i = 0; i < p - 1; ++i)
        CHECK(arrived[i * piece] == static_cast<float>(i < comm->rank() ? i : i + 1));
    comm->barrier();
}

TEST_CASE("a transfer that nobody waits for any more is done before it ends") {
    const auto comm = make_mpi(MPI_COMM_WORLD);
    constexpr Index piece = 100000;
    for (int i = 0; i < 20; ++i) {
        const int root = i % comm->size();
        const Vec<float> gathered("scape::test::gathered", comm->size() * piece);
        const Vec<float> sent("scape::test::sent", piece);
        Kokkos::deep_copy(slice(gathered, comm->rank() * piece, (comm->rank() + 1) * piece),
                          static_cast<float>(100 * i + comm->rank()));
        Kokkos::deep_copy(sent, static_cast<float>(100 * i + comm->rank()));
        {
            const Pending dropped = comm->all_gather(Exec(), gathered);
            Pending tested = comm->broadcast(Exec(), sent, root);
            while (!tested.test()) {
            }
            tested.wait(Exec());
        }
        for (int r = 0; r < comm->size(); ++r)
            CHECK(to_host(gathered)[(r + 1) * piece - 1] == static_cast<float>(100 * i + r));
        CHECK(to_host(sent)[piece - 1] == static_cast<float>(100 * i + root));
    }
    comm->barrier();
}

//  world ranks  0 1 2 3     even: 0 2 -> 0 1     odd: 1 3 -> 0 1
TEST_CASE("any communicator will do, several side by side") {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    {
        const auto comm = make_mpi(half);
        const auto world = make_mpi(MPI_COMM_WORLD);
        CHECK(comm->rank() == rank / 2);
        std::vector<double> from_half, from_world;
        Pending a = comm->all_gather_host({1.0 * rank}, from_half);
        Pending b = world->all_gather_host({1.0 * rank}, from_world);
        b.wait(Exec());
        a.wait(Exec());
        for (int r = 0; r < comm->size(); ++r) CHECK(from_half[r] == 2 * r + rank % 2);
        for (int r = 0; r < world->size(); ++r) CHECK(from_world[r] == r);
    }
    MPI_Comm_free(&half);
}

TEST_CASE("the world: a duplicate, its place on the node, and left as it was found") {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    {
        const auto world = make_mpi_world(nullptr, nullptr);
        CHECK(world->communicator().size() == size);
        CHECK(world->ranks_on_node() >= 1);
        CHECK(world->ranks_on_node() <= size);
        CHECK(world->rank_on_node() < world->ranks_on_node());
        CHECK_FALSE(world->library().empty());
        int level = MPI_THREAD_SINGLE;
        MPI_Query_thread(&level);
        CHECK(world->has_progress_thread() == (level >= MPI_THREAD_SERIALIZED));
    }
    int finalized = 1;
    MPI_Finalized(&finalized);
    CHECK(finalized == 0);
}

TEST_CASE("one rank where the launcher meant several is refused") {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char* before = std::getenv("SLURM_NTASKS");
    const std::string kept = before == nullptr ? "" : before;
    setenv("SLURM_NTASKS", "2", 1);
    if (size == 1) {
        CHECK_THROWS_AS(make_mpi_world(nullptr, nullptr), user_error);
    } else {
        CHECK_NOTHROW(make_mpi_world(nullptr, nullptr));
    }
    if (before == nullptr) {
        unsetenv("SLURM_NTASKS");
    } else {
        setenv("SLURM_NTASKS", kept.c_str(), 1);
    }
}

namespace {

int allocations = 0;

void count_allocation(Kokkos::Profiling::SpaceHandle, const char*, const void*, std::uint64_t) {
    ++allocations;
}

}  // namespace

TEST_CASE("staged transfers allocate on their first round only") {
    MpiOptions options;
    options.stage = true;
    const auto comm = make_mpi(MPI_COMM_WORLD, options);
    const int p = comm->size();
    const Vec<float> send("scape::test::send", 100 * p);
    const Vec<float> received("scape::test::received", 100 * (p - 1));
    const auto round = [&] {
        Pending first = comm->all_to_all(Exec(), send, received);
        Pending second = comm->all_gather(Exec(), send);
        second.wait(Exec());
        first.wait(Exec());
    };
    allocations = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(count_allocation);
    round();
    const int first_round = allocations;
    for (int i = 0; i < 3; ++i) round();
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    CHECK((p == 1 || first_round > 0));
    CHECK(allocations == first_round);
}
