#pragma once
/// @file
/// The k-th largest of an array of keys, on a host: histograms narrow the range of keys until few
/// are left. Linear whatever the keys are: 31 bits take three histograms.

#include "key_words.hpp"

#include <algorithm>
#include <functional>

namespace scape::kernels::detail {

inline constexpr int most_bin_bits = 11;
// Large histograms are taken in turns, so that equal keys in a row do not wait for each other.
inline constexpr Index tables = 4;
inline constexpr Index one_table_below = 4096;  // keys
inline constexpr Index table_size = (Index{1} << most_bin_bits) + 16;
inline constexpr Index few = 48;  // keys for nth_element

/// Keys in [low, high).
struct Bracket {
    Key low = 0;
    Key high = key_end;
    Key width() const { return high - low; }
};

/// A key of the array; `above` of the others are larger, `equal`, itself included, are equal.
struct RankedKey {
    Key key = 0;
    Index above = 0;
    Index equal = 0;
};

/// Memory of kth_key.
struct KthKeyWork {
    Key* bins;      // (tables, table_size)
    Key* few_keys;  // (few + slack)
    static constexpr Index size = tables * table_size + few + append_slack + word_bits;
    explicit KthKeyWork(Key* memory) : bins(memory), few_keys(memory + tables * table_size) {}
};

template <class T>
Index count_at_least(const T* x, Index n, Key limit) {
    Index count = 0;
#pragma omp simd reduction(+ : count)
    for (Index i = 0; i < n; ++i) count += key_of(x[i]) >= limit;
    return count;
}

template <class T>
Bracket extremes(const T* x, Index n) {
    Key low = key_end;
    Key high = 0;
#pragma omp simd reduction(min : low) reduction(max : high)
    for (Index i = 0; i < n; ++i) {
        const Key key = key_of(x[i]);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    return {low, high + 1};
}

/// Appends the keys in the bracket to out, which may be x.
template <class T>
Index gather(const T* x, Index n, const Bracket& in, Key* out) {
    Index count = 0;
    Index i = 0;
    for (; i + word_bits <= n; i += word_bits) {
        const Word word = word_at_least(x + i, in.low) & ~word_at_least(x + i, in.high);
        if (word != 0) count += append_keys(out + count, word, x + i);
    }
    for (; i < n; ++i) {
        const Key key = key_of(x[i]);
        if (key - in.low < in.width()) out[count++] = key;
    }
    return count;
}

/// ++bins[table][min((key - low) >> shift, last)], with the tables `stride` apart.
template <class T>
void count_bins(const T* x, Index n, Key low, int shift, Key last, Key* bins, Index stride) {
    constexpr Index chunk = 64;
    Key bin[chunk];
    for (Index first = 0; first < n; first += chunk) {
        const Index some = std::min(n - first, chunk);
#pragma omp simd
        for (Index l = 0; l < some; ++l) {
            const Key b = (key_of(x[first + l]) - low) >> shift;
            bin[l] = b < last ? b : last;
        }
        Index l = 0;
        for (; l + tables <= some; l += tables) {
            for (Index t = 0; t < tables; ++t) ++bins[t * stride + bin[l + t]];
        }
        for (; l < some; ++l) ++bins[bin[l]];
    }
}

/// The bin that holds the rank-th largest of the keys in the bracket becomes the bracket. The
/// rank, and the number of keys that is returned, are then among those in it.
template <class T>
Index narrow(const T* x, Index n, Bracket& in, Index& rank, Key* bins) {
    const int bits =
        std::clamp(static_cast<int>(std::bit_width(static_cast<Word>(n))) - 3, 4, most_bin_bits);
    const int shift = std::max(0, static_cast<int>(std::bit_width(in.width() - 1)) - bits);
    const Key used = ((in.width() - 1) >> shift) + 1;  // keys outside go to bin `used`
    const Index turns = n < one_table_below ? 1 : tables;
    for (Index t = 0; t < turns; ++t) {
        std::fill(bins + t * table_size, bins + t * table_size + used + 1, 0);
    }
    count_bins(x, n, in.low, shift, used, bins, turns == 1 ? 0 : table_size);
    for (Index t = 1; t < turns; ++t) {
        for (Key bin = 0; bin < used; ++bin) bins[bin] += bins[t * table_size + bin];
    }
    Key bin = used - 1;
    for (; rank > Index{bins[bin]}; --bin) rank -= bins[bin];
    in.low += bin << shift;
    in.high = std::min(in.low + (Key{1} << shift), key_end);
    return bins[bin];
}

/// The k-th largest key of x (n), 1 <= k <= n.
template <class T>
RankedKey kth_key(const T* x, Index n, Index k, const KthKeyWork& work) {
    Bracket in = extremes(x, n);
    Index rank = k;
    Index inside = n;
    while (in.width() > 1 && inside > few) inside = narrow(x, n, in, rank, work.bins);
    RankedKey result{in.low, k - rank, inside};
    if (in.width() > 1) {
        Key* keys = work.few_keys;
        gather(x, n, in, keys);
        std::nth_element(keys, keys + rank - 1, keys + inside, std::greater<>());
        result.key = keys[rank - 1];
        const Index larger = count_at_least(keys, inside, result.key + 1);
        result.equal = count_at_least(keys, inside, result.key) - larger;
        result.above += larger;
    }
    return result;
}

}  // namespace scape::kernels::detail
