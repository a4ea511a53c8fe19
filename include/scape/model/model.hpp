#pragma once
/// @file
/// A language model as the trainer sees it: one flat layout of parameters, and a pass over a
/// micro-batch in three calls. It knows nothing of ranks, optimizers or files.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>
#include <scape/model/parameters.hpp>

#include <functional>
#include <memory>

namespace scape::model {

/// What the trainer hangs into a pass, so that communication overlaps with it. Offsets are elements
/// of the flat buffer; because tensors lie in forward order, one number says it all.
struct Hooks {
    /// The parameters before `end` are about to be used.
    std::function<void(Index end)> before_use = [](Index) {};
    /// The gradients from `begin` on will not change any more in this micro-batch.
    std::function<void(Index begin)> gradients_final = [](Index) {};
};

/// A micro-batch on the device. tokens, targets (B T), row by row; targets hold ignored_target
/// where nothing is to be predicted.
struct Batch {
    Span<const Token> tokens;
    Span<const Token> targets;
    Index batch = 0;  // B
    Index seq = 0;    // T
};

/// T: element type of parameters and activations. Gradients of parameters are fp32.
/// Conventions: parameters' gradients are +=, activations' gradients are overwritten.
template <class T>
class Model {
   public:
    virtual ~Model() = default;

    virtual const FlatLayout& layout() const = 0;
    /// How tensor i of the layout starts (GPT-2's scheme; projections into the residual stream are
    /// divided by sqrt(2 layers)).
    virtual Init init(int tensor) const = 0;

    /// Allocates the arena for micro-batches of up to batch x seq tokens, seq <= max_seq_len. Once,
    /// before any pass. `backward` = false: buffers for forward, loss(grad_scale = 0) and logits
    /// alone. Throws user_error (resources) when there is not enough memory.
    virtual void allocate(Index batch, Index seq, bool backward = true) = 0;
    /// Exactly what allocate would take.
    virtual Index activation_bytes(Index batch, Index seq, bool backward = true) const = 0;

    /// The flat buffers that all passes read and add to, layout().extent() elements or more.
    /// `gradients` may be empty where no pass runs backward.
    virtual void bind(Span<const T> parameters, Span<float> gradients) = 0;

    /// Embedding, layers and final norm. `keep` = activations are kept for backward.
    virtual void forward(const Exec& exec, const Batch& batch, bool keep, const Hooks& hooks) = 0;
    /// After forward: what the head gets, (B T C).
    virtual Span<const T> outputs() const = 0;
    /// loss[0] += sum of the losses of the unmasked targets. With grad_scale != 0 the head's
    /// backward runs in the same pass over the logits, chunk by chunk, with gradients scaled by it.
    virtual void loss(const Exec& exec, const Batch& batch, float grad_scale, Span<double> loss,
                      const Hooks& hooks) = 0;
    /// Layers and embedding, backwards, after forward(keep) and loss(grad_scale != 0).
    virtual void backward(const Exec& exec, const Batch& batch, const Hooks& hooks) = 0;

    /// After forward: logits (vocab) of one position (row = b * seq + t), fp32.
    virtual void logits(const Exec& exec, const Batch& batch, Index row, Span<float> out) = 0;
};

/// The family that the deck asks for. Throws as `dimensions` does.
template <class T>
std::unique_ptr<Model<T>> make_model(const config::ModelConfig& config);

/// The layout alone, without buffers: for dry runs, inspection and sharding.
FlatLayout make_layout(const config::ModelConfig& config);

}  // namespace scape::model
