// Resuming SCAPE: the same ranks give the same bits at any cut; other ranks, other buckets and a
// changed deck go on from the same weights.
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "train/tiny_run.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/density.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace scape;
using namespace scape::test;
using config::FeedbackInCheckpoint;
using config::FeedbackStorage;
using config::OptimizerKind;
using config::ScapeRule;
using config::ScapeScore;

namespace {

comm::Communicator& world() {
    static const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    return *comm;
}

std::string checkpoint(const SharedScratch& scratch, Index step) {
    return scratch.path(io::checkpoint_name(step));
}

// Trains to the end, saving after the steps `cuts`.
std::vector<train::StepRecord> train_and_save(Run& run, const std::vector<Index>& cuts,
                                              const std::string& dir) {
    std::vector<train::StepRecord> records;
    while (run.trainer.step_number() < run.config.train.steps) {
        records.push_back(run.trainer.step(false));
        if (std::find(cuts.begin(), cuts.end(), records.back().step) != cuts.end())
            run.trainer.save(dir);
    }
    return records;
}

// After step 1; when the first mask is pending; in the warm-up, the fixed phase, the cool-down.
const std::vector<Index> everywhere{1, 3, 4, 7, 11};

void check_resume(const config::RunConfig& c, const std::vector<Index>& cuts) {
    const SharedScratch scratch(world());
    Run undisturbed(c, world());
    const auto records = undisturbed.fresh().steps(c.train.steps);
    const auto weights = undisturbed.weights();
    Run saving(c, world());
    check_same_bits("losses of a run that saves",
                    losses(train_and_save(saving.fresh(), cuts, scratch.path())), losses(records));
    check_same_bits("weights of a run that saves", saving.weights(), weights);
    const auto state = state_of(saving.trainer, world());
    for (const Index cut : cuts) {
        INFO("cut after step " << cut);
        Run run(c, world());
        CHECK(run.resume(checkpoint(scratch, cut)).empty());
        const auto rest = run.steps(c.train.steps - cut);
        for (const auto& r : rest) {
            const auto& whole = records[static_cast<std::size_t>(r.step - 1)];
            INFO("step " << r.step);
            CHECK(r.loss == whole.loss);
            CHECK(r.grad_norm == whole.grad_norm);
            CHECK(r.density == whole.density);
            CHECK(r.bytes_sent() == whole.bytes_sent());
            CHECK(r.feedback_norm == whole.feedback_norm);
            CHECK(r.mask_overlap == whole.mask_overlap);
        }
        check_same_bits("weights", run.weights(), weights);
        if (cut == cuts.back()) CHECK((state_of(run.trainer, world()) == state));
    }
}

}  // namespace

TEST_CASE("resume is bitwise, for every rule, score and code") {
    for (const auto& [rule, score] : {std::pair{ScapeRule::catch_up, ScapeScore::after},
                                      {ScapeRule::catch_up, ScapeScore::before},
                                      {ScapeRule::paper, ScapeScore::before}}) {
        for (const Index bits : {32, 16}) {
            if (bits == 16 && score == ScapeScore::before) continue;
            INFO("rule " << static_cast<int>(rule) << ", score " << static_cast<int>(score) << ", "
                         << bits << " bits");
            config::RunConfig c = tiny_scape(world().size());
            c.scape.rule = rule;
            c.scape.score = score;
            c.exchange.value_bits = bits;
            check_resume(c, bits == 32 ? everywhere : std::vector<Index>{3, 7});
        }
    }
}

TEST_CASE("resume is bitwise in low bits, for every place of the rest") {
    using config::ErrorKind;
    struct Low {
        OptimizerKind kind;
        ErrorKind error;
        Index value_bits;
        Index delta_bits;
        FeedbackStorage storage = FeedbackStorage::fused;
    };
    for (const Low& low : {Low{OptimizerKind::adamw, ErrorKind::loco, 4, 32},
                           {OptimizerKind::adams, ErrorKind::loco, 2, 4},
                           {OptimizerKind::sgd, ErrorKind::none, 8, 8},
                           {OptimizerKind::adams, ErrorKind::full, 4, 4},
                           {OptimizerKind::adamw, ErrorKind::full, 2, 1, FeedbackStorage::host},
                           {OptimizerKind::scape, ErrorKind::full, 4, 4},
                           {OptimizerKind::scape, ErrorKind::full, 32, 2}}) {
        INFO("optimizer " << static_cast<int>(low.kind) << ", error " << static_cast<int>(low.error)
                          << ", " << low.value_bits << "/" << low.delta_bits << " bits");
        config::RunConfig c = tiny_scape(world().size());
        c.optimizer.kind = low.kind;
        c.exchange.error = low.error;
        c.exchange.value_bits = low.value_bits;
        c.exchange.delta_bits = low.delta_bits;
        c.error_feedback.storage = low.storage;
        c.loco.reset_every = 5;
        check_resume(c, {3, 5, 7});
    }
}

TEST_CASE("bits that change on the way, and a run that gives its differences up") {
    const SharedScratch scratch(world());
    config::RunConfig c = tiny_scape(world().size());
    c.optimizer.kind = OptimizerKind::adams;
    c.exchange.value_bits = 4;
    c.exchange.delta_bits = 4;
    Run whole(c, world());
    const auto records = train_and_save(whole.fresh(), {6}, scratch.path());
    for (const auto& [values, deltas] :
         {std::pair<Index, Index>{8, 4}, {4, 2}, {4, 32}, {16, 16}}) {
        INFO(values << "/" << deltas << " bits");
        config::RunConfig other = c;
        other.exchange.value_bits = values;
        other.exchange.delta_bits = deltas;
        Run run(other, world());
        run.resume(checkpoint(scratch, 6));
        const auto rest = run.steps(6);
        // With differences replicas go on as they were; without, from the master.
        if (deltas != 32) CHECK(rest[0].loss == records[6].loss);
        for (const auto& r : rest) CHECK(r.loss == Approx(records[r.step - 1].loss).epsilon(0.02));
    }
}

TEST_CASE("resume is bitwise wherever error feedback lives") {
    const SharedScratch scratch(world());
    for (const auto storage :
         {FeedbackStorage::device, FeedbackStorage::host, FeedbackStorage::hdf5}) {
        config::RunConfig c = tiny_scape(world().size());
        c.error_feedback.storage = storage;
        c.error_feedback.path = scratch.path();
        INFO("storage " << static_cast<int>(storage));
        c.exchange.value_bits = storage == FeedbackStorage::host ? 16 : 32;
        check_resume(c, {1, 7});
    }
}

TEST_CASE("a run that is made longer goes on as if it had been so from the start") {
    config::RunConfig c = tiny_scape(world().size());
    c.sparsity.cooldown_steps = 0;
    c.optimizer.decay_steps = 12;
    const SharedScratch scratch(world());
    Run whole(c, world());
    const auto records = whole.fresh().steps(12);
    for (const Index cut : {1, 5}) {
        config::RunConfig shorter = c;
        shorter.train.steps = cut;
        Run first(shorter, world());
        first.fresh().steps(cut);
        first.trainer.save(scratch.path());
        Run second(c, world());
        second.resume(checkpoint(scratch, cut));
        second.steps(12 - cut);
        check_same_bits("weights", second.weights(), whole.weights());
    }
}

TEST_CASE("a skipped step and a resume after it") {
    config::RunConfig c = tiny_scape(world().size());
    c.check.hash_every = 0;  // while one replica is poked it differs from the others
    const SharedScratch scratch(world());
    Run run(c, world());
    run.fresh().steps(6);
    const Span<const float> parameters = run.trainer.parameters();
    const Index at = run.trainer.layout().tensor("head.weight").offset;
    const Span<float> element(const_cast<float*>(parameters.data()) + at, 1);
    const float before = to_host(element)[0];
    Kokkos::deep_copy(element, std::nanf(""));
    CHECK(run.steps(1)[0].skipped);
    Kokkos::deep_copy(element, before);
    run.trainer.save(scratch.path());
    const auto rest = run.steps(4);
    Run again(c, world());
    again.resume(checkpoint(scratch, 7));
    check_same_bits("losses", losses(again.steps(4)), losses(rest));
    check_same_bits("weights", again.weights(), run.weights());
}

TEST_CASE("what is kept of error feedback") {
    for (const auto which : {FeedbackInCheckpoint::mean, FeedbackInCheckpoint::none}) {
        const SharedScratch scratch(world());
        config::RunConfig c = tiny_scape(world().size());
        c.checkpoint.error_feedback = which;
        Run whole(c, world());
        const auto records = train_and_save(whole.fresh(), {5}, scratch.path());
        Run run(c, world());
        CHECK(run.resume(checkpoint(scratch, 5)).empty());
        const auto state = state_of(run.trainer, world());
        CHECK(state.count("error_feedback") == (which == FeedbackInCheckpoint::mean ? 1 : 0));
        const auto rest = run.steps(7);
        CHECK(rest[0].loss == records[5].loss);
        for (const auto& r : rest) CHECK(r.loss == Approx(records[r.step - 1].loss).epsilon(0.02));
        // Alone, the mean is what the rank had.
        if (world().size() == 1 && which == FeedbackInCheckpoint::mean)
            check_same_bits("weights", run.weights(), whole.weights());
    }
}

TEST_CASE("other numbers of ranks, other buckets") {
    if (world().size() < 4) return;
    const SharedScratch scratch(world());
    const auto on = [](int ranks, const auto& work) {
        MPI_Comm some;
        MPI_Comm_split(MPI_COMM_WORLD, world().rank() < ranks ? 0 : MPI_UNDEFINED, world().rank(),
                       &some);
        if (some != MPI_COMM_NULL) {
            const auto comm = comm::make_mpi(some);
            work(*comm);
        }
        if (some != MPI_COMM_NULL) MPI_Comm_free(&some);
        world().barrier();
    };
    struct To {
        int from;
        int to;
        double bucket_mb;
    };
    struct What {
        OptimizerKind kind;
        ScapeRule rule = ScapeRule::catch_up;
        FeedbackStorage storage = FeedbackStorage::fused;
        Index bits = 32;
        config::ErrorKind error = config::ErrorKind::full;
    };
    for (const What& what :
         {What{OptimizerKind::scape},
          {OptimizerKind::scape, ScapeRule::catch_up, FeedbackStorage::host},
          {OptimizerKind::scape, ScapeRule::paper},
          {OptimizerKind::scape, ScapeRule::catch_up, FeedbackStorage::fused, 4},
          {.kind = OptimizerKind::adamw, .bits = 4, .error = config::ErrorKind::loco}}) {
        const bool scape = what.kind == OptimizerKind::scape;
        const auto config_of = [&](int ranks) {
            config::RunConfig c = tiny_scape(ranks);
            c.optimizer.kind = what.kind;
            c.scape.rule = what.rule;
            c.error_feedback.storage = what.storage;
            c.exchange.value_bits = c.exchange.delta_bits = what.bits;
            c.exchange.error = what.error;
            return c;
        };
        std::map<int, std::vector<train::StepRecord>> whole;
        for (const int ranks : {2, 4})
            on(ranks, [&](comm::Communicator& comm) {
                Run run(config_of(ranks), comm);
                whole[ranks] =
                    train_and_save(run.fresh(), {3, 6}, scratch.path(std::to_string(ranks)));
            });
        for (const auto& [from, to, bucket_mb] :
             {To{2, 1, 0.01}, {2, 3, 0.01}, {2, 4, 0.01}, {4, 2, 0.01}, {2, 2, 0.003}})
            for (const Index cut : {3, 6})
                on(to, [&, from = from, to = to, mb = bucket_mb](comm::Communicator& comm) {
                    INFO("from " << from << " ranks to " << to << " after step " << cut);
                    config::RunConfig c = config_of(to);
                    c.comm.bucket_mb = mb;
                    Run run(c, comm);
                    const auto lines = run.resume(
                        scratch.path(fmt::format("{}/{}", from, io::checkpoint_name(cut))));
                    std::string log;
                    for (const auto& line : lines) log += line + '\n';
                    const std::string ranks =
                        fmt::format("checkpoint: {} ranks -> now {}", from, to);
                    CHECK((log.find(ranks) != std::string::npos) == (from != to));
                    CHECK((log.find("mask is chosen anew") != std::string::npos) == scape);
                    const auto rest = run.steps(4);
                    if (comm.rank() > 0 || whole.count(from) == 0) return;
                    const auto& same = whole[from];
                    CHECK(rest[0].loss == Approx(same[cut].loss).epsilon(1e-5));
                    CHECK(rest[0].density == same[cut].density);
                    for (const auto& r : rest)
                        CHECK(r.loss == Approx(same[r.step - 1].loss).epsilon(0.02));
                });
    }
}

TEST_CASE("a checkpoint holds what the state is, and nothing else") {
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        config::RunConfig c = tiny_scape(world().size());
        c.scape.rule = rule;
        const SharedScratch scratch(world());
        Run run(c, world());
        train_and_save(run.fresh(), {6}, scratch.path());
        const io::CheckpointReader reader(checkpoint(scratch, 6));
        std::vector<std::string> wanted{"error_feedback", "next_mask", "weights"};
        if (rule == ScapeRule::catch_up) {
            wanted.insert(wanted.end(), {"m", "visit"});
        } else {
            wanted.insert(wanted.end(), {"in_last_mask", "z"});
        }
        auto arrays = reader.arrays();
        std::sort(arrays.begin(), arrays.end());
        std::sort(wanted.begin(), wanted.end());
        CHECK(arrays == wanted);
        CHECK(reader.ranks_of("error_feedback") == world().size());
        // The other rule's state is another: refused by name, even when the change is allowed.
        c.scape.rule = rule == ScapeRule::paper ? ScapeRule::catch_up : ScapeRule::paper;
        Run other(c, world());
        CHECK_THROWS_AS(other.trainer.resume(reader), user_error);
    }
}

TEST_CASE("a changed deck goes on") {
    const SharedScratch scratch(world());
    const config::RunConfig c = tiny_scape(world().size());
    Run whole(c, world());
    const auto records = train_and_save(whole.fresh(), {1, 6}, scratch.path());
    const auto check = [&](const std::string& what, Index cut, bool same, const auto& change) {
        INFO(what << " after step " << cut);
        config::RunConfig other = c;
        change(other);
        Run run(other, world());
        run.resume(checkpoint(scratch, cut));
        const auto rest = run.steps(12 - cut);
        CHECK(rest[0].loss == records[cut].loss);
        if (same) {
            check_same_bits("weights", run.weights(), whole.weights());
        } else {
            CHECK(rest.back().loss == Approx(records.back().loss).epsilon(0.05));
        }
        // From its second step on the new schedule holds.
        for (std::size_t i = 1; i < rest.size(); ++i)
            CHECK(rest[i].density == optim::density(other, rest[i].step));
    };
    check("lower density", 6, false, [](auto& o) { o.sparsity.density = 0.005; });
    check("higher density", 6, false, [](auto& o) {
        o.sparsity.density = 0.3;
        o.sparsity.warmup_steps = 0;
    });
    check("dense from now on", 6, false, [](auto& o) { o.sparsity.density = 1; });
    const auto sparse_at_once = [](auto& o) {
        o.sparsity.dense_steps = 0;
        o.sparsity.warmup_steps = 0;
        o.sparsity.cooldown_steps = 0;
    };
    check("no dense steps", 6, false, sparse_at_once);
    check("norm gains too", 6, false, [](auto& o) { o.sparsity.sparsify_1d = true; });
    check("16 bits", 6, false, [](auto& o) { o.exchange.value_bits = 16; });
    check("score before", 6, false, [](auto& o) { o.scape.score = ScapeScore::before; });
    check("another mask code", 6, true,
          [](auto& o) { o.sparsity.mask_code = config::MaskCodeChoice::index; });
    // Before the first mask: the schedule alone counts.
    check("no dense steps", 1, false, sparse_at_once);
    check("dense from now on", 1, false, [](auto& o) { o.sparsity.density = 1; });
    // Error feedback moves to another place.
    config::RunConfig device = c;
    device.error_feedback.storage = FeedbackStorage::device;
    Run first(device, world());
    const auto on_device = train_and_save(first.fresh(), {6}, scratch.path());
    for (const auto storage : {FeedbackStorage::host, FeedbackStorage::hdf5}) {
        config::RunConfig other = device;
        other.error_feedback.storage = storage;
        other.error_feedback.path = scratch.path();
        Run run(other, world());
        run.resume(checkpoint(scratch, 6));
        run.steps(6);
        check_same_bits("weights", run.weights(), first.weights());
    }
    config::RunConfig fused = c;
    Run run(fused, world());
    run.resume(checkpoint(scratch, 6));
    CHECK(run.steps(1)[0].loss == on_device[6].loss);
}

TEST_CASE("a dense run goes on as SCAPE") {
    const SharedScratch scratch(world());
    config::RunConfig c = tiny_scape(world().size());
    c.optimizer.kind = OptimizerKind::adamw;
    c.train.steps = 4;
    Run dense(c, world());
    train_and_save(dense.fresh(), {4}, scratch.path());
    c.optimizer.kind = OptimizerKind::scape;
    c.train.steps = 12;
    Run sparse(c, world());
    sparse.trainer.start_from_weights(checkpoint(scratch, 4));
    check_same_bits("weights", sparse.weights(), dense.weights());
    const auto records = sparse.steps(12);
    CHECK(records[0].step == 1);
    CHECK(records.back().loss < records[0].loss);
    // The optimizer's state is another one: it cannot be resumed.
    Run resumed(c, world());
    CHECK_THROWS_AS(resumed.resume(checkpoint(scratch, 4)), user_error);
}
