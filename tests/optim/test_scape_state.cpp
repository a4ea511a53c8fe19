// Nothing is lost: what the ranks keep and what they delivered adds up to what they had, at every
// step (algorithm section 2.3), at 1, 2, 3 and 4 ranks.
#include "optim/step_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>

using namespace scape;
using namespace scape::test;
using config::FeedbackStorage;
using config::ScapeRule;
using config::ScapeScore;

namespace {

// P times what the owner formed of the ranks' a, before the clip, in its place in the flat buffer.
// The paper rule has made ghat of it by now, which is turned back.
std::vector<double> delivered(StepRig& rig) {
    const int P = rig.comm.size();
    const int me = rig.comm.rank();
    std::vector<double> flat(static_cast<std::size_t>(rig.sharding.extent()), 0.0);
    const bool paper = rig.config.scape.rule == ScapeRule::paper;
    const auto state = rig.optimizer.owner().state();
    std::vector<float> z;
    std::vector<std::uint8_t> was;
    bool last_all = true;
    if (paper) {
        z = to_host(std::get<Vec<float>>(state[0].values));
        was = to_host(std::get<Vec<std::uint8_t>>(state[1].values));
        last_all = rig.optimizer.scape()->numbers().at("scape_last_mask_all") > 0;
    }
    for (int b = 0; b < rig.sharding.buckets(); ++b) {
        const optim::Arrived a = rig.optimizer.exchange().arrived(Exec(), b);
        const Index bucket = rig.sharding.bucket(b).begin;
        const Index piece = rig.sharding.piece(b, me).begin;
        const auto sums = to_host(a.sums);
        const auto positions = to_host(a.positions);
        for (Index j = 0; j < a.count(); ++j) {
            const Index e = a.all ? piece + j : bucket + positions[j];
            double sum = sums[a.all || a.compact ? j : positions[j]];
            const Index s = rig.sharding.shard_piece(b).begin + e - piece;
            if (paper && !last_all && (was[s] & 1) == 0)
                sum -= z[s] / (1 - rig.config.optimizer.beta1);
            flat[e] = P * sum;
        }
    }
    return flat;
}

void check_conserved(comm::Communicator& comm, const RigOptions& options) {
    StepRig rig(comm, options);
    std::vector<double> balance;
    rig.before_update = [&] { balance = delivered(rig); };
    std::vector<float> kept(static_cast<std::size_t>(rig.sharding.extent()), 0.f);
    Index sparse = 0;
    for (Index t = 1; t <= options.config.train.steps; ++t) {
        INFO("step " << t);
        const auto g = rig.gradient(comm.rank(), t);
        REQUIRE(rig.step(t, g, 1e-2f));
        const auto left = rig.residual();
        for (std::size_t e = 0; e < left.size(); ++e)
            balance[e] += static_cast<double>(left[e]) - kept[e] - g[e];
        kept = left;
        double worst = 0;
        for (const double x : comm.all_reduce_sum(balance)) worst = std::max(worst, std::fabs(x));
        CHECK(worst < 2e-5);  // a gradient is 0.1, what piles up some 3
        sparse += rig.optimizer.exchange().sparse() ? 1 : 0;
    }
    CHECK(sparse > 20);
}

}  // namespace

TEST_CASE("what is kept and what was delivered add up to what there was") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const auto& [rule, score] : {std::pair{ScapeRule::catch_up, ScapeScore::after},
                                      {ScapeRule::catch_up, ScapeScore::before},
                                      {ScapeRule::paper, ScapeScore::before}}) {
        for (const Index bits : {32, 16, 8, 4, 2, 1}) {
            for (const auto storage : {FeedbackStorage::fused, FeedbackStorage::device}) {
                INFO("rule " << static_cast<int>(rule) << ", score " << static_cast<int>(score)
                             << ", " << bits << " bits, storage " << static_cast<int>(storage)
                             << ", rank " << comm->rank());
                RigOptions o{scape_config(rule, score)};
                o.config.exchange.value_bits = bits;
                o.config.exchange.delta_bits = bits;
                o.config.error_feedback.storage = storage;
                o.config.sparsity.cooldown_steps = 4;
                check_conserved(*comm, o);
            }
        }
    }
}
