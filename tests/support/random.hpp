#pragma once
/// @file
/// Pseudo-random values that are the same everywhere, and the way of test data to the device and
/// back.

#include <scape/base/types.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace scape::test {

/// splitmix64: a small counter-based generator, written here so that tests do not lean on the
/// program's own.
class Random {
   public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

    std::uint64_t bits() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// In [low, high).
    double uniform(double low = 0, double high = 1) {
        return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
    }
    double normal() {
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        return radius * std::cos(6.283185307179586 * uniform());
    }
    /// In [0, n).
    Index below(Index n) { return static_cast<Index>(bits() % static_cast<std::uint64_t>(n)); }

   private:
    std::uint64_t state_;
};

/// n values of mean `mean` and standard deviation `deviation`.
inline std::vector<float> normal_values(Index n, std::uint64_t seed, double deviation = 1,
                                        double mean = 0) {
    Random random(seed);
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(mean + deviation * random.normal());
    return values;
}

inline std::vector<float> uniform_values(Index n, std::uint64_t seed, double low, double high) {
    Random random(seed);
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(random.uniform(low, high));
    return values;
}

/// n token ids below `vocab`; every `ignore_every`th one is ignored_target (0: none).
inline std::vector<Token> token_values(Index n, std::uint64_t seed, Index vocab,
                                       Index ignore_every = 0) {
    Random random(seed);
    std::vector<Token> values(n);
    for (Index i = 0; i < n; ++i) {
        values[i] = static_cast<Token>(random.below(vocab));
        if (ignore_every != 0 && i % ignore_every == 0) values[i] = ignored_target;
    }
    return values;
}

/// A device buffer that holds `values`.
template <class T>
Vec<T> to_device(const std::vector<T>& values, const std::string& label = "scape::test") {
    Vec<T> device(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), values.size());
    HostSpan<const T> host(values.data(), values.size());
    Kokkos::deep_copy(device, host);
    return device;
}

/// n copies of `value` on the device.
template <class T>
Vec<T> filled(Index n, T value, const std::string& label = "scape::test") {
    return to_device(std::vector<T>(n, value), label);
}

/// The elements of a view of any rank, in memory order. Waits for the device.
template <class T, class... P>
auto to_host(const Kokkos::View<T, P...>& view) {
    using Value = typename Kokkos::View<T, P...>::non_const_value_type;
    using Space = typename Kokkos::View<T, P...>::memory_space;
    std::vector<Value> values(view.size());
    Kokkos::fence();
    Kokkos::deep_copy(HostSpan<Value>(values.data(), values.size()),
                      Kokkos::View<const Value*, Space, Unmanaged>(view.data(), view.size()));
    return values;
}

inline std::vector<double> to_double(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

}  // namespace scape::test
