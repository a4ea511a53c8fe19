#pragma once
/// @file
/// Masks to be coded, in batches with room between segments, positions and codes.

#include "support/random.hpp"

#include <scape/kernels/mask_code.hpp>
#include <scape/kernels/mask_code_detail.hpp>

#include <algorithm>

namespace scape::test {

using kernels::MaskCode;
using kernels::Position;
using kernels::Segment;
using Bytes = std::vector<unsigned char>;
using Positions = std::vector<Position>;

struct Implementation {
    std::string name;
    decltype(&kernels::encode_mask) encode;
    decltype(&kernels::decode_mask) decode;
};

inline std::vector<Implementation> implementations() {
    return {{"public", kernels::encode_mask, kernels::decode_mask},
            {"device", kernels::detail::encode_mask_device, kernels::detail::decode_mask_device}};
}

inline constexpr Position unwritten = 0xabcdef01u;
inline constexpr unsigned char untouched = 0x5a;

/// One mask a segment, and room between all that lies in the arrays.
struct Case {
    std::vector<Segment> segments;
    std::vector<Positions> masks;
    Index positions = 0;
    Index bytes = 0;

    void add(MaskCode code, Index n, const Positions& mask, Random& random) {
        Segment s;
        s.begin = (segments.empty() ? 0 : segments.back().begin + segments.back().size) +
                  random.below(100);
        s.size = n;
        s.selected = static_cast<Index>(mask.size());
        s.first = positions += random.below(5);
        s.code = bytes += 8 * random.below(3);
        positions += s.selected;
        bytes += kernels::mask_code_bytes(code, n, s.selected);
        segments.push_back(s);
        masks.push_back(mask);
    }
    void finish() {
        positions += 5;
        bytes += 16;
    }
};

template <class T>
inline std::string difference(const std::string& what, const std::vector<T>& got,
                              const std::vector<T>& wanted) {
    const auto at = std::mismatch(got.begin(), got.end(), wanted.begin());
    if (at.first == got.end()) return "";
    return what + ": [" + std::to_string(at.first - got.begin()) + "] is " +
           std::to_string(*at.first) + ", wanted " + std::to_string(*at.second) + "\n";
}

/// k of n positions, ascending.
inline Positions random_mask(Index n, Index k, Random& random) {
    Positions mask;
    for (Index i = 0, left = k; i < n && left > 0; ++i) {
        if (random.below(n - i) >= left) continue;
        mask.push_back(static_cast<Position>(i));
        --left;
    }
    return mask;
}

/// k positions in a clump, so that the rest of the segment is a long gap before, after or both.
inline Positions clumped_mask(Index n, Index k, Random& random) {
    const Index begin = random.below(3) * (n - k) / 2;
    Positions mask;
    for (Index i = 0; i < k; ++i) mask.push_back(static_cast<Position>(begin + i));
    return mask;
}

inline Case random_case(MaskCode code, Index most, Random& random) {
    Case c;
    const Index count = 1 + random.below(6);
    for (Index i = 0; i < count; ++i) {
        const Index n = 1 + random.below(most);
        const Index choice = random.below(6);
        const Index k = choice == 0   ? 1
                        : choice == 1 ? n
                        : choice == 2 ? std::max<Index>(1, n - 1)
                        : choice == 3 ? 1 + n / 300
                                      : 1 + random.below(n);
        const bool clumped = random.below(4) == 0;
        c.add(code, n, clumped ? clumped_mask(n, k, random) : random_mask(n, k, random), random);
    }
    c.finish();
    return c;
}

}  // namespace scape::test
