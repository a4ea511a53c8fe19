// The SCAPE optimizer against the simulator, at 1, 2, 3 and 4 ranks: weights, masks and error
// feedback after every one of 30 steps, bit for bit.
#include "optim/step_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>

using namespace scape;
using namespace scape::test;
using config::FeedbackStorage;
using config::MaskCodeChoice;
using config::ScapeRule;
using config::ScapeScore;

namespace {

struct Case {
    std::string name;
    RigOptions options;
};

Case make_case(const std::string& name, ScapeRule rule, ScapeScore score) {
    return {name, {scape_config(rule, score)}};
}

void check_against_simulator(comm::Communicator& comm, const Case& c) {
    const int P = comm.size();
    const int me = comm.rank();
    StepRig rig(comm, c.options);
    Simulator<float> simulator(simulated(c.options.config), geometry_of(rig.layout, rig.sharding),
                               P, rig.initial());
    const Index steps = c.options.config.train.steps;
    for (Index t = 1; t <= steps; ++t) {
        INFO(c.name << ", rank " << me << " of " << P << ", step " << t);
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r) g.push_back(rig.gradient(r, t));
        simulator.step(g, 1e-2f);
        REQUIRE(rig.step(t, g[me], 1e-2f));
        CHECK(rig.norm == Approx(simulator.received_norm()).epsilon(1e-6));
        check_same_bits("weights", rig.weights(), simulator.weights());
        check_same_bits("error feedback", rig.residual(), simulator.residual(me));
        if (t == steps || c.options.config.scape.lateness == 0) continue;
        const auto flags = rig.next_mask();
        Index wrong = 0;
        for (const Slice& s : rig.sharding.slices(me))
            for (Index i = 0; i < s.flat.size(); ++i)
                wrong += (flags[s.shard_begin + i] != 0) != simulator.next_mask()[s.flat.begin + i];
        CHECK(wrong == 0);
        if (wrong > 0) return;
    }
}

std::vector<Case> cases() {
    std::vector<Case> all;
    const auto add = [&](const std::string& name, const auto& change) {
        for (const auto& [what, rule, score] :
             {std::tuple{"catch_up after", ScapeRule::catch_up, ScapeScore::after},
              {"catch_up before", ScapeRule::catch_up, ScapeScore::before},
              {"paper", ScapeRule::paper, ScapeScore::before}}) {
            Case c = make_case(fmt::format("{}, {}", what, name), rule, score);
            change(c.options);
            all.push_back(c);
        }
    };
    add("defaults", [](RigOptions&) {});
    add("no clip, no decay, no bias correction", [](RigOptions& o) {
        o.config.optimizer.clip_norm = 0;
        o.config.optimizer.weight_decay = 0;
        o.config.optimizer.bias_correction = false;
    });
    add("down to one element a slice", [](RigOptions& o) {
        o.config.sparsity.density = 1e-4;
        o.config.sparsity.sparsify_1d = true;
    });
    add("sparse from the second step, and dense again at the end", [](RigOptions& o) {
        o.config.sparsity.dense_steps = 0;
        o.config.sparsity.warmup_steps = 0;
        o.config.sparsity.density = o.config.sparsity.density_start = 0.2;
        o.config.sparsity.cooldown_steps = 5;
    });
    add("dense all along", [](RigOptions& o) { o.config.sparsity.density = 1; });
    for (const auto code : {MaskCodeChoice::bitmap, MaskCodeChoice::gaps, MaskCodeChoice::index,
                            MaskCodeChoice::entropy})
        add(fmt::format("mask code {}", static_cast<int>(code)),
            [&](RigOptions& o) { o.config.sparsity.mask_code = code; });
    for (const auto storage : {FeedbackStorage::device, FeedbackStorage::host})
        add(fmt::format("storage {}", static_cast<int>(storage)),
            [&](RigOptions& o) { o.config.error_feedback.storage = storage; });
    add("16 bits", [](RigOptions& o) { o.config.exchange.value_bits = 16; });
    add("16 bits, stored apart, dense at the end", [](RigOptions& o) {
        o.config.exchange.value_bits = 16;
        o.config.error_feedback.storage = FeedbackStorage::device;
        o.config.sparsity.cooldown_steps = 4;
    });
    for (const auto score : {ScapeScore::after, ScapeScore::before}) {
        Case c = make_case("stored second moment", ScapeRule::catch_up, score);
        c.options.config.scape.second_moment = config::SecondMoment::stored;
        all.push_back(c);
    }
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        Case c = make_case("masks of the step itself", rule, ScapeScore::before);
        c.options.config.scape.lateness = 0;
        all.push_back(c);
    }
    add("one bucket", [](RigOptions& o) { o.bucket_bytes = Index(1) << 20; });
    add("smallest buckets, one buffer", [](RigOptions& o) {
        o.bucket_bytes = 1;
        o.buffers = 1;
    });
    return all;
}

}  // namespace

TEST_CASE("weights, masks and error feedback are the simulator's, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const Case& c : cases()) check_against_simulator(*comm, c);
}
