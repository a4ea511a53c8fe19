// Checkpoints of one rank: what comes back is what went in, bit for bit, on any number of ranks;
// every way in which a file can be wrong has its own message.
#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/io/h5.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/refusal.hpp"
#include "support/scratch.hpp"

#include <functional>

using namespace scape;
using io::CheckpointReader;
using test::has;
using test::refusal;
namespace h5 = io::h5;

namespace {

std::string opening(const std::string& path) {
    return refusal([&] { CheckpointReader reader(path); });
}

/// One rank's checkpoint of two arrays: weights (replicated) and adam_m (sharded, one rank).
struct Saved {
    test::Scratch dir;
    FlatLayout layout;
    Sharding sharding;
    std::vector<float> weights;
    std::vector<float> moments;
    io::SaveResult result;

    explicit Saved(Index big_rows = 3)
        : layout(test::odd_layout(big_rows)),
          sharding(layout, 1, 100000),
          weights(test::any_bits(sharding.extent(), 1)),
          moments(test::any_bits(sharding.extent(), 2)) {
        result = save(500);
    }

    io::SaveResult save(Index step) {
        const auto comm = comm::make_self();
        const Vec<float> w = test::to_device(weights), m = test::to_device(moments);
        return io::save(*comm, dir.path("checkpoints"), test::sample_meta(step), layout, sharding,
                        {{"weights", true, w}, {"adam_m", false, m}});
    }
};

/// The same file with other bytes.
std::string changed(const Saved& saved, const std::function<void(std::string&)>& change) {
    std::string bytes = test::read_file(saved.result.path);
    change(bytes);
    return saved.dir.write("changed.h5", bytes);
}

}  // namespace

TEST_CASE("save and read: names, meta, bits") {
    const Saved saved(1103);
    CHECK(saved.result.path == saved.dir.path("checkpoints/step-00000500.h5"));
    CHECK(saved.result.bytes == static_cast<Index>(std::filesystem::file_size(saved.result.path)));
    CHECK(saved.result.bytes > saved.layout.parameters() * 8);
    CHECK(saved.result.bytes < saved.layout.parameters() * 8 * 1.05 + 400000);
    CHECK(saved.result.seconds > 0);
    CHECK(test::read_file(saved.dir.path("checkpoints/latest")) == "step-00000500.h5\n");

    const CheckpointReader reader(saved.result.path);
    const auto wanted = test::sample_meta(500);
    CHECK(reader.meta().step == 500);
    CHECK(reader.meta().tokens == wanted.tokens);
    CHECK(reader.meta().samples == wanted.samples);
    CHECK(reader.meta().ranks == 1);
    CHECK(reader.meta().deck == wanted.deck);
    CHECK(reader.meta().numbers == wanted.numbers);
    CHECK(reader.meta().texts == wanted.texts);
    CHECK(reader.arrays() == std::vector<std::string>{"adam_m", "weights"});
    CHECK(reader.has("weights"));
    CHECK_FALSE(reader.has("weight"));
    reader.expect_arrays({"weights", "adam_m"});
    reader.verify();

    const Vec<float> flat = test::filled<float>(saved.sharding.extent(), 7);
    reader.read_flat("weights", saved.layout, flat);
    test::check_same_bits("weights", test::to_host(flat),
                          test::logical(saved.weights, saved.layout, 7));
    reader.read_flat("adam_m", saved.layout, flat);
    test::check_same_bits("adam_m", test::to_host(flat),
                          test::logical(saved.moments, saved.layout, 7));
}

TEST_CASE("a checkpoint is read on any number of ranks and buckets") {
    const Saved saved(1103);
    const CheckpointReader reader(saved.result.path);
    for (int ranks = 1; ranks <= 5; ++ranks) {
        for (Index bucket_bytes : {1, 30000, 1 << 30}) {
            if (bucket_bytes == 1 && ranks < 5) continue;  // many buckets: once is enough
            const Sharding sharding(saved.layout, ranks, bucket_bytes == 1 ? 8000 : bucket_bytes);
            for (int rank = 0; rank < ranks; ++rank) {
                const Vec<float> shard = test::filled<float>(sharding.shard_extent(), 3);
                reader.read_shard("adam_m", saved.layout, sharding, rank, shard);
                test::check_same_bits("shard", test::to_host(shard),
                                      test::shard_of(saved.moments, sharding, rank, 3));
            }
        }
    }
}

TEST_CASE("padding is not saved, and equal contents are equal files") {
    Saved saved;
    const std::string first = test::read_file(saved.result.path);
    for (const Tensor& t : saved.layout.tensors()) {
        for (Index i = t.size; i < t.storage; ++i) saved.weights[t.offset + i] += 1;
    }
    saved.save(500);
    CHECK((test::read_file(saved.result.path) == first));
    saved.weights[0] = 5;
    saved.save(500);
    CHECK((test::read_file(saved.result.path) != first));
}

TEST_CASE("files that are no checkpoint") {
    const Saved saved;
    const auto& dir = saved.dir;
    CHECK(has(opening(dir.path("none.h5")), dir.path("none.h5") + "' is not there"));
    CHECK(has(opening(dir.path()), "is not a file"));
    CHECK(has(opening(dir.write("empty.h5", "")), "(0 bytes) is no HDF5 file"));
    CHECK(has(opening(dir.write("text.h5", "hello, this is text\n")), "(20 bytes) is no HDF5"));
    h5::create_file(dir.path("other.h5")).close("H5Fclose");
    CHECK(has(opening(dir.path("other.h5")), "not a checkpoint of this program"));
}

TEST_CASE("a file cut anywhere is refused at once, and nothing is printed") {
    const Saved saved;
    const std::string whole = test::read_file(saved.result.path);
    const auto size = whole.size();
    const Timer timer;
    int cuts = 0;
    for (const std::size_t length :
         {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9}, std::size_t{40},
          std::size_t{47}, std::size_t{48}, std::size_t{49}, std::size_t{96}, std::size_t{1000},
          size / 4, size / 2, size - 1024, size - 1}) {
        CAPTURE(length);
        const std::string message = opening(saved.dir.write("cut.h5", whole.substr(0, length)));
        CHECK(has(message, "cut short"));
        CHECK(has(message, "(" + std::to_string(length) + " bytes)"));
        ++cuts;
    }
    CHECK(timer.seconds() < cuts * 1.0);
}

TEST_CASE("a flipped bit in a tensor is found by its checksum, which names the data set") {
    const Saved saved;
    // Where the elements of 'last' of adam_m lie in the file.
    const auto& tensor = saved.layout.tensor("last");
    const std::string pattern(reinterpret_cast<const char*>(&saved.moments[tensor.offset]), 24);
    const std::string path = changed(saved, [&](std::string& bytes) {
        const auto at = bytes.find(pattern);
        REQUIRE(at != std::string::npos);
        bytes[at + 13] ^= 0x10;
    });
    const CheckpointReader reader(path);
    const Vec<float> flat = test::filled<float>(saved.sharding.extent(), 7);
    reader.read_flat("weights", saved.layout, flat);  // the other array is good
    const std::string wanted = "data set 'adam_m/last' does not match its checksum";
    CHECK(has(refusal([&] { reader.read_flat("adam_m", saved.layout, flat); }), wanted));
    CHECK(has(refusal([&] { reader.read_shard("adam_m", saved.layout, saved.sharding, 0, flat); }),
              wanted));
    CHECK(has(refusal([&] { reader.verify(); }), wanted));
}

TEST_CASE("flipped bits anywhere: refused, or read back as they were") {
    const Saved saved;
    const std::string whole = test::read_file(saved.result.path);
    const auto wanted = test::sample_meta(500);
    const auto good_weights = test::logical(saved.weights, saved.layout, 7);
    const auto good_moments = test::logical(saved.moments, saved.layout, 7);
    test::Random random(4);
    const Vec<float> flat = test::filled<float>(saved.sharding.extent(), 7);
    int refused = 0;
    for (int trial = 0; trial < 100; ++trial) {
        std::string bytes = whole;
        // Half of them in the first pages and the last, where metadata lie.
        const Index size = static_cast<Index>(bytes.size());
        const Index at = trial % 4 == 0   ? random.below(4096)
                         : trial % 4 == 1 ? size - 1 - random.below(16384)
                                          : random.below(size);
        bytes[at] ^= static_cast<char>(1 << random.below(8));
        const std::string path = saved.dir.write("flipped.h5", bytes);
        CAPTURE(at);
        try {
            const CheckpointReader reader(path);
            reader.verify();
            reader.read_flat("weights", saved.layout, flat);
            const auto weights = test::to_host(flat);
            reader.read_flat("adam_m", saved.layout, flat);
            const auto moments = test::to_host(flat);
            const auto bytes_of = [](const std::vector<float>& v) { return v.size() * 4; };
            CHECK((reader.meta().deck == wanted.deck && reader.meta().texts == wanted.texts));
            CHECK(std::memcmp(weights.data(), good_weights.data(), bytes_of(weights)) == 0);
            CHECK(std::memcmp(moments.data(), good_moments.data(), bytes_of(moments)) == 0);
        } catch (const user_error& e) {
            CHECK(e.code() == ExitCode::data);
            ++refused;
        }
    }
    CHECK(refused >= 50);
    CHECK(refused < 100);  // free space in the file may hold anything
}

TEST_CASE("a file without the completeness mark, and one of another format version") {
    const Saved saved;
    const std::string path = changed(saved, [](std::string&) {});
    const auto edit = [&](const std::function<void(hid_t)>& work) {
        h5::Id file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
        REQUIRE(file >= 0);
        work(file);
        file.close("H5Fclose");
    };
    edit([](hid_t file) { REQUIRE(H5Adelete(file, "complete") >= 0); });
    CHECK(has(opening(path), "is not complete"));
    edit([](hid_t file) {
        REQUIRE(H5Adelete(file, "format_version") >= 0);
        h5::write_attribute(file, "format_version", Index{99});
    });
    CHECK(has(opening(path), "has format version 99; this program reads versions 1 to 2"));
}

TEST_CASE("arrays: one missing, one that nothing consumes") {
    const Saved saved;
    const CheckpointReader reader(saved.result.path);
    CHECK(has(refusal([&] { reader.expect_arrays({"weights"}); }), "an array 'adam_m'"));
    CHECK(has(refusal([&] {
                  reader.expect_arrays({"weights", "adam_m", "adam_v"});
              }),
              "has no array 'adam_v'; it has: adam_m, weights"));
    const Vec<float> flat = test::filled<float>(saved.sharding.extent(), 7);
    CHECK(has(refusal([&] { reader.read_flat("adam_v", saved.layout, flat); }),
              "has no array 'adam_v'"));
}

TEST_CASE("tensors of another model: missing, too many, of another shape") {
    const Saved saved;
    const CheckpointReader reader(saved.result.path);
    const auto against = [&](const std::function<void(FlatLayout&, const Tensor&)>& add) {
        FlatLayout other;
        for (const Tensor& t : saved.layout.tensors()) add(other, t);
        const Vec<float> flat = test::filled<float>(other.extent() + 1000, 7);
        const std::string message = refusal([&] { reader.read_flat("weights", other, flat); });
        const Sharding sharding(other, 3, 1000);
        const Vec<float> shard = test::filled<float>(sharding.shard_extent(), 7);
        CHECK(refusal([&] { reader.read_shard("weights", other, sharding, 1, shard); }) == message);
        test::check_same_bits("nothing was read", test::to_host(flat),
                              std::vector<float>(flat.extent(0), 7));
        return message;
    };
    CHECK(has(against([](FlatLayout& other, const Tensor& t) {
                  other.add(t.name, t.name == "cube" ? std::vector<Index>{3, 7, 5} : t.shape);
              }),
              "tensor 'cube' of array 'weights' has shape (3, 5, 7) in the file, (3, 7, 5) in the "
              "model"));
    CHECK(has(against([](FlatLayout& other, const Tensor& t) {
                  other.add(t.name, t.shape);
                  if (t.name == "one") other.add("two", {2, 2});
              }),
              "has no tensor 'two' in array 'weights'; the model's has shape (2, 2)"));
    CHECK(has(against([](FlatLayout& other, const Tensor& t) {
                  if (t.name != "layer.0/norm") other.add(t.name, t.shape);
              }),
              "holds a tensor 'layer.0/norm' of shape (13) in array 'weights' that the model"));
}

TEST_CASE("a file can be read where it cannot be written") {
    const Saved saved;
    std::filesystem::permissions(saved.result.path, std::filesystem::perms::owner_read);
    CHECK(CheckpointReader(saved.result.path).meta().step == 500);
}
