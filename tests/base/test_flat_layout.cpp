#include "support/catch.hpp"

#include <scape/base/flat_layout.hpp>

#include <numeric>

using namespace scape;

namespace {

FlatLayout odd_layout() {
    FlatLayout layout;
    layout.add("wte", {257, 7}, 320);
    layout.add("gain", {7});
    layout.add("one", {1});
    layout.add("w", {13, 11});
    return layout;
}

}  // namespace

TEST_CASE("tensors are aligned, in order, and flagged by their rank") {
    const FlatLayout layout = odd_layout();
    Index end = 0;
    for (const Tensor& t : layout.tensors()) {
        CHECK(t.offset % tensor_alignment == 0);
        CHECK(t.offset >= end);
        end = t.offset + t.storage;
        CHECK(t.decay == (t.shape.size() >= 2));
        CHECK(t.dense == (t.shape.size() < 2));
    }
    CHECK(layout.extent() == end);
    CHECK(layout.parameters() == 257 * 7 + 7 + 1 + 13 * 11);
    CHECK(layout.tensor("wte").storage == 320 * 7);
    CHECK_THROWS_AS(layout.tensor("nope"), std::logic_error);
}

TEST_CASE("every element has one owner, for any number of ranks and any bucket size") {
    const FlatLayout layout = odd_layout();
    for (const int ranks : {1, 2, 3, 4, 7, 31, 64}) {
        for (const Index bucket_bytes : {Index(1), Index(1000), Index(1) << 30}) {
            const Sharding sharding(layout, ranks, bucket_bytes);
            CHECK(sharding.extent() % (ranks * tensor_alignment) == 0);
            CHECK(sharding.extent() >= layout.extent());
            std::vector<int> owners(sharding.extent(), 0);
            Index logical = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                for (int b = 0; b < sharding.buckets(); ++b) {
                    const Range piece = sharding.piece(b, rank);
                    CHECK(piece.size() == sharding.shard_piece(b).size());
                    for (Index i = piece.begin; i < piece.end; ++i) ++owners[i];
                }
                for (const Slice& s : sharding.slices(rank)) {
                    const Tensor& t = layout.tensors()[s.tensor];
                    const Range piece = sharding.piece(s.bucket, rank);
                    logical += s.flat.size();
                    CHECK((s.flat.begin >= piece.begin && s.flat.end <= piece.end));
                    CHECK(s.tensor_begin == s.flat.begin - t.offset);
                    CHECK(s.shard_begin - sharding.shard_piece(s.bucket).begin ==
                          s.flat.begin - piece.begin);
                }
            }
            CHECK(std::accumulate(owners.begin(), owners.end(), Index(0)) == sharding.extent());
            CHECK(*std::max_element(owners.begin(), owners.end()) == 1);
            CHECK(logical == layout.parameters());
        }
    }
}
