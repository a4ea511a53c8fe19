#include <scape/kernels/mask_code.hpp>
#include <scape/kernels/mask_code_detail.hpp>

namespace scape::kernels {

Index mask_code_bytes(MaskCode code, Index n, Index k) {
    if (k == n) return 0;
    switch (code) {
        case MaskCode::bitmap:
            return (n + 63) / 64 * 8;
        case MaskCode::gaps:
            // The gaps of all elements add up to n - k at most: fewer than n/255 skips.
            return round_up(k + n / 255, 8);
        case MaskCode::index:
            return round_up(k * static_cast<Index>(sizeof(Position)), 8);
        case MaskCode::entropy:
            return detail::entropy_code_bytes(n, k);
    }
    return 0;
}

void encode_mask(const Exec& exec, MaskCode code, Span<const Segment> segments,
                 Span<const Position> positions, Span<unsigned char> coded) {
    if constexpr (exec_is_host) {
        detail::encode_mask_host(exec, code, segments, positions, coded);
    } else {
        detail::encode_mask_device(exec, code, segments, positions, coded);
    }
}

void decode_mask(const Exec& exec, MaskCode code, Span<const Segment> segments,
                 Span<const unsigned char> coded, Span<Position> positions) {
    if constexpr (exec_is_host) {
        detail::decode_mask_host(exec, code, segments, coded, positions);
    } else {
        detail::decode_mask_device(exec, code, segments, coded, positions);
    }
}

}  // namespace scape::kernels
