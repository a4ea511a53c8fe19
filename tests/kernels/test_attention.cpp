// Both implementations of attention against a plain softmax over all T x T scores in double
// precision: values, gradients, causality.
#include <scape/kernels/attention_detail.hpp>
#include <scape/kernels/gemm.hpp>

#include "support/compare.hpp"

using namespace scape;
using namespace scape::kernels;
using namespace scape::test;

namespace {

using Doubles = std::vector<double>;

Index qkv_width(const AttentionShape& s) {
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

/// out, lse and d_qkv by the definition.
struct AttentionReference {
    Doubles out, lse, d_qkv;

    AttentionReference(const AttentionShape& s, const Doubles& qkv, const Doubles& d_out)
        : out(s.batch * s.seq * s.heads * s.head_dim),
          lse(s.batch * s.heads * s.seq),
          d_qkv(qkv.size()) {
        for (Index b = 0; b < s.batch; ++b) {
            for (Index h = 0; h < s.heads; ++h) head(s, qkv, d_out, b, h);
        }
    }

   private:
    void head(const AttentionShape& s, const Doubles& qkv, const Doubles& d_out, Index b, Index h) {
        const Index T = s.seq, D = s.head_dim, kv = h / (s.heads / s.kv_heads);
        const auto in = [&](Index first_head, Index t) {
            return (b * T + t) * qkv_width(s) + first_head * D;
        };
        const auto q = [&](Index t) { return in(h, t); };
        const auto k = [&](Index t) { return in(s.heads + kv, t); };
        const auto v = [&](Index t) { return in(s.heads + s.kv_heads + kv, t); };
        const auto o = [&](Index t) { return ((b * T + t) * s.heads + h) * D; };
        const double scale = 1 / std::sqrt(static_cast<double>(D));
        for (Index i = 0; i < T; ++i) {
            Doubles p(i + 1), dp(i + 1);
            double most = -INFINITY, total = 0, mean = 0;
            for (Index j = 0; j <= i; ++j) {
                for (Index d = 0; d < D; ++d) p[j] += scale * qkv[q(i) + d] * qkv[k(j) + d];
                most = std::max(most, p[j]);
            }
            for (double& x : p) total += x = std::exp(x - most);
            lse[(b * s.heads + h) * T + i] = most + std::log(total);
            for (Index j = 0; j <= i; ++j) {
                p[j] /= total;
                for (Index d = 0; d < D; ++d) {
                    out[o(i) + d] += p[j] * qkv[v(j) + d];
                    dp[j] += d_out[o(i) + d] * qkv[v(j) + d];
                    d_qkv[v(j) + d] += p[j] * d_out[o(i) + d];
                }
                mean += p[j] * dp[j];
            }
            for (Index j = 0; j <= i; ++j) {
                const double ds = p[j] * (dp[j] - mean) * scale;
                for (Index d = 0; d < D; ++d) {
                    d_qkv[q(i) + d] += ds * qkv[k(j) + d];
                    d_qkv[k(j) + d] += ds * qkv[q(i) + d];
                }
            }
        }
    }
};

struct Implementation {
    std::string name;
    decltype(&attention_forward<float>) forward;
    decltype(&attention_backward<float>) backward;
    decltype(&attention_workspace) workspace;
};

template <class T>
std::vector<Implementation> implementations() {
    std::vector<Implementation> all{
        {"public", attention_forward<T>, attention_backward<T>, attention_workspace},
        {"device", kernels::detail::attention_forward_device<T>,
         kernels::detail::attention_backward_device<T>,
         kernels::detail::attention_workspace_device}};
    if constexpr (exec_is_host) {
        all.push_back({"host", kernels::detail::attention_forward_host<T>,
                       kernels::detail::attention_backward_host<T>,
                       kernels::detail::attention_workspace_host});
    }
    return all;
}

struct Result {
    std::vector<float> out, lse, d_qkv;
};

/// Forward and backward; every buffer starts as NaN, so that what is not written is seen.
Result run(const Implementation& by, const AttentionShape& s, const std::vector<float>& qkv,
           const std::vector<float>& d_out) {
    const Index N = s.batch * s.seq;
    const Vec<float> in = to_device(qkv), d_o = to_device(d_out);
    const Vec<float> out = filled(N * s.heads * s.head_dim, NAN), lse = filled(N * s.heads, NAN);
    const Vec<float> d_qkv = filled(N * qkv_width(s), NAN);
    const Vec<float> workspace = filled(by.workspace(s), NAN);
    by.forward(Exec{}, s, in, out, lse, workspace);
    by.backward(Exec{}, s, in, out, lse, d_o, d_qkv, workspace);
    return {to_host(out), to_host(lse), to_host(d_qkv)};
}

std::string describe(const AttentionShape& s) {
    return "B " + std::to_string(s.batch) + ", T " + std::to_string(s.seq) + ", heads " +
           std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + ", D " +
           std::to_string(s.head_dim);
}

void check_against_reference(const AttentionShape& s, double spread = 1) {
    const std::vector<float> qkv = normal_values(s.batch * s.seq * qkv_width(s), 11, spread);
    const std::vector<float> d_out = normal_values(s.batch * s.seq * s.heads * s.head_dim, 12);
    const AttentionReference wanted(s, to_double(qkv), to_double(d_out));
    for (const Implementation& by : implementations<float>()) {
        INFO(by.name << ": " << describe(s));
        const Result got = run(by, s, qkv, d_out);
        check_close("out", got.out, wanted.out, 2e-5, 1e-5 * spread);
        check_close("lse", got.lse, wanted.lse, 1e-5, 1e-5);
        check_close("d_qkv", got.d_qkv, wanted.d_qkv, 5e-5, 3e-5 * spread, qkv_width(s));
    }
}

}  // namespace

TEST_CASE("attention: forward and backward, sequences around the tile sizes") {
    for (const Index T : {1, 2, 31, 63, 64, 65, 200}) check_against_reference({2, T, 2, 2, 16});
    check_against_reference({1, 600, 1, 1, 8});  // more keys than one tile of the host has
}

TEST_CASE("attention: head sizes") {
    for (const Index D : {1, 8, 64, 80, 96, 128}) check_against_reference({1, 65, 2, 2, D});
    check_against_reference({3, 33, 1, 1, 256});
}

TEST_CASE("attention: query heads share key and value heads") {
    check_against_reference({2, 65, 6, 2, 24});
    check_against_reference({1, 63, 4, 1, 80});
    check_against_reference({3, 17, 3, 3, 5});
}

TEST_CASE("attention: scores in the hundreds neither overflow nor lose the sum") {
    check_against_reference({1, 70, 2, 1, 32}, 6);
}

TEST_CASE("attention: a later token changes no earlier output, nor their gradients' share") {
    const AttentionShape s{1, 200, 2, 1, 16};
    const Index changed = 130, width = s.heads * s.head_dim;
    std::vector<float> qkv = normal_values(s.seq * qkv_width(s), 21);
    const std::vector<float> d_out = normal_values(s.seq * width, 22);
    for (const Implementation& by : implementations<float>()) {
        INFO(by.name);
        const Result before = run(by, s, qkv, d_out);
        std::vector<float> other = qkv;
        for (Index i = changed * qkv_width(s); i < (changed + 1) * qkv_width(s); ++i) {
            other[i] += 3;
        }
        const Result after = run(by, s, other, d_out);
        const auto rows = [&](const Result& r) {
            return std::vector<float>(r.out.begin(), r.out.begin() + changed * width);
        };
        check_same_bits("outputs before the changed token", rows(after), rows(before));
        CHECK(after.out[changed * width] != before.out[changed * width]);
        // dQ of an earlier row depends on earlier keys and values alone.
        bool same = true;
        for (Index t = 0; t < changed; ++t) {
            for (Index i = 0; i < width; ++i) {
                const Index at = t * qkv_width(s) + i;
                same = same && before.d_qkv[at] == after.d_qkv[at];
            }
        }
        CHECK(same);
    }
}

TEST_CASE("attention: the gradient is the slope of the loss") {
    const AttentionShape s{1, 5, 2, 1, 4};
    const std::vector<float> qkv = normal_values(s.seq * qkv_width(s), 31);
    const std::vector<float> d_out = normal_values(s.seq * s.heads * s.head_dim, 32);
    const auto loss = [&](const Implementation& by, Index at, float step) {
        std::vector<float> moved = qkv;
        moved[at] += step;
        const Result r = run(by, s, moved, d_out);
        double sum = 0;
        for (std::size_t i = 0; i < r.out.size(); ++i) {
            sum += static_cast<double>(r.out[i]) * d_out[i];
        }
        return sum;
    };
    for (const Implementation& by : implementations<float>()) {
        const Result r = run(by, s, qkv, d_out);
        for (Index at = 0; at < static_cast<Index>(qkv.size()); at += 3) {
            INFO(by.name << ", element " << at);
            const double slope = (loss(by, at, 0.01f) - loss(by, at, -0.01f)) / 0.02;
            CHECK(r.d_qkv[at] == Approx(slope).epsilon(2e-3).margin(1e-3));
        }
    }
}

TEST_CASE("attention: the same bits twice, and for any number of threads") {
    const AttentionShape s{2, 130, 6, 3, 16};
    const std::vector<float> qkv = normal_values(s.batch * s.seq * qkv_width(s), 41);
    const std::vector<float> d_out = normal_values(s.batch * s.seq * s.heads * s.head_dim, 42);
    for (const Implementation& by : implementations<float>()) {
        INFO(by.name);
        const int before = gemm_threads();
        set_gemm_threads(1);
        const Result one = run(by, s, qkv, d_out);
        for (const int threads : {1, 2, 3}) {
            set_gemm_threads(threads);
            const Result more = run(by, s, qkv, d_out);
            check_same_bits("out", more.out, one.out);
            check_same_bits("d_qkv", more.d_qkv, one.d_qkv);
        }
        set_gemm_threads(before);
        CHECK(gemm_threads() == before);
    }
}

TEST_CASE("attention: the workspace does not grow with T*T, and is checked") {
    const Index at_1k = attention_workspace({1, 1024, 12, 12, 64});
    CHECK(attention_workspace({1, 16384, 12, 12, 64}) <= 16 * at_1k);
    const AttentionShape s{1, 10, 2, 1, 8};
    const std::vector<float> qkv(s.seq * qkv_width(s), 1.f);
    for (Implementation by : implementations<float>()) {
        by.workspace = [](const AttentionShape&) { return Index(3); };
        CHECK_THROWS_AS(run(by, s, qkv, std::vector<float>(s.seq * 16, 1.f)), std::logic_error);
    }
    const AttentionShape uneven{1, 10, 3, 2, 8};
    for (const Implementation& by : implementations<float>()) {
        CHECK_THROWS_AS(run(by, uneven, std::vector<float>(s.seq * qkv_width(uneven), 1.f),
                            std::vector<float>(s.seq * 24, 1.f)),
                        std::logic_error);
    }
}
