// Memory for masks: enough at every density of a run, and in proportion to the number of ranks.
#include "support/catch.hpp"

#include <scape/optim/mask_tables.hpp>

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
