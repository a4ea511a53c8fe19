#pragma once
/// @file
/// Output head: logits = y w^T, softmax cross-entropy and both gradients, chunk by chunk over rows,
/// so that there are never more than R rows of logits.
///     y, d_y (N, C); w, d_w (Vp, C); targets (N); logits (R, Vp); row_loss (R)

#include <scape/base/types.hpp>

namespace scape::model {

template <class T>
struct Head {
    Mat<const T> weight;  // (Vp, C)
    Mat<float> d_weight;  // (Vp, C)
    Index vocab = 0;      // V
};

/// loss[0] += sum of the losses of the unmasked targets. With grad_scale != 0 also
/// d_y = grad_scale d loss / d y (overwritten) and head.d_weight +=.
template <class T>
void head_loss(const Exec& exec, const Head<T>& head, Mat<const T> y, Span<const Token> targets,
               float grad_scale, Mat<T> d_y, Mat<T> logits, Span<float> row_loss,
               Span<double> loss);

/// out (V) = the logits of row `row` of y.
template <class T>
void head_logits(const Exec& exec, const Head<T>& head, Mat<const T> y, Index row, Mat<T> logits,
                 Span<float> out);

}  // namespace scape::model
