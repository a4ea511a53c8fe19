#pragma once
/// @file
/// The update of one element, algorithm.md section 1: one function, the dense and the sparse path's
/// alike, in one order of operations, all in fp32. The library is compiled without contraction to
/// fused multiply-adds (src/optim/CMakeLists.txt), so every loop that calls it gets the same bits,
/// vectorised or not.
///
///     AdamW (arXiv 1711.05101):  m = b1 m + (1-b1) g;      v = b2 v + (1-b2) g^2
///     AdamS (arXiv 2505.16363):  v = b2 m_old^2 + (1-b2) g^2;  m = b1 m_old + (1-b1) g
///     both:  w = (1 - eta lambda) w - eta (m/c1 / (sqrt(v/c2) + eps))
///     SGD:   m = mu m + g;  w = (1 - eta lambda) w - eta m

#include <scape/base/types.hpp>

#include <cmath>

namespace scape::optim {

/// The numbers of one step and one tensor, worked out in double and rounded once.
struct ElementNumbers {
    float b1 = 0;
    float one_minus_b1 = 1;
    float b2 = 0;
    float one_minus_b2 = 1;
    float eps = 0;
    float c1 = 1;          ///< 1 - b1^t, or 1 without bias correction
    float c2 = 1;          ///< 1 - b2^t, or 1 without bias correction
    float eta = 0;         ///< learning rate
    float keep = 1;        ///< 1 - eta lambda; 1 for tensors without decay
    float mu = 0;          ///< SGD's momentum
    float grad_scale = 1;  ///< the clip coefficient; g = grad_scale * gradient
};

/// w after decay and the step along m, given the moments of this step.
KOKKOS_INLINE_FUNCTION float step_element(const ElementNumbers& n, float w, float m, float v) {
    return n.keep * w - n.eta * ((m / n.c1) / (std::sqrt(v / n.c2) + n.eps));
}

KOKKOS_INLINE_FUNCTION void adamw_element(const ElementNumbers& n, float gradient, float& w,
                                          float& m, float& v) {
    const float g = n.grad_scale * gradient;
    m = n.b1 * m + n.one_minus_b1 * g;
    v = n.b2 * v + n.one_minus_b2 * (g * g);
    w = step_element(n, w, m, v);
}

KOKKOS_INLINE_FUNCTION void adams_element(const ElementNumbers& n, float gradient, float& w,
                                          float& m) {
    const float g = n.grad_scale * gradient;
    const float v = n.b2 * (m * m) + n.one_minus_b2 * (g * g);
    m = n.b1 * m + n.one_minus_b1 * g;
    w = step_element(n, w, m, v);
}

KOKKOS_INLINE_FUNCTION void sgd_element(const ElementNumbers& n, float gradient, float& w,
                                        float& m) {
    m = n.mu * m + n.grad_scale * gradient;
    w = n.keep * w - n.eta * m;
}

}  // namespace scape::optim
