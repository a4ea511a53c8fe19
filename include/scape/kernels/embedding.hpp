#pragma once
/// @file
/// Token and position tables.
///     tokens (N = B T); wte (Vp, C); wpe (T_max, C), extent 0 for none; x (N, C)

#include <scape/base/types.hpp>

namespace scape::kernels {

/// x[i] = wte[tokens[i]] + wpe[i % seq]
template <class T>
void embedding_forward(const Exec& exec, Span<const Token> tokens, Index seq, Mat<const T> wte,
                       Mat<const T> wpe, Mat<T> x);

/// d_wte, d_wpe += . No atomics: each thread owns columns and walks the tokens, so the order of
/// addition is fixed.
template <class T>
void embedding_backward(const Exec& exec, Span<const Token> tokens, Index seq, Mat<const T> d_x,
                        Mat<float> d_wte, Mat<float> d_wpe);

}  // namespace scape::kernels
