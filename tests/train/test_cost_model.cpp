// The time line of a step in cases that can be worked out by hand, and the work of real decks.
#include <scape/train/cost_model.hpp>

#include <scape/base/error.hpp>
#include <scape/model/model.hpp>

#include <numeric>

#include "support/catch.hpp"
#include "tiny_run.hpp"

namespace scape::test {

namespace {

using config::Machine;
using train::predict_step;
using train::StepPrediction;
using train::StepWork;

constexpr Index second = 1000000000;  // bytes, of network and memory

/// 1e12 FLOP, 1e9 bytes of memory and 1e9 bytes of network take a second each.
Machine unit_machine(double overlap = 1) {
    Machine m;
    m.peak_tflops = 2;
    m.efficiency = 0.5;
    m.memory_gb_per_s = 3;
    m.local_work = 3;
    m.network_gb_per_s = 1;
    m.overlap = overlap;
    return m;
}

/// One layer: forward 1 s, head 1 s, backward 2 s; on two ranks.
///
///     elements  0 ... 9       10 ... 19   20 ... 29    30 ...
///               embedding     layer       final norm   head
StepWork unit_work(const std::vector<Index>& bucket_begins) {
    StepWork w;
    w.ranks = 2;
    w.layer_flops = 1e12;
    w.head_flops = 1e12;
    w.groups = {0, 10, 20, 30};
    w.pool = 100 * second;
    for (const Index begin : bucket_begins) {
        w.buckets.emplace_back();
        w.buckets.back().begin = begin;
        w.buckets.back().there = second;
        w.buckets.back().back = second;
    }
    return w;
}

double seconds(const StepWork& w, double overlap) {
    const StepPrediction p = predict_step(w, unit_machine(overlap));
    CHECK(p.seconds == Approx(p.compute + p.local + p.wait));
    return p.seconds;
}

}  // namespace

TEST_CASE("without a network a step is computing and local passes") {
    StepWork w = unit_work({0, 30});
    w.ranks = 1;
    w.micro_batches = 3;
    w.fused = true;
    w.check = second;
    w.clear = 2 * second;
    w.keep = 4 * second;
    double bytes = 8 * second;
    for (StepWork::Bucket& b : w.buckets) b.send = b.sum = b.update = b.unpack = b.select = bytes;
    const StepPrediction p = predict_step(w, unit_machine());
    CHECK(p.compute == Approx(3 * 4));
    CHECK(p.local == Approx(3 * 1 + 2 + 4 + 2 * 5 * 8));
    CHECK(p.wire == 0);
    CHECK(p.wait == 0);
    CHECK(p.seconds == Approx(p.compute + p.local));
    CHECK(w.flops() == Approx(1e12 * p.compute));
    CHECK(w.local_bytes() == Approx(1e9 * p.local));
}

TEST_CASE("one bucket hides behind nothing but local work") {
    StepWork w = unit_work({0});
    CHECK(seconds(w, 0) == Approx(6));
    CHECK(seconds(w, 1) == Approx(6));
    w.clear = second / 2;  // before the weights are needed
    CHECK(seconds(w, 0) == Approx(6.5));
    CHECK(seconds(w, 1) == Approx(6));
}

TEST_CASE("buckets hide behind backward and the next forward") {
    // The head's bucket travels during backward (2 s); its weights return during forward (1 s).
    const StepWork w = unit_work({0, 30});
    CHECK(seconds(w, 0) == Approx(4 + 4));
    CHECK(seconds(w, 0.5) == Approx(4 + 1 + 1 + 0.5));
    CHECK(seconds(w, 1) == Approx(4 + 1 + 1));
    CHECK(predict_step(w, unit_machine()).wire == Approx(4));

    SECTION("not behind the micro-batches before the last") {
        StepWork more = w;
        more.micro_batches = 3;
        CHECK(seconds(more, 1) == Approx(12 + 1 + 1));
    }
    SECTION("with recomputation backward is longer, but for the last layer") {
        StepWork layers = w;
        layers.groups = {0, 10, 12, 20, 30};
        layers.recompute_flops = 0.5e12;
        CHECK(predict_step(layers, unit_machine()).compute == Approx(2 + 1 + 4 + 0.5));
    }
    SECTION("a tied head's gradient is complete with the embedding's") {
        StepWork tied = w;
        tied.tied = true;
        tied.groups = {0, 10, 20};
        tied.buckets[1].begin = 20;  // the final norm's: complete when the head is done
        CHECK(seconds(tied, 1) == Approx(4 + 1 + 1));
        tied.buckets[1].begin = 5;  // the end of the embedding: at the very end, and needed first
        CHECK(seconds(tied, 1) == Approx(4 + 4));
    }
}

TEST_CASE("messages cost their latency, one for each other rank") {
    StepWork w = unit_work({0});
    w.ranks = 3;
    w.buckets[0].there = 1;
    w.buckets[0].back = 1;
    Machine m = unit_machine(0);
    m.latency_us = 1e6;
    // There, back, the count of targets, the norm: two messages each, one after another.
    CHECK(predict_step(w, m).seconds == Approx(4 + 4 * 2));
    w.fused = true;  // and whether all are finite
    CHECK(predict_step(w, m).seconds == Approx(4 + 5 * 2));
    w.buckets[0].broadcast = 1;
    w.buckets[0].broadcasts = 3;
    CHECK(predict_step(w, m).seconds == Approx(4 + 8 * 2));
    w.buckets[0].there = 0;  // nothing to say
    CHECK(predict_step(w, m).seconds == Approx(4 + 7 * 2));
    CHECK(train::collective_seconds(m, 3, second) == Approx(2 * (1 + 1)));
}

TEST_CASE("the next mask has until the first bucket is sent") {
    StepWork w = unit_work({0});
    w.buckets[0].back = 0;
    const double without = seconds(w, 1);
    w.mask = 4 * second;  // hidden by forward, head and backward
    CHECK(seconds(w, 1) == Approx(without));
    w.mask = 5 * second;
    CHECK(seconds(w, 1) == Approx(without + 1));
    CHECK(seconds(w, 0) == Approx(without + 5));
}

TEST_CASE("room for messages is bounded") {
    StepWork w = unit_work({0, 30});
    w.buckets[1].there = 3 * second;  // not all of it during backward
    w.buckets[0].send = second;       // what is left hides behind packing
    const double with_room = seconds(w, 1);
    for (StepWork::Bucket& b : w.buckets) b.pooled_there = second;
    CHECK(seconds(w, 1) == Approx(with_room));
    w.pool = second;  // the first message must end before the second is packed
    CHECK(seconds(w, 1) == Approx(with_room + 1));

    StepWork back = unit_work({0, 30});
    back.buckets[1].update = second;
    const double roomy = seconds(back, 1);
    for (StepWork::Bucket& b : back.buckets) b.pooled_back = second;
    back.pool = second;
    CHECK(seconds(back, 1) == Approx(roomy + 1));
}

namespace {

config::RunConfig dense(config::OptimizerKind kind) {
    config::RunConfig c = tiny(config::Family::llama);
    c.model.tied = false;
    c.comm.bucket_mb = 0.01;
    c.train.global_batch = 24;
    c.optimizer.kind = kind;
    return c;
}

/// All kinds of exchange there are.
std::vector<config::RunConfig> kinds() {
    using config::OptimizerKind;
    std::vector<config::RunConfig> all{dense(OptimizerKind::adamw), dense(OptimizerKind::sgd)};
    config::RunConfig c = dense(OptimizerKind::adams);
    c.model.tied = true;
    all.push_back(c);
    c.exchange.value_bits = 4;
    all.push_back(c);
    c.exchange.delta_bits = 16;
    all.push_back(c);
    c.exchange.error = config::ErrorKind::loco;
    all.push_back(c);
    c = dense(OptimizerKind::scape);
    c.sparsity.density = 0.05;
    all.push_back(c);
    c.exchange.delta_bits = 2;
    all.push_back(c);
    c.exchange.value_bits = 8;
    c.scape.second_moment = config::SecondMoment::stored;
    c.error_feedback.storage = config::FeedbackStorage::device;
    all.push_back(c);
    c.scape.rule = config::ScapeRule::paper;
    c.sparsity.mask_code = config::MaskCodeChoice::bitmap;
    all.push_back(c);
    c.sparsity.density = 1;
    all.push_back(c);
    c = dense(OptimizerKind::adams);
    c.sparsity.density = 0.05;
    c.exchange.elements = config::Elements::topk_ef;
    all.push_back(c);
    return all;
}

}  // namespace

TEST_CASE("bytes and memory are those of a dry run") {
    for (const config::RunConfig& c : kinds()) {
        for (const int ranks : {1, 2, 4, 8}) {
            const StepWork w = train::step_work(c, ranks);
            const train::StepCost cost = train::step_cost(c, ranks);
            CHECK(w.bytes_sent == cost.bytes_sent);
            Index sent = (ranks - 1) * w.mask;
            for (const StepWork::Bucket& b : w.buckets) sent += (ranks - 1) * (b.there + b.back);
            CHECK(sent == cost.bytes_sent);
            CHECK(w.memory.total() == cost.memory.total());
            CHECK(w.memory.exchange == cost.memory.exchange);
            CHECK(w.pool <= cost.memory.exchange);
            CHECK(w.flops() == Approx(cost.step_flops / ranks));
            CHECK(w.micro_batches == cost.accumulation);
            const StepPrediction p = predict_step(w, unit_machine());
            CHECK(p.bytes_sent == cost.bytes_sent);
            CHECK(p.memory.total() == cost.memory.total());
        }
    }
    CHECK_THROWS_AS(train::step_work(dense(config::OptimizerKind::adamw), 5), std::logic_error);
}

TEST_CASE("a faster network never makes a step longer, nor does overlap") {
    for (const config::RunConfig& c : kinds()) {
        const StepWork w = train::step_work(c, 4);
        for (const double overlap : {0.0, 0.3, 1.0}) {
            Machine m = unit_machine(overlap);
            m.latency_us = overlap > 0 ? 3 : 0;
            double before = 1e300;
            for (double bandwidth = 1e-6; bandwidth < 1; bandwidth *= 3) {
                m.network_gb_per_s = bandwidth;
                const StepPrediction p = predict_step(w, m);
                CHECK(p.seconds <= before * (1 + 1e-12));
                CHECK(p.wait <= p.wire * (1 + 1e-9));
                CHECK(p.seconds >= p.wire);
                CHECK(p.local == Approx(w.local_bytes() / 1e9));
                if (overlap == 0) CHECK(p.wait == Approx(p.wire));
                before = p.seconds;
            }
        }
    }
}

TEST_CASE("local passes, byte by byte") {
    // Over the elements; what fused error feedback makes of activations left out.
    const auto bytes = [](const config::RunConfig& c, int ranks) {
        const Sharding sharding(model::make_layout(c.model), ranks, optim::bucket_bytes(c, ranks));
        const StepWork w = train::step_work(c, ranks);
        const double checks = w.fused ? static_cast<double>(w.micro_batches) * w.check : 0;
        return (w.local_bytes() - checks) / static_cast<double>(sharding.extent());
    };
    config::RunConfig c = dense(config::OptimizerKind::adams);
    // clear 4, norm 4, update: g, w, m read, w, m written
    CHECK(bytes(c, 1) == Approx(4 + 4 + 20));
    // and the sum reads P pieces and writes one; norm and update are of the shard
    CHECK(bytes(c, 2) == Approx(4 + (4 + 2) + 2 + 10));
    c.optimizer.kind = config::OptimizerKind::adamw;
    CHECK(bytes(c, 2) == Approx(4 + (4 + 2) + 2 + 14));
    // bf16 there and back: packed, summed; decayed replica, differences of the shard, unpacked;
    // what the code loses stays in the gradients, so nothing is cleared
    c.exchange.value_bits = c.exchange.delta_bits = 16;
    CHECK(bytes(c, 2) == Approx((8 + 2) + (2 + 2) + 2 + 14 + 8 + (4 + 1) + (2 + 8)));

    c = dense(config::OptimizerKind::scape);
    double before = 0;
    for (const double density : {0.001, 0.01, 0.1, 0.5}) {
        c.sparsity.density = density;
        CHECK(bytes(c, 2) > before);
        before = bytes(c, 2);
    }
    const double fused = bytes(c, 2);
    c.error_feedback.storage = config::FeedbackStorage::device;
    CHECK(bytes(c, 2) == Approx(fused + 4 + 12 + 4 + 8));  // clear, add, norm, write back
}

TEST_CASE("a machine is calibrated with steps that ran on it") {
    Machine truth = unit_machine();
    std::vector<train::MeasuredStep> steps;
    for (const config::RunConfig& c : kinds()) {
        const StepPrediction p = predict_step(c, 2, truth);
        steps.push_back({c, 2, p.compute, p.local});
    }
    steps[0].compute_seconds *= 100;  // one of them was disturbed
    steps[1].local_seconds = {};
    Machine start = truth;
    start.efficiency = 0.1;
    start.local_work = 1;
    const Machine found = train::calibrate(start, steps);
    CHECK(found.efficiency == Approx(truth.efficiency));
    CHECK(found.local_work == Approx(truth.local_work));
    CHECK(found.network_gb_per_s == truth.network_gb_per_s);
    CHECK(train::calibrate(start, {}) == start);

    // Steps faster than a peak that was measured in a bad moment: their product is what counts.
    start.peak_tflops = truth.peak_tflops / 4;
    const Machine raised = train::calibrate(start, steps);
    CHECK(raised.efficiency == 1);
    CHECK(raised.peak_tflops == Approx(truth.peak_tflops * truth.efficiency));
}

}  // namespace scape::test
