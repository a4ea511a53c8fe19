#pragma once
// What AdamW, AdamS and SGD share: their numbers, and the way from an optimizer to a slice's
// kernel.

#include <scape/optim/element_update.hpp>
#include <scape/optim/optimizer.hpp>

namespace scape::optim {

std::unique_ptr<Optimizer> make_adamw(const config::OptimizerSection& config, Index shard_extent);
std::unique_ptr<Optimizer> make_adams(const config::OptimizerSection& config, Index shard_extent);
std::unique_ptr<Optimizer> make_sgd(const config::OptimizerSection& config, Index shard_extent);

ElementNumbers element_numbers(const config::OptimizerSection& config, const StepNumbers& numbers,
                               bool decay);

// Throws std::logic_error unless w, gradient and the slice's part of the shard have one length.
void check_slice(const Slice& slice, Index shard_extent, Span<float> w, Span<const float> gradient);

}  // namespace scape::optim
