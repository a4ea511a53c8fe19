#include "support/scape_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace scape::test {

namespace {

std::vector<bool> everything(const Geometry& geometry) {
    std::vector<bool> marks(geometry.extent, false);
    for (const SimSlice& s : geometry.slices) {
        for (Index e = s.begin; e < s.begin + s.size; ++e) marks[e] = true;
    }
    return marks;
}

/// Section 1: the step along m after decay.
template <class Real>
Real moved(Real w, Real m, Real v, Real keep, const SimNumbers<Real>& n) {
    const Real denominator = std::sqrt(v / n.c2) + n.eps;
    return keep * w - n.eta * ((m / n.c1) / denominator);
}

/// Section 1: AdamS.
template <class Real>
void adams(Real g, Real keep, const SimNumbers<Real>& n, Real& w, Real& m) {
    const Real v = n.b2 * (m * m) + n.one_minus_b2 * (g * g);
    m = n.b1 * m + n.one_minus_b1 * g;
    w = moved(w, m, v, keep, n);
}

/// Section 1: AdamW.
template <class Real>
void adamw(Real g, Real keep, const SimNumbers<Real>& n, Real& w, Real& m, Real& v) {
    m = n.b1 * m + n.one_minus_b1 * g;
    v = n.b2 * v + n.one_minus_b2 * (g * g);
    w = moved(w, m, v, keep, n);
}

/// Section 1: SGD with momentum.
template <class Real>
void sgd(Real g, Real keep, const SimNumbers<Real>& n, Real& w, Real& m) {
    m = n.mu * m + g;
    w = keep * w - n.eta * m;
}

void check(const SimConfig& c) {
    const auto known = [](int bits) {
        return bits == 32 || bits == 16 || bits == 8 || bits == 4 || bits == 2 || bits == 1;
    };
    if (!known(c.value_bits) || !known(c.delta_bits) || c.block < 1)
        throw std::logic_error("simulator: no such code");
    if (c.error != SimConfig::Error::full && c.elements != SimConfig::Elements::all)
        throw std::logic_error("simulator: what is not sent needs error = full");
    if (c.error == SimConfig::Error::loco && c.value_bits >= 16)
        throw std::logic_error("simulator: LoCo's values are codes in blocks");
    if (c.owner == SimConfig::Owner::sgd && c.elements == SimConfig::Elements::mask)
        throw std::logic_error("simulator: the scape optimizer has no sgd");
}

/// p = b1^tau and q = b1 (1-p)/(1-b1), 2.4; at tau = 1 both are b1.
template <class Real>
struct Powers {
    Real p, q;
    Powers(double b1, Index tau) : p(static_cast<Real>(b1)), q(static_cast<Real>(b1)) {
        if (tau == 1) return;
        const double power = std::pow(b1, static_cast<double>(tau));
        p = static_cast<Real>(power);
        q = static_cast<Real>(b1 * (1 - power) / (1 - b1));
    }
};

}  // namespace

template <class Real>
Simulator<Real>::Simulator(const SimConfig& config, const Geometry& geometry, int ranks,
                           std::vector<Real> weights)
    : config_(config), geometry_(geometry), ranks_(ranks), master_(std::move(weights)) {
    check(config);
    const auto n = static_cast<std::size_t>(geometry.extent);
    if (master_.size() != n) throw std::logic_error("simulator: weights do not fit the geometry");
    replica_ = master_;
    m_ = v_ = delivered_ = score_ = std::vector<Real>(n, 0);
    visit_.assign(n, 0);
    // Step 1 has no momentum to choose by.
    mask_ = next_mask_ = last_mask_ = everything(geometry);
    sent_.assign(ranks, mask_);
    residual_.assign(ranks, std::vector<Real>(n, 0));
    a_ = left_ = decoded_ = residual_;
}

template <class Real>
void Simulator<Real>::step(const std::vector<std::vector<Real>>& gradients, Real lr,
                           bool loss_finite) {
    ++t_;
    skipped_ = !loss_finite;
    if (skipped_) return;  // fused: known before backward; else R is not committed
    const SimNumbers<Real> n(config_, t_, lr);
    for (int r = 0; r < ranks_; ++r) {
        for (Index e = 0; e < geometry_.extent; ++e)
            a_[r][e] = gradients.at(r).at(e) + residual_[r][e];
    }
    if (config_.same_step && t_ > 1) {
        score_all(a_, n);
        next_mask_ = sim_mask(config_, geometry_, score_, sim_density(config_, t_));
    }
    select();
    exchange();
    measure(n);
    skipped_ = !std::isfinite(norm_);
    if (skipped_) return skip();

    const bool before = paper() || config_.score == SimConfig::Score::before;
    if (before) score_all(a_, n);  // with m, z, the last mask and tau as this step found them
    update(n);
    send_back(n);
    commit();
    if (!scape()) return;
    if (!before) score_all(residual_, n);
    next_mask_ = sim_mask(config_, geometry_, score_, sim_density(config_, t_ + 1));
    last_mask_ = mask_;
}

/// What each rank sends in step t: of the scape optimizer, what step t-1 chose.
template <class Real>
void Simulator<Real>::select() {
    const double d = sim_density(config_, t_);
    using Elements = SimConfig::Elements;
    switch (config_.elements) {
        case Elements::all:
            mask_ = everything(geometry_);
            break;
        case Elements::mask:
            // After a skipped step the mask may be an older one; but at d = 1 there is none.
            mask_ = d == 1 ? everything(geometry_) : next_mask_;
            break;
        case Elements::clt_k:
            mask_ = sim_mask(config_, geometry_, a_[t_ % ranks_], d);
            break;
        case Elements::topk_ef:
            mask_.assign(geometry_.extent, false);
            for (int r = 0; r < ranks_; ++r) {
                sent_[r] = sim_mask(config_, geometry_, a_[r], d);
                for (Index e = 0; e < geometry_.extent; ++e) mask_[e] = mask_[e] || sent_[r][e];
            }
            return;
    }
    sent_.assign(ranks_, mask_);
}

/// 2.8: the norm of what was received, shard by shard, and the clip coefficient.
template <class Real>
void Simulator<Real>::measure(const SimNumbers<Real>& n) {
    std::vector<double> squares(ranks_, 0);
    for (const SimSlice& s : geometry_.slices) {
        for (Index e = s.begin; e < s.begin + s.size; ++e) {
            if (!mask_[e]) continue;
            Real x = delivered_[e];
            if (paper()) x = ghat(e, n);
            if (scape() && !paper()) x = x / std::sqrt(static_cast<Real>(tau(e)));
            squares[s.owner] += static_cast<double>(x) * static_cast<double>(x);
        }
    }
    norm_ = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    coefficient_ = 1;
    if (config_.clip_norm > 0)
        coefficient_ = static_cast<Real>(std::min(1.0, config_.clip_norm / (norm_ + 1e-6)));
}

/// 2.5: weights, m, visits, masks and LoCo's error stay. R stays too, unless it is the gradient
/// buffer: then what was sent is gone, and a rank that is left with something not finite loses all
/// of its R.
template <class Real>
void Simulator<Real>::skip() {
    if (!config_.fused || config_.error != SimConfig::Error::full) return;
    for (int r = 0; r < ranks_; ++r) {
        const bool finite =
            std::all_of(left_[r].begin(), left_[r].end(), [](Real x) { return std::isfinite(x); });
        residual_[r] = finite ? left_[r] : std::vector<Real>(geometry_.extent, 0);
    }
}

template <class Real>
void Simulator<Real>::commit() {
    residual_ = left_;
    ++applied_;
    const Index every = config_.loco_reset_every;
    if (config_.error != SimConfig::Error::loco || every == 0 || applied_ % every != 0) return;
    residual_.assign(ranks_, std::vector<Real>(geometry_.extent, 0));
}

/// 2.3, owner form: the part of b1 m that is still to be paid at this element.
template <class Real>
Real Simulator<Real>::base(Index e, const SimNumbers<Real>& n) const {
    return last_mask_[e] ? n.b1 * m_[e] : m_[e];
}

/// 2.3: m_prev = 0 where the element was not in the last mask.
template <class Real>
Real Simulator<Real>::ghat(Index e, const SimNumbers<Real>& n) const {
    return last_mask_[e] ? delivered_[e] : delivered_[e] + base(e, n) / n.one_minus_b1;
}

/// 2.4: |.| is what the element would move if a were sent.
template <class Real>
Real Simulator<Real>::closed_form_score(Index e, Real a) const {
    const auto steps = static_cast<Real>(tau(e));
    const double b1 = config_.beta1;
    const auto n = static_cast<double>(tau(e));
    const double q = tau(e) == 1 ? b1 : b1 * (1 - std::pow(b1, n)) / (1 - b1);
    const auto share = static_cast<Real>(q / n);  // q m + (a/tau) (tau - q), without a division
    return share * (steps * m_[e]) + (1 - share) * a;
}

/// of_rank: a or R of each rank; only the owner's own counts.
template <class Real>
void Simulator<Real>::score_all(const std::vector<std::vector<Real>>& of_rank,
                                const SimNumbers<Real>& n) {
    if (!scape()) return;
    for (const SimSlice& s : geometry_.slices) {
        for (Index e = s.begin; e < s.begin + s.size; ++e) {
            const Real a = of_rank[s.owner][e];
            score_[e] = paper() ? base(e, n) + n.one_minus_b1 * a : closed_form_score(e, a);
        }
    }
}

template <class Real>
void Simulator<Real>::update(const SimNumbers<Real>& n) {
    for (const SimSlice& s : geometry_.slices) {
        const Real keep = s.decay ? n.keep : static_cast<Real>(1);
        for (Index e = s.begin; e < s.begin + s.size; ++e) {
            if (scape()) {
                update_scape(e, keep, n);
            } else if (config_.owner == SimConfig::Owner::adams) {
                adams(coefficient_ * delivered_[e], keep, n, master_[e], m_[e]);
            } else if (config_.owner == SimConfig::Owner::sgd) {
                sgd(coefficient_ * delivered_[e], keep, n, master_[e], m_[e]);
            } else {
                adamw(coefficient_ * delivered_[e], keep, n, master_[e], m_[e], v_[e]);
            }
        }
    }
}

template <class Real>
void Simulator<Real>::update_scape(Index e, Real keep, const SimNumbers<Real>& n) {
    if (!mask_[e]) {
        master_[e] = keep * master_[e];
        if (paper()) m_[e] = base(e, n);
        return;
    }
    if (paper()) {
        const Real g = coefficient_ * ghat(e, n);
        if (!last_mask_[e]) m_[e] = 0;
        adams(g, keep, n, master_[e], m_[e]);
    } else {
        catch_up_element(e, keep, n);
    }
    visit_[e] = static_cast<std::uint32_t>(applied_ + 1);
}

/// 2.4: tau steps of AdamS with the mean gradient of the interval, in closed form.
template <class Real>
void Simulator<Real>::catch_up_element(Index e, Real keep, const SimNumbers<Real>& n) {
    const Real s = coefficient_ * delivered_[e];
    if (tau(e) == 1 && config_.owner == SimConfig::Owner::adamw)
        return adamw(s, keep, n, master_[e], m_[e], v_[e]);
    if (tau(e) == 1) return adams(s, keep, n, master_[e], m_[e]);
    const auto steps = static_cast<Real>(tau(e));
    const Powers<Real> powers(config_.beta1, tau(e));
    const Real m = m_[e];
    const Real mean = s / steps;
    const Real moments = powers.q * m + mean * (steps - powers.q);  // M = m_1 + ... + m_tau
    Real v = n.b2 * (m * m) + n.one_minus_b2 * ((s * s) / steps);
    if (config_.owner == SimConfig::Owner::adamw) {
        const Real p2 = static_cast<Real>(
            std::pow(static_cast<double>(config_.beta2), static_cast<double>(tau(e))));
        v_[e] = p2 * v_[e] + (1 - p2) * ((s * s) / steps);
        v = std::max(v_[e], n.b2 * (m * m));
    }
    master_[e] = moved(master_[e], moments, v, keep, n);
    m_[e] = powers.p * m + (1 - powers.p) * mean;
}

template class Simulator<float>;
template class Simulator<double>;

}  // namespace scape::test
