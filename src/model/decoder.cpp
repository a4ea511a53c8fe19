#include <scape/base/error.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/model/decoder.hpp>

#include <fmt/format.h>

#include <stdexcept>

namespace scape::model {

template <class T>
Decoder<T>::Decoder(const config::ModelConfig& config)
    : config_(config), dims_(dimensions(config)), plan_(plan_parameters(config)) {}

template <class T>
void Decoder<T>::require(bool condition, const char* what) const {
    if (!condition) throw std::logic_error(std::string("model: ") + what);
}

template <class T>
Index Decoder<T>::activation_bytes(Index batch, Index seq, bool backward) const {
    Arena measure;
    plan_activations<T>(measure, config_, batch, seq, backward);
    return measure.bytes();
}

template <class T>
void Decoder<T>::allocate(Index batch, Index seq, bool backward) {
    require(batch > 0 && seq > 0 && seq <= dims_.max_seq, "allocate: batch or sequence length");
    const Index bytes = activation_bytes(batch, seq, backward);
    arena_ = Vec<char>();  // the old arena first, if there is one
    try {
        arena_ =
            Vec<char>(Kokkos::view_alloc("scape::model::activations", Kokkos::WithoutInitializing),
                      static_cast<std::size_t>(bytes));
    } catch (const std::exception& e) {
        throw user_error(ExitCode::resources,
                         fmt::format("no memory for {} bytes of activations (micro-batch {} x {}): "
                                     "lower train.micro_batch or train.seq_len, or set "
                                     "model.recompute = \"layer\" ({})",
                                     bytes, batch, seq, e.what()));
    }
    with_backward_ = backward;
    Arena arena(slice(arena_, 0, bytes));
    activations_ = plan_activations<T>(arena, config_, batch, seq, backward);
    fill_tables();
    state_ = State::idle;
}

template <class T>
void Decoder<T>::bind(Span<const T> parameters, Span<float> gradients) {
    const auto extent = static_cast<std::size_t>(plan_.layout.extent());
    require(parameters.extent(0) >= extent, "bind: the parameter buffer is too short");
    require(gradients.extent(0) >= extent || gradients.extent(0) == 0,
            "bind: the gradient buffer is too short");
    const char* name = config_.tied ? "wte" : "head.weight";
    head_.vocab = dims_.vocab;
    head_.weight = TensorViews<const T>(plan_.layout, parameters).matrix(name);
    if (gradients.extent(0) > 0)
        head_.d_weight = TensorViews<float>(plan_.layout, gradients).matrix(name);
    bind_tensors(parameters, gradients);
}

/// Cuts the arena again where the micro-batch has another shape than the last one.
template <class T>
void Decoder<T>::shape_for(const Batch& batch) {
    require(arena_.extent(0) > 0, "forward before allocate");
    require(head_.weight.extent(0) > 0, "forward before bind");
    require(batch.batch > 0 && batch.seq > 0 && batch.seq <= dims_.max_seq,
            "forward: batch or sequence length");
    require(static_cast<Index>(batch.tokens.extent(0)) == batch.batch * batch.seq,
            "forward: the number of tokens is not batch x seq");
    if (batch.batch == activations_.batch && batch.seq == activations_.seq) return;
    Arena arena(slice(arena_, 0, static_cast<Index>(arena_.extent(0))));
    activations_ = plan_activations<T>(arena, config_, batch.batch, batch.seq, with_backward_);
}

template <class T>
void Decoder<T>::forward(const Exec& exec, const Batch& batch, bool keep, const Hooks& hooks) {
    require(with_backward_ || !keep, "forward(keep) after allocate without backward");
    shape_for(batch);
    hooks.before_use(plan_.group_end(embedding_group()));
    embed(exec, batch, activations_.stream(0));
    for (Index l = 0; l < dims_.layers; ++l) {
        hooks.before_use(plan_.group_end(layer_group(l)));
        LayerActivations<T>& a = activations_.layer(keep ? l : 0);
        layer_inner(exec, l, activations_.stream(l), a);
        layer_output(exec, l, a, activations_.stream(l + 1));
    }
    hooks.before_use(plan_.group_end(norm_group()));
    final_norm(exec, activations_.stream(dims_.layers));
    state_ = keep ? State::kept : State::forward;
}

template <class T>
void Decoder<T>::loss(const Exec& exec, const Batch& batch, float grad_scale, Span<double> loss,
                      const Hooks& hooks) {
    const bool with_gradient = grad_scale != 0.f;
    require(state_ == State::kept || (state_ == State::forward && !with_gradient),
            "loss before forward");
    require(batch.targets.extent(0) == activations_.y.extent(0),
            "loss: the number of targets is not batch x seq");
    require(!with_gradient || head_.d_weight.extent(0) > 0, "loss: no gradient buffer is bound");
    hooks.before_use(plan_.layout.extent());
    head_loss<T>(exec, head_, activations_.y, batch.targets, grad_scale, activations_.grad.d_branch,
                 activations_.logits, activations_.row_loss, loss);
    if (!with_gradient) return;
    if (!config_.tied) hooks.gradients_final(plan_.group_end(norm_group()));
    state_ = State::differentiated;
}

template <class T>
void Decoder<T>::backward(const Exec& exec, const Batch& batch, const Hooks& hooks) {
    require(state_ == State::differentiated, "backward before loss with its gradient");
    const BackwardBuffers<T>& grad = activations_.grad;
    kernels::fill_zero<T>(exec, flat(grad.d_x));
    final_norm_backward(exec, activations_.stream(dims_.layers), grad.d_branch, grad.d_x);
    hooks.gradients_final(plan_.group_begin[norm_group()]);
    for (Index l = dims_.layers - 1; l >= 0; --l) {
        const Mat<const T> x = activations_.stream(l);
        LayerActivations<T>& a = activations_.layer(l);
        // The last layer's activations are still there.
        if (config_.recompute == config::Recompute::layer && l + 1 < dims_.layers)
            layer_inner(exec, l, x, a);
        layer_backward(exec, l, x, a, grad);
        hooks.gradients_final(plan_.group_begin[layer_group(l)]);
    }
    embed_backward(exec, batch, grad.d_x);
    hooks.gradients_final(0);
    state_ = State::idle;
}

template <class T>
void Decoder<T>::logits(const Exec& exec, const Batch& batch, Index row, Span<float> out) {
    require(state_ == State::forward || state_ == State::kept, "logits before forward");
    require(row >= 0 && row < batch.batch * batch.seq, "logits: no such row");
    require(out.extent(0) >= static_cast<std::size_t>(dims_.vocab), "logits: out is too short");
    head_logits<T>(exec, head_, activations_.y, row, activations_.logits, out);
}

template class Decoder<float>;

}  // namespace scape::model
