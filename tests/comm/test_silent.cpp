// One rank that claims to be one of several.
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/comm/counting.hpp>
#include <scape/comm/silent.hpp>

#include <stdexcept>

using namespace scape;
using namespace scape::comm;
using namespace scape::test;

TEST_CASE("silent: what others would send is a copy of the own piece, and at once there") {
    const auto comm = make_silent(1, 3);
    CHECK(comm->rank() == 1);
    CHECK(comm->size() == 3);

    //  send | to 0 | to 1 | to 2 |, received | from 0 | from 2 |
    const auto send = to_device(std::vector<float>{1, 2, 3, 4, 5, 6});
    const auto received = to_device(std::vector<float>{-1, -1, -1, -1});
    CHECK(comm->all_to_all(Exec(), send, received).test());
    CHECK(to_host(received) == std::vector<float>{3, 4, 3, 4});
    CHECK(to_host(send) == std::vector<float>{1, 2, 3, 4, 5, 6});

    const auto buffer = to_device(std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(comm->all_gather(Exec(), buffer).test());
    CHECK(to_host(buffer) == std::vector<float>{3, 4, 3, 4, 3, 4});
}

TEST_CASE("silent: numbers in host memory are all ranks' alike") {
    const auto comm = make_silent(2, 4);
    CHECK(comm->all_reduce_sum({2, -0.5}) == std::vector<double>{8, -2});
    CHECK(comm->all_reduce_max(-6) == -6);
    int number = 9;
    comm->broadcast_host(&number, sizeof number, 0);
    comm->receive_host(&number, sizeof number, 3);
    CHECK(number == 9);
    CHECK_NOTHROW(agree(*comm, {}));
}

TEST_CASE("silent: bytes are counted as if they had been sent") {
    const auto comm = make_silent(0, 4);
    CountingCommunicator counting(*comm);
    const auto buffer = to_device(std::vector<float>(8, 1.f));
    counting.all_gather(Exec(), buffer);
    CHECK(counting.traffic()[1].bytes_sent == 24);
}

TEST_CASE("silent: sizes and ranks that do not fit are refused") {
    CHECK_THROWS_AS(make_silent(3, 3), std::logic_error);
    CHECK_THROWS_AS(make_silent(-1, 3), std::logic_error);
    const auto comm = make_silent(0, 3);
    const auto seven = to_device(std::vector<unsigned char>(7));
    const auto six = to_device(std::vector<unsigned char>(6));
    CHECK_THROWS_AS(comm->all_gather(Exec(), seven), std::logic_error);
    CHECK_THROWS_AS(comm->all_to_all(Exec(), six, six), std::logic_error);
    CHECK_THROWS_AS(comm->broadcast_host(nullptr, 0, 3), std::logic_error);
}
