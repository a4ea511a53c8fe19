#pragma once
/// @file
/// LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467) over rows.
///     x, y (N, C); gain, bias (C); mean, rstd (N) fp32, kept for backward
/// Parameters' gradients are += , activations' gradients say which.

#include <scape/base/types.hpp>

namespace scape::kernels {

/// y = (x - mean) rstd gain + bias
template <class T>
void layer_norm_forward(const Exec& exec, Mat<const T> x, Span<const T> gain, Span<const T> bias,
                        float eps, Mat<T> y, Span<float> mean, Span<float> rstd);
/// d_x += gradient through the norm (the residual stream already holds the other branch);
/// d_gain, d_bias +=. workspace: norm_workspace(C) floats.
template <class T>
void layer_norm_backward(const Exec& exec, Mat<const T> x, Span<const T> gain,
                         Span<const float> mean, Span<const float> rstd, Mat<const T> d_y,
                         Mat<T> d_x, Span<float> d_gain, Span<float> d_bias, Span<float> workspace);

/// y = x rstd gain,  rstd = 1/sqrt(mean(x^2) + eps)
template <class T>
void rms_norm_forward(const Exec& exec, Mat<const T> x, Span<const T> gain, float eps, Mat<T> y,
                      Span<float> rstd);
/// d_x +=, d_gain +=, as above.
template <class T>
void rms_norm_backward(const Exec& exec, Mat<const T> x, Span<const T> gain, Span<const float> rstd,
                       Mat<const T> d_y, Mat<T> d_x, Span<float> d_gain, Span<float> workspace);

/// Elements of the workspace of both backward kernels: partial column sums, added in a fixed order
/// so that results are reproducible.
Index norm_workspace(Index columns);

}  // namespace scape::kernels
