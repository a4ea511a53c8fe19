#pragma once
/// @file
/// Which tensors a model has, in the order in which the forward pass first needs them, and how each
/// of them starts. Weights are (out, in), row-major; wte and head.weight are stored with
/// config.padded_vocab() rows.
///
///     gpt     wte (V, C)  wpe (T_max, C)
///             h.L.ln1.gain .bias (C)        h.L.attn.qkv.weight (3C, C) .bias   attn.proj (C, C)
///             h.L.ln2.gain .bias (C)        h.L.mlp.fc.weight (F, C) .bias      mlp.proj (C, F)
///             lnf.gain .bias (C)            head.weight (V, C) if not tied
///     llama   wte (V, C)
///             layers.L.norm1.gain (C)       attn.qkv.weight ((H + 2 Hkv) D, C)  attn.proj.weight
///             layers.L.norm2.gain (C)       mlp.gate_up.weight (2F, C)          mlp.down.weight
///             norm.gain (C)                 head.weight (V, C) if not tied
///     mlp.gate_up: the F rows of the gate first, then those of up. attn.qkv: queries, keys,
///     values.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>

#include <string>
#include <vector>

namespace scape::model {

/// How a tensor starts.
struct Init {
    double stddev = 0;  ///< normal(0, stddev)
    double value = 0;   ///< constant, used where stddev = 0
};

/// The sizes that shapes are written in, with the deck's defaults filled in.
struct Dimensions {
    Index layers = 0;        // L
    Index width = 0;         // C
    Index heads = 0;         // H
    Index kv_heads = 0;      // Hkv
    Index head_dim = 0;      // D
    Index ffn = 0;           // F
    Index max_seq = 0;       // T_max
    Index vocab = 0;         // V
    Index padded_vocab = 0;  // Vp

    Index qkv() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// Throws user_error (usage) for sizes that contradict each other: heads must divide the width,
/// kv_heads the heads, and rotary positions need an even head size.
Dimensions dimensions(const config::ModelConfig& config);

/// Tensors in groups: the embeddings, each layer, the final norm, and the head if it is not tied.
/// A group is what a pass waits for, or finishes, at once.
struct ParameterPlan {
    FlatLayout layout;
    std::vector<Init> inits;         ///< one for each tensor of the layout
    std::vector<Index> group_begin;  ///< first element of each group in the flat buffer

    Index group_end(Index group) const;
};

ParameterPlan plan_parameters(const config::ModelConfig& config);

/// Named tensors of one flat buffer. E: const T for parameters, float for gradients.
template <class E>
class TensorViews {
   public:
    TensorViews(const FlatLayout& layout, Span<E> buffer) : layout_(layout), buffer_(buffer) {}

    /// A one-dimensional tensor.
    Span<E> vector(const std::string& name) const {
        const Tensor& t = layout_.tensor(name);
        return slice(buffer_, t.offset, t.offset + t.size);
    }
    /// A two-dimensional tensor with its padding rows.
    Mat<E> matrix(const std::string& name) const {
        const Tensor& t = layout_.tensor(name);
        const Index cols = t.shape.at(1);
        return Mat<E>(buffer_.data() + t.offset, static_cast<std::size_t>(t.storage / cols),
                      static_cast<std::size_t>(cols));
    }

   private:
    const FlatLayout& layout_;
    Span<E> buffer_;
};

}  // namespace scape::model
