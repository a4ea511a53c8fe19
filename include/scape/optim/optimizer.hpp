#pragma once
/// @file
/// The owner's side of a step: weights and moments of its shard, touched by nobody else.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace scape::optim {

/// Numbers of one step, the same on every rank.
struct StepNumbers {
    Index step = 1;        ///< t, from 1
    float lr = 0;          ///< eta
    float grad_scale = 1;  ///< clip coefficient
};

/// One named array of optimizer state over the shard, element for element (checkpoints store it per
/// tensor under this name).
struct State {
    std::string name;
    /// shard_extent elements
    std::variant<Vec<float>, Vec<std::uint32_t>, Vec<std::uint8_t>> values;
    Index bytes() const {
        return std::visit(
            [](const auto& v) {
                using V = std::decay_t<decltype(v)>;
                return static_cast<Index>(v.span() * sizeof(typename V::value_type));
            },
            values);
    }
};

class Optimizer {
   public:
    virtual ~Optimizer() = default;
    /// Updates the weights of one slice.   w, gradient: the slice; the state is the optimizer's
    /// own.
    virtual void update(const Exec& exec, const StepNumbers& numbers, const Slice& slice,
                        bool decay, Span<float> w, Span<const float> gradient) = 0;
    virtual std::vector<State> state() = 0;
};

/// AdamW (arXiv 1711.05101), AdamS (arXiv 2505.16363) or SGD with momentum, as the deck asks.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimizerSection& config,
                                          Index shard_extent);

/// How many arrays of shard_extent floats that optimizer keeps.
Index state_arrays(config::OptimizerKind kind);

}  // namespace scape::optim
