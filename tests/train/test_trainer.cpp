// The trainer as a whole: what it allocates and when, that every kernel has a name, and that steps
// are what the parts' tests lead one to expect.
#include "support/catch.hpp"
#include "train/tiny_run.hpp"

#include <scape/config/deck.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/format.h>

#include <cmath>
#include <set>

using namespace scape;
using test::tiny;

namespace {

struct Fixture {
    explicit Fixture(const config::RunConfig& c)
        : config(c),
          comm(comm::make_self()),
          dataset(data::open_dataset(c)),
          trainer(c, *comm, dataset, Exec()) {
        trainer.start_fresh();
    }
    config::RunConfig config;
    std::unique_ptr<comm::Communicator> comm;
    data::Dataset dataset;
    train::Trainer trainer;
};

namespace tools = Kokkos::Tools::Experimental;

int allocations = 0;
std::set<std::string> labels;

void note_label(const char* name, const std::uint32_t, std::uint64_t* id) {
    *id = 0;
    labels.insert(name);
}

}  // namespace

TEST_CASE("nothing is allocated after the first step, evaluations included") {
    for (const auto family : {config::Family::gpt, config::Family::llama}) {
        for (const auto recompute : {config::Recompute::none, config::Recompute::layer}) {
            config::RunConfig c = tiny(family);
            c.model.recompute = recompute;
            Fixture f(c);
            f.trainer.step(false);
            allocations = 0;
            tools::set_allocate_data_callback([](Kokkos::Tools::SpaceHandle, const char*,
                                                 const void*, std::uint64_t) { ++allocations; });
            for (int i = 0; i < 3; ++i) f.trainer.step(false);
            tools::set_allocate_data_callback(nullptr);
            CHECK(allocations == 0);
        }
    }
}

namespace {

// Dense at step 1, sparse from step 2 on.
config::RunConfig sparse(config::OptimizerKind kind, config::Elements elements) {
    config::RunConfig c = tiny(config::Family::gpt);
    c.optimizer.kind = kind;
    c.exchange.elements = elements;
    c.sparsity.density = c.sparsity.density_start = 0.1;
    c.sparsity.warmup_steps = 0;
    c.comm.bucket_mb = 0.01;
    return c;
}

std::vector<config::RunConfig> sparse_runs() {
    using config::Elements;
    using config::OptimizerKind;
    std::vector<config::RunConfig> runs{sparse(OptimizerKind::scape, Elements::automatic),
                                        sparse(OptimizerKind::scape, Elements::automatic),
                                        sparse(OptimizerKind::scape, Elements::automatic),
                                        sparse(OptimizerKind::adamw, Elements::topk_ef),
                                        sparse(OptimizerKind::adams, Elements::clt_k)};
    runs[1].scape.rule = config::ScapeRule::paper;
    runs[2].error_feedback.storage = config::FeedbackStorage::host;
    runs[2].exchange.value_bits = 16;
    return runs;
}

}  // namespace

TEST_CASE("nor by a sparse optimizer") {
    for (const config::RunConfig& c : sparse_runs()) {
        Fixture f(c);
        f.trainer.step(false);
        allocations = 0;
        tools::set_allocate_data_callback([](Kokkos::Tools::SpaceHandle, const char*, const void*,
                                             std::uint64_t) { ++allocations; });
        for (int i = 0; i < 3; ++i) CHECK(f.trainer.step(false).density == 0.1);
        tools::set_allocate_data_callback(nullptr);
        CHECK(allocations == 0);
    }
}

TEST_CASE("every kernel has a name that is a path of this program") {
    labels.clear();
    tools::set_begin_parallel_for_callback(note_label);
    tools::set_begin_parallel_reduce_callback(note_label);
    for (const auto family : {config::Family::gpt, config::Family::llama}) {
        Fixture f(tiny(family));
        f.trainer.step(false);
        f.trainer.evaluate();
    }
    for (config::RunConfig c : sparse_runs()) {
        c.metrics.feedback_every = 1;
        Fixture f(c);
        for (int i = 0; i < 3; ++i) f.trainer.step(false);
    }
    tools::set_begin_parallel_for_callback(nullptr);
    tools::set_begin_parallel_reduce_callback(nullptr);
    CHECK(labels.size() > 30);
    for (const std::string& label : labels) {
        // Kokkos names its own initialisation and copies of Views.
        if (label.rfind("Kokkos::", 0) == 0) continue;
        CHECK(label.rfind("scape::", 0) == 0);
    }
}

TEST_CASE("the account of a dry run is what is really allocated") {
    for (const auto kind : {config::OptimizerKind::adamw, config::OptimizerKind::adams}) {
        config::RunConfig c = tiny(config::Family::gpt);
        c.optimizer.kind = kind;
        Fixture f(c);
        const train::MemoryAccount said = train::step_cost(c, 1).memory;
        const train::MemoryAccount is = f.trainer.memory();
        CHECK(said.parameters == is.parameters);
        CHECK(said.gradients == is.gradients);
        CHECK(said.state == is.state);
        CHECK(said.activations == is.activations);
        CHECK(said.exchange == is.exchange);
    }
}

TEST_CASE("the first loss is that of a uniform guess, and it falls") {
    Fixture f(tiny(config::Family::gpt));
    const double first = f.trainer.step(false).loss;
    CHECK(first == Approx(std::log(37.0)).epsilon(0.02));
    double last = first;
    for (int i = 0; i < 19; ++i) last = f.trainer.step(false).loss;
    CHECK(last < first - 0.05);
    CHECK(f.trainer.tokens_seen() == 20 * 6 * 16);
    CHECK(f.dataset.entropy_rate.value() < last);
}

TEST_CASE("the gradient clip bounds the step, and parameters without gradient only decay") {
    config::RunConfig c = tiny(config::Family::gpt);
    c.optimizer.lr = 0.5;
    c.optimizer.warmup_steps = 0;
    c.optimizer.schedule = config::ScheduleKind::constant;
    c.train.seq_len = 8;  // positions 8 to 15 are never used
    Fixture f(c);
    const Tensor wpe = f.trainer.layout().tensor("wpe");
    const auto row = [&] {
        const auto host =
            Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), f.trainer.parameters());
        return std::vector<float>(host.data() + wpe.offset + 8 * 24,
                                  host.data() + wpe.offset + 16 * 24);
    };
    const std::vector<float> before = row();
    f.trainer.step(false);
    const std::vector<float> after = row();
    const float keep = 1.f - 0.5f * 0.1f;
    for (std::size_t i = 0; i < before.size(); ++i)
        CHECK(after[i] == Approx(before[i] * keep).epsilon(1e-6));
}

TEST_CASE("a budget is what a run sends, on average") {
    for (const double budget : {1.2, 0.5, 0.2, 0.1, 0.05}) {
        for (const int ranks : {2, 8}) {
            const config::RunConfig c = config::parse_run_config(
                fmt::format("[model]\nlayers = 12\nwidth = 768\n[train]\nsteps = 10000\n"
                            "[optimizer]\nkind = \"scape\"\n[exchange]\nbytes_per_param = {}\n",
                            budget),
                "d");
            const train::StepCost cost = train::step_cost(c, ranks);
            INFO("budget " << budget << ", " << ranks << " ranks");
            // Norm gains, biases and the ends of slices are a small model's burden.
            CHECK(cost.average_bytes_per_parameter <= budget * 1.08);
            CHECK(cost.average_bytes_per_parameter >= budget * 0.88);
            CHECK(train::describe(cost, c).find("budget  ") != std::string::npos);
        }
    }
}
