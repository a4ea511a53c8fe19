#pragma once
/// @file
/// The loss on text that is not trained on.

#include <scape/comm/communicator.hpp>
#include <scape/data/batch.hpp>
#include <scape/data/token_stream.hpp>
#include <scape/model/model.hpp>

namespace scape::train {

struct Evaluation {
    double loss = 0;    ///< nats per unmasked token
    Index targets = 0;  ///< unmasked tokens that went into it
    Index samples = 0;  ///< sequences
};

/// Mean loss over samples [0, samples) of `stream`, shared out over the ranks in blocks; the set of
/// samples does not depend on the number of ranks or the micro-batch. The model must be allocated
/// for `micro_batch` sequences. Collective.
Evaluation evaluate(const Exec& exec, model::Model<float>& model, comm::Communicator& comm,
                    const data::TokenStream& stream, data::BatchLoader& loader, Index samples,
                    Index micro_batch, const model::Hooks& hooks = {});

}  // namespace scape::train
