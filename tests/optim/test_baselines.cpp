// The top-k baselines against the simulator, at 1, 2, 3 and 4 ranks: weights and error feedback
// after every one of 20 steps, bit for bit; and the bytes that travel.
#include "optim/step_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/density.hpp>

#include <algorithm>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

constexpr Index steps = 20;

struct Case {
    config::Elements elements = config::Elements::topk_ef;
    config::OptimizerKind owner = config::OptimizerKind::adamw;
    Index value_bits = 32;
    Index delta_bits = 32;
    Index bucket_bytes = 2000;
    int buffers = 2;
};

config::RunConfig config_of(const Case& c) {
    config::RunConfig config;
    config.optimizer.kind = c.owner;
    config.optimizer.clip_norm = 2;
    config.exchange.elements = c.elements;
    config.exchange.value_bits = c.value_bits;
    config.exchange.delta_bits = c.delta_bits;
    config.sparsity.density = 0.05;
    config.sparsity.dense_steps = 1;
    config.sparsity.warmup_steps = 8;
    config.train.steps = steps;
    return config;
}

void check_against_simulator(comm::Communicator& comm, const Case& c) {
    const int P = comm.size();
    const int me = comm.rank();
    const config::RunConfig config = config_of(c);
    StepRig rig(comm, {config, c.bucket_bytes, c.buffers});
    Simulator<float> simulator(simulated(config), geometry_of(rig.layout, rig.sharding), P,
                               rig.initial());
    const Exchange::Options options = exchange_options(config);
    MaskPlan plan(rig.layout, rig.sharding, config.sparsity, MaskPlan::CodeOrder::by_bucket);
    for (Index t = 1; t <= steps; ++t) {
        INFO("rank " << me << " of " << P << ", step " << t << ", elements "
                     << static_cast<int>(c.elements) << ", " << c.value_bits << " and "
                     << c.delta_bits << " bits");
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r) g.push_back(rig.gradient(r, t));
        simulator.step(g, 1e-2f);
        REQUIRE(rig.step(t, g[me], 1e-2f));
        CHECK(rig.norm == Approx(simulator.received_norm()).epsilon(1e-6));
        check_same_bits("weights", rig.weights(), simulator.weights());
        check_same_bits("error feedback", rig.residual(), simulator.residual(me));

        plan.set(density(config, t));
        const MaskPlan::Bytes sent = plan.bytes_sent(options.values, options.deltas, c.elements);
        const auto traffic = rig.comm.traffic();
        const bool own = c.elements == config::Elements::topk_ef;
        CHECK(traffic[0].bytes_sent == sent.gradients + (own ? sent.masks : 0));
        CHECK(traffic[1].bytes_sent == sent.weights);
        const bool leads = !own && !plan.all() && t % P == me;
        CHECK(traffic[3].bytes_sent ==
              (leads ? (P - 1) * plan.code_range(rig.sharding.buckets() - 1).end : 0));
    }
}

}  // namespace

TEST_CASE("top-k baselines give the simulator's weights and error feedback, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const auto elements : {config::Elements::topk_ef, config::Elements::clt_k}) {
        for (const auto owner : {config::OptimizerKind::adamw, config::OptimizerKind::adams})
            check_against_simulator(*comm, {.elements = elements, .owner = owner});
        for (const auto& [values, deltas] : {std::pair{16, 32}, {16, 16}, {8, 8}, {4, 4}, {2, 1}})
            check_against_simulator(
                *comm, {.elements = elements, .value_bits = values, .delta_bits = deltas});
        check_against_simulator(*comm, {.elements = elements, .bucket_bytes = 1, .buffers = 1});
        check_against_simulator(*comm, {.elements = elements, .bucket_bytes = 1 << 20});
    }
}
