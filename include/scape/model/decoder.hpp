#pragma once
/// @file
/// What both families share: the residual stream through the layers and back, recompute, the head,
/// and the hooks. A family says what a layer computes.

#include <scape/kernels/attention.hpp>
#include <scape/model/activations.hpp>
#include <scape/model/head.hpp>
#include <scape/model/model.hpp>

namespace scape::model {

/// All elements of a matrix, for kernels that see (B, T, ...) rather than rows.
template <class E>
Span<E> flat(Mat<E> m) {
    return Span<E>(m.data(), m.size());
}

template <class T>
class Decoder : public Model<T> {
   public:
    explicit Decoder(const config::ModelConfig& config);

    const FlatLayout& layout() const override { return plan_.layout; }
    Init init(int tensor) const override {
        return plan_.inits.at(static_cast<std::size_t>(tensor));
    }
    void allocate(Index batch, Index seq, bool backward = true) override;
    Index activation_bytes(Index batch, Index seq, bool backward = true) const override;
    void bind(Span<const T> parameters, Span<float> gradients) override;
    void forward(const Exec& exec, const Batch& batch, bool keep, const Hooks& hooks) override;
    Span<const T> outputs() const override {
        return Span<const T>(activations_.y.data(), activations_.y.size());
    }
    void loss(const Exec& exec, const Batch& batch, float grad_scale, Span<double> loss,
              const Hooks& hooks) override;
    void backward(const Exec& exec, const Batch& batch, const Hooks& hooks) override;
    void logits(const Exec& exec, const Batch& batch, Index row, Span<float> out) override;

   protected:
    const config::ModelConfig& config() const { return config_; }
    const Dimensions& dims() const { return dims_; }
    Activations<T>& activations() { return activations_; }
    kernels::AttentionShape attention_shape() const {
        return {activations_.batch, activations_.seq, dims_.heads, dims_.kv_heads, dims_.head_dim};
    }

    /// Finds the family's tensors in the flat buffers; no gradients where that one is empty.
    virtual void bind_tensors(Span<const T> parameters, Span<float> gradients) = 0;
    /// x (N, C) = embedding of the tokens.
    virtual void embed(const Exec& exec, const Batch& batch, Mat<T> x) = 0;
    virtual void embed_backward(const Exec& exec, const Batch& batch, Mat<const T> d_x) = 0;
    /// Everything of layer l that its backward pass needs, from its input x (N, C).
    virtual void layer_inner(const Exec& exec, Index l, Mat<const T> x, LayerActivations<T>& a) = 0;
    /// The layer's last product: out (N, C) = a.mid + projection of a.activated.
    virtual void layer_output(const Exec& exec, Index l, const LayerActivations<T>& a,
                              Mat<T> out) = 0;
    /// grad.d_x: the gradient of the layer's output on entry, of its input on return.
    virtual void layer_backward(const Exec& exec, Index l, Mat<const T> x,
                                const LayerActivations<T>& a, const BackwardBuffers<T>& grad) = 0;
    /// activations().y = norm(x), and backward: d_x += from d_y.
    virtual void final_norm(const Exec& exec, Mat<const T> x) = 0;
    virtual void final_norm_backward(const Exec& exec, Mat<const T> x, Mat<const T> d_y,
                                     Mat<T> d_x) = 0;
    /// Called once by allocate, for tables that live in the arena.
    virtual void fill_tables() {}

   private:
    enum class State { idle, forward, kept, differentiated };

    void shape_for(const Batch& batch);
    void require(bool condition, const char* what) const;
    Index embedding_group() const { return 0; }
    Index layer_group(Index l) const { return 1 + l; }
    Index norm_group() const { return 1 + dims_.layers; }

    config::ModelConfig config_;
    Dimensions dims_;
    ParameterPlan plan_;
    Vec<char> arena_;
    bool with_backward_ = false;
    Activations<T> activations_;
    Head<T> head_;
    State state_ = State::idle;
};

}  // namespace scape::model
