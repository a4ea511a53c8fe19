#include <scape/kernels/top_k.hpp>
#include <scape/kernels/top_k_detail.hpp>

namespace scape::kernels {

void top_k(const Exec& exec, Span<const float> x, Span<const Segment> segments,
           Span<Position> positions, Span<unsigned char> workspace) {
    if constexpr (exec_is_host) {
        detail::top_k_host(exec, x, segments, positions, workspace);
    } else {
        detail::top_k_device(exec, x, segments, positions, workspace);
    }
}

Index top_k_workspace(Index largest_segment, Index segments) {
    if constexpr (exec_is_host) {
        return detail::top_k_workspace_host(largest_segment, segments);
    } else {
        return detail::top_k_workspace_device(largest_segment, segments);
    }
}

}  // namespace scape::kernels
