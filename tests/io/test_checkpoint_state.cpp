// Checkpoints of other types and placements than replicated and sharded fp32: what is refused, and
// what damage is found. (What ranks write together: test_checkpoint_mpi.cpp.)
#include <scape/base/error.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/io/h5.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/refusal.hpp"
#include "support/scratch.hpp"

#include <functional>

using namespace scape;
using io::CheckpointReader;
using io::Placement;
using test::has;
using test::refusal;
namespace h5 = io::h5;

namespace {

/// One rank's checkpoint: weights, mask (uint8), counts (uint32), error (its own, fp32).
struct Saved {
    test::Scratch dir;
    FlatLayout layout;
    Sharding sharding;
    std::vector<float> weights, error;
    std::vector<std::uint8_t> mask;
    std::vector<std::uint32_t> counts;
    std::string path;

    explicit Saved(Index big_rows = 3)
        : layout(test::odd_layout(big_rows)),
          sharding(layout, 1, 100000),
          weights(test::any_bits(sharding.extent(), 1)),
          error(test::any_bits(sharding.extent(), 2)),
          mask(test::any_mask(sharding.extent(), 3)),
          counts(test::any_counts(sharding.extent(), 4)) {
        const auto w = test::to_device(weights), e = test::to_device(error);
        const auto m = test::to_device(mask);
        const auto c = test::to_device(counts);
        path = io::save(*comm::make_self(), dir.path("checkpoints"), test::sample_meta(5), layout,
                        sharding,
                        {{"weights", Placement::replicated, w},
                         {"error", Placement::per_rank, e},
                         {"mask", Placement::sharded, m},
                         {"counts", Placement::replicated, c}})
                   .path;
    }

    void edit(const std::function<void(hid_t)>& work) const {
        h5::Id file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        REQUIRE(file >= 0);
        work(file);
        file.close("H5Fclose");
    }
};

}  // namespace

TEST_CASE("an array is refused as another type, and as another placement") {
    const Saved saved;
    const CheckpointReader reader(saved.path);
    const Index n = saved.sharding.extent();
    const auto f = test::filled<float>(n, 7);
    const auto m = test::filled<std::uint8_t>(n, 7);
    const auto c = test::filled<std::uint32_t>(n, 7);
    const auto& layout = saved.layout;
    CHECK(has(refusal([&] { reader.read_flat("weights", layout, m); }),
              saved.path + "' has elements of fp32 in tensor 'wte' of array 'weights'; uint8 is"));
    CHECK(has(refusal([&] { reader.read_flat("mask", layout, f); }),
              "has elements of uint8 in tensor 'wte' of array 'mask'; fp32 is wanted"));
    CHECK(has(refusal([&] { reader.read_shard("counts", layout, saved.sharding, 0, m); }),
              "has elements of uint32 in tensor 'wte' of array 'counts'; uint8 is wanted"));
    CHECK(has(refusal([&] { reader.read_rank("error", 0, layout, c); }),
              "has elements of fp32 in tensor 'wte' of array 'error'; uint32 is wanted"));
    CHECK(has(refusal([&] { reader.read_mean("counts", layout, f); }), "fp32 is wanted"));

    CHECK(has(refusal([&] { reader.read_flat("error", layout, f); }),
              "holds array 'error' for each of 1 ranks; one whole array is wanted"));
    CHECK(has(refusal([&] { reader.read_shard("error", layout, saved.sharding, 0, f); }),
              "holds array 'error' for each of 1 ranks; one whole array is wanted"));
    CHECK(has(refusal([&] { reader.read_rank("weights", 0, layout, f); }),
              "holds array 'weights' as one whole; that of rank 0 is wanted"));
    CHECK(has(refusal([&] { reader.read_rank("error", 1, layout, f); }),
              "holds array 'error' for each of 1 ranks; that of rank 1 is wanted"));
    CHECK(has(refusal([&] { reader.ranks_of("errors"); }), "has no array 'errors'; it has: "));
    test::check_same_bits("nothing was read", test::to_host(f), std::vector<float>(n, 7));
    test::check_same_bits("nothing was read", test::to_host(m), std::vector<std::uint8_t>(n, 7));

    FlatLayout other;
    for (const Tensor& t : layout.tensors()) {
        other.add(t.name, t.name == "last" ? std::vector<Index>{3, 2} : t.shape);
    }
    CHECK(has(refusal([&] { reader.read_rank("error", 0, other, f); }),
              "tensor 'last' of array 'error' has shape (2, 3) in the file, (3, 2) in the model"));
    CHECK(has(refusal([&] { reader.read_mean("error", other, f); }), "tensor 'last' of array"));
}

TEST_CASE("what no caller may save is a fault of the program") {
    const Saved saved;
    const auto m = test::to_device(saved.mask);
    const auto shorter = test::filled<float>(saved.layout.extent() - 1, 0);
    const auto save = [&](const io::ArrayOut& array) {
        io::save(*comm::make_self(), saved.dir.path("others"), test::sample_meta(5), saved.layout,
                 saved.sharding, {array});
    };
    CHECK_THROWS_AS(save({"mask", Placement::mean, m}), std::logic_error);
    CHECK_THROWS_AS(save({"weights", Placement::replicated, shorter}), std::logic_error);
    CHECK_FALSE(std::filesystem::exists(saved.dir.path("others")));
}

TEST_CASE("verify reads every type, and finds what is damaged in each") {
    const Saved saved;
    const std::string whole = test::read_file(saved.path);
    CheckpointReader(saved.path).verify();
    const auto& tensor = saved.layout.tensor("last");
    const auto damaged = [&](const void* values, std::size_t bytes) {
        std::string changed = whole;
        const auto at = changed.find(std::string(static_cast<const char*>(values), bytes));
        REQUIRE(at != std::string::npos);
        changed[at + bytes / 2] ^= 0x10;
        const std::string path = saved.dir.write("changed.h5", changed);
        return refusal([&] { CheckpointReader(path).verify(); });
    };
    CHECK(has(damaged(&saved.error[tensor.offset], 24),
              "data set 'error/rank-0000/last' does not match its checksum"));
    CHECK(has(damaged(&saved.counts[tensor.offset], 24),
              "data set 'counts/last' does not match its checksum"));
    // The compressed bytes of the mask are wherever HDF5 put them.
    std::string changed = whole;
    {
        const h5::Id file = h5::open_file(saved.path);
        const h5::Id set = h5::open_dataset(file, "mask/big");
        hsize_t corner[2] = {0, 0}, bytes = 0;
        unsigned filters = 0;
        haddr_t at = 0;
        REQUIRE(H5Dget_chunk_info_by_coord(set, corner, &filters, &at, &bytes) >= 0);
        CHECK(bytes < 3 * 1009 * 2 / 3);  // compressed
        changed[at + bytes / 2] ^= 0x10;
    }
    const std::string path = saved.dir.write("changed.h5", changed);
    CHECK(
        has(refusal([&] { CheckpointReader(path).verify(); }), "is damaged: data set 'mask/big'"));
}

TEST_CASE("an array of ranks that lacks one, or counts wrong, is damaged") {
    const Saved saved;
    const auto message = [&] { return refusal([&] { CheckpointReader(saved.path).verify(); }); };
    saved.edit([](hid_t file) {
        const h5::Id group = h5::open_group(file, "error");
        REQUIRE(H5Adelete(group, "ranks") >= 0);
        h5::write_attribute(group, "ranks", Index{2});
    });
    CHECK(has(message(), "is damaged: array 'error' of 2 ranks holds: rank-0000"));
    saved.edit([](hid_t file) { REQUIRE(H5Ldelete(file, "error/rank-0000", H5P_DEFAULT) >= 0); });
    CHECK(has(message(), "is damaged: array 'error' of 2 ranks holds: "));
    saved.edit([](hid_t file) {
        h5::create_dataset(h5::open_group(file, "mask"), "more", {2});
        h5::create_group(file, "error/rank-0000");
        h5::create_group(file, "error/rank-0001");
    });
    CheckpointReader(saved.path).verify();
    const auto m = test::filled<std::uint8_t>(saved.sharding.extent(), 7);
    CHECK(has(refusal([&] { CheckpointReader(saved.path).read_flat("mask", saved.layout, m); }),
              "holds a tensor 'more' of shape (2) in array 'mask' that the model does not have"));
    const auto f = test::filled<float>(saved.sharding.extent(), 7);
    CHECK(has(refusal([&] { CheckpointReader(saved.path).read_mean("error", saved.layout, f); }),
              "has no tensor 'wte' in array 'error'"));
}

TEST_CASE("a file of format version 1 is read") {
    const Saved saved;
    // What the program wrote then: whole arrays of fp32 alone.
    saved.edit([](hid_t file) {
        for (const char* name : {"error", "mask", "counts"})
            REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
        REQUIRE(H5Adelete(file, "format_version") >= 0);
        h5::write_attribute(file, "format_version", Index{1});
    });
    const CheckpointReader reader(saved.path);
    reader.expect_arrays({"weights"});
    reader.verify();
    CHECK(reader.ranks_of("weights") == 0);
    const auto f = test::filled<float>(saved.sharding.extent(), 7);
    reader.read_flat("weights", saved.layout, f);
    test::check_same_bits("weights", test::to_host(f),
                          test::logical(saved.weights, saved.layout, 7));
    Kokkos::deep_copy(f, 7.0f);
    reader.read_mean("weights", saved.layout, f);
    test::check_same_bits("weights", test::to_host(f),
                          test::logical(saved.weights, saved.layout, 7));
}
