#include <scape/kernels/attention.hpp>
#include <scape/kernels/embedding.hpp>
#include <scape/kernels/norm.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/model/gpt.hpp>
#include <scape/model/linear.hpp>

#include <fmt/format.h>

namespace scape::model {

namespace k = scape::kernels;

namespace {

template <class E>
GptTensors<E> find_tensors(const FlatLayout& layout, Index layers, Span<E> buffer) {
    const TensorViews<E> in(layout, buffer);
    GptTensors<E> t;
    t.wte = in.matrix("wte");
    t.wpe = in.matrix("wpe");
    for (Index l = 0; l < layers; ++l) {
        const std::string h = fmt::format("h.{}.", l);
        GptLayer<E> layer;
        layer.ln1_gain = in.vector(h + "ln1.gain");
        layer.ln1_bias = in.vector(h + "ln1.bias");
        layer.qkv_weight = in.matrix(h + "attn.qkv.weight");
        layer.qkv_bias = in.vector(h + "attn.qkv.bias");
        layer.attn_proj_weight = in.matrix(h + "attn.proj.weight");
        layer.attn_proj_bias = in.vector(h + "attn.proj.bias");
        layer.ln2_gain = in.vector(h + "ln2.gain");
        layer.ln2_bias = in.vector(h + "ln2.bias");
        layer.fc_weight = in.matrix(h + "mlp.fc.weight");
        layer.fc_bias = in.vector(h + "mlp.fc.bias");
        layer.mlp_proj_weight = in.matrix(h + "mlp.proj.weight");
        layer.mlp_proj_bias = in.vector(h + "mlp.proj.bias");
        t.h.push_back(layer);
    }
    t.lnf_gain = in.vector("lnf.gain");
    t.lnf_bias = in.vector("lnf.bias");
    return t;
}

}  // namespace

template <class T>
void Gpt<T>::bind_tensors(Span<const T> parameters, Span<float> gradients) {
    w_ = find_tensors<const T>(this->layout(), this->dims().layers, parameters);
    d_ = gradients.extent(0) > 0
             ? find_tensors<float>(this->layout(), this->dims().layers, gradients)
             : GptTensors<float>{};
}

template <class T>
void Gpt<T>::embed(const Exec& exec, const Batch& batch, Mat<T> x) {
    k::embedding_forward<T>(exec, batch.tokens, batch.seq, w_.wte, w_.wpe, x);
}

template <class T>
void Gpt<T>::embed_backward(const Exec& exec, const Batch& batch, Mat<const T> d_x) {
    k::embedding_backward<T>(exec, batch.tokens, batch.seq, d_x, d_.wte, d_.wpe);
}

// x (N, C) -> norm1 (N, C) -> qkv (N, 3C) -> attended (N, C) -> mid (N, C) = x + projection
//          -> norm2 (N, C) -> hidden (N, F) -> activated (N, F)
template <class T>
void Gpt<T>::layer_inner(const Exec& exec, Index l, Mat<const T> x, LayerActivations<T>& a) {
    const GptLayer<const T>& w = w_.h[l];
    const auto eps = static_cast<float>(this->config().norm_eps);

    k::layer_norm_forward<T>(exec, x, w.ln1_gain, w.ln1_bias, eps, a.norm1, a.mean1, a.rstd1);
    linear<T>(exec, a.norm1, w.qkv_weight, a.qkv);
    k::add_bias<T>(exec, a.qkv, w.qkv_bias);
    k::attention_forward<T>(exec, this->attention_shape(), flat(a.qkv), flat(a.attended), a.lse,
                            this->activations().workspace);
    linear<T>(exec, a.attended, w.attn_proj_weight, a.mid);
    k::residual_add<T>(exec, x, a.mid, w.attn_proj_bias, a.mid);

    k::layer_norm_forward<T>(exec, a.mid, w.ln2_gain, w.ln2_bias, eps, a.norm2, a.mean2, a.rstd2);
    linear<T>(exec, a.norm2, w.fc_weight, a.hidden);
    k::bias_gelu_forward<T>(exec, a.hidden, w.fc_bias, a.activated);
}

// out (N, C) = mid + activated (N, F) projected
template <class T>
void Gpt<T>::layer_output(const Exec& exec, Index l, const LayerActivations<T>& a, Mat<T> out) {
    linear<T>(exec, a.activated, w_.h[l].mlp_proj_weight, out);
    k::residual_add<T>(exec, a.mid, out, w_.h[l].mlp_proj_bias, out);
}

template <class T>
void Gpt<T>::layer_backward(const Exec& exec, Index l, Mat<const T> x, const LayerActivations<T>& a,
                            const BackwardBuffers<T>& g) {
    const GptLayer<const T>& w = w_.h[l];
    const GptLayer<float>& d = d_.h[l];
    const Span<float> workspace = this->activations().workspace;

    // out = mid + gelu(norm2 fc^T + b) proj^T + b;  g.d_x holds d_out and becomes d_mid
    k::bias_backward<T>(exec, g.d_x, d.mlp_proj_bias, workspace);
    linear_weight_gradient<T>(exec, g.d_x, a.activated, d.mlp_proj_weight);
    linear_input_gradient<T>(exec, g.d_x, w.mlp_proj_weight, g.d_activated);
    k::gelu_backward<T>(exec, a.hidden, g.d_activated, g.d_hidden);
    k::bias_backward<T>(exec, g.d_hidden, d.fc_bias, workspace);
    linear_weight_gradient<T>(exec, g.d_hidden, a.norm2, d.fc_weight);
    linear_input_gradient<T>(exec, g.d_hidden, w.fc_weight, g.d_branch);
    k::layer_norm_backward<T>(exec, a.mid, w.ln2_gain, a.mean2, a.rstd2, g.d_branch, g.d_x,
                              d.ln2_gain, d.ln2_bias, workspace);

    // mid = x + attention(norm1 qkv^T + b) proj^T + b;  g.d_x holds d_mid and becomes d_x
    k::bias_backward<T>(exec, g.d_x, d.attn_proj_bias, workspace);
    linear_weight_gradient<T>(exec, g.d_x, a.attended, d.attn_proj_weight);
    linear_input_gradient<T>(exec, g.d_x, w.attn_proj_weight, g.d_branch);
    k::attention_backward<T>(exec, this->attention_shape(), flat(a.qkv), flat(a.attended), a.lse,
                             flat(g.d_branch), flat(g.d_qkv), workspace);
    k::bias_backward<T>(exec, g.d_qkv, d.qkv_bias, workspace);
    linear_weight_gradient<T>(exec, g.d_qkv, a.norm1, d.qkv_weight);
    linear_input_gradient<T>(exec, g.d_qkv, w.qkv_weight, g.d_branch);
    k::layer_norm_backward<T>(exec, x, w.ln1_gain, a.mean1, a.rstd1, g.d_branch, g.d_x, d.ln1_gain,
                              d.ln1_bias, workspace);
}

template <class T>
void Gpt<T>::final_norm(const Exec& exec, Mat<const T> x) {
    const Activations<T>& all = this->activations();
    k::layer_norm_forward<T>(exec, x, w_.lnf_gain, w_.lnf_bias,
                             static_cast<float>(this->config().norm_eps), all.y, all.mean,
                             all.rstd);
}

template <class T>
void Gpt<T>::final_norm_backward(const Exec& exec, Mat<const T> x, Mat<const T> d_y, Mat<T> d_x) {
    const Activations<T>& all = this->activations();
    k::layer_norm_backward<T>(exec, x, w_.lnf_gain, all.mean, all.rstd, d_y, d_x, d_.lnf_gain,
                              d_.lnf_bias, all.workspace);
}

template class Gpt<float>;

}  // namespace scape::model
