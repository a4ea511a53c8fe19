#include <scape/kernels/attention.hpp>
#include <scape/kernels/attention_detail.hpp>

#include <stdexcept>
#include <string>

namespace scape::kernels {

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                       Span<T> out, Span<float> lse, Span<float> workspace) {
    if constexpr (exec_is_host) {
        detail::attention_forward_host<T>(exec, shape, qkv, out, lse, workspace);
    } else {
        detail::attention_forward_device<T>(exec, shape, qkv, out, lse, workspace);
    }
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, Span<const T> qkv,
                        Span<const T> out, Span<const float> lse, Span<const T> d_out,
                        Span<T> d_qkv, Span<float> workspace) {
    if constexpr (exec_is_host) {
        detail::attention_backward_host<T>(exec, shape, qkv, out, lse, d_out, d_qkv, workspace);
    } else {
        detail::attention_backward_device<T>(exec, shape, qkv, out, lse, d_out, d_qkv, workspace);
    }
}

namespace {

template <class T>
Index workspace_for(const AttentionShape& shape) {
    if constexpr (exec_is_host) {
        return detail::attention_workspace_host(shape);
    } else {
        return detail::attention_workspace_device(shape);
    }
}

}  // namespace

Index attention_workspace(const AttentionShape& shape) {
    return workspace_for<float>(shape);
}

namespace detail {

void check_attention(const AttentionShape& s, std::size_t qkv, std::size_t out, std::size_t lse,
                     std::size_t workspace, Index workspace_needed) {
    const auto fail = [](const std::string& what, std::size_t seen, Index wanted) {
        if (static_cast<Index>(seen) >= wanted) return;
        throw std::logic_error("attention: " + what + " has " + std::to_string(seen) +
                               " elements, the shape asks for " + std::to_string(wanted));
    };
    if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
        throw std::logic_error("attention: " + std::to_string(s.kv_heads) +
                               " key/value heads do not divide " + std::to_string(s.heads));
    }
    const Index tokens = s.batch * s.seq;
    fail("qkv", qkv, tokens * (s.heads + 2 * s.kv_heads) * s.head_dim);
    fail("out", out, tokens * s.heads * s.head_dim);
    fail("lse", lse, tokens * s.heads);
    fail("the workspace", workspace, workspace_needed);
}

}  // namespace detail

template void attention_forward<float>(const Exec&, const AttentionShape&, Span<const float>,
                                       Span<float>, Span<float>, Span<float>);
template void attention_backward<float>(const Exec&, const AttentionShape&, Span<const float>,
                                        Span<const float>, Span<const float>, Span<const float>,
                                        Span<float>, Span<float>);

}  // namespace scape::kernels
