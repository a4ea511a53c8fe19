// The bucketed reduce-scatter and all-gather against plain loops, at 1, 2, 3 and 4 ranks.
//
//     reduce-scatter, P = 2, two buckets    before: g_r everywhere       after (own pieces)
//         rank 0    | g0 . | g0 . | g0 . | g0 . |             | s/2 |     | s/2 |     |   s = g0 +
//         g1 rank 1    | g1 . | g1 . | g1 . | g1 . |             |     | s/2 |     | s/2 |
//
//     all-gather                            before               after
//         rank 0    | w |   | w |   |                   | w | w | w | w |
//         rank 1    |   | w |   | w |                   | w | w | w | w |
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/comm/counting.hpp>
#include <scape/comm/mpi_native.hpp>
#include <scape/optim/exchange.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

// Layouts from one element up: fewer tensors than ranks, primes, padding rows.
FlatLayout layout_of(const std::vector<Index>& sizes) {
    FlatLayout layout;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        layout.add(fmt::format("t{}", i), {sizes[i]}, i == 0 ? sizes[i] + 3 : 0);
    }
    return layout;
}

const std::vector<std::vector<Index>> layouts = {{1}, {7, 1}, {1009}, {257, 7, 1, 4099, 13}};

// Same bytes on every rank: all can work out the sum that each owner should have.
std::vector<float> gradient_of(int rank, Index n) {
    return normal_values(n, 1000 + rank);
}

void write(const Vec<float>& to, Index begin, const std::vector<float>& values, Index end) {
    Kokkos::deep_copy(Exec(), slice(to, begin, end),
                      HostSpan<const float>(values.data() + begin, end - begin));
    Kokkos::fence();
}

struct Setting {
    std::vector<Index> sizes;
    Index bucket_bytes;
    int buffers;
    kernels::ValueCode code = kernels::fp32_values;
};

std::vector<Setting> all_settings() {
    std::vector<Setting> all;
    for (const auto& sizes : layouts) {
        for (const Index bucket_bytes : {Index(1), Index(3000), Index(1) << 30}) {
            for (const int buffers : {1, 2, 4}) all.push_back({sizes, bucket_bytes, buffers});
        }
    }
    return all;
}

// One rank's buffers and exchange. Whatever is not final yet is NaN: sent early, it would show.
struct Rig {
    comm::Communicator& comm;
    FlatLayout layout;
    Sharding sharding;
    Vec<float> parameters, gradients;
    std::unique_ptr<Owner> owner;
    Exchange exchange;
    Rig(comm::Communicator& c, const Setting& s)
        : comm(c),
          layout(layout_of(s.sizes)),
          sharding(layout, c.size(), s.bucket_bytes),
          parameters(filled(sharding.extent(), std::numeric_limits<float>::quiet_NaN())),
          gradients(filled(sharding.extent(), std::numeric_limits<float>::quiet_NaN())),
          owner(make_dense_owner({}, layout, sharding, c.rank())),
          exchange(c, layout, sharding, parameters, gradients, {*owner},
                   {.values = s.code, .buffers = s.buffers}) {}

    double squares() {
        const Vec<double> sum("sum", 1);
        owner->add_squares(Exec(), sum);
        return to_host(sum)[0];
    }

    // Backward: gradients become final from the end, in uneven portions.
    void reduce() {
        const std::vector<float> mine = gradient_of(comm.rank(), sharding.extent());
        exchange.begin_step(Exec(), {});
        Index end = sharding.extent();
        while (end > 0) {
            const Index begin = end - std::min(end, 1 + end / 3);
            write(gradients, begin, mine, end);
            if (begin > 0) exchange.gradients_final(Exec(), begin);
            exchange.progress();
            end = begin;
        }
        exchange.finish_reduce(Exec());
    }

    void check_reduced() const {
        std::vector<float> wanted = gradient_of(comm.rank(), sharding.extent());
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Range mine = sharding.piece(b, comm.rank());
            for (Index i = mine.begin; i < mine.end; ++i) wanted[i] = 0;
        }
        for (int r = 0; r < comm.size(); ++r) {
            const std::vector<float> g = gradient_of(r, sharding.extent());
            for (int b = 0; b < sharding.buckets(); ++b) {
                const Range mine = sharding.piece(b, comm.rank());
                for (Index i = mine.begin; i < mine.end; ++i) {
                    wanted[i] = r == 0 ? g[i] : wanted[i] + g[i];
                }
            }
        }
        const float share = 1.f / static_cast<float>(comm.size());
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Range mine = sharding.piece(b, comm.rank());
            for (Index i = mine.begin; i < mine.end; ++i) wanted[i] *= share;
        }
        check_same_bits("gradients", to_host(gradients), wanted);
    }

    void gather(std::uint64_t seed) {
        const std::vector<float> w = normal_values(sharding.extent(), seed);
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Range mine = sharding.piece(b, comm.rank());
            write(parameters, mine.begin, w, mine.end);
            exchange.gather_parameters(Exec(), b);
        }
        // The next forward uses tensors from the front on.
        for (const Tensor& t : layout.tensors()) {
            const Index end = t.offset + t.storage;
            exchange.before_use(Exec(), end);
            const std::vector<float> seen = to_host(slice(parameters, 0, end));
            check_same_bits("used", seen, std::vector<float>(w.begin(), w.begin() + end));
            exchange.progress();
        }
        exchange.finish_gathers(Exec());
        check_same_bits("parameters", to_host(parameters), w);
    }
};

}  // namespace

TEST_CASE("own pieces hold the mean in rank order, bit for bit, and weights arrive everywhere") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const Setting& s : all_settings()) {
        INFO("rank " << comm->rank() << ", " << s.sizes.size() << " tensors, buckets of "
                     << s.bucket_bytes << " bytes, " << s.buffers << " buffers");
        Rig rig(*comm, s);
        for (int step = 0; step < 2; ++step) {
            rig.reduce();
            rig.check_reduced();
            rig.gather(77 + step);
        }
        const Index pool = std::min(s.buffers, rig.sharding.buckets());
        const Index piece = rig.sharding.largest_bucket() / comm->size();
        CHECK(rig.exchange.buffer_bytes() == pool * 4 * piece * (comm->size() - 1));
    }
}

TEST_CASE("each rank sends (P-1)/P of the buffer each way, and one rank nothing") {
    const auto mpi = comm::make_mpi(MPI_COMM_WORLD);
    comm::CountingCommunicator counting(*mpi);
    Rig rig(counting, {{257, 7, 1, 4099, 13}, 3000, 2});
    rig.reduce();
    rig.gather(5);
    const Index bytes = rig.sharding.shard_extent() * 4 * (mpi->size() - 1);
    CHECK(counting.traffic()[0].bytes_sent == bytes);
    CHECK(counting.traffic()[1].bytes_sent == bytes);
    const Index calls = mpi->size() == 1 ? 0 : rig.sharding.buckets();
    CHECK(counting.traffic()[0].calls == calls);
    CHECK(counting.traffic()[1].calls == calls);
}

// bf16 there and fp32 back: the sum of what arrives rounded, in rank order; the gradients of other
// owners stay as they were.
TEST_CASE("16-bit values are rounded once, and travel in half the bytes") {
    const auto mpi = comm::make_mpi(MPI_COMM_WORLD);
    comm::CountingCommunicator counting(*mpi);
    const auto rounded = [](float x) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        const std::uint32_t below = bits & 0xffffu;
        bits -= below;
        if (below > 0x8000u || (below == 0x8000u && (bits & 0x10000u) != 0)) bits += 0x10000u;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    };
    Rig rig(counting, {{257, 7, 1, 4099, 13}, 3000, 2, kernels::bf16_values});
    rig.reduce();
    std::vector<float> wanted = gradient_of(mpi->rank(), rig.sharding.extent());
    for (int b = 0; b < rig.sharding.buckets(); ++b) {
        const Range mine = rig.sharding.piece(b, mpi->rank());
        for (Index i = mine.begin; i < mine.end; ++i) wanted[i] = 0;
        for (int r = 0; r < mpi->size(); ++r) {
            const auto g = gradient_of(r, rig.sharding.extent());
            for (Index i = mine.begin; i < mine.end; ++i)
                wanted[i] = r == 0 ? rounded(g[i]) : wanted[i] + rounded(g[i]);
        }
        for (Index i = mine.begin; i < mine.end; ++i)
            wanted[i] *= 1.f / static_cast<float>(mpi->size());
    }
    check_same_bits("gradients", to_host(rig.gradients), wanted);
    CHECK(counting.traffic()[0].bytes_sent == rig.sharding.shard_extent() * 2 * (mpi->size() - 1));
    rig.gather(5);
}

TEST_CASE("sum of squares of the own pieces, the same bits every time") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const Setting& s : all_settings()) {
        INFO("rank " << comm->rank());
        Rig rig(*comm, s);
        rig.reduce();
        double wanted = 0;
        for (int b = 0; b < rig.sharding.buckets(); ++b) {
            for (const float g : to_host(rig.exchange.own_gradients(b))) wanted += double(g) * g;
        }
        const double first = rig.squares();
        CHECK(first == Approx(wanted).epsilon(1e-12));
        CHECK(rig.squares() == first);
    }
    Rig rig(*comm, {{1009}, 1, 2});
    rig.exchange.finish_reduce(Exec());
    CHECK(std::isnan(rig.squares()));  // the rig starts with NaN
}

TEST_CASE("a step that was given up leaves nothing behind") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    INFO("rank " << comm->rank());
    Rig rig(*comm, {{257, 7, 1, 4099, 13}, 3000, 2});
    rig.exchange.begin_step(Exec(), {});
    rig.exchange.gradients_final(Exec(), rig.sharding.extent() / 2);
    rig.reduce();
    rig.check_reduced();
}

TEST_CASE("waiting for a late rank is what counts as waiting") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    Rig rig(*comm, {{1009}, Index(1) << 30, 4});
    comm->barrier();
    rig.exchange.begin_step(Exec(), {});
    if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    rig.exchange.finish_reduce(Exec());
    if (comm->rank() > 0) CHECK(rig.exchange.wait_seconds() > 0.1);
    if (comm->size() == 1) CHECK(rig.exchange.wait_seconds() == 0);
    rig.exchange.reset_wait();
    CHECK(rig.exchange.wait_seconds() == 0);
}

TEST_CASE("buffers that do not fit the sharding are refused") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const FlatLayout layout = layout_of({1009});
    const Sharding sharding(layout, comm->size(), 1000);
    const Sharding other(layout, comm->size() + 1, 1000);
    const Vec<float> right = filled(sharding.extent(), 0.f);
    const Vec<float> wrong = filled(sharding.extent() - 1, 0.f);
    const auto owner = make_dense_owner({}, layout, sharding, comm->rank());
    const auto make = [&](const Sharding& cut, Span<float> parameters, Span<float> gradients,
                          int buffers) {
        Exchange(*comm, layout, cut, parameters, gradients, {*owner}, {.buffers = buffers});
    };
    CHECK_NOTHROW(make(sharding, right, right, 1));
    CHECK_THROWS_AS(make(sharding, wrong, right, 1), std::logic_error);
    CHECK_THROWS_AS(make(sharding, right, wrong, 1), std::logic_error);
    CHECK_THROWS_AS(make(sharding, right, right, 0), std::logic_error);
    CHECK_THROWS_AS(make(other, right, right, 1), std::logic_error);
}
