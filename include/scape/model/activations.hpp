#pragma once
/// @file
/// Every activation of a pass, cut out of one arena that is allocated once. The plan is a function
/// of the sizes alone, so the same lines measure the arena, cut it, and cut it again for a smaller
/// micro-batch.
///
///     N = B T tokens, C width, F ffn, R rows of a chunk of logits, Vp padded vocabulary

#include <scape/base/types.hpp>
#include <scape/config/run_config.hpp>
#include <scape/model/parameters.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace scape::model {

/// Hands out pieces of a buffer one after another, each aligned; without a buffer it only measures.
class Arena {
   public:
    static constexpr Index alignment_bytes = 64 * sizeof(float);

    Arena() = default;
    explicit Arena(Span<char> buffer) : buffer_(buffer) {}

    /// n elements. Throws std::logic_error when the buffer is too small.
    template <class U>
    Span<U> take(Index n) {
        const Index begin = bytes_;
        bytes_ = round_up(begin + n * static_cast<Index>(sizeof(U)), alignment_bytes);
        if (buffer_.data() == nullptr) return Span<U>(nullptr, static_cast<std::size_t>(n));
        if (bytes_ > static_cast<Index>(buffer_.extent(0)))
            throw std::logic_error("arena: " + std::to_string(bytes_) + " bytes wanted of " +
                                   std::to_string(buffer_.extent(0)) +
                                   "; is the micro-batch larger than the one allocated for?");
        return Span<U>(reinterpret_cast<U*>(buffer_.data() + begin), static_cast<std::size_t>(n));
    }
    template <class U>
    Mat<U> take(Index rows, Index cols) {
        return as_matrix(take<U>(rows * cols), rows, cols);
    }
    Index bytes() const { return bytes_; }

   private:
    Span<char> buffer_;
    Index bytes_ = 0;
};

/// What one layer leaves for its backward pass. The same names serve both families.
template <class T>
struct LayerActivations {
    Mat<T> norm1;              // (N, C)   the input, normed
    Span<float> mean1, rstd1;  // (N)      mean: layer norm only
    Mat<T> qkv;                // (N, (H + 2 Hkv) D)
    Span<float> lse;           // (B, H, T)
    Mat<T> attended;           // (N, C)   before the projection
    Mat<T> mid;                // (N, C)   residual stream between the two halves
    Mat<T> norm2;              // (N, C)
    Span<float> mean2, rstd2;  // (N)
    Mat<T> hidden;             // (N, F)   before gelu; llama: (N, 2F), gate and up
    Mat<T> activated;          // (N, F)
};

/// Gradients of activations, shared by all layers: only one layer's exist at a time.
template <class T>
struct BackwardBuffers {
    Mat<T> d_x;          // (N, C)   of the residual stream
    Mat<T> d_branch;     // (N, C)   of a norm's output or the attention's
    Mat<T> d_activated;  // (N, F)
    Mat<T> d_hidden;     // (N, F) or (N, 2F); gpt: the same memory as d_activated
    Mat<T> d_qkv;        // (N, (H + 2 Hkv) D); the same memory as d_hidden
};

template <class T>
struct Activations {
    Index batch = 0;                          // B
    Index seq = 0;                            // T
    Mat<float> rope_table;                    // (T_max, D), llama; always at the arena's start
    std::vector<Mat<T>> streams;              // (N, C) each; read through stream()
    std::vector<LayerActivations<T>> layers;  // read through layer()
    Mat<T> y;                                 // (N, C)   final norm
    Span<float> mean, rstd;                   // (N)
    Mat<T> logits;                            // (R, Vp)
    Span<float> row_loss;                     // (R)
    BackwardBuffers<T> grad;
    Span<float> workspace;  // of whichever kernel runs

    /// Input of layer i, or of the final norm for i = L. Without backward two buffers alternate.
    Mat<T> stream(Index i) const { return streams[static_cast<std::size_t>(i) % streams.size()]; }
    /// With recompute, or without backward, all layers share one set.
    LayerActivations<T>& layer(Index i) {
        return layers[static_cast<std::size_t>(i) % layers.size()];
    }
};

/// Cuts the arena for one micro-batch. `backward`: also what the backward pass needs.
template <class T>
Activations<T> plan_activations(Arena& arena, const config::ModelConfig& config, Index batch,
                                Index seq, bool backward);

/// Rows of logits that fit into logits_chunk_mb: a multiple of 16 where that is possible, at least
/// one, and not more than `rows` asks for.
Index logits_rows(const config::ModelConfig& config, Index rows, Index bytes_per_logit);

}  // namespace scape::model
