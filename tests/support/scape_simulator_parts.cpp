#include "support/scape_simulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace scape::test {

Geometry geometry_of(const FlatLayout& layout, const Sharding& sharding) {
    Geometry geometry;
    geometry.extent = sharding.extent();
    for (int rank = 0; rank < sharding.ranks(); ++rank) {
        for (const Slice& s : sharding.slices(rank)) {
            const Tensor& tensor = layout.tensors()[s.tensor];
            geometry.slices.push_back(
                {s.tensor, s.flat.begin, s.flat.size(), rank, tensor.decay, tensor.dense});
        }
    }
    return geometry;
}

namespace {

/// a (b/a)^x, x clamped to [0, 1], with its ends exact.
double curve(double a, double b, double x) {
    return x <= 0 ? a : x >= 1 ? b : a * std::pow(b / a, x);
}

double falling_density(const SimConfig& c, Index t) {
    if (t <= c.dense_steps) return 1;
    if (c.warmup_steps == 0) return c.density;
    const auto since = static_cast<double>(t - 1 - c.dense_steps);
    return curve(c.density_start, c.density, since / static_cast<double>(c.warmup_steps));
}

}  // namespace

double sim_density(const SimConfig& c, Index t) {
    const Index before = c.total_steps - c.cooldown_steps;
    if (c.cooldown_steps == 0 || t <= before) return falling_density(c, t);
    const double to_go =
        static_cast<double>(c.total_steps - t) / static_cast<double>(c.cooldown_steps);
    return curve(1, falling_density(c, std::max<Index>(before, 1)), to_go);
}

Index sim_count(double density, Index n) {
    const auto k = static_cast<Index>(std::floor(density * static_cast<double>(n)));
    return std::max<Index>(1, k);
}

template <class Real>
Real bf16_rounded(Real value) {
    const auto x = static_cast<float>(value);
    if (std::isnan(x)) return value;
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const std::uint32_t low = bits & 0xffffu, odd = (bits >> 16) & 1u;
    bits &= 0xffff0000u;
    if (low > 0x8000u || (low == 0x8000u && odd == 1)) bits += 0x10000u;
    float rounded;
    std::memcpy(&rounded, &bits, 4);
    return static_cast<Real>(rounded);
}

namespace {

std::uint64_t magnitude_bits(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits & 0x7fffffffu;
}

std::uint64_t magnitude_bits(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, 8);
    return bits & 0x7fffffffffffffffu;
}

}  // namespace

template <class Real>
void sim_top_k(const std::vector<Real>& x, Index begin, Index n, Index k,
               std::vector<bool>& marks) {
    std::vector<Index> order(n);
    std::iota(order.begin(), order.end(), begin);
    std::sort(order.begin(), order.end(), [&](Index a, Index b) {
        const std::uint64_t xa = magnitude_bits(x[a]), xb = magnitude_bits(x[b]);
        return xa != xb ? xa > xb : a < b;
    });
    for (Index i = 0; i < n; ++i) marks[order[i]] = i < k;
}

template <class Real>
std::vector<bool> sim_mask(const SimConfig& config, const Geometry& geometry,
                           const std::vector<Real>& score, double density) {
    std::vector<bool> marks(geometry.extent, false);
    for (const SimSlice& s : geometry.slices) {
        const bool whole = s.dense && !config.sparsify_1d;
        sim_top_k(score, s.begin, s.size, whole ? s.size : sim_count(density, s.size), marks);
    }
    return marks;
}

template <class Real>
SimNumbers<Real>::SimNumbers(const SimConfig& c, Index t, Real lr)
    : b1(static_cast<Real>(c.beta1)),
      one_minus_b1(static_cast<Real>(1 - c.beta1)),
      b2(static_cast<Real>(c.beta2)),
      one_minus_b2(static_cast<Real>(1 - c.beta2)),
      eps(static_cast<Real>(c.eps)),
      c1(1),
      c2(1),
      eta(lr),
      mu(static_cast<Real>(c.momentum)),
      keep(static_cast<Real>(1 - static_cast<double>(lr) * c.weight_decay)) {
    if (!c.bias_correction) return;
    c1 = static_cast<Real>(1 - std::pow(c.beta1, static_cast<double>(t)));
    c2 = static_cast<Real>(1 - std::pow(c.beta2, static_cast<double>(t)));
}

template float bf16_rounded(float);
template double bf16_rounded(double);
template void sim_top_k(const std::vector<float>&, Index, Index, Index, std::vector<bool>&);
template void sim_top_k(const std::vector<double>&, Index, Index, Index, std::vector<bool>&);
template std::vector<bool> sim_mask(const SimConfig&, const Geometry&, const std::vector<float>&,
                                    double);
template std::vector<bool> sim_mask(const SimConfig&, const Geometry&, const std::vector<double>&,
                                    double);
template struct SimNumbers<float>;
template struct SimNumbers<double>;

}  // namespace scape::test
