// A few steps of the sharded optimizer, against the same steps on one rank: the owner's part of a
// training step without a model.
//
//     gradients (all ranks) ─ reduce-scatter ─ norm, clip ─ update of own slices ─ all-gather
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/comm/mpi_native.hpp>
#include <scape/optim/exchange.hpp>

#include <cmath>

using namespace scape;
using namespace scape::optim;
using namespace scape::test;

namespace {

FlatLayout layout_of_a_small_model() {
    FlatLayout layout;
    layout.add("wte", {257, 7}, 320);
    layout.add("gain", {7});
    layout.add("one", {1});
    layout.add("w", {53, 31});
    return layout;
}

// Weights (logical elements alone count) after some steps with clipping to `max_norm` (0: none).
std::vector<float> train(comm::Communicator& comm, config::OptimizerKind kind, Index bucket_bytes,
                         double max_norm) {
    const FlatLayout layout = layout_of_a_small_model();
    const Sharding sharding(layout, comm.size(), bucket_bytes);
    const Index extent = sharding.extent();
    std::vector<float> start = normal_values(layout.extent(), 3);
    start.resize(extent, 0.f);
    const Vec<float> parameters = to_device(start);
    const Vec<float> gradients = filled(extent, 0.f);
    config::OptimizerSection c;
    c.kind = kind;
    const auto owner = make_dense_owner(c, layout, sharding, comm.rank());
    Exchange exchange(comm, layout, sharding, parameters, gradients, {*owner}, {.buffers = 2});
    const Vec<double> squares("squares", 1);
    const Exec exec;

    for (Index t = 1; t <= 7; ++t) {
        // The padding has no gradient, as in a model.
        const std::vector<float> drawn = normal_values(layout.extent(), 50 + t, 0.1);
        std::vector<float> g(extent, 0.f);
        for (const Tensor& tensor : layout.tensors()) {
            std::copy_n(drawn.begin() + tensor.offset, tensor.size, g.begin() + tensor.offset);
        }
        exchange.finish_gathers(exec);
        Kokkos::deep_copy(gradients, HostSpan<const float>(g.data(), extent));
        exchange.begin_step(exec, {});
        exchange.gradients_final(exec, layout.tensor("w").offset);
        exchange.finish_reduce(exec);
        Kokkos::deep_copy(squares, 0.0);
        owner->add_squares(exec, squares);
        const double norm = std::sqrt(comm.all_reduce_sum({to_host(squares)[0]})[0]);
        StepNumbers numbers{t, 1e-3f, 1.f};
        if (max_norm > 0)
            numbers.grad_scale = static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
        for (int b = 0; b < sharding.buckets(); ++b) {
            const Weights weights = exchange.weights(exec, b);
            const Arrived arrived = exchange.arrived(exec, b);
            owner->update(exec, numbers, arrived, weights);
            exchange.gather_begin(exec, arrived);
        }
        owner->end_step(exec);
    }
    exchange.finish_gathers(exec);
    std::vector<float> weights = to_host(parameters);
    weights.resize(layout.extent());
    return weights;
}

}  // namespace

TEST_CASE("sharded steps are the steps of one rank") {
    const auto comm = comm::make_mpi(MPI_COMM_WORLD);
    const auto self = comm::make_self();
    // (g + g) / 2 and the sum of four are exact, the thirds are not.
    const bool exact = comm->size() != 3;
    for (const auto kind : {config::OptimizerKind::adamw, config::OptimizerKind::adams}) {
        for (const Index bucket_bytes : {Index(1), Index(2000), Index(1) << 30}) {
            INFO("rank " << comm->rank() << ", buckets of " << bucket_bytes << " bytes");
            const auto one = train(*self, kind, bucket_bytes, 0);
            const auto sharded = train(*comm, kind, bucket_bytes, 0);
            if (exact) check_same_bits("weights", sharded, one);
            check_close("weights", sharded, one, 1e-6, 1e-6);

            const auto clipped = train(*comm, kind, bucket_bytes, 1.5);
            check_close("clipped", clipped, train(*self, kind, bucket_bytes, 1.5), 1e-6, 1e-6);
            check_same_bits("run twice", train(*comm, kind, bucket_bytes, 1.5), clipped);
            // All replicas agree bit for bit.
            std::vector<float> root = clipped;
            comm->broadcast_host(root.data(), static_cast<Index>(root.size() * 4), 0);
            check_same_bits("replicas", clipped, root);
        }
    }
}
