// Gradients that are not finite, on the mask and off it, at any rank: the step is skipped as the
// simulator does it, and training goes on, at 1, 2, 3 and 4 ranks.
#include "optim/step_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>

#include <limits>

using namespace scape;
using namespace scape::test;
using config::FeedbackStorage;
using config::ScapeRule;
using config::ScapeScore;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

struct Fault {
    Index step;
    int rank;  // whose gradient; taken modulo P
    bool on_mask;
    int owner;  // of the element; modulo P
    float value;
};

// The elements that are, or are not, in `mask`, of an owner's first slice that has such.
std::vector<Index> elements(const Geometry& geometry, const std::vector<bool>& mask, bool in,
                            int owner) {
    std::vector<Index> found;
    for (const SimSlice& s : geometry.slices) {
        if (s.owner != owner || s.dense || !found.empty()) continue;
        for (Index e = s.begin; e < s.begin + s.size; ++e)
            if (mask[e] == in) found.push_back(e);
    }
    return found;
}

void check_faults(comm::Communicator& comm, const config::RunConfig& config,
                  const std::vector<Fault>& faults, Index expected_skips) {
    const int P = comm.size();
    const int me = comm.rank();
    StepRig rig(comm, {config});
    const Geometry geometry = geometry_of(rig.layout, rig.sharding);
    Simulator<float> simulator(simulated(config), geometry, P, rig.initial());
    const bool fused = config.error_feedback.storage == FeedbackStorage::fused;
    Index skips = 0;
    for (Index t = 1; t <= config.train.steps; ++t) {
        INFO("rank " << me << " of " << P << ", step " << t);
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r) g.push_back(rig.gradient(r, t));
        bool off_mask = false;
        for (const Fault& f : faults) {
            if (f.step != t) continue;
            // Fused, R is lost where something that is not finite is left: so more of it than is
            // sent in one step.
            const auto in = elements(geometry, simulator.next_mask(), true, f.owner % P);
            const auto out = elements(geometry, simulator.next_mask(), false, f.owner % P);
            if (f.on_mask) g[f.rank % P][in.front()] = f.value;
            if (!f.on_mask || fused)
                for (const Index e : out) g[f.rank % P][e] = f.value;
            off_mask = off_mask || !f.on_mask;
        }
        // Off the mask it reaches nobody, but R is committed only where all of it is finite.
        simulator.step(g, 1e-2f, fused || !off_mask);
        const bool counted = rig.step(t, g[me], 1e-2f);
        REQUIRE(counted == !simulator.skipped());
        skips += counted ? 0 : 1;
        check_same_bits("weights", rig.weights(), simulator.weights());
        check_close("error feedback", rig.residual(), simulator.residual(me), 0, 0);
        const auto flags = rig.next_mask();
        Index wrong = 0;
        for (const Slice& s : rig.sharding.slices(me))
            for (Index i = 0; i < s.flat.size(); ++i)
                wrong += (flags[s.shard_begin + i] != 0) != simulator.next_mask()[s.flat.begin + i];
        if (t < config.train.steps) CHECK(wrong == 0);
    }
    CHECK(skips == expected_skips);
}

config::RunConfig base(ScapeRule rule, ScapeScore score) {
    config::RunConfig c = scape_config(rule, score);
    c.train.steps = 18;
    c.sparsity.density = 0.1;
    c.sparsity.dense_steps = 2;
    c.sparsity.warmup_steps = 4;
    c.sparsity.cooldown_steps = 3;
    return c;
}

}  // namespace

TEST_CASE("a gradient that is not finite on the mask skips the step for all") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const Scratch scratch;
    // In a dense step, at the owner, at another rank, twice in a row, in the cool-down just before
    // the density is 1 again.
    const std::vector<Fault> faults{{2, 0, true, 1, not_a_number}, {7, 1, true, 1, not_a_number},
                                    {9, 0, true, 1, infinite},     {11, 2, true, 0, -infinite},
                                    {12, 3, true, 2, infinite},    {17, 1, true, 0, not_a_number}};
    for (const auto& [rule, score] : {std::pair{ScapeRule::catch_up, ScapeScore::after},
                                      {ScapeRule::catch_up, ScapeScore::before},
                                      {ScapeRule::paper, ScapeScore::before}}) {
        for (const auto storage : {FeedbackStorage::fused, FeedbackStorage::device,
                                   FeedbackStorage::host, FeedbackStorage::hdf5}) {
            for (const Index bits : {32, 16}) {
                INFO("rule " << static_cast<int>(rule) << ", score " << static_cast<int>(score)
                             << ", storage " << static_cast<int>(storage) << ", " << bits
                             << " bits");
                config::RunConfig c = base(rule, score);
                c.error_feedback.storage = storage;
                c.error_feedback.path = scratch.path();
                c.exchange.value_bits = bits;
                check_faults(*comm, c, faults, 6);
            }
        }
    }
}

TEST_CASE("off the mask only the rank itself can tell") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const std::vector<Fault> faults{{7, 0, false, 0, not_a_number}, {11, 1, false, 1, infinite}};
    for (const auto& [rule, score] : {std::pair{ScapeRule::catch_up, ScapeScore::after},
                                      {ScapeRule::catch_up, ScapeScore::before},
                                      {ScapeRule::paper, ScapeScore::before}}) {
        INFO("rule " << static_cast<int>(rule) << ", score " << static_cast<int>(score));
        config::RunConfig c = base(rule, score);
        // Kept apart: the step is skipped at once, and nothing is lost.
        c.error_feedback.storage = FeedbackStorage::device;
        check_faults(*comm, c, faults, 2);
        // Fused: the step counts; the owner sees it in its own score, so that it is sent in the
        // next step, which is skipped, and takes all that the rank had kept.
        c.error_feedback.storage = FeedbackStorage::fused;
        check_faults(*comm, c, faults, 2);
    }
}

TEST_CASE("off the mask of another rank's shard, fused, it comes out when it is sent") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    if (comm->size() == 1) return;
    config::RunConfig c = base(ScapeRule::catch_up, ScapeScore::after);
    // At the latest in the dense steps of the end, of which the last is step 18.
    check_faults(*comm, c, {{8, 0, false, 1, not_a_number}}, 1);
}

TEST_CASE("fused, and all that is not finite was sent: what is left is kept") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const int P = comm->size();
    const int me = comm->rank();
    const config::RunConfig c = base(ScapeRule::catch_up, ScapeScore::after);
    StepRig rig(*comm, {c});
    const Geometry geometry = geometry_of(rig.layout, rig.sharding);
    Simulator<float> simulator(simulated(c), geometry, P, rig.initial());
    for (Index t = 1; t <= 8; ++t) {
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r) g.push_back(rig.gradient(r, t));
        simulator.step(g, 1e-2f);
        REQUIRE(rig.step(t, g[me], 1e-2f));
    }
    const std::vector<bool> mask = simulator.next_mask();
    std::vector<float> g = rig.gradient(me, 9);
    std::vector<float> left = rig.residual();
    for (std::size_t e = 0; e < left.size(); ++e) left[e] = mask[e] ? 0.f : g[e] + left[e];
    if (me == P - 1) g[elements(geometry, mask, true, 0).front()] = not_a_number;
    CHECK_FALSE(rig.step(9, g, 1e-2f));
    check_same_bits("error feedback", rig.residual(), left);
    check_same_bits("weights", rig.weights(), simulator.weights());
    CHECK(rig.step(10, rig.gradient(me, 10), 1e-2f));
}
