#pragma once
// Small inputs of the simulator's tests.
#include "support/random.hpp"
#include "support/scape_simulator.hpp"

#include <algorithm>

namespace scape::test {

// P ranks own a piece each of 64 elements: a matrix, a gain that is always dense, one element,
// three elements, padding.
inline Geometry small_geometry(int ranks) {
    Geometry geometry;
    geometry.extent = 64 * ranks;
    for (int r = 0; r < ranks; ++r) {
        const Index begin = 64 * r;
        geometry.slices.push_back({0, begin, 37, r, true, false});
        geometry.slices.push_back({1, begin + 40, 7, r, false, true});
        geometry.slices.push_back({2, begin + 50, 1, r, true, false});
        geometry.slices.push_back({3, begin + 52, 3, r, false, false});
    }
    return geometry;
}

// Normal values of uneven size in the slices, 0 elsewhere.
template <class Real = double>
std::vector<Real> drawn(const Geometry& geometry, std::uint64_t seed) {
    Random random(seed);
    std::vector<Real> x(geometry.extent, 0);
    for (const SimSlice& s : geometry.slices) {
        for (Index e = s.begin; e < s.begin + s.size; ++e)
            x[e] = static_cast<Real>(random.normal() * (1 + e % 5));
    }
    return x;
}

template <class Real = double>
std::vector<std::vector<Real>> gradients_of(const Geometry& geometry, int ranks, Index t) {
    std::vector<std::vector<Real>> g;
    for (int r = 0; r < ranks; ++r) g.push_back(drawn<Real>(geometry, 1000 * t + r));
    return g;
}

inline SimConfig sparse(SimConfig::Rule rule, SimConfig::Score score = SimConfig::Score::after) {
    SimConfig c;
    c.rule = rule;
    c.score = score;
    c.density = 0.1;
    c.density_start = 1;
    c.warmup_steps = 8;
    c.weight_decay = 0.1;
    return c;
}

inline Index count(const std::vector<bool>& marks) {
    return std::count(marks.begin(), marks.end(), true);
}

}  // namespace scape::test
