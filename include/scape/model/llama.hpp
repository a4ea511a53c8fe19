#pragma once
/// @file
/// Llama (arXiv 2302.13971): rotary positions, pre-norm RMSNorm, SwiGLU, grouped-query attention
/// (arXiv 2305.13245), no biases.

#include <scape/model/decoder.hpp>

#include <vector>

namespace scape::model {

/// Tensors of one layer. E: const T for parameters, float for gradients.
template <class E>
struct LlamaLayer {
    Span<E> norm1_gain;       // (C)
    Mat<E> qkv_weight;        // ((H + 2 Hkv) D, C)
    Mat<E> attn_proj_weight;  // (C, C)
    Span<E> norm2_gain;       // (C)
    Mat<E> gate_up_weight;    // (2F, C)
    Mat<E> down_weight;       // (C, F)
};

template <class E>
struct LlamaTensors {
    Mat<E> wte;                         // (Vp, C)
    std::vector<LlamaLayer<E>> layers;  // L
    Span<E> norm_gain;                  // (C)
};

template <class T>
class Llama final : public Decoder<T> {
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
    void fill_tables() override;

   private:
    LlamaTensors<const T> w_;
    LlamaTensors<float> d_;
};

}  // namespace scape::model
