#pragma once
/// @file
/// A small model with its buffers, run as the trainer runs it.

#include "support/random.hpp"

#include <scape/model/model.hpp>

#include <memory>
#include <vector>

namespace scape::test {

/// Odd sizes: vocabulary 37, head size 8, 3 heads, 2 layers; llama: one key head for three queries.
inline config::ModelConfig tiny_config(config::Family family, bool tied = true) {
    config::ModelConfig c;
    c.family = family;
    c.layers = 2;
    c.width = 24;
    c.heads = 3;
    c.kv_heads = family == config::Family::llama ? 1 : 0;
    c.ffn_width = 41;
    c.max_seq_len = 9;
    c.vocab = 37;
    c.tied = tied;
    return c;
}

/// The same values for a tensor wherever it lies; gains near 1, and biases that are not 0, so that
/// no mistake hides behind either.
inline std::vector<float> tensor_values(std::size_t number, const Tensor& t) {
    const bool gain = t.name.find("gain") != std::string::npos;
    return normal_values(t.size, 100 + number, gain ? 0.2 : 0.25, gain ? 1 : 0);
}

inline std::vector<float> flat_values(const FlatLayout& layout) {
    std::vector<float> flat(layout.extent(), 0.f);
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
        const Tensor& t = layout.tensors()[i];
        const std::vector<float> values = tensor_values(i, t);
        std::copy(values.begin(), values.end(), flat.begin() + t.offset);
    }
    return flat;
}

struct Sample {
    std::vector<Token> tokens;
    std::vector<Token> targets;
    Index batch;
    Index seq;
};

inline Sample sample_of(Index batch, Index seq, Index vocab, std::uint64_t seed = 7,
                        Index ignore_every = 0) {
    return {token_values(batch * seq, seed, vocab),
            token_values(batch * seq, seed + 1, vocab, ignore_every), batch, seq};
}

class ModelRun {
   public:
    ModelRun(const config::ModelConfig& config, Index batch, Index seq, bool with_backward = true)
        : model(model::make_model<float>(config)),
          parameters(to_device(flat_values(model->layout()))),
          gradients(filled<float>(with_backward ? model->layout().extent() : 0, 0.f)),
          loss(filled<double>(1, 0.0)) {
        model->allocate(batch, seq, with_backward);
        bind();
    }
    void bind() { model->bind(slice(parameters, 0, parameters.extent(0)), all(gradients)); }

    template <class E>
    static Span<E> all(const Vec<E>& v) {
        return slice(v, 0, static_cast<Index>(v.extent(0)));
    }

    /// One micro-batch; returns the sum of its losses. grad_scale 0: no gradients.
    double pass(const Sample& s, float grad_scale, const model::Hooks& hooks = {}) {
        const Exec exec;
        const Vec<Token> tokens = to_device(s.tokens), targets = to_device(s.targets);
        const model::Batch batch{all(tokens), all(targets), s.batch, s.seq};
        Kokkos::deep_copy(loss, 0.0);
        model->forward(exec, batch, grad_scale != 0, hooks);
        model->loss(exec, batch, grad_scale, all(loss), hooks);
        if (grad_scale != 0) model->backward(exec, batch, hooks);
        return to_host(loss)[0];
    }

    /// After a pass(s, 0): logits (N, V) of all positions.
    std::vector<float> logits(const Sample& s, Index vocab) {
        const Exec exec;
        const Vec<Token> tokens = to_device(s.tokens);
        const model::Batch batch{all(tokens), {}, s.batch, s.seq};
        const Vec<float> row = filled<float>(vocab, 0.f);
        std::vector<float> out;
        for (Index i = 0; i < s.batch * s.seq; ++i) {
            model->logits(exec, batch, i, all(row));
            const std::vector<float> values = to_host(row);
            out.insert(out.end(), values.begin(), values.end());
        }
        return out;
    }

    /// Logical elements of one tensor's gradient.
    std::vector<float> gradient(const std::string& name) const {
        const Tensor& t = model->layout().tensor(name);
        return to_host(slice(gradients, t.offset, t.offset + t.size));
    }

    std::unique_ptr<model::Model<float>> model;
    Vec<float> parameters;
    Vec<float> gradients;
    Vec<double> loss;
};

}  // namespace scape::test
