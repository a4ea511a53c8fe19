#pragma once
/// @file
/// The SCAPE step of one element, for the owner of its shard: algorithm sections 2.3 and 2.4, in
/// fp32, in one order of operations. SCAPE is arXiv 2607.01678.
///
/// Of an element, the owner receives s = (1/P) sum_i a_i, a_i = g_i + R_i: the sum of the averaged
/// gradients of the tau steps since the element was last in the mask.

#include <scape/optim/element_update.hpp>

namespace scape::optim {

/// p = b1^tau and q = b1 (1-p)/(1-b1), rounded once; p = q = b1 at tau = 1.
struct Powers {
    float p = 0;
    float q = 0;
};

// --- Rule "catch_up": the tau steps that dense AdamS would have made, in closed form, with the
// --- mean gradient of the interval at each of them

/// What this element adds to the squared norm of what arrived: the square of s / sqrt(tau), because
/// E s^2 grows like tau.
KOKKOS_INLINE_FUNCTION float catch_up_norm(float s, float tau) {
    return tau == 1.f ? s : s / std::sqrt(tau);
}

///     M = q m + (s/tau) (tau - q)             = m_1 + ... + m_tau of the dense recursion
///     v = b2 m^2 + (1-b2) s^2/tau             the variance of one step
///     w = w - eta (M/c1 / (sqrt(v/c2) + eps))
///     m = p m + (1-p) s/tau
///
/// tau = 1 is AdamS, bit for bit: p and q are b1 itself, and what multiplies the gradient is taken
/// from there too. Selected, not branched: tau comes from far memory, and a branch that waits for
/// it, guessed wrong, would stop all that is fetched ahead.
KOKKOS_INLINE_FUNCTION void catch_up_element(const ElementNumbers& n, const Powers& power,
                                             float tau, float sum, float& w, float& m) {
    const bool once = tau == 1.f;
    const float s = n.grad_scale * sum;
    const float mean = s / tau;
    const float moved = power.q * m + (once ? n.one_minus_b1 : tau - power.q) * mean;
    const float v = n.b2 * (m * m) + n.one_minus_b2 * ((s * s) / tau);
    w = step_element(n, w, moved, v);
    m = power.p * m + (once ? n.one_minus_b1 : 1.f - power.p) * mean;
}

/// The same with AdamW's second moment, which is stored: tau steps of its recursion at the variance
/// of one step, b2tau = b2^tau.
///
///     v = b2^tau v + (1 - b2^tau) s^2/tau
///     w = w - eta (M/c1 / (sqrt(max(v, b2 m^2)/c2) + eps))
///
/// With the largest of v and AdamS's: a code can deliver s = 0, and then v has forgotten the
/// gradients that m remembers, so that M over its root would be as large as it likes. tau = 1 is
/// AdamW.
KOKKOS_INLINE_FUNCTION void catch_up_stored_element(const ElementNumbers& n, const Powers& power,
                                                    float b2tau, float tau, float sum, float& w,
                                                    float& m, float& v) {
    if (tau == 1.f) {
        adamw_element(n, sum, w, m, v);
        return;
    }
    const float s = n.grad_scale * sum;
    const float mean = s / tau;
    const float moved = power.q * m + mean * (tau - power.q);
    v = b2tau * v + (1.f - b2tau) * ((s * s) / tau);
    const float least = n.b2 * (m * m);
    w = step_element(n, w, moved, v > least ? v : least);
    m = power.p * m + (1.f - power.p) * mean;
}

/// |M| of what this rank alone holds, |q m + (a/tau) (tau - q)|: what the element would move if it
/// were sent. `share` = q/tau, rounded once: of every element of the shard, at every step, so
/// without a division.
KOKKOS_INLINE_FUNCTION float catch_up_score(float share, float tau, float a, float m) {
    return std::fabs(share * (tau * m) + (1.f - share) * a);
}

// --- Rule "paper", in owner form: one array z, which is m where the element was in the last mask,
// --- and elsewhere the part of b1 m that is still to be paid

struct PaperState {
    float base = 0;    ///< was in the last mask ? b1 z : z
    float m_prev = 0;  ///< was in the last mask ? z : 0
};
KOKKOS_INLINE_FUNCTION PaperState paper_state(const ElementNumbers& n, bool was, float z) {
    return {was ? n.b1 * z : z, was ? z : 0.f};
}

/// ghat = abar + (base - b1 m_prev)/(1-b1); the second term is exactly 0 where it was in the mask.
/// The update is AdamS's with ghat and m_prev; then z = m on the mask, and base off it.
KOKKOS_INLINE_FUNCTION float paper_gradient(const ElementNumbers& n, bool was, float z,
                                            float abar) {
    return was ? abar : abar + z / n.one_minus_b1;
}

/// |base + (1-b1) a| of what this rank alone holds.
KOKKOS_INLINE_FUNCTION float paper_score(const ElementNumbers& n, bool was, float z, float a) {
    return std::fabs(paper_state(n, was, z).base + n.one_minus_b1 * a);
}

}  // namespace scape::optim
