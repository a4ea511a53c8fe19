#pragma once
/// @file
/// Rows of what the loader brought to the device, as the model takes them.

#include <scape/data/batch.hpp>
#include <scape/model/model.hpp>

namespace scape::train {

/// Rows [first, first + count) of the last fill.
inline model::Batch micro_batch(const data::BatchLoader& loader, Index first, Index count) {
    const Index seq = loader.seq_len();
    const data::TokensOnDevice& all = loader.device();
    return {slice(all.tokens, first * seq, (first + count) * seq),
            slice(all.targets, first * seq, (first + count) * seq), count, seq};
}

}  // namespace scape::train
