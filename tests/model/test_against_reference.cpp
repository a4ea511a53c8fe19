// The whole model against its double-precision reference: loss, logits and gradients.

#include "fixture.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/reference_model.hpp"

#include <cmath>

using namespace scape;
using config::Family;
using config::ModelConfig;
using scape::test::ModelRun;
using scape::test::ReferenceModel;
using scape::test::Sample;
using scape::test::tiny_config;

namespace {

struct Case {
    std::string name;
    ModelConfig config;
    Index batch;
    Index seq;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Family family : {Family::gpt, Family::llama})
        for (const bool tied : {true, false}) {
            const std::string name = std::string(family == Family::gpt ? "gpt" : "llama") +
                                     (tied ? ", tied" : ", untied");
            all.push_back({name, tiny_config(family, tied), 2, 5});
            all.push_back({name + ", T = 1", tiny_config(family, tied), 3, 1});
            all.push_back({name + ", B = 1, T = T_max", tiny_config(family, tied), 1, 9});
            all.push_back({name + ", B = T = 1", tiny_config(family, tied), 1, 1});
        }
    ModelConfig c = tiny_config(Family::llama);
    c.kv_heads = 3;
    c.rope_base = 100;
    all.push_back({"llama, a key head for each query head", c, 2, 7});
    c.kv_heads = 0;
    c.ffn_width = 0;
    all.push_back({"llama, default key heads and ffn width", c, 2, 4});
    c = tiny_config(Family::gpt);
    c.width = 80;
    c.heads = 1;
    c.layers = 1;
    c.ffn_width = 0;
    all.push_back({"gpt, one head of size 80, default ffn width", c, 1, 6});
    return all;
}

/// Derivative of the reference's loss along `direction` in one tensor.
double slope(const ReferenceModel& reference, std::vector<double> p, const Sample& s, Index offset,
             const std::vector<double>& direction, double step) {
    const auto shifted = [&](double by) {
        std::vector<double> q = p;
        for (std::size_t i = 0; i < direction.size(); ++i) q[offset + i] += by * direction[i];
        return reference.loss(q, s.tokens, s.targets, s.seq);
    };
    return (shifted(step) - shifted(-step)) / (2 * step);
}

void check_gradient(const ReferenceModel& reference, const std::vector<double>& parameters,
                    const Sample& s, double scale, const Tensor& t,
                    const std::vector<float>& gradient) {
    INFO(t.name);
    double norm = 0;
    std::size_t largest = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        norm += static_cast<double>(gradient[i]) * gradient[i];
        if (std::abs(gradient[i]) > std::abs(gradient[largest])) largest = i;
    }
    norm = std::sqrt(norm);
    test::Random random(t.offset + 1);
    const std::vector<double> zero(t.size, 0.0);
    // Along random directions: every element takes part.
    for (int repeat = 0; repeat < 2; ++repeat) {
        std::vector<double> direction = zero;
        double wanted = 0;
        for (Index i = 0; i < t.size; ++i) {
            direction[i] = random.normal();
            wanted += direction[i] * gradient[i];
        }
        const double seen = scale * slope(reference, parameters, s, t.offset, direction, 1e-5);
        CHECK(wanted == Approx(seen).epsilon(1e-4).margin(1e-5 * norm + 1e-9));
    }
    // Single elements: the largest, and some others.
    for (int repeat = 0; repeat < 4; ++repeat) {
        const std::size_t i = repeat == 0 ? largest : random.below(t.size);
        std::vector<double> direction = zero;
        direction[i] = 1;
        const double seen = scale * slope(reference, parameters, s, t.offset, direction, 1e-4);
        INFO("element " << i);
        CHECK(static_cast<double>(gradient[i]) ==
              Approx(seen).epsilon(1e-4).margin(1e-5 * std::abs(gradient[largest]) + 1e-8));
    }
}

}  // namespace

TEST_CASE("loss and logits agree with the reference") {
    for (const Case& c : cases()) {
        INFO(c.name);
        ModelRun run(c.config, c.batch, c.seq, false);
        const Sample s = test::sample_of(c.batch, c.seq, c.config.vocab);
        const ReferenceModel reference(c.config, run.model->layout());
        const auto parameters = test::to_double(test::to_host(run.parameters));
        const double wanted = reference.loss(parameters, s.tokens, s.targets, s.seq);
        CHECK(run.pass(s, 0.f) == Approx(wanted).epsilon(1e-5));
        test::check_close("logits", run.logits(s, c.config.vocab),
                          reference.logits(parameters, s.tokens, s.seq), 1e-5, 1e-5,
                          c.config.vocab);
    }
}

TEST_CASE("gradients agree with central differences of the reference") {
    for (const Case& c : cases()) {
        INFO(c.name);
        const float scale = 0.37f;
        ModelRun run(c.config, c.batch, c.seq);
        const Sample s = test::sample_of(c.batch, c.seq, c.config.vocab, 7, 4);
        run.pass(s, scale);
        const ReferenceModel reference(c.config, run.model->layout());
        const auto parameters = test::to_double(test::to_host(run.parameters));
        for (const Tensor& t : run.model->layout().tensors())
            check_gradient(reference, parameters, s, scale, t, run.gradient(t.name));
    }
}

TEST_CASE("gradients of what a batch does not touch are exactly zero") {
    const ModelConfig c = tiny_config(Family::gpt, false);
    ModelRun run(c, 2, 5);
    const Sample s = test::sample_of(2, 5, c.vocab);
    run.pass(s, 1.f);
    const std::vector<float> wte = run.gradient("wte"), wpe = run.gradient("wpe");
    for (Index v = 0; v < c.vocab; ++v) {
        const bool used = std::count(s.tokens.begin(), s.tokens.end(), v) > 0;
        for (Index j = 0; j < c.width; ++j) CHECK((wte[v * c.width + j] != 0) == used);
    }
    for (Index t = 0; t < c.max_seq_len; ++t)
        for (Index j = 0; j < c.width; ++j) CHECK((wpe[t * c.width + j] != 0) == (t < 5));
    // Padding rows of both tables.
    const std::vector<float> all = test::to_host(run.gradients);
    for (const std::string name : {"wte", "head.weight"}) {
        const Tensor& t = run.model->layout().tensor(name);
        for (Index i = t.offset + t.size; i < t.offset + t.storage; ++i) CHECK(all[i] == 0);
    }
}
