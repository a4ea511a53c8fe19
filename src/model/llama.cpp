#include <scape/model/llama.hpp>

#include <scape/base/fence.hpp>
#include <scape/kernels/attention.hpp>
#include <scape/kernels/embedding.hpp>
#include <scape/kernels/norm.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/model/linear.hpp>

#include <fmt/format.h>

namespace scape::model {

namespace k = scape::kernels;

namespace {

template <class E>
LlamaTensors<E> find_tensors(const FlatLayout& layout, Index layers, Span<E> buffer) {
    const TensorViews<E> in(layout, buffer);
    LlamaTensors<E> t;
    t.wte = in.matrix("wte");
    for (Index l = 0; l < layers; ++l) {
        const std::string h = fmt::format("layers.{}.", l);
        LlamaLayer<E> layer;
        layer.norm1_gain = in.vector(h + "norm1.gain");
        layer.qkv_weight = in.matrix(h + "attn.qkv.weight");
        layer.attn_proj_weight = in.matrix(h + "attn.proj.weight");
        layer.norm2_gain = in.vector(h + "norm2.gain");
        layer.gate_up_weight = in.matrix(h + "mlp.gate_up.weight");
        layer.down_weight = in.matrix(h + "mlp.down.weight");
        t.layers.push_back(layer);
    }
    t.norm_gain = in.vector("norm.gain");
    return t;
}

}  // namespace

template <class T>
void Llama<T>::bind_tensors(Span<const T> parameters, Span<float> gradients) {
    w_ = find_tensors<const T>(this->layout(), this->dims().layers, parameters);
    d_ = gradients.extent(0) > 0
             ? find_tensors<float>(this->layout(), this->dims().layers, gradients)
             : LlamaTensors<float>{};
}

template <class T>
void Llama<T>::fill_tables() {
    const Exec exec;
    k::rope_table(exec, this->config().rope_base, this->activations().rope_table);
    fence(exec, "scape::model::rope_table");  // passes may use another instance
}

template <class T>
void Llama<T>::embed(const Exec& exec, const Batch& batch, Mat<T> x) {
    k::embedding_forward<T>(exec, batch.tokens, batch.seq, w_.wte, Mat<const T>(), x);
}

template <class T>
void Llama<T>::embed_backward(const Exec& exec, const Batch& batch, Mat<const T> d_x) {
    k::embedding_backward<T>(exec, batch.tokens, batch.seq, d_x, d_.wte, Mat<float>());
}

// x (N, C) -> norm1 (N, C) -> qkv (N, (H + 2 Hkv) D), q and k turned -> attended (N, C)
//          -> mid (N, C) = x + projection -> norm2 (N, C) -> gate and up (N, 2F) -> activated (N,
//          F)
template <class T>
void Llama<T>::layer_inner(const Exec& exec, Index l, Mat<const T> x, LayerActivations<T>& a) {
    const LlamaLayer<const T>& w = w_.layers[l];
    const auto eps = static_cast<float>(this->config().norm_eps);
    const k::AttentionShape shape = this->attention_shape();

    k::rms_norm_forward<T>(exec, x, w.norm1_gain, eps, a.norm1, a.rstd1);
    linear<T>(exec, a.norm1, w.qkv_weight, a.qkv);
    k::rope<T>(exec, a.qkv, shape.seq, shape.heads + shape.kv_heads, shape.head_dim,
               this->activations().rope_table, +1);
    k::attention_forward<T>(exec, shape, flat(a.qkv), flat(a.attended), a.lse,
                            this->activations().workspace);
    linear<T>(exec, a.attended, w.attn_proj_weight, a.mid);
    k::residual_add<T>(exec, x, a.mid, Span<const T>(), a.mid);

    k::rms_norm_forward<T>(exec, a.mid, w.norm2_gain, eps, a.norm2, a.rstd2);
    linear<T>(exec, a.norm2, w.gate_up_weight, a.hidden);
    k::swiglu_forward<T>(exec, a.hidden, a.activated);
}

// out (N, C) = mid + activated (N, F) projected
template <class T>
void Llama<T>::layer_output(const Exec& exec, Index l, const LayerActivations<T>& a, Mat<T> out) {
    linear<T>(exec, a.activated, w_.layers[l].down_weight, out);
    k::residual_add<T>(exec, a.mid, out, Span<const T>(), out);
}

template <class T>
void Llama<T>::layer_backward(const Exec& exec, Index l, Mat<const T> x,
                              const LayerActivations<T>& a, const BackwardBuffers<T>& g) {
    const LlamaLayer<const T>& w = w_.layers[l];
    const LlamaLayer<float>& d = d_.layers[l];
    const Span<float> workspace = this->activations().workspace;
    const k::AttentionShape shape = this->attention_shape();

    // out = mid + swiglu(norm2 gate_up^T) down^T;  g.d_x holds d_out and becomes d_mid
    linear_weight_gradient<T>(exec, g.d_x, a.activated, d.down_weight);
    linear_input_gradient<T>(exec, g.d_x, w.down_weight, g.d_activated);
    k::swiglu_backward<T>(exec, a.hidden, g.d_activated, g.d_hidden);
    linear_weight_gradient<T>(exec, g.d_hidden, a.norm2, d.gate_up_weight);
    linear_input_gradient<T>(exec, g.d_hidden, w.gate_up_weight, g.d_branch);
    k::rms_norm_backward<T>(exec, a.mid, w.norm2_gain, a.rstd2, g.d_branch, g.d_x, d.norm2_gain,
                            workspace);

    // mid = x + attention(turned norm1 qkv^T) proj^T;  g.d_x holds d_mid and becomes d_x
    linear_weight_gradient<T>(exec, g.d_x, a.attended, d.attn_proj_weight);
    linear_input_gradient<T>(exec, g.d_x, w.attn_proj_weight, g.d_branch);
    k::attention_backward<T>(exec, shape, flat(a.qkv), flat(a.attended), a.lse, flat(g.d_branch),
                             flat(g.d_qkv), workspace);
    k::rope<T>(exec, g.d_qkv, shape.seq, shape.heads + shape.kv_heads, shape.head_dim,
               this->activations().rope_table, -1);
    linear_weight_gradient<T>(exec, g.d_qkv, a.norm1, d.qkv_weight);
    linear_input_gradient<T>(exec, g.d_qkv, w.qkv_weight, g.d_branch);
    k::rms_norm_backward<T>(exec, x, w.norm1_gain, a.rstd1, g.d_branch, g.d_x, d.norm1_gain,
                            workspace);
}

template <class T>
void Llama<T>::final_norm(const Exec& exec, Mat<const T> x) {
    const Activations<T>& all = this->activations();
    k::rms_norm_forward<T>(exec, x, w_.norm_gain, static_cast<float>(this->config().norm_eps),
                           all.y, all.rstd);
}

template <class T>
void Llama<T>::final_norm_backward(const Exec& exec, Mat<const T> x, Mat<const T> d_y, Mat<T> d_x) {
    const Activations<T>& all = this->activations();
    k::rms_norm_backward<T>(exec, x, w_.norm_gain, all.rstd, d_y, d_x, d_.norm_gain, all.workspace);
}

template class Llama<float>;

}  // namespace scape::model
