// What grows with the number of ranks, and how.
#include "support/catch.hpp"

#include <scape/optim/mask_tables.hpp>
#include <scape/optim/sharded_optimizer.hpp>

#include <algorithm>
#include <string>

using namespace scape;
using optim::MaskPlan;

namespace {

Index coded_now(const MaskPlan& plan) {
    return std::max(plan.sharding().ranks() * plan.code_bytes(),
                    plan.code_range(plan.sharding().buckets() - 1).end);
}

}  // namespace

TEST_CASE("buckets: as the deck says; by themselves larger where messages would get small") {
    config::RunConfig config;
    CHECK(optim::bucket_bytes(config, 1) == 25'000'000);
    CHECK(optim::bucket_bytes(config, 97) == 25'000'000);
    CHECK(optim::bucket_bytes(config, 98) == 98 * 256'000);
    CHECK(optim::bucket_bytes(config, 4096) == 4096 * Index(256'000));
    config.comm.bucket_mb = 3.5;
    CHECK(optim::bucket_bytes(config, 1) == 3'500'000);
    CHECK(optim::bucket_bytes(config, 4096) == 3'500'000);
}

TEST_CASE(
    "coded masks fit at every density, and what is kept for rounding does not grow with P^2") {
    FlatLayout layout;
    for (int i = 0; i < 6; ++i) {
        layout.add("norm" + std::to_string(i), {48});
        layout.add("weight" + std::to_string(i), {48, 200 + i});
    }
    constexpr double largest = 0.2;
    for (const auto order : {MaskPlan::CodeOrder::by_rank, MaskPlan::CodeOrder::by_bucket}) {
        for (const int ranks : {1, 3, 16, 128}) {
            INFO(ranks << " ranks");
            const Sharding sharding(layout, ranks, 40'000);
            MaskPlan plan(layout, sharding, {}, order);
            const optim::MaskSizes sizes = optim::mask_sizes(plan, largest);
            Index rows = 0;
            for (int r = 0; r < ranks; ++r)
                rows = std::max(rows, static_cast<Index>(sharding.slices(r).size()));
            plan.set(largest);
            CHECK(sizes.coded <= coded_now(plan) + 16 * ranks * rows);
            for (double d = largest; d > 1e-4; d *= 0.7) {
                INFO("density " << d);
                plan.set(d);
                CHECK(coded_now(plan) <= sizes.coded);
            }
        }
    }
}
