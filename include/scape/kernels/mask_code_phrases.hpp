#pragma once
/// @file
/// The dictionary behind MaskCode::entropy: a variable-to-fixed code, in the manner of a block
/// arithmetic code (Boncelet 1993, IEEE Trans. Inf. Theory 39, 1546).
///
/// A mask is a row of elements that are selected with probability p or skipped with 1 - p. A
/// *phrase* is a start of such a row; its number has phrase_bits bits. The phrases form a tree: a
/// node that owns K numbers leaves some to the rows that go on with a selected element, and the
/// rest to those that skip one. Where few numbers are left for a selected element, one number
/// serves it at any of 2^b neighbouring places, and b raw bits, in a stream of their own, say
/// which. So a phrase ends in a selected element, with or without raw bits, or in a skip.
///
/// **The size is static.** Let a selected element be worth `selected` bits and a skipped one
/// `skipped`: L (-log2 p) and L (-log2(1-p)) for some L >= 1. The tree is such that every phrase
/// costs at most what it is worth, even if its last element lies at the first of its 2^b places:
///
///     phrase_bits + b <= selected * (its selected elements) + skipped * (its skipped ones)
///
/// Summed over the phrases of any mask: at most selected * k + skipped * (n - k) bits; that is L
/// times the entropy of k in n if p = k/n. L is the least for which such a tree exists, 1.03 to
/// 1.05 here, and 1 + 0.5 / phrase_bits or so: what a number is worth in excess of its cost varies
/// between 0 and 1 bit, for b is whole.

#include <scape/kernels/segment.hpp>

#include <vector>

namespace scape::kernels::detail {

inline constexpr int phrase_bits = 14;
inline constexpr Index phrase_count = Index{1} << phrase_bits;
inline constexpr int phrase_places = 6;   // selected elements of a phrase without raw bits, at most
inline constexpr int phrase_models = 69;  // p = 2^(-(20 + model) / 8) or so: 0.18 ... 0.00049
inline constexpr int phrase_worth_bits = 20;  // worths are in units of 2^-20 bit

/// Eight numbers that a host loads at once. [0, 6): places of the selected elements but the one
/// that raw bits or the phrase's end place; [6]: its length without raw bits; [7]: how many of [0,
/// 6) there are, selected elements << 4, raw bits << 8.
struct alignas(16) Phrase {
    std::uint16_t lanes[8];
};

/// What an encoder does when it finds a gap at a node. The steps of a node are those of the gaps
/// 0 ... span - 1, and then that of a skip of `span` elements.
struct PhraseStep {
    std::uint32_t node;      ///< first step of the next node; 0, the root, if the phrase ends
    std::uint16_t span;      ///< of the next node
    std::uint16_t number;    ///< to be added to the number of the phrase
    std::uint16_t raw;       ///< the raw bits
    unsigned char raw_bits;  ///< how many
    unsigned char ends;      ///< 1 if the phrase ends here
};

struct PhraseView {
    const Phrase* phrases = nullptr;  ///< (phrase_count)
    const PhraseStep* steps = nullptr;
    std::uint32_t root_span = 0;
    std::int64_t selected = 0;  ///< worth of a selected element, in 2^-phrase_worth_bits bit
    std::int64_t skipped = 0;
};

struct PhraseTable {
    std::vector<Phrase> phrases;
    std::vector<PhraseStep> steps;
    PhraseView view;  ///< of these, in host memory
};

/// Nearest to k of n on a logarithmic scale; 1 <= k <= n. Integers only: equal everywhere.
KOKKOS_INLINE_FUNCTION int phrase_model(Index n, Index k) {
    // 2^20 times 2^(1/16), 2^(3/16) ...: between eighths of an octave.
    constexpr Index limits[8] = {1094989, 1194095, 1302171, 1420029,
                                 1548554, 1688712, 1841555, 2008232};
    Index ratio = (n << 20) / k;
    int eighths = 0;
    for (; ratio >= Index{1} << 21; ratio >>= 1) eighths += 8;
    for (const Index limit : limits) eighths += ratio >= limit;
    return eighths < 20 ? 0 : eighths < 20 + phrase_models ? eighths - 20 : phrase_models - 1;
}

/// Made when first asked for (some 3 ms), and kept. From any thread.
const PhraseTable& phrase_table(int model);

/// (phrase_models), in the memory of the execution space: of all models whose table has been made
/// by now; pointers to nothing for the others. A device's copies are made here, with fences, when
/// there is a new one.
const PhraseView* phrase_views();

}  // namespace scape::kernels::detail
