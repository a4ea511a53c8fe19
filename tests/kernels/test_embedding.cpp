// Token and position tables against plain loops in double precision.
#include <scape/kernels/embedding.hpp>

#include "support/compare.hpp"

using namespace scape;
using namespace scape::test;

namespace {

struct Case {
    Index batch, seq, vocab, positions, cols;  // positions 0: no position table
};

void check_embedding(const Case& c) {
    CAPTURE(c.batch, c.seq, c.vocab, c.positions, c.cols);
    const Index rows = c.batch * c.seq;
    auto tokens = token_values(rows, 1, c.vocab);
    tokens.back() = static_cast<Token>(c.vocab - 1);
    const auto wte = normal_values(c.vocab * c.cols, 2),
               wpe = normal_values(c.positions * c.cols, 3), d_x = normal_values(rows * c.cols, 4),
               d_wte_before = normal_values(c.vocab * c.cols, 5),
               d_wpe_before = normal_values(c.positions * c.cols, 6);
    std::vector<double> x(rows * c.cols), d_wte = to_double(d_wte_before),
                                          d_wpe = to_double(d_wpe_before);
    for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < c.cols; ++j) {
            const Index token = tokens[i] * c.cols + j, position = i % c.seq * c.cols + j;
            x[i * c.cols + j] = wte[token];
            d_wte[token] += d_x[i * c.cols + j];
            if (c.positions == 0) continue;
            x[i * c.cols + j] += wpe[position];
            d_wpe[position] += d_x[i * c.cols + j];
        }
    }
    const auto vt = to_device(tokens);
    const auto vwte = to_device(wte), vwpe = to_device(wpe), vd_x = to_device(d_x),
               out = filled(rows * c.cols, NAN), grad_t = to_device(d_wte_before),
               grad_p = to_device(d_wpe_before);
    kernels::embedding_forward<float>(Exec(), vt, c.seq, as_matrix(vwte, c.vocab, c.cols),
                                      as_matrix(vwpe, c.positions, c.cols),
                                      as_matrix(out, rows, c.cols));
    check_close("x", as_matrix(out, rows, c.cols), x, 1e-6, 1e-6);
    const auto backward = [&](const Vec<float>& t, const Vec<float>& p) {
        kernels::embedding_backward<float>(Exec(), vt, c.seq, as_matrix(vd_x, rows, c.cols),
                                           as_matrix(t, c.vocab, c.cols),
                                           as_matrix(p, c.positions, c.cols));
    };
    backward(grad_t, grad_p);
    check_close("d_wte", as_matrix(grad_t, c.vocab, c.cols), d_wte, 1e-5, 2e-5);
    check_close("d_wpe", as_matrix(grad_p, c.positions, c.cols), d_wpe, 1e-5, 1e-5);
    const auto again_t = to_device(d_wte_before), again_p = to_device(d_wpe_before);
    backward(again_t, again_p);
    check_same_bits("d_wte again", to_host(again_t), to_host(grad_t));
    check_same_bits("d_wpe again", to_host(again_p), to_host(grad_p));
}

}  // namespace

TEST_CASE("Embedding forward and backward") {
    check_embedding({1, 1, 1, 1, 1});
    check_embedding({1, 1, 7, 4, 5});
    check_embedding({2, 3, 5, 3, 80});
    check_embedding({3, 7, 11, 9, 257});    // more positions than the sequence uses
    check_embedding({2, 9, 50257, 0, 5});   // no position table
    check_embedding({4, 150, 3, 150, 96});  // every token many times, over several chunks
    check_embedding({1, 64, 100, 64, 768});
}

TEST_CASE("Rows of a table that no token names keep every bit") {
    const Index vocab = 9, cols = 65;
    std::vector<float> before(vocab * cols, -0.f);
    before[4 * cols + 1] = NAN;
    const auto tokens = to_device(std::vector<Token>{2, 7, 2});
    const auto d_x = filled(3 * cols, 1.f), d_wte = to_device(before);
    kernels::embedding_backward<float>(Exec(), tokens, 3, as_matrix(d_x, 3, cols),
                                       as_matrix(d_wte, vocab, cols), {});
    for (Index j = 0; j < cols; ++j) {
        before[2 * cols + j] += 2;
        before[7 * cols + j] += 1;
    }
    check_same_bits("d_wte", to_host(d_wte), before);
}

TEST_CASE("Gradients of one token are added in the order of the tokens") {
    // 1 + 2^24 rounds to 2^24: (1 + 1) + 2^24 keeps both, any other order loses at least one.
    const Index cols = 300;
    const std::vector<float> values = {1.f, 1.f, 16777216.f};
    std::vector<float> d_x;
    for (float v : values) d_x.insert(d_x.end(), cols, v);
    const auto tokens = to_device(std::vector<Token>{1, 1, 1});
    const auto v = to_device(d_x), d_wte = filled(2 * cols, 0.f), d_wpe = filled(cols, 0.f);
    kernels::embedding_backward<float>(Exec(), tokens, 1, as_matrix(v, 3, cols),
                                       as_matrix(d_wte, 2, cols), as_matrix(d_wpe, 1, cols));
    std::vector<float> wanted(2 * cols, 0.f);
    std::fill(wanted.begin() + cols, wanted.end(), 16777218.f);
    check_same_bits("d_wte", to_host(d_wte), wanted);
    check_same_bits("d_wpe", to_host(d_wpe), std::vector<float>(cols, 16777218.f));
}
