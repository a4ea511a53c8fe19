// The trainer with the SCAPE optimizer at 1, 2, 3 and 4 ranks: what must not change the result,
// what travels, what is allocated, and steps that must be skipped.
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "train/tiny_run.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/density.hpp>
#include <scape/optim/sharded_optimizer.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace scape;
using namespace scape::test;
using config::FeedbackStorage;
using config::OptimizerKind;
using config::ScapeRule;
using config::ScapeScore;

namespace {

constexpr FeedbackStorage storages[]{FeedbackStorage::fused, FeedbackStorage::device,
                                     FeedbackStorage::host, FeedbackStorage::hdf5};

comm::Communicator& world() {
    static const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    return *comm;
}

struct Result {
    std::vector<train::StepRecord> records;
    std::vector<float> weights;
};

Result train_fresh(const config::RunConfig& config, comm::Communicator& comm) {
    Run run(config, comm);
    Result result;
    result.records = run.fresh().steps(config.train.steps);
    result.weights = run.weights();
    return result;
}

void check_same(const Result& a, const Result& b) {
    check_same_bits("losses", losses(a.records), losses(b.records));
    check_same_bits("weights", a.weights, b.weights);
}

Index sent(const train::StepRecord& record, const std::string& collective) {
    for (const comm::Traffic& t : record.traffic)
        if (t.collective == collective) return t.bytes_sent;
    return -1;
}

}  // namespace

TEST_CASE("at density 1 SCAPE is AdamS, bit for bit") {
    config::RunConfig c = tiny_scape(world().size());
    c.train.steps = 6;
    c.optimizer.kind = OptimizerKind::adams;
    const Result dense = train_fresh(c, world());
    for (const auto& r : dense.records) CHECK(r.grad_norm > c.optimizer.clip_norm);
    c.optimizer.kind = OptimizerKind::scape;
    c.sparsity.density = 1;
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        for (const auto storage : {FeedbackStorage::fused, FeedbackStorage::device}) {
            c.scape.rule = rule;
            c.error_feedback.storage = storage;
            const Result scape = train_fresh(c, world());
            check_same(scape, dense);
            for (std::size_t i = 0; i < dense.records.size(); ++i) {
                CHECK(scape.records[i].grad_norm == dense.records[i].grad_norm);
                CHECK(scape.records[i].bytes_sent() <= dense.records[i].bytes_sent() + 100);
            }
        }
    }
}

TEST_CASE("training does not depend on where error feedback lives") {
    const SharedScratch scratch(world());
    for (const Index bits : {32, 16}) {
        config::RunConfig c = tiny_scape(world().size());
        c.exchange.value_bits = bits;
        c.error_feedback.storage = FeedbackStorage::device;
        const Result device = train_fresh(c, world());
        for (const auto storage : {FeedbackStorage::host, FeedbackStorage::hdf5}) {
            c.error_feedback.storage = storage;
            c.error_feedback.path = scratch.path();
            check_same(train_fresh(c, world()), device);
        }
        // A matrix product that accumulates onto R rounds differently, and then another element may
        // be chosen: the steps before are equal to rounding.
        c.error_feedback.storage = FeedbackStorage::fused;
        const Result fused = train_fresh(c, world());
        for (std::size_t i = 0; i < 5; ++i)
            CHECK(fused.records[i].loss == Approx(device.records[i].loss).epsilon(1e-5));
        CHECK(fused.records.back().loss == Approx(device.records.back().loss).epsilon(0.01));
    }
}

TEST_CASE("one rank alone does not depend on the back end") {
    if (world().size() > 1) return;
    const auto self = comm::make_self();
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        config::RunConfig c = tiny_scape(1);
        c.scape.rule = rule;
        check_same(train_fresh(c, *self), train_fresh(c, world()));
    }
}

TEST_CASE("the bytes of every step are those of the formula") {
    for (const Index bits : {32, 16}) {
        for (const auto code :
             {config::MaskCodeChoice::automatic, config::MaskCodeChoice::bitmap}) {
            config::RunConfig c = tiny_scape(world().size());
            c.exchange.value_bits = bits;
            c.sparsity.mask_code = code;
            Run run(c, world());
            const auto records = run.fresh().steps(c.train.steps);
            const Sharding sharding(run.trainer.layout(), world().size(),
                                    optim::bucket_bytes(c, world().size()));
            optim::MaskPlan plan(run.trainer.layout(), sharding, c.sparsity);
            optim::MaskPlan next = plan;
            const kernels::ValueCode values = optim::exchange_options(c).values;
            for (const auto& r : records) {
                INFO("step " << r.step << ", " << bits << " bits");
                CHECK(r.density == optim::density(c, r.step));
                plan.set(optim::density(c, r.step));
                next.set(optim::density(c, r.step + 1));
                CHECK(sent(r, "all_to_all") ==
                      plan.bytes_sent(values, kernels::fp32_values).gradients);
                CHECK(sent(r, "all_gather") ==
                      plan.bytes_sent(values, kernels::fp32_values).weights +
                          next.bytes_sent(values, kernels::fp32_values).masks);
            }
            // In a step of the fixed phase they are what the dry run says.
            const train::StepCost cost = train::step_cost(c, world().size());
            const auto& fixed = records[7];
            CHECK(sent(fixed, "all_to_all") + sent(fixed, "all_gather") == cost.bytes_sent);
            const auto& dense = records[0];
            CHECK(sent(dense, "all_to_all") + sent(dense, "all_gather") == cost.dense_bytes);
            if (world().size() > 1) CHECK(cost.bytes_sent < cost.dense_bytes / 4);
        }
    }
}

TEST_CASE("in low bits too the dry run says what travels, and what is allocated") {
    const int ranks = world().size();
    using config::ErrorKind;
    for (const auto& [kind, error, bits] : {std::tuple{OptimizerKind::adamw, ErrorKind::loco, 4},
                                            {OptimizerKind::sgd, ErrorKind::none, 2},
                                            {OptimizerKind::adams, ErrorKind::full, 1},
                                            {OptimizerKind::scape, ErrorKind::full, 4}}) {
        for (const Index deltas : {32, 2}) {
            INFO("optimizer " << static_cast<int>(kind) << ", " << bits << "/" << deltas
                              << " bits");
            config::RunConfig c = tiny_scape(ranks);
            c.optimizer.kind = kind;
            c.exchange.error = error;
            c.exchange.value_bits = bits;
            c.exchange.delta_bits = deltas;
            Run run(c, world());
            const train::StepCost cost = train::step_cost(c, ranks);
            const auto fixed = run.fresh().steps(8)[7];
            CHECK(sent(fixed, "all_to_all") + sent(fixed, "all_gather") == cost.bytes_sent);
            CHECK(cost.bytes_per_parameter * static_cast<double>(cost.parameters) * (ranks - 1) ==
                  Approx(static_cast<double>(cost.bytes_sent) * ranks).margin(2 * ranks));
            const train::MemoryAccount is = run.trainer.memory();
            CHECK(cost.memory.state == is.state);
            CHECK(cost.memory.feedback == is.feedback);
            CHECK(cost.memory.exchange == is.exchange);
            CHECK(cost.memory.total() == is.total());
        }
    }
}

TEST_CASE("the account of SCAPE's memory is what is allocated, and little more than AdamS's") {
    const SharedScratch scratch(world());
    const int ranks = world().size();
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        for (const Index bits : {32, 16}) {
            for (const auto storage : storages) {
                INFO("rule " << static_cast<int>(rule) << ", " << bits << " bits, storage "
                             << static_cast<int>(storage));
                config::RunConfig c = tiny_scape(ranks);
                c.scape.rule = rule;
                c.exchange.value_bits = bits;
                c.error_feedback.storage = storage;
                c.error_feedback.path = scratch.path();
                const train::MemoryAccount said = train::step_cost(c, ranks).memory;
                const train::MemoryAccount is = Run(c, world()).trainer.memory();
                CHECK(said.parameters == is.parameters);
                CHECK(said.gradients == is.gradients);
                CHECK(said.state == is.state);
                CHECK(said.masks == is.masks);
                CHECK(said.feedback == is.feedback);
                CHECK(said.activations == is.activations);
                CHECK(said.exchange == is.exchange);
            }
        }
    }
    config::RunConfig c = tiny_scape(ranks);
    const Run scape(c, world());
    c.optimizer.kind = OptimizerKind::adams;
    const Run adams(c, world());
    const train::MemoryAccount s = scape.trainer.memory();
    const train::MemoryAccount d = adams.trainer.memory();
    const Sharding sharding(scape.trainer.layout(), ranks, optim::bucket_bytes(c, ranks));
    const Index word = sizeof(float);
    const Index visits = sharding.shard_extent() * word;
    const Index scores = sharding.largest_bucket() / ranks * word;
    const Index message = 2 * sharding.largest_bucket() * word + 2 * optim::MessagePool::alignment;
    CHECK(s.parameters == d.parameters);
    CHECK(s.gradients == d.gradients);
    CHECK(s.activations == d.activations);
    CHECK(s.feedback == 0);
    CHECK(s.state == d.state + visits + scores);
    CHECK(s.exchange <= optim::Exchange::default_buffers * message);
}

namespace {

// Overwrites one element of this rank's replica, or does nothing on other ranks.
class Poked {
   public:
    Poked(train::Trainer& trainer, bool here, const std::string& tensor, float value)
        : here_(here), element_(trainer.parameters()) {
        const Index at = trainer.layout().tensor(tensor).offset + 1;
        element_ = slice(element_, at, at + 1);
        before_ = to_host(element_)[0];
        set(value);
    }
    ~Poked() { set(before_); }
    Poked(const Poked&) = delete;
    Poked& operator=(const Poked&) = delete;

   private:
    void set(float value) {
        if (!here_) return;
        Kokkos::deep_copy(Span<float>(const_cast<float*>(element_.data()), 1), value);
        Kokkos::fence();
    }
    bool here_;
    Span<const float> element_;
    float before_ = 0;
};

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// While one replica is poked it differs from the others.
config::RunConfig unchecked() {
    config::RunConfig c = tiny_scape(world().size());
    c.check.hash_every = 0;
    return c;
}

void check_replicas(train::Trainer& trainer) {
    const auto hash = static_cast<double>(trainer.parameter_hash() >> 11);
    std::vector<double> all;
    world().all_gather_host({hash}, all).wait(Exec());
    for (const double of_rank : all) CHECK(of_rank == hash);
}

}  // namespace

TEST_CASE("a step whose forward pass is not finite changes nothing") {
    const SharedScratch scratch(world());
    for (const auto storage : storages) {
        for (const Index before : {1, 7}) {  // the skipped step is dense, or has a mask
            if (before == 1 && storage != FeedbackStorage::fused) continue;
            INFO("storage " << static_cast<int>(storage) << ", after step " << before);
            config::RunConfig c = unchecked();
            c.train.micro_batch = c.train.global_batch / world().size();
            c.error_feedback.storage = storage;
            c.error_feedback.path = scratch.path();
            Run run(c, world());
            run.fresh().steps(before);
            const auto state = state_of(run.trainer, world());
            train::StepRecord skipped;
            {
                const Poked poked(run.trainer, world().rank() == world().size() - 1, "norm.gain",
                                  not_a_number);
                skipped = run.trainer.step(false);
            }
            CHECK(skipped.skipped);
            CHECK_FALSE(std::isfinite(skipped.loss));
            CHECK(skipped.feedback_lost == 0);
            const auto after = state_of(run.trainer, world());
            for (const auto& [name, values] : state) {
                INFO(name);
                REQUIRE(after.count(name) == 1);
                // A mask that was not made is not there; that of the skipped step is used again.
                if (name != "next_mask_density" || storage == FeedbackStorage::fused)
                    CHECK((after.at(name) == values));
            }
            const auto next = run.trainer.step(false);
            CHECK_FALSE(next.skipped);
            CHECK(std::isfinite(next.loss));
            check_replicas(run.trainer);
            CHECK((state_of(run.trainer, world()).at("weights") != state.at("weights")));
        }
    }
}

TEST_CASE("a gradient that is not finite loses fused error feedback on its rank alone") {
    const SharedScratch scratch(world());
    const int bad = world().size() - 1;
    for (const auto rule : {ScapeRule::catch_up, ScapeRule::paper}) {
        for (const auto storage : storages) {
            if (rule == ScapeRule::paper && storage != FeedbackStorage::fused) continue;
            INFO("rule " << static_cast<int>(rule) << ", storage " << static_cast<int>(storage));
            config::RunConfig c = unchecked();
            c.scape.rule = rule;
            c.error_feedback.storage = storage;
            c.error_feedback.path = scratch.path();
            Run run(c, world());
            run.fresh().steps(5);
            const auto state = state_of(run.trainer, world());
            train::StepRecord skipped;
            {
                const Poked poked(run.trainer, world().rank() == bad, "head.weight", not_a_number);
                skipped = run.trainer.step(false);
            }
            CHECK(skipped.skipped);
            const bool fused = storage == FeedbackStorage::fused;
            CHECK(skipped.feedback_lost == (fused ? 1 : 0));
            const auto after = state_of(run.trainer, world());
            for (const auto& [name, values] : state) {
                INFO(name);
                if (name == "error_feedback" && fused) continue;
                CHECK((after.at(name) == values));
            }
            const auto& feedback = after.at("error_feedback");
            const auto rest = feedback.begin() + bad * run.trainer.layout().extent();
            CHECK(std::all_of(feedback.begin(), feedback.end(),
                              [](double x) { return std::isfinite(x); }));
            if (fused) {
                CHECK(std::all_of(rest, feedback.end(), [](double x) { return x == 0; }));
                CHECK(std::any_of(feedback.begin(), rest, [](double x) { return x != 0; }) ==
                      (bad > 0));
            }
            CHECK_FALSE(run.trainer.step(false).skipped);
            check_replicas(run.trainer);
        }
    }
}

TEST_CASE("a skipped step before a dense one, and one that is dense itself") {
    for (const bool in_forward : {true, false}) {
        config::RunConfig c = unchecked();
        Run run(c, world());
        run.fresh().steps(c.train.steps - 2);
        {
            const Poked poked(run.trainer, world().rank() == 0,
                              in_forward ? "norm.gain" : "head.weight", not_a_number);
            CHECK(run.trainer.step(false).skipped);
        }
        // The last step's density is 1: an older mask must not take its place.
        const auto last = run.trainer.step(false);
        CHECK_FALSE(last.skipped);
        CHECK(last.density == 1);
        const auto feedback = state_of(run.trainer, world()).at("error_feedback");
        CHECK(std::all_of(feedback.begin(), feedback.end(), [](double x) { return x == 0; }));

        Run early(c, world());
        early.fresh().steps(1);
        {
            const Poked poked(early.trainer, world().rank() == 0,
                              in_forward ? "norm.gain" : "head.weight", not_a_number);
            CHECK(early.trainer.step(false).skipped);
        }
        for (const auto& r : early.steps(4)) CHECK_FALSE(r.skipped);
        check_replicas(early.trainer);
    }
}

TEST_CASE("replicas that differ end the run") {
    if (world().size() == 1) return;
    Run run(tiny_scape(world().size()), world());
    run.fresh().steps(5);
    // Of two thousand elements hardly one is in the mask, and comes from its owner.
    const Poked poked(run.trainer, world().rank() == 1, "layers.0.mlp.down.weight", 1.5f);
    try {
        run.trainer.step(false);
        FAIL_CHECK("it went through");
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::numbers);
        CHECK(std::string(e.what()).find("rank 1") != std::string::npos);
    }
}

TEST_CASE("too many skipped steps in a row end the run") {
    config::RunConfig c = unchecked();
    c.check.skip_nonfinite = 3;
    Run run(c, world());
    run.fresh().steps(5);
    const Poked poked(run.trainer, world().rank() == 0, "head.weight", not_a_number);
    run.steps(2);
    try {
        run.trainer.step(false);
        FAIL_CHECK("the third went through");
    } catch (const user_error& e) {
        CHECK(e.code() == ExitCode::numbers);
        CHECK(std::string(e.what()).find("skip_nonfinite") != std::string::npos);
    }
}

TEST_CASE("runs whose masks are never used") {
    // One step; dense steps up to the end: the mask of the step after the last is made all the
    // same.
    for (const auto& [steps, dense] : {std::pair<Index, Index>{1, 0}, {4, 4}, {4, 3}}) {
        config::RunConfig c = unchecked();
        c.train.steps = steps;
        c.sparsity.dense_steps = dense;
        c.sparsity.warmup_steps = 0;
        c.sparsity.density_start = 0.5;
        c.sparsity.cooldown_steps = 0;
        Run run(c, world());
        for (const auto& r : run.fresh().steps(steps)) CHECK(std::isfinite(r.loss));
        CHECK(state_of(run.trainer, world()).count("next_mask") == 1);
    }
}
