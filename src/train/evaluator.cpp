#include <scape/train/evaluator.hpp>

#include <scape/base/fence.hpp>
#include <scape/train/micro_batch.hpp>

#include <algorithm>

namespace scape::train {

Evaluation evaluate(const Exec& exec, model::Model<float>& model, comm::Communicator& comm,
                    const data::TokenStream& stream, data::BatchLoader& loader, Index samples,
                    Index micro_batch, const model::Hooks& hooks) {
    const Vec<double> loss("scape::train::evaluation_loss", 1);
    const Index share = (samples + comm.size() - 1) / comm.size();
    const Index begin = std::min(samples, comm.rank() * share);
    const Index end = std::min(samples, begin + share);

    Index targets = 0;
    for (Index first = begin; first < end; first += micro_batch) {
        const Index count = std::min(micro_batch, end - first);
        targets += loader.fill(exec, stream, first, count);
        const model::Batch batch = train::micro_batch(loader, 0, count);
        model.forward(exec, batch, false, hooks);
        model.loss(exec, batch, 0, loss, hooks);
    }

    double loss_sum = 0;
    const HostVec<double> on_host(&loss_sum, 1);
    Kokkos::deep_copy(exec, on_host, loss);
    fence(exec, "scape::train::evaluate");
    const auto sums = comm.all_reduce_sum({loss_sum, static_cast<double>(targets)});
    return {sums[0] / std::max(sums[1], 1.0), static_cast<Index>(sums[1]), samples};
}

}  // namespace scape::train
