// What must not change the results: recompute, chunks, padding, the split into micro-batches, and
// when parameters arrive.

#include "fixture.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <cmath>
#include <limits>

using namespace scape;
using config::Family;
using config::ModelConfig;
using scape::test::ModelRun;
using scape::test::Sample;
using scape::test::tiny_config;

namespace {

std::vector<ModelConfig> four_configs() {
    return {tiny_config(Family::gpt, true), tiny_config(Family::gpt, false),
            tiny_config(Family::llama, true), tiny_config(Family::llama, false)};
}

/// Gradients of two runs, tensor by tensor, to rounding.
void check_same_gradients(const ModelRun& run, const ModelRun& wanted) {
    for (const Tensor& t : wanted.model->layout().tensors()) {
        const std::vector<float> w = wanted.gradient(t.name);
        double largest = 0;
        for (const float x : w) largest = std::max(largest, std::abs(static_cast<double>(x)));
        test::check_close(t.name, run.gradient(t.name), w, 1e-5, 2e-6 * largest + 1e-7);
    }
}

}  // namespace

TEST_CASE("recompute changes memory and not results") {
    for (ModelConfig c : four_configs()) {
        c.layers = 3;
        const Sample s = test::sample_of(2, 5, c.vocab, 7, 3);
        ModelRun keep(c, 2, 5);
        const double loss = keep.pass(s, 1.f);
        c.recompute = config::Recompute::layer;
        ModelRun again(c, 2, 5);
        CHECK(again.pass(s, 1.f) == loss);
        test::check_same_bits("gradients", test::to_host(again.gradients),
                              test::to_host(keep.gradients));
        CHECK(again.model->activation_bytes(8, 9) < keep.model->activation_bytes(8, 9));
    }
}

TEST_CASE("the same pass twice gives the same bits") {
    for (const ModelConfig& c : four_configs()) {
        const Sample s = test::sample_of(2, 9, c.vocab);
        ModelRun a(c, 2, 9), b(c, 2, 9);
        b.pass(test::sample_of(2, 9, c.vocab, 99), 0.f);  // whatever was there before
        CHECK(a.pass(s, 1.f) == b.pass(s, 1.f));
        test::check_same_bits("gradients", test::to_host(a.gradients), test::to_host(b.gradients));
    }
}

TEST_CASE("chunks of logits of any size give the same loss and gradients") {
    for (ModelConfig c : four_configs()) {
        const Sample s = test::sample_of(4, 9, c.vocab, 7, 5);
        ModelRun whole(c, 4, 9);
        const double loss = whole.pass(s, 1.f);
        // 1 row, 5 rows, 16 rows (of 36), and 17 that become 16
        for (const double rows : {0.0, 5.0, 16.0, 17.0}) {
            c.logits_chunk_mb = rows * static_cast<double>(c.padded_vocab() * sizeof(float)) * 1e-6;
            ModelRun chunked(c, 4, 9);
            CHECK(chunked.pass(s, 1.f) == Approx(loss).epsilon(1e-6));
            check_same_gradients(chunked, whole);
            CHECK(chunked.pass(s, 0.f) == Approx(loss).epsilon(1e-6));
        }
    }
}

TEST_CASE("padding of the vocabulary takes no part") {
    for (ModelConfig c : four_configs()) {
        const Sample s = test::sample_of(2, 5, c.vocab);
        c.vocab_multiple = 1;
        ModelRun bare(c, 2, 5);
        const double loss = bare.pass(s, 1.f);
        for (const Index multiple : {Index(64), Index(128)}) {
            c.vocab_multiple = multiple;
            ModelRun padded(c, 2, 5);
            CHECK(padded.pass(s, 1.f) == Approx(loss).epsilon(1e-6));
            check_same_gradients(padded, bare);
        }
    }
}

TEST_CASE("micro-batches add up to the batch, unequal counts of targets included") {
    for (const ModelConfig& c : four_configs()) {
        const Sample s = test::sample_of(3, 7, c.vocab, 7, 4);
        ModelRun whole(c, 3, 7);
        const double loss = whole.pass(s, 0.25f);
        ModelRun parts(c, 2, 7);
        double sum = 0;
        for (const auto& [begin, end] : {std::pair<Index, Index>{0, 2}, {2, 3}}) {
            const auto cut = [&, first = begin * 7, last = end * 7](const std::vector<Token>& v) {
                return std::vector<Token>(v.begin() + first, v.begin() + last);
            };
            sum += parts.pass({cut(s.tokens), cut(s.targets), end - begin, 7}, 0.25f);
        }
        CHECK(sum == Approx(loss).epsilon(1e-6));
        check_same_gradients(parts, whole);
    }
}

TEST_CASE("ignored targets have no loss and no gradient") {
    for (const ModelConfig& c : four_configs()) {
        Sample s = test::sample_of(2, 5, c.vocab);
        ModelRun run(c, 2, 5);
        std::fill(s.targets.begin(), s.targets.end(), ignored_target);
        CHECK(run.pass(s, 1.f) == 0);
        for (const float g : test::to_host(run.gradients)) REQUIRE(g == 0);
        // One sequence alone, or beside one that does not count.
        const Sample one = test::sample_of(1, 5, c.vocab);
        ModelRun alone(c, 1, 5), beside(c, 2, 5);
        Sample both = test::sample_of(2, 5, c.vocab);
        std::copy(one.tokens.begin(), one.tokens.end(), both.tokens.begin());
        std::fill(both.targets.begin(), both.targets.end(), ignored_target);
        std::copy(one.targets.begin(), one.targets.end(), both.targets.begin());
        CHECK(beside.pass(both, 1.f) == Approx(alone.pass(one, 1.f)).epsilon(1e-6));
        check_same_gradients(beside, alone);
    }
}

TEST_CASE("smaller micro-batches fit into a larger arena, larger ones are refused") {
    for (const ModelConfig& c : four_configs()) {
        const Sample s = test::sample_of(1, 4, c.vocab);
        ModelRun exact(c, 1, 4), larger(c, 3, 9);
        larger.pass(test::sample_of(3, 9, c.vocab), 0.f);
        CHECK(larger.pass(s, 1.f) == exact.pass(s, 1.f));
        test::check_same_bits("gradients", test::to_host(larger.gradients),
                              test::to_host(exact.gradients));
        CHECK_THROWS_AS(exact.pass(test::sample_of(64, 9, c.vocab), 1.f), std::logic_error);
        CHECK_THROWS_AS(larger.pass(test::sample_of(1, 10, c.vocab), 1.f), std::logic_error);
    }
}

TEST_CASE("without backward there is less memory, and the same loss") {
    for (const ModelConfig& c : four_configs()) {
        const Sample s = test::sample_of(2, 5, c.vocab);
        ModelRun training(c, 2, 5), inference(c, 2, 5, false);
        CHECK(inference.pass(s, 0.f) == training.pass(s, 0.f));
        CHECK(training.pass(s, 1.f) == training.pass(s, 0.f));
        CHECK(inference.model->activation_bytes(8, 9, false) <
              training.model->activation_bytes(8, 9));
        CHECK_THROWS_AS(inference.pass(s, 1.f), std::logic_error);
    }
}
