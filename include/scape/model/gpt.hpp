#pragma once
/// @file
/// GPT-2 (Radford et al. 2019): learned positions, pre-norm LayerNorm, GELU, biases.

#include <scape/model/decoder.hpp>

#include <vector>

namespace scape::model {

/// Tensors of one layer. E: const T for parameters, float for gradients.
template <class E>
struct GptLayer {
    Span<E> ln1_gain, ln1_bias;  // (C)
    Mat<E> qkv_weight;           // (3C, C)
    Span<E> qkv_bias;            // (3C)
    Mat<E> attn_proj_weight;     // (C, C)
    Span<E> attn_proj_bias;      // (C)
    Span<E> ln2_gain, ln2_bias;  // (C)
    Mat<E> fc_weight;            // (F, C)
    Span<E> fc_bias;             // (F)
    Mat<E> mlp_proj_weight;      // (C, F)
    Span<E> mlp_proj_bias;       // (C)
};

template <class E>
struct GptTensors {
    Mat<E> wte;                  // (Vp, C)
    Mat<E> wpe;                  // (T_max, C)
    std::vector<GptLayer<E>> h;  // L
    Span<E> lnf_gain, lnf_bias;  // (C)
};

template <class T>
class Gpt final : public Decoder<T> {
   public:
    using Decoder<T>::Decoder;

   protected:
    void bind_tensors(Span<const T> parameters, Span<float> gradients) override;
    void embed(const Exec& exec, const Batch& batch, Mat<T> x) override;
    void embed_backward(const Exec& exec, const Batch& batch, Mat<const T> d_x) override;
    void layer_inner(const Exec& exec, Index l, Mat<const T> x, LayerActivations<T>& a) override;
    void layer_output(const Exec& exec, Index l, const LayerActivations<T>& a, Mat<T> out) override;
    void layer_backward(const Exec& exec, Index l, Mat<const T> x, const LayerActivations<T>& a,
                        const BackwardBuffers<T>& grad) override;
    void final_norm(const Exec& exec, Mat<const T> x) override;
    void final_norm_backward(const Exec& exec, Mat<const T> x, Mat<const T> d_y,
                             Mat<T> d_x) override;

   private:
    GptTensors<const T> w_;
    GptTensors<float> d_;
};

}  // namespace scape::model
