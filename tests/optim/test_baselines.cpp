// The top-k baselines against the simulator, at 1, 2, 3 and 4 ranks: weights and error feedback
// after every one of 20 steps, bit for bit; and the bytes that travel.
#include "optim/scape_rig.hpp"
#include "support/catch.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/baselines.hpp>

#include <algorithm>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

constexpr Index steps = 20;

struct Case {
    config::Elements elements = config::Elements::topk_ef;
    config::OptimizerKind owner = config::OptimizerKind::adamw;
    Index value_bits = 32;
    Index bucket_bytes = 2000;
    int buffers = 2;
};

config::RunConfig config_of(const Case& c) {
    config::RunConfig config;
    config.optimizer.kind = c.owner;
    config.optimizer.clip_norm = 2;
    config.exchange.elements = c.elements;
    config.exchange.value_bits = c.value_bits;
    config.sparsity.density = 0.05;
    config.sparsity.dense_steps = 1;
    config.sparsity.warmup_steps = 8;
    config.train.steps = steps;
    return config;
}

void check_against_simulator(comm::Communicator& inner, const Case& c) {
    comm::CountingCommunicator comm(inner);
    const int P = comm.size();
    const int me = comm.rank();
    const Exec exec;
    const config::RunConfig config = config_of(c);
    const FlatLayout layout = odd_layout();
    const Sharding sharding(layout, P, c.bucket_bytes);
    const double largest = largest_sparse_density(config);
    const bool bf16 = c.value_bits == 16;

    SimConfig sim = simulated(config);
    sim.elements = c.elements == config::Elements::topk_ef ? SimConfig::Elements::topk_ef
                                                           : SimConfig::Elements::clt_k;
    sim.owner =
        c.owner == config::OptimizerKind::adamw ? SimConfig::Owner::adamw : SimConfig::Owner::adams;
    const auto flat_of = [&](std::uint64_t seed, double deviation) {
        std::vector<float> flat(static_cast<std::size_t>(sharding.extent()), 0.f);
        for (const Tensor& t : layout.tensors()) {
            const auto values = normal_values(t.size, seed + 17 * t.offset, deviation);
            std::copy(values.begin(), values.end(), flat.begin() + t.offset);
        }
        return flat;
    };
    Simulator<float> simulator(sim, geometry_of(layout, sharding), P, flat_of(3, 1));

    const Vec<float> parameters = to_device(flat_of(3, 1));
    const Vec<float> gradients = filled(sharding.extent(), 0.f);
    const auto elements =
        make_baseline(c.elements, comm, layout, sharding, config.sparsity, largest);
    ErrorFeedback feedback({}, sharding, me);
    const auto owner = make_dense_owner(config.optimizer, layout, sharding, me);
    Exchange exchange(comm, sharding, parameters, gradients, *owner, elements.get(), &feedback,
                      {.code = bf16 ? kernels::ValueCode::bf16 : kernels::ValueCode::fp32,
                       .rest = kernels::Rest::kept,
                       .buffers = c.buffers,
                       .largest_density = largest});
    MaskPlan plan(layout, sharding, config.sparsity, MaskPlan::CodeOrder::by_bucket);
    CHECK(
        exchange.buffer_bytes() ==
        Exchange::buffer_bytes(sharding, &plan, me, true, elements->own_choice(),
                               {.code = bf16 ? kernels::ValueCode::bf16 : kernels::ValueCode::fp32,
                                .rest = kernels::Rest::kept,
                                .buffers = c.buffers,
                                .largest_density = largest}));
    CHECK(elements->device_bytes() ==
          baseline_device_bytes(c.elements, layout, sharding, config.sparsity, largest));

    for (Index t = 1; t <= steps; ++t) {
        INFO("rank " << me << " of " << P << ", step " << t << ", elements "
                     << static_cast<int>(c.elements) << ", " << c.value_bits << " bits");
        std::vector<std::vector<float>> g;
        for (int r = 0; r < P; ++r)
            g.push_back(flat_of(static_cast<std::uint64_t>(1000 * t + r), 0.1));
        simulator.step(g, 1e-2f);

        comm.reset();
        exchange.begin_step(exec, {t, density(config, t), density(config, t + 1)});
        std::vector<float> a = to_host(gradients);
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += g[me][i];
        Kokkos::deep_copy(gradients, HostSpan<const float>(a.data(), a.size()));
        exchange.gradients_final(exec, sharding.extent() / 3);
        exchange.finish_reduce(exec);
        const Vec<double> squares("squares", 1);
        owner->add_squares(exec, squares);
        const double norm = std::sqrt(comm.all_reduce_sum({to_host(squares)[0]})[0]);
        CHECK(norm == Approx(simulator.received_norm()).epsilon(1e-6));
        const StepNumbers numbers{t, 1e-2f, static_cast<float>(std::min(1.0, 2.0 / (norm + 1e-6)))};
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Span<float> back = exchange.back(exec, b);
            owner->update(exec, numbers, exchange.arrived(exec, b), exchange.weights(b), back);
            exchange.gather_begin(exec, b);
        }
        owner->end_step(exec);
        if (exchange.straight()) kernels::fill_zero<float>(exec, gradients);
        exchange.finish_gathers(exec);
        check_same_bits("weights", to_host(parameters), simulator.weights());
        check_same_bits("error feedback", to_host(gradients), simulator.residual(me));

        plan.set(density(config, t));
        const MaskPlan::Sent sent = plan.bytes_sent(bf16 ? 2 : 4, c.elements);
        const auto traffic = comm.traffic();
        const bool own = c.elements == config::Elements::topk_ef;
        CHECK(traffic[0].bytes_sent == sent.gradients + (own ? sent.masks : 0));
        CHECK(traffic[1].bytes_sent == sent.weights);
        const bool leads = !own && !plan.all() && t % P == me;
        CHECK(traffic[3].bytes_sent ==
              (leads ? (P - 1) * plan.code_range(sharding.buckets() - 1).end : 0));
    }
}

}  // namespace

TEST_CASE("top-k baselines give the simulator's weights and error feedback, bit for bit") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    for (const auto elements : {config::Elements::topk_ef, config::Elements::clt_k}) {
        for (const auto owner : {config::OptimizerKind::adamw, config::OptimizerKind::adams})
            check_against_simulator(*comm, {.elements = elements, .owner = owner});
        check_against_simulator(*comm, {.elements = elements, .value_bits = 16});
        check_against_simulator(*comm, {.elements = elements, .bucket_bytes = 1, .buffers = 1});
        check_against_simulator(*comm, {.elements = elements, .bucket_bytes = 1 << 20});
    }
}
