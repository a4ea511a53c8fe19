// The codes of algorithm.md 2.10 and 3, and what travels in them: values to the owners, differences
// back.
#include "support/scape_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace scape::test {

namespace {

using Levels = SimCode::Levels;

SimCode code_of(int bits, Levels of_two, Index block) {
    if (bits >= 16) return {Levels::number, bits, 1};
    return {bits == 1 ? Levels::sign : bits == 2 ? of_two : Levels::linear, bits, block};
}

int largest_code(const SimCode& code) {
    return (1 << (code.bits - 1)) - 1;
}

template <class Real>
Real decoded_value(const SimCode& code, Real scale, Real x) {
    switch (code.levels) {
        case Levels::linear: {
            if (std::isnan(scale)) return scale;
            const Real inverse = scale > 0 ? 1 / scale : 0;
            const auto q = static_cast<Real>(largest_code(code));
            const Real rounded = std::nearbyint(x * inverse);  // ties to even
            return (std::clamp(rounded, -q, q) + 0) * scale;   // a code has no -0
        }
        case Levels::gaussian: {
            const bool outer = std::abs(x) > static_cast<Real>(0.9816f) * scale;
            const Real level = static_cast<Real>(outer ? 1.510f : 0.4528f) * scale;
            return std::signbit(x) ? -level : level;
        }
        case Levels::sign:
            return std::signbit(x) ? -scale : scale;
        case Levels::number:
            break;
    }
    return code.bits == 16 ? bf16_rounded(x) : x;
}

}  // namespace

SimCode sim_value_code(const SimConfig& c) {
    const bool loco = c.error == SimConfig::Error::loco;
    return code_of(c.value_bits, loco ? Levels::linear : Levels::gaussian, c.block);
}

SimCode sim_delta_code(const SimConfig& c) {
    return code_of(c.delta_bits, Levels::gaussian, c.block);
}

SimCode sim_loco_code(const SimConfig& c) {
    return {Levels::linear, 8, c.block};
}

template <class Real>
Real sim_scale(const SimCode& code, const std::vector<Real>& x, Index begin, Index n) {
    constexpr Real not_a_number = std::numeric_limits<Real>::quiet_NaN();
    Real largest = 0, scale = 0;
    double sum = 0, squares = 0;
    for (Index i = begin; i < begin + n; ++i) {
        if (!std::isfinite(x[i])) return not_a_number;
        const auto value = static_cast<double>(x[i]);
        largest = std::max(largest, std::abs(x[i]));
        sum += std::abs(value);
        squares += value * value;
    }
    const auto count = static_cast<double>(n);
    if (code.levels == Levels::linear)
        scale = bf16_rounded(largest / static_cast<Real>(largest_code(code)));
    if (code.levels == Levels::gaussian)
        scale = bf16_rounded(static_cast<Real>(std::sqrt(squares / count)));
    if (code.levels == Levels::sign) scale = bf16_rounded(static_cast<Real>(sum / count));
    if (scale < static_cast<Real>(0x1p-126)) return 0;
    return std::isfinite(scale) ? scale : not_a_number;
}

template <class Real>
std::vector<Real> sim_decoded(const SimCode& code, const std::vector<Real>& x) {
    const auto n = static_cast<Index>(x.size());
    std::vector<Real> decoded(x.size());
    for (Index begin = 0; begin < n; begin += code.block) {
        const Index end = std::min(n, begin + code.block);
        const Real scale =
            code.levels == Levels::number ? 1 : sim_scale(code, x, begin, end - begin);
        for (Index i = begin; i < end; ++i) decoded[i] = decoded_value(code, scale, x[i]);
    }
    return decoded;
}

/// Code, send, decode and add at the owner in rank order; what was not sent, or lost by the code,
/// is left.
template <class Real>
void Simulator<Real>::exchange() {
    for (int r = 0; r < ranks_; ++r) {
        const bool full = config_.error == SimConfig::Error::full;
        left_[r] = full ? a_[r] : std::vector<Real>(geometry_.extent, 0);
        for (const SimSlice& s : geometry_.slices) code_slice(r, s);
    }
    const Real scale = static_cast<Real>(1) / static_cast<Real>(ranks_);
    for (Index e = 0; e < geometry_.extent; ++e) {
        Real sum = 0;
        bool first = true;
        for (int r = 0; r < ranks_; ++r) {
            if (!sent_[r][e]) continue;
            sum = first ? decoded_[r][e] : sum + decoded_[r][e];
            first = false;
        }
        delivered_[e] = sum * scale;
    }
}

/// One rank's message of one slice, and what is left of it.
template <class Real>
void Simulator<Real>::code_slice(int rank, const SimSlice& s) {
    std::vector<Index> at;
    std::vector<Real> values;
    for (Index e = s.begin; e < s.begin + s.size; ++e) {
        if (!sent_[rank][e]) continue;
        at.push_back(e);
        values.push_back(a_[rank][e]);
    }
    const std::vector<Real> decoded = sim_decoded(sim_value_code(config_), values);
    for (std::size_t j = 0; j < at.size(); ++j) {
        decoded_[rank][at[j]] = decoded[j];
        if (config_.error != SimConfig::Error::full) continue;
        left_[rank][at[j]] = config_.value_bits == 32 ? 0 : values[j] - decoded[j];
    }
    if (config_.error == SimConfig::Error::loco) keep_loco_error(rank, at, decoded);
}

/// Section 3: a slow average of what the code lost, itself coded.
template <class Real>
void Simulator<Real>::keep_loco_error(int rank, const std::vector<Index>& at,
                                      const std::vector<Real>& decoded) {
    const auto beta = static_cast<Real>(config_.loco_beta);
    std::vector<Real> error(at.size());
    for (std::size_t j = 0; j < at.size(); ++j) {
        const Real lost = a_[rank][at[j]] - decoded[j];
        error[j] = beta * residual_[rank][at[j]] + (1 - beta) * lost;
    }
    error = sim_decoded(sim_loco_code(config_), error);
    for (std::size_t j = 0; j < at.size(); ++j) left_[rank][at[j]] = error[j];
}

/// 2.10, after the owners' update: the replica decays as the master did, and takes the coded
/// difference where there is news.
template <class Real>
void Simulator<Real>::send_back(const SimNumbers<Real>& n) {
    const bool whole = config_.delta_bits == 32;
    for (const SimSlice& s : geometry_.slices) {
        std::vector<Index> at;
        std::vector<Real> values;
        for (Index e = s.begin; e < s.begin + s.size; ++e) {
            if (s.decay) replica_[e] = n.keep * replica_[e];
            if (scape() && !mask_[e]) continue;
            at.push_back(e);
            values.push_back(whole ? master_[e] : master_[e] - replica_[e]);
        }
        const std::vector<Real> decoded = sim_decoded(sim_delta_code(config_), values);
        for (std::size_t j = 0; j < at.size(); ++j)
            replica_[at[j]] = whole ? decoded[j] : replica_[at[j]] + decoded[j];
    }
}

template float sim_scale(const SimCode&, const std::vector<float>&, Index, Index);
template double sim_scale(const SimCode&, const std::vector<double>&, Index, Index);
template std::vector<float> sim_decoded(const SimCode&, const std::vector<float>&);
template std::vector<double> sim_decoded(const SimCode&, const std::vector<double>&);
template void Simulator<float>::exchange();
template void Simulator<double>::exchange();
template void Simulator<float>::send_back(const SimNumbers<float>&);
template void Simulator<double>::send_back(const SimNumbers<double>&);

}  // namespace scape::test
