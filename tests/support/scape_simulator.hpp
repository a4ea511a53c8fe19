#pragma once
/// @file
/// An independent simulator of the SCAPE optimizer and its baselines: plain loops over
/// std::vector, P ranks in one process, written from algorithm.md sections 1 to 3 and sharing no
/// code with the program. Real = float gives the program's numbers (the order of operations is
/// that of the specification, sums over ranks in rank order); Real = double the mathematics.
///
/// Everything "flat" has Geometry::extent elements; elements in no slice (padding) are never
/// touched. Every rank's message is coded slice by slice; blocks start anew at each slice. Built as
/// the library scape_simulator, without fused multiply-adds.

#include <scape/base/flat_layout.hpp>

#include <cstdint>
#include <vector>

namespace scape::test {

/// The part of one tensor that one rank owns.
struct SimSlice {
    int tensor = 0;
    Index begin = 0;  ///< in the flat buffer
    Index size = 0;
    int owner = 0;
    bool decay = false;
    bool dense = false;  ///< always sent whole, unless SimConfig::sparsify_1d
};

struct Geometry {
    Index extent = 0;
    std::vector<SimSlice> slices;  ///< rank by rank, each rank's in buffer order
};

Geometry geometry_of(const FlatLayout& layout, const Sharding& sharding);

struct SimConfig {
    /// all: a dense optimizer's exchange. mask: the scape optimizer. The rest: section 3.
    enum class Elements { all, mask, topk_ef, clt_k };
    enum class Rule { catch_up, paper };
    enum class Score { after, before };
    enum class Owner { adamw, adams, sgd };
    /// Where the rest of what a code could not carry lives, section 3. loco and none: elements =
    /// all only.
    enum class Error { full, loco, none };
    Elements elements = Elements::mask;
    Rule rule = Rule::catch_up;  ///< of elements = mask
    Score score = Score::after;  ///< of catch_up; paper's is always `before`
    /// Of all other elements; catch_up: the second moment (never sgd).
    Owner owner = Owner::adams;
    bool same_step = false;  ///< masks are used in the step that chose them (score before)
    double density = 0.1;    ///< target
    double density_start = 0.1;
    Index warmup_steps = 0;
    Index dense_steps = 0;
    Index cooldown_steps = 0;
    Index total_steps = 0;  ///< T; only the cooldown asks
    bool sparsify_1d = false;
    int value_bits = 32;  ///< 32 | 16 | 8 | 4 | 2 | 1, on the way to the owner
    int delta_bits = 32;  ///< the same of master - replica, on the way back; 32: the new weights
    Index block = 64;     ///< values that share a scale, below 16 bits
    Error error = Error::full;
    double loco_beta = 0.8;
    Index loco_reset_every = 1024;  ///< applied steps; 0: never
    bool fused = false;             ///< what a skipped step does to R, 2.5
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double momentum = 0.9;  ///< sgd
    double weight_decay = 0;
    bool bias_correction = true;
    double clip_norm = 0;  ///< 0: none
};

/// d(t), 2.2. The cooldown ends at t = T with d = 1: the curve from 1 to what d was before it,
/// reversed.
double sim_density(const SimConfig& config, Index t);
/// k = max(1, floor(d n)).
Index sim_count(double density, Index n);
/// x rounded to bf16, nearest, ties to even. (A double is rounded to float before.)
template <class Real>
Real bf16_rounded(Real x);

/// A code and its blocks, 2.10.
struct SimCode {
    enum class Levels { number, linear, gaussian, sign };
    Levels levels = Levels::number;
    int bits = 32;
    Index block = 1;
};
SimCode sim_value_code(const SimConfig& config);
SimCode sim_delta_code(const SimConfig& config);
/// LoCo's error, in the blocks of the values.
SimCode sim_loco_code(const SimConfig& config);
/// The scale that x[begin ... begin + n) share: 0 if it is not a normal number, NaN if some value
/// or the scale is not finite.
template <class Real>
Real sim_scale(const SimCode& code, const std::vector<Real>& x, Index begin, Index n);
/// What comes out of the code of x, a slice's values, at the other end.
template <class Real>
std::vector<Real> sim_decoded(const SimCode& code, const std::vector<Real>& x);

/// marks[begin + i] = x[begin + i] is among the k largest magnitudes of x[begin ... begin + n),
/// by the bits of |x| as an unsigned number, ties to the lower position.
template <class Real>
void sim_top_k(const std::vector<Real>& x, Index begin, Index n, Index k, std::vector<bool>& marks);

/// 2.1: the top k of |score| in every slice; all of a slice that is always sent whole.
template <class Real>
std::vector<bool> sim_mask(const SimConfig& config, const Geometry& geometry,
                           const std::vector<Real>& score, double density);

/// The scalars of one step, worked out in double and rounded once.
template <class Real>
struct SimNumbers {
    SimNumbers(const SimConfig& config, Index t, Real lr);
    Real b1, one_minus_b1, b2, one_minus_b2, eps, c1, c2, eta, mu;
    Real keep;  ///< 1 - eta lambda
};

template <class Real>
class Simulator {
   public:
    /// weights: flat. Throws std::logic_error on sizes that do not fit, and on settings that make
    /// no optimizer.
    Simulator(const SimConfig& config, const Geometry& geometry, int ranks,
              std::vector<Real> weights);

    /// Step t = steps() + 1. gradients[rank]: flat, g_i. A step with a non-finite loss or received
    /// norm is skipped: it counts as a step (t), but not for tau.
    void step(const std::vector<std::vector<Real>>& gradients, Real lr, bool loss_finite = true);

    Index steps() const { return t_; }
    bool skipped() const { return skipped_; }
    /// The replica, which all ranks hold.
    const std::vector<Real>& weights() const { return replica_; }
    /// What the owners hold.
    const std::vector<Real>& master() const { return master_; }
    /// What the rank keeps: R_i, or LoCo's error; with error = none, 0.
    const std::vector<Real>& residual(int rank) const { return residual_[rank]; }
    /// The elements that travelled to an owner in the last step (topk_ef: the union over ranks).
    const std::vector<bool>& mask() const { return mask_; }
    /// elements = mask: the pending mask, of the next step.
    const std::vector<bool>& next_mask() const { return next_mask_; }
    /// What one rank sent in the last step.
    const std::vector<bool>& sent(int rank) const { return sent_[rank]; }
    /// m, or z of rule paper, which is not m off the mask.
    const std::vector<Real>& m() const { return m_; }
    /// owner adamw.
    const std::vector<Real>& v() const { return v_; }
    /// Applied (not skipped) steps up to and with the element's last visit; 0: none yet.
    const std::vector<std::uint32_t>& visit() const { return visit_; }
    Index applied() const { return applied_; }
    /// (1/P) sum over ranks of the decoded values, before the clip; 0 off the mask.
    const std::vector<Real>& delivered() const { return delivered_; }
    double received_norm() const { return norm_; }  ///< before the clip, 2.8
    Real coefficient() const { return coefficient_; }
    /// Of the next mask, as the last step that was not skipped left it: signed, 0 in no slice.
    const std::vector<Real>& score() const { return score_; }

   private:
    using Marks = std::vector<bool>;
    bool scape() const { return config_.elements == SimConfig::Elements::mask; }
    bool paper() const { return scape() && config_.rule == SimConfig::Rule::paper; }
    Index tau(Index e) const { return applied_ + 1 - visit_[e]; }
    Real base(Index e, const SimNumbers<Real>& n) const;
    Real ghat(Index e, const SimNumbers<Real>& n) const;
    void select();
    void exchange();
    void code_slice(int rank, const SimSlice& slice);
    void keep_loco_error(int rank, const std::vector<Index>& at, const std::vector<Real>& decoded);
    void measure(const SimNumbers<Real>& n);
    void skip();
    Real closed_form_score(Index e, Real a) const;
    void score_all(const std::vector<std::vector<Real>>& of_rank, const SimNumbers<Real>& n);
    void update(const SimNumbers<Real>& n);
    void update_scape(Index e, Real keep, const SimNumbers<Real>& n);
    void catch_up_element(Index e, Real keep, const SimNumbers<Real>& n);
    void send_back(const SimNumbers<Real>& n);
    void commit();

    SimConfig config_;
    Geometry geometry_;
    int ranks_;
    Index t_ = 0, applied_ = 0;
    bool skipped_ = false;
    double norm_ = 0;
    Real coefficient_ = 1;
    std::vector<Real> master_, replica_, m_, v_, delivered_, score_;
    std::vector<std::uint32_t> visit_;
    Marks mask_, next_mask_, last_mask_;       // last: of the last applied step
    std::vector<Marks> sent_;                  // [rank]
    std::vector<std::vector<Real>> residual_;  // [rank] R_i or LoCo's e_i
    std::vector<std::vector<Real>> a_, left_;  // [rank] g_i + R_i, and R_i after this step
    std::vector<std::vector<Real>> decoded_;   // [rank] this step's messages, where sent
};

}  // namespace scape::test
