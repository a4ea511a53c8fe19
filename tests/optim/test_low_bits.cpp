// Low bits in every combination that the deck allows, against the simulator, at 1, 2, 3 and 4
// ranks: replicas, masters, error feedback or LoCo's error after every step, bit for bit; bytes
// that travel equal the formula.
#include "optim/step_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/density.hpp>

#include <limits>

using namespace scape;
using namespace scape::test;
using config::ErrorKind;
using config::FeedbackStorage;
using config::OptimizerKind;
using config::ScapeRule;
using config::ScapeScore;

namespace {

struct Case {
    std::string name;
    RigOptions options;
    Index bad_step = 0;  // one rank's gradient has a NaN in it, another's an infinity
};

config::RunConfig dense_config(OptimizerKind kind, ErrorKind error) {
    config::RunConfig c;
    c.optimizer.kind = kind;
    c.optimizer.clip_norm = 2.0;
    c.exchange.error = error;
    c.train.steps = 12;
    return c;
}

// The own part of a flat buffer, as the shard lies in memory.
std::vector<float> shard_of(const StepRig& rig, const std::vector<float>& flat) {
    std::vector<float> shard;
    for (int b = 0; b < rig.sharding.buckets(); ++b) {
        const Range piece = rig.sharding.piece(b, rig.comm.rank());
        shard.insert(shard.end(), flat.begin() + piece.begin, flat.begin() + piece.end);
    }
    return shard;
}

void check_bytes(StepRig& rig, Index t) {
    const auto options = optim::exchange_options(rig.config);
    optim::MaskPlan plan(rig.layout, rig.sharding, rig.config.sparsity);
    const bool sparse = config::is_sparse(rig.config);
    plan.set(sparse ? optim::density(rig.config, t) : 1);
    const auto sent = plan.bytes_sent(options.values, options.deltas);
    plan.set(sparse ? optim::density(rig.config, t + 1) : 1);
    const auto next = plan.bytes_sent(options.values, options.deltas);
    const auto traffic = rig.comm.traffic();
    CHECK(traffic[0].bytes_sent == sent.gradients);
    CHECK(traffic[1].bytes_sent == sent.weights + next.masks);
}

void check_against_simulator(comm::Communicator& comm, const Case& c) {
    const int P = comm.size();
    const int me = comm.rank();
    StepRig rig(comm, c.options);
    Simulator<float> simulator(simulated(c.options.config), geometry_of(rig.layout, rig.sharding),
                               P, rig.initial());
    const auto memory = optim::optimizer_memory(c.options.config, rig.layout, rig.sharding, me);
    CHECK(rig.optimizer.memory().state == memory.state);
    CHECK(rig.optimizer.memory().feedback == memory.feedback);
    if (c.options.buffers == optim::Exchange::default_buffers)
        CHECK(rig.optimizer.memory().exchange == memory.exchange);
    for (Index t = 1; t <= c.options.config.train.steps; ++t) {
        INFO(c.name << ", rank " << me << " of " << P << ", step " << t);
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r) g.push_back(rig.gradient(r, t));
        if (t == c.bad_step)  // of a tensor that travels as a whole
            g[t % P][rig.layout.tensor("gain").offset + 1] =
                std::numeric_limits<float>::quiet_NaN();
        if (t == c.bad_step)
            g[(t + 1) % P][rig.layout.tensor("bias").offset] =
                -std::numeric_limits<float>::infinity();
        simulator.step(g, 1e-2f);
        REQUIRE(rig.step(t, g[me], 1e-2f) == (t != c.bad_step));
        const auto weights = rig.weights();
        if (t != c.bad_step) {
            CHECK(rig.norm == Approx(simulator.received_norm()).epsilon(1e-6));
            if (c.bad_step == 0) check_bytes(rig, t);
        }
        check_same_bits("replica", weights, simulator.weights());
        check_same_bits("master", rig.master(), shard_of(rig, simulator.master()));
        check_close("kept", rig.residual(), simulator.residual(me), 0, 0);
    }
}

void add_dense(std::vector<Case>& all) {
    const auto add = [&](const std::string& name, OptimizerKind kind, ErrorKind error, Index values,
                         Index deltas, Index bad_step = 0) {
        Case c{fmt::format("{}, {}/{} bits", name, values, deltas),
               {dense_config(kind, error)},
               bad_step};
        c.options.config.exchange.value_bits = values;
        c.options.config.exchange.delta_bits = deltas;
        all.push_back(c);
        return &all.back().options;
    };
    for (const Index bits : {8, 4, 2}) {
        add("loco, adamw", OptimizerKind::adamw, ErrorKind::loco, bits, 32);
        add("plain, adamw", OptimizerKind::adamw, ErrorKind::none, bits, 32);
    }
    add("loco, adams", OptimizerKind::adams, ErrorKind::loco, 4, 32);
    add("loco, sgd", OptimizerKind::sgd, ErrorKind::loco, 4, 32);
    add("loco, adamw", OptimizerKind::adamw, ErrorKind::loco, 4, 4);
    add("loco, reset", OptimizerKind::adamw, ErrorKind::loco, 4, 32)->config.loco.reset_every = 5;
    add("loco, a step skipped", OptimizerKind::adamw, ErrorKind::loco, 4, 8, 6)
        ->config.loco.reset_every = 4;
    for (const Index bits : {16, 8, 4, 2, 1})
        add("adams", OptimizerKind::adams, ErrorKind::full, bits, bits);
    add("adamw", OptimizerKind::adamw, ErrorKind::full, 2, 1);
    add("sgd", OptimizerKind::sgd, ErrorKind::full, 4, 4);
    add("adams, weights alone", OptimizerKind::adams, ErrorKind::full, 32, 4);
    for (const auto storage : {FeedbackStorage::device, FeedbackStorage::fused})
        add("adams, a step skipped", OptimizerKind::adams, ErrorKind::full, 4, 4, 5)
            ->config.error_feedback.storage = storage;
    for (const Index block : {8, 256, 4096})
        add(fmt::format("adams, blocks of {}", block), OptimizerKind::adams, ErrorKind::full, 4, 2)
            ->config.exchange.block = block;
    for (const Index bits : {8, 4, 2, 1})
        add("vanishing gradients", OptimizerKind::adams, ErrorKind::full, bits, bits)->vanishing =
            true;
    add("loco, vanishing gradients", OptimizerKind::sgd, ErrorKind::loco, 4, 4)->vanishing = true;
    add("one bucket", OptimizerKind::adamw, ErrorKind::loco, 2, 4)->bucket_bytes = 1 << 20;
    RigOptions* o =
        add("smallest buckets, one buffer", OptimizerKind::adams, ErrorKind::full, 4, 4);
    o->bucket_bytes = 1;
    o->buffers = 1;
}

void add_sparse(std::vector<Case>& all) {
    const auto add = [&](const std::string& name, Index values, Index deltas, const auto& change) {
        for (const auto& [what, rule, score] :
             {std::tuple{"catch_up after", ScapeRule::catch_up, ScapeScore::after},
              {"paper", ScapeRule::paper, ScapeScore::before}}) {
            Case c{fmt::format("{}, {}, {}/{} bits", what, name, values, deltas),
                   {scape_config(rule, score)}};
            c.options.config.train.steps = 18;
            c.options.config.exchange.value_bits = values;
            c.options.config.exchange.delta_bits = deltas;
            change(c);
            all.push_back(c);
        }
    };
    for (const Index bits : {16, 8, 4, 2, 1}) add("", bits, bits, [](Case&) {});
    add("vanishing gradients", 4, 2, [](Case& c) { c.options.vanishing = true; });
    add("stored second moment", 4, 4, [](Case& c) {
        if (c.options.config.scape.rule == ScapeRule::catch_up)
            c.options.config.scape.second_moment = config::SecondMoment::stored;
    });
    add("score before", 4, 4, [](Case& c) { c.options.config.scape.score = ScapeScore::before; });
    add("stored apart, dense at the end", 4, 2, [](Case& c) {
        c.options.config.error_feedback.storage = FeedbackStorage::device;
        c.options.config.sparsity.cooldown_steps = 4;
    });
    add("fp32 there", 32, 4, [](Case&) {});
    add("fp32 back", 4, 32, [](Case&) {});
    add("dense all along", 4, 4, [](Case& c) { c.options.config.sparsity.density = 1; });
    add("one element a slice", 4, 4, [](Case& c) {
        c.options.config.sparsity.density = 1e-4;
        c.options.config.sparsity.sparsify_1d = true;
    });
    add("smallest buckets, one buffer", 8, 4, [](Case& c) {
        c.options.bucket_bytes = 1;
        c.options.buffers = 1;
    });
    add("a step skipped", 4, 4, [](Case& c) {
        c.options.config.error_feedback.storage = FeedbackStorage::device;
        c.bad_step = 7;
    });
}

}  // namespace

TEST_CASE("dense low bits, LoCo and plain quantisation are the simulator's, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    std::vector<Case> cases;
    cases.reserve(64);  // add() gives pointers
    add_dense(cases);
    for (const Case& c : cases) check_against_simulator(*comm, c);
}

TEST_CASE("SCAPE in low bits is the simulator's, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    std::vector<Case> cases;
    add_sparse(cases);
    for (const Case& c : cases) check_against_simulator(*comm, c);
}
