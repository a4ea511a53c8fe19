// Checkpoints written by 1 to 4 ranks: the file is the same whoever wrote it, any number of ranks
// reads it, and all ranks learn of a failure.
#include <scape/base/error.hpp>
#include <scape/comm/mpi_native.hpp>
#include <scape/io/checkpoint.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <algorithm>

using namespace scape;

namespace {

/// A directory that rank 0 makes and all ranks use.
std::string shared_directory(comm::Communicator& comm, const test::Scratch& own) {
    std::string path = own.path();
    Index size = static_cast<Index>(path.size());
    comm.broadcast_host(&size, sizeof size, 0);
    path.resize(size);
    comm.broadcast_host(path.data(), size, 0);
    return path;
}

}  // namespace

TEST_CASE("what ranks save together any number of ranks reads, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const test::Scratch own;
    const std::string dir = shared_directory(*comm, own);

    // flat buffers     every rank knows them, to check; ranks write only their own shard
    // Sharding         the smaller buckets cut tensors into many slices of all ranks
    for (const Index bucket_bytes : {20000, 1000000, 1 << 30}) {
        const FlatLayout layout = test::odd_layout(bucket_bytes == 1000000 ? 1103 : 5);
        const Sharding sharding(layout, comm->size(), bucket_bytes);
        const auto weights = test::any_bits(sharding.extent(), 1);
        const auto moments = test::any_bits(sharding.extent(), 2);
        // What lies outside logical elements must never matter.
        const auto mine = test::shard_of(moments, sharding, comm->rank(), 99);
        auto flat = weights;
        if (comm->rank() != 0) std::fill(flat.begin(), flat.end(), -1.0f);  // never read
        const Vec<float> w = test::to_device(flat), m = test::to_device(mine);

        auto meta = test::sample_meta(7);
        const auto result = io::save(*comm, dir, meta, layout, sharding,
                                     {{"weights", true, w}, {"adam_m", false, m}});
        CHECK(result.path == dir + "/step-00000007.h5");
        CHECK(result.bytes == static_cast<Index>(std::filesystem::file_size(result.path)));

        const io::CheckpointReader reader(result.path);
        const Vec<float> all = test::filled<float>(sharding.extent(), 5);
        reader.read_flat("weights", layout, all);
        test::check_same_bits("weights", test::to_host(all), test::logical(weights, layout, 5));
        reader.read_flat("adam_m", layout, all);
        test::check_same_bits("adam_m", test::to_host(all), test::logical(moments, layout, 5));
        for (int ranks = 1; ranks <= 5; ++ranks) {
            const Sharding other(layout, ranks, 50000);
            const int rank = comm->rank() % ranks;
            const Vec<float> shard = test::filled<float>(other.shard_extent(), 3);
            reader.read_shard("adam_m", layout, other, rank, shard);
            auto longer = moments;
            longer.resize(std::max<std::size_t>(longer.size(), other.extent()));
            test::check_same_bits("shard", test::to_host(shard),
                                  test::shard_of(longer, other, rank, 3));
        }
        comm->barrier();  // all have read it before it is written again
    }
}

TEST_CASE("every type and placement, read back on any number of ranks") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const test::Scratch own;
    const std::string dir = shared_directory(*comm, own);
    const int ranks = comm->size(), me = comm->rank();
    using io::Placement;
    for (const Index big_rows : {3, 1103}) {
        const FlatLayout layout = test::odd_layout(big_rows);
        const Sharding sharding(layout, ranks, 20000);
        const Index n = sharding.extent();
        const auto counts = test::any_counts(n, 1);
        const auto mask = test::any_mask(n, 2);
        const auto errors_of = [&](int rank) { return test::uneven_values(n, 10 + rank); };
        const auto counts_of = [&](int rank) { return test::any_counts(n, 20 + rank); };
        const auto mask_of = [&](int rank) { return test::any_mask(n, 30 + rank); };

        const auto shared_counts = test::to_device(counts);
        const auto shared_mask = test::to_device(mask);
        const auto count_shard = test::to_device(test::shard_of(counts, sharding, me, 9));
        const auto mask_shard = test::to_device(test::shard_of(mask, sharding, me, 9));
        const auto error = test::to_device(errors_of(me));
        const auto my_counts = test::to_device(counts_of(me));
        const auto my_mask = test::to_device(mask_of(me));
        const auto result = io::save(*comm, dir, test::sample_meta(7), layout, sharding,
                                     {{"counts", Placement::replicated, shared_counts},
                                      {"mask", Placement::replicated, shared_mask},
                                      {"count_shards", Placement::sharded, count_shard},
                                      {"mask_shards", Placement::sharded, mask_shard},
                                      {"error", Placement::per_rank, error},
                                      {"my_counts", Placement::per_rank, my_counts},
                                      {"my_mask", Placement::per_rank, my_mask},
                                      {"mean", Placement::mean, error}});

        const io::CheckpointReader reader(result.path);
        reader.expect_arrays({"counts", "mask", "count_shards", "mask_shards", "error", "my_counts",
                              "my_mask", "mean"});
        reader.verify();
        CHECK(reader.ranks_of("counts") == 0);
        CHECK(reader.ranks_of("mean") == 0);
        CHECK(reader.ranks_of("error") == ranks);
        const auto c = test::filled<std::uint32_t>(n, 5);
        const auto m = test::filled<std::uint8_t>(n, 5);
        const auto f = test::filled<float>(n, 5);
        for (const std::string name : {"counts", "count_shards"}) {
            reader.read_flat(name, layout, c);
            test::check_same_bits(name, test::to_host(c), test::logical(counts, layout, 5));
        }
        for (const std::string name : {"mask", "mask_shards"}) {
            reader.read_flat(name, layout, m);
            test::check_same_bits(name, test::to_host(m), test::logical(mask, layout, 5));
        }
        for (int rank = 0; rank < ranks; ++rank) {
            reader.read_rank("error", rank, layout, f);
            test::check_same_bits("error", test::to_host(f),
                                  test::logical(errors_of(rank), layout, 5));
            reader.read_rank("my_counts", rank, layout, c);
            test::check_same_bits("my_counts", test::to_host(c),
                                  test::logical(counts_of(rank), layout, 5));
            reader.read_rank("my_mask", rank, layout, m);
            test::check_same_bits("my_mask", test::to_host(m),
                                  test::logical(mask_of(rank), layout, 5));
        }
        // The mean: of the file's ranks, or formed as it was written.
        std::vector<float> mean(n);
        std::vector<std::vector<float>> errors;
        for (int rank = 0; rank < ranks; ++rank) errors.push_back(errors_of(rank));
        for (Index i = 0; i < n; ++i) {
            double sum = 0;
            for (const auto& e : errors) sum += e[i];
            mean[i] = static_cast<float>(sum / ranks);
        }
        for (const std::string name : {"error", "mean"}) {
            Kokkos::deep_copy(f, 5.0f);
            reader.read_mean(name, layout, f);
            test::check_same_bits(name, test::to_host(f), test::logical(mean, layout, 5));
        }
        for (int others = 1; others <= 5; ++others) {
            const Sharding other(layout, others, 50000);
            const int rank = me % others;
            const auto longer = [&](auto values) {
                values.resize(std::max<std::size_t>(values.size(), other.extent()));
                return values;
            };
            const auto cs = test::filled<std::uint32_t>(other.shard_extent(), 3);
            reader.read_shard("count_shards", layout, other, rank, cs);
            test::check_same_bits("count shard", test::to_host(cs),
                                  test::shard_of(longer(counts), other, rank, 3));
            const auto ms = test::filled<std::uint8_t>(other.shard_extent(), 3);
            reader.read_shard("mask", layout, other, rank, ms);
            test::check_same_bits("mask shard", test::to_host(ms),
                                  test::shard_of(longer(mask), other, rank, 3));
        }
        comm->barrier();
    }
}

TEST_CASE("the file does not depend on who wrote it") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const auto self = comm::make_self();
    const test::Scratch own;
    const std::string dir = shared_directory(*comm, own);
    const FlatLayout layout = test::odd_layout(7);
    const Sharding sharding(layout, comm->size(), 4000), one(layout, 1, 1 << 20);
    auto moments = test::any_bits(std::max(sharding.extent(), one.extent()), 3);
    const Vec<float> mine = test::to_device(test::shard_of(moments, sharding, comm->rank(), 99));
    const Vec<float> whole = test::to_device(test::shard_of(moments, one, 0, 98));
    const auto meta = test::sample_meta(3);
    io::save(*comm, dir, meta, layout, sharding, {{"adam_m", false, mine}});
    io::save(*self, own.path("alone"), meta, layout, one, {{"adam_m", false, whole}});
    CHECK((test::read_file(dir + "/step-00000003.h5") ==
           test::read_file(own.path("alone/step-00000003.h5"))));
    comm->barrier();
}

TEST_CASE("all ranks learn that saving failed, with one message") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const test::Scratch own;
    const std::string dir = shared_directory(*comm, own);
    if (comm->rank() == 0) own.write("file", "x");
    comm->barrier();
    const FlatLayout layout = test::odd_layout(7);
    const Sharding sharding(layout, comm->size(), 4000);
    const Vec<float> m = test::filled<float>(sharding.shard_extent(), 1);
    std::string message;
    try {
        io::save(*comm, dir + "/file/checkpoints", test::sample_meta(3), layout, sharding,
                 {{"adam_m", false, m}});
        FAIL_CHECK("the save went well");
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::resources);
        message = e.what();
    }
    CHECK(message.find("file/checkpoints") != std::string::npos);
    comm->barrier();
}
