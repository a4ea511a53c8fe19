// Buffer stores hold what was written, wherever they keep it, in any order of calls.
#include <scape/base/error.hpp>
#include <scape/io/buffer_store.hpp>
#include <scape/io/checkpoint.hpp>

#include "io/sample.hpp"
#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

using namespace scape;
using io::BufferStore;
using io::Storage;

namespace {

const std::vector<Index> odd_chunks{5003, 1, 4096, 0, 70001, 4097, 33};

struct Stores {
    test::Scratch dir;
    std::vector<std::unique_ptr<BufferStore>> all;

    explicit Stores(const std::vector<Index>& chunks) {
        for (const auto storage : {Storage::device, Storage::host, Storage::hdf5}) {
            all.push_back(io::make_buffer_store(storage, chunks, dir.path(), 3));
        }
    }
};

/// What add_to adds to `start`.
std::vector<float> added(BufferStore& store, int chunk, const std::vector<float>& start) {
    const auto values = test::to_device(start);
    store.add_to(Exec(), chunk, values);
    return test::to_host(values);
}

std::vector<int> order_of(const std::vector<Index>& chunks, bool reversed) {
    std::vector<int> order(chunks.size());
    std::iota(order.begin(), order.end(), 0);
    if (reversed) std::reverse(order.begin(), order.end());
    return order;
}

}  // namespace

TEST_CASE("a store begins with zeros: -0 becomes 0 in all of them, the rest stays") {
    Stores stores(odd_chunks);
    for (const auto& store : stores.all) {
        CAPTURE(store->name());
        for (std::size_t c = 0; c < odd_chunks.size(); ++c) {
            const auto start = test::normal_values(odd_chunks[c], c);
            test::check_same_bits("values", added(*store, static_cast<int>(c), start), start);
        }
        test::check_same_bits("zero", added(*store, 1, {-0.0f}), std::vector<float>{0.0f});
    }
}

TEST_CASE("what was written is added, step after step, forwards and backwards") {
    Stores stores(odd_chunks);
    const Exec exec;
    std::vector<std::vector<float>> plain;
    for (const Index n : odd_chunks) plain.emplace_back(n, 0.0f);
    for (int step = 0; step < 5; ++step) {
        const auto order = order_of(odd_chunks, step % 2 == 0);
        // As an optimizer with error feedback: a = gradient + error; what was not sent is kept.
        std::vector<std::vector<float>> sums;
        for (std::size_t c = 0; c < odd_chunks.size(); ++c) {
            sums.push_back(test::normal_values(odd_chunks[c], 100 * step + c));
        }
        const auto gradients = sums;
        for (std::size_t c = 0; c < odd_chunks.size(); ++c) {
            for (std::size_t i = 0; i < sums[c].size(); ++i) sums[c][i] += plain[c][i];
        }
        for (const auto& store : stores.all) {
            CAPTURE(store->name(), step);
            if (step > 0) store->expect(order);  // optional
            std::vector<Vec<float>> kept;
            for (const int c : order) {
                kept.push_back(test::to_device(gradients[c]));
                store->add_to(exec, c, kept.back());
                test::check_same_bits("sum", test::to_host(kept.back()), sums[c]);
                store->write(exec, c, kept.back());
            }
            store->finish(exec);
            for (const auto& values : kept) Kokkos::deep_copy(values, -1.0f);  // ours again
        }
        plain = sums;
    }
}

TEST_CASE("all stores give the same bits for all kinds of values") {
    Stores stores({4099});
    const auto stored = test::to_device(test::any_bits(4099, 1));
    const auto start = test::any_bits(4099, 2);
    std::vector<std::vector<float>> results;
    for (const auto& store : stores.all) {
        store->write(Exec(), 0, stored);
        store->finish(Exec());
        results.push_back(added(*store, 0, start));
    }
    test::check_same_bits("host", results[1], results[0]);
    test::check_same_bits("hdf5", results[2], results[0]);
}

TEST_CASE("random calls, with wrong expectations, agree with plain vectors") {
    const std::vector<Index> chunks{301, 7001, 1, 512, 20000, 77};
    const int count = static_cast<int>(chunks.size());
    for (int seed = 0; seed < 6; ++seed) {
        Stores stores(chunks);
        for (const auto& store : stores.all) {
            CAPTURE(store->name(), seed);
            test::Random random(seed);
            std::vector<std::vector<float>> plain;
            for (const Index n : chunks) plain.emplace_back(n, 0.0f);
            std::vector<Vec<float>> kept;
            int wrong = 0;
            for (int call = 0; call < 400; ++call) {
                const int chunk = static_cast<int>(random.below(count));
                const auto what = random.below(10);
                if (what < 4) {
                    const auto start = test::normal_values(chunks[chunk], random.bits());
                    auto wanted = start;
                    for (Index i = 0; i < chunks[chunk]; ++i) wanted[i] += plain[chunk][i];
                    wrong += added(*store, chunk, start) != wanted;
                } else if (what < 8) {
                    plain[chunk] = test::normal_values(chunks[chunk], random.bits());
                    kept.push_back(test::to_device(plain[chunk]));
                    store->write(Exec(), chunk, kept.back());
                } else if (what < 9) {
                    std::vector<int> order;
                    const Index length = random.below(6);
                    for (Index i = 0; i < length; ++i) {
                        order.push_back(static_cast<int>(random.below(count)));
                    }
                    store->expect(order);
                } else {
                    store->finish(Exec());
                    for (const auto& values : kept) Kokkos::deep_copy(values, -1.0f);
                    kept.clear();
                }
            }
            store->finish(Exec());
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("a store of a chunk size that is not its own is a fault of the program") {
    Stores stores({10, 20});
    const auto values = test::filled<float>(10, 1);
    for (const auto& store : stores.all) {
        CHECK_THROWS_AS(store->write(Exec(), 1, values), std::logic_error);
        CHECK_THROWS_AS(store->add_to(Exec(), 2, values), std::logic_error);
        CHECK_THROWS_AS(store->add_to(Exec(), -1, values), std::logic_error);
        store->add_to(Exec(), 0, values);
    }
}

TEST_CASE("names, memory and costs") {
    const Index n = 250000;
    Stores stores({n, n, n / 2});
    const Index all = (n + n + n / 2) * 4;
    CHECK(stores.all[0]->name() == "device");
    CHECK(stores.all[1]->name() == "host");
    CHECK(stores.all[2]->name().find("hdf5 " + stores.dir.path()) == 0);
    CHECK(stores.all[0]->device_bytes() + stores.all[0]->host_bytes() == all);
    CHECK(stores.all[1]->device_bytes() == 0);
    CHECK(stores.all[1]->host_bytes() == all);
    CHECK(stores.all[2]->device_bytes() == 0);
    CHECK(stores.all[2]->host_bytes() == (exec_is_host ? 2 : 4) * n * 4);
    if (exec_is_host) CHECK(stores.all[0]->device_bytes() == 0);
    const Storage kinds[] = {Storage::device, Storage::host, Storage::hdf5};
    for (int i = 0; i < 3; ++i) {
        const auto bytes = io::buffer_store_bytes(kinds[i], {n, n, n / 2});
        CHECK(bytes.device == stores.all[i]->device_bytes());
        CHECK(bytes.host == stores.all[i]->host_bytes());
    }
    const auto values = test::filled<float>(n, 1);
    for (const auto& store : stores.all) {
        store->write(Exec(), 0, values);
        store->add_to(Exec(), 0, values);
        store->finish(Exec());
        const auto cost = store->cost();
        CHECK(cost.bytes == 2.0 * n * 4);
        CHECK(cost.seconds > 0);
        CHECK(cost.waited_seconds > 0);
        store->reset_cost();
        CHECK(store->cost().bytes == 0);
        CHECK(store->cost().seconds == 0);
        CHECK(store->cost().waited_seconds == 0);
    }
}

TEST_CASE("checkpoints and a store on a disk use HDF5 at the same time") {
    const test::Scratch dir;
    const std::vector<Index> chunks(6, 50000);
    const auto store = io::make_buffer_store(Storage::hdf5, chunks, dir.path(), 0);
    const FlatLayout layout = test::odd_layout(53);
    const Sharding sharding(layout, 1, 100000);
    const auto weights = test::any_bits(sharding.extent(), 1);
    const auto w = test::to_device(weights), read = test::filled<float>(sharding.extent(), 7);
    const auto values = test::to_device(test::normal_values(50000, 1));
    const auto comm = comm::make_self();
    for (int step = 1; step <= 15; ++step) {
        store->expect({5, 4, 3, 2, 1, 0});
        for (int c = 0; c < 6; ++c) store->write(Exec(), c, values);
        const auto saved = io::save(*comm, dir.path("checkpoints"), test::sample_meta(step), layout,
                                    sharding, {{"weights", true, w}});
        const io::CheckpointReader reader(saved.path);
        reader.verify();
        reader.read_flat("weights", layout, read);
        test::check_same_bits("weights", test::to_host(read), test::logical(weights, layout, 7));
        for (int c = 5; c >= 0; --c) {
            const auto sum = added(*store, c, std::vector<float>(50000, 0));
            test::check_same_bits("chunk", sum, test::to_host(values));
        }
        store->finish(Exec());
    }
}
