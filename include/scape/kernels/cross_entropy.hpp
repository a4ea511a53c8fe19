#pragma once
/// @file
/// Softmax cross-entropy fused with its gradient, on one chunk of rows of logits.

#include <scape/base/types.hpp>

namespace scape::kernels {

/// logits (N, Vp), targets (N); columns vocab..Vp-1 are padding and take no part.
///   loss[0] += sum over rows with target != ignored_target of (log sum exp - logit[target])
///   with_gradient: logits become grad_scale (softmax - onehot); 0 in ignored rows and padding
/// row_loss (N) is workspace: losses are summed in row order, in double. Targets are in
/// [0, vocab) or ignored_target (data checks that before anything reaches the device).
template <class T>
void softmax_cross_entropy(const Exec& exec, Mat<T> logits, Span<const Token> targets, Index vocab,
                           float grad_scale, bool with_gradient, Span<float> row_loss,
                           Span<double> loss);

}  // namespace scape::kernels
