// One rank, no network.
#include "support/catch.hpp"

#include <scape/comm/counting.hpp>
#include <scape/comm/mpi.hpp>

#include <stdexcept>

using namespace scape;
using namespace scape::comm;

TEST_CASE("one rank: nothing moves, and what is asked for is there") {
    const auto self = make_self();
    CHECK(self->rank() == 0);
    CHECK(self->size() == 1);
    CHECK(self->name() == "self");

    Vec<float> buffer("scape::test::buffer", 7);
    Kokkos::deep_copy(buffer, 3.f);
    Vec<float> nothing("scape::test::nothing", 0);
    CHECK(!self->all_to_all(Exec(), buffer, nothing));
    CHECK(!self->all_gather(Exec(), buffer));
    CHECK_THROWS_AS(self->all_to_all(Exec(), buffer, buffer), std::logic_error);

    std::vector<double> all;
    self->all_gather_host({1, 2, 3}, all).wait(Exec());
    CHECK(all == std::vector<double>{1, 2, 3});
    CHECK(self->all_reduce_sum({4, 5}) == std::vector<double>{4, 5});
    CHECK(self->all_reduce_max(-6) == -6);
    CHECK(self->any(true));
    CHECK_FALSE(self->any(false));

    int number = 9;
    self->broadcast_host(&number, sizeof number, 0);
    CHECK(number == 9);
    CHECK_THROWS_AS(self->broadcast_host(&number, sizeof number, 1), std::logic_error);
    CHECK_THROWS_AS(self->send_host(&number, sizeof number, 0), std::logic_error);
    CHECK_THROWS_AS(self->receive_host(&number, sizeof number, 0), std::logic_error);
}

TEST_CASE("one rank: counted calls send nothing") {
    const auto self = make_self();
    CountingCommunicator counting(*self);
    Vec<float> buffer("scape::test::buffer", 100);
    counting.all_to_all(Exec(), buffer, Bytes(nullptr, 0)).wait(Exec());
    counting.all_gather(Exec(), buffer).wait(Exec());
    counting.all_reduce_sum({1});
    counting.barrier();
    const std::vector<Traffic> traffic = counting.traffic();
    REQUIRE(traffic.size() == 4);
    CHECK(traffic[0].collective == "all_to_all");
    CHECK(traffic[1].collective == "all_gather");
    CHECK(traffic[2].collective == "host");
    CHECK(traffic[0].calls == 1);
    CHECK(traffic[1].calls == 1);
    CHECK(traffic[2].calls == 2);
    for (const Traffic& t : traffic) CHECK(t.bytes_sent == 0);
}

TEST_CASE("one rank: together passes on message and code") {
    const auto self = make_self();
    int runs = 0;
    together(*self, [&] { ++runs; });
    CHECK(runs == 1);
    try {
        together(*self, [] { throw user_error(ExitCode::data, "no such file"); });
        FAIL("nothing was thrown");
    } catch (const agreed_error& e) {
        CHECK(e.code() == ExitCode::data);
        CHECK(std::string(e.what()) == "no such file");
    }
}

TEST_CASE("an empty Pending is done") {
    Pending nothing;
    CHECK(nothing.test());
    CHECK_FALSE(static_cast<bool>(nothing));
    nothing.wait(Exec());
    nothing = Pending();
}

namespace {

struct Spy : Pending::Work {
    explicit Spy(int& waits) : waits_(waits) {}
    bool test() override { return false; }
    void wait(const Exec&) override { ++waits_; }
    int& waits_;
};

}  // namespace

TEST_CASE("a Pending is awaited once, whether asked, dropped or replaced") {
    int waits = 0;
    {
        Pending p(std::make_unique<Spy>(waits));
        CHECK_FALSE(p.test());
        p.wait(Exec());
        CHECK(waits == 1);
        p.wait(Exec());
    }
    CHECK(waits == 1);
    { const Pending dropped(std::make_unique<Spy>(waits)); }
    CHECK(waits == 2);
    Pending replaced(std::make_unique<Spy>(waits));
    Pending moved(std::move(replaced));
    CHECK(waits == 2);
    moved = Pending();
    CHECK(waits == 3);
    try {
        const Pending unwound(std::make_unique<Spy>(waits));
        throw std::runtime_error("on its way");
    } catch (const std::runtime_error&) {
        CHECK(waits == 3);
    }
}

TEST_CASE("a build says whether it has MPI") {
    if (!mpi_built()) {
        CHECK_THROWS_AS(make_mpi_world(nullptr, nullptr), user_error);
    } else {
        CHECK(make_mpi_world(nullptr, nullptr)->communicator().name() == "mpi");
    }
}
