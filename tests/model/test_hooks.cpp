// What the trainer relies on to overlap communication with a pass.

#include "fixture.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <cstring>
#include <limits>

using namespace scape;
using config::Family;
using config::ModelConfig;
using scape::test::ModelRun;
using scape::test::Sample;
using scape::test::tiny_config;

namespace {

int allocations = 0;
std::vector<std::string> labels;

struct ListenToKokkos {
    ListenToKokkos() {
        namespace tools = Kokkos::Tools::Experimental;
        allocations = 0;
        labels.clear();
        tools::set_allocate_data_callback(
            [](auto, const char*, const void*, const std::uint64_t) { ++allocations; });
        tools::set_begin_parallel_for_callback(
            [](const char* name, const std::uint32_t, std::uint64_t*) { labels.push_back(name); });
        tools::set_begin_parallel_reduce_callback(
            [](const char* name, const std::uint32_t, std::uint64_t*) { labels.push_back(name); });
    }
    ~ListenToKokkos() {
        namespace tools = Kokkos::Tools::Experimental;
        tools::set_allocate_data_callback(nullptr);
        tools::set_begin_parallel_for_callback(nullptr);
        tools::set_begin_parallel_reduce_callback(nullptr);
    }
    ListenToKokkos(const ListenToKokkos&) = delete;
    ListenToKokkos& operator=(const ListenToKokkos&) = delete;
};

}  // namespace

TEST_CASE("no parameter is read before it is announced") {
    for (const Family family : {Family::gpt, Family::llama})
        for (const bool tied : {true, false}) {
            const ModelConfig c = tiny_config(family, tied);
            const Sample s = test::sample_of(2, 5, c.vocab);
            ModelRun run(c, 2, 5);
            const double loss = run.pass(s, 1.f);
            // The parameters arrive only when they are asked for.
            ModelRun late(c, 2, 5);
            const Vec<float> source = late.parameters;
            const Index extent = late.model->layout().extent();
            late.parameters = test::filled(extent, std::numeric_limits<float>::quiet_NaN());
            late.bind();
            Index arrived = 0;
            int calls = 0;
            model::Hooks hooks;
            hooks.before_use = [&](Index end) {
                CHECK(end >= arrived);
                ++calls;
                Kokkos::fence();
                Kokkos::deep_copy(slice(late.parameters, 0, end), slice(source, 0, end));
                arrived = end;
            };
            CHECK(late.pass(s, 1.f, hooks) == loss);
            CHECK(arrived == extent);
            CHECK(calls >= 2 + c.layers);
            test::check_same_bits("gradients", test::to_host(late.gradients),
                                  test::to_host(run.gradients));
        }
}

TEST_CASE("a gradient that is called final does not change any more") {
    for (const Family family : {Family::gpt, Family::llama})
        for (const bool tied : {true, false}) {
            const ModelConfig c = tiny_config(family, tied);
            ModelRun run(c, 2, 5);
            const Index extent = run.model->layout().extent();
            std::vector<float> snapshot(extent);
            std::vector<Index> begins;
            Index done = extent;
            model::Hooks hooks;
            hooks.gradients_final = [&](Index begin) {
                CHECK(begin < done);
                const std::vector<float> now = test::to_host(run.gradients);
                std::copy(now.begin() + begin, now.begin() + done, snapshot.begin() + begin);
                begins.push_back(begin);
                done = begin;
            };
            run.pass(test::sample_of(2, 5, c.vocab), 1.f, hooks);
            test::check_same_bits("gradients", test::to_host(run.gradients), snapshot);
            const FlatLayout& layout = run.model->layout();
            std::vector<Index> wanted;
            if (!tied) wanted.push_back(layout.tensor("head.weight").offset);
            const bool gpt = family == Family::gpt;
            for (const char* name :
                 gpt ? std::vector<const char*>{"lnf.gain", "h.1.ln1.gain", "h.0.ln1.gain", "wte"}
                     : std::vector<const char*>{"norm.gain", "layers.1.norm1.gain",
                                                "layers.0.norm1.gain", "wte"})
                wanted.push_back(layout.tensor(name).offset);
            CHECK(begins == wanted);
        }
}

TEST_CASE("passes allocate nothing and label every kernel") {
    for (const Family family : {Family::gpt, Family::llama}) {
        const ModelConfig c = tiny_config(family);
        const Sample s = test::sample_of(2, 5, c.vocab);
        ModelRun run(c, 2, 5);
        const Vec<Token> tokens = test::to_device(s.tokens), targets = test::to_device(s.targets);
        const model::Batch batch{ModelRun::all(tokens), ModelRun::all(targets), 2, 5};
        const Span<double> loss = ModelRun::all(run.loss);
        const Exec exec;
        const ListenToKokkos listening;
        run.model->forward(exec, batch, true, {});
        run.model->loss(exec, batch, 1.f, loss, {});
        run.model->backward(exec, batch, {});
        Kokkos::fence();
        CHECK(allocations == 0);
        CHECK(labels.size() > 30);
        for (const std::string& label : labels) CHECK(label.rfind("scape::", 0) == 0);
        const Vec<float> control("scape::test::control", 1);
        CHECK(allocations == 1);
    }
}

TEST_CASE("the arena has exactly the size that was announced") {
    const ModelConfig c = tiny_config(Family::llama);
    const auto model = model::make_model<float>(c);
    static std::uint64_t seen;
    seen = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](auto, const char* label, const void*, const std::uint64_t bytes) {
            if (std::strcmp(label, "scape::model::activations") == 0) seen = bytes;
        });
    model->allocate(3, 5);
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    CHECK(static_cast<Index>(seen) == model->activation_bytes(3, 5));
}

TEST_CASE("calls out of order are refused") {
    const ModelConfig c = tiny_config(Family::gpt);
    const Sample s = test::sample_of(1, 3, c.vocab);
    ModelRun run(c, 1, 3);
    const Vec<Token> tokens = test::to_device(s.tokens), targets = test::to_device(s.targets);
    const model::Batch batch{ModelRun::all(tokens), ModelRun::all(targets), 1, 3};
    const Span<double> loss = ModelRun::all(run.loss);
    const Exec exec;
    CHECK_THROWS_AS(run.model->loss(exec, batch, 0.f, loss, {}), std::logic_error);
    run.model->forward(exec, batch, false, {});
    CHECK_THROWS_AS(run.model->loss(exec, batch, 1.f, loss, {}), std::logic_error);
    CHECK_THROWS_AS(run.model->backward(exec, batch, {}), std::logic_error);
}
