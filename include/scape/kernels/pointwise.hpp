#pragma once
/// @file
/// Everything that touches each activation once: biases, residual additions, activations, rotary
/// positions.  x, y, ... (N, C) unless said; parameters' gradients are +=.

#include <scape/base/types.hpp>

namespace scape::kernels {

/// y += bias (C) on every row.
template <class T>
void add_bias(const Exec& exec, Mat<T> y, Span<const T> bias);

/// d_bias += column sums of d_y. workspace: bias_workspace(C) floats; fixed order of addition.
template <class T>
void bias_backward(const Exec& exec, Mat<const T> d_y, Span<float> d_bias, Span<float> workspace);
Index bias_workspace(Index columns);

/// y = residual + x + bias; bias may be empty (extent 0): none. y may be x or residual.
template <class T>
void residual_add(const Exec& exec, Mat<const T> residual, Mat<const T> x, Span<const T> bias,
                  Mat<T> y);

/// h += bias in place (the pre-activation that backward needs), y = gelu(h), GPT-2's tanh form
/// (arXiv 1606.08415): 0.5 h (1 + tanh(sqrt(2/pi) (h + 0.044715 h^3))).
template <class T>
void bias_gelu_forward(const Exec& exec, Mat<T> h, Span<const T> bias, Mat<T> y);
/// d_h = gelu'(h) d_y; d_h may be d_y.
template <class T>
void gelu_backward(const Exec& exec, Mat<const T> h, Mat<const T> d_y, Mat<T> d_h);

/// gate_up (N, 2F): columns [0,F) gate, [F,2F) up.   y (N, F) = silu(gate) up  (arXiv 2002.05202)
template <class T>
void swiglu_forward(const Exec& exec, Mat<const T> gate_up, Mat<T> y);
/// d_gate_up (N, 2F) overwritten; may be gate_up itself.
template <class T>
void swiglu_backward(const Exec& exec, Mat<const T> gate_up, Mat<const T> d_y, Mat<T> d_gate_up);

/// Rotary positions (arXiv 2104.09864), in place, on the first `rotated_heads` heads of each token
/// of x (B*T, all heads * D): pairs (j, j + D/2), as Llama's published weights use them; position =
/// row % seq. angle = position / base^(2 j / D). direction +1 forward, -1 backward (its inverse).
/// table (T, D): cos in the first D/2 columns, sin in the rest, from rope_table.
template <class T>
void rope(const Exec& exec, Mat<T> x, Index seq, Index rotated_heads, Index head_dim,
          Mat<const float> table, int direction);
/// Fills table (T, D), computed in double precision.
void rope_table(const Exec& exec, double base, Mat<float> table);

/// y = 0 ... as one labelled fill.
template <class T>
void fill_zero(const Exec& exec, Span<T> y);

}  // namespace scape::kernels
