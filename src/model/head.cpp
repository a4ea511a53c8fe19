#include <scape/kernels/cross_entropy.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/model/head.hpp>
#include <scape/model/linear.hpp>

#include <algorithm>

namespace scape::model {

namespace {

/// Rows [begin, end) of a matrix.
template <class E>
Mat<E> rows_of(Mat<E> m, Index begin, Index end) {
    return Mat<E>(m.data() + begin * static_cast<Index>(m.extent(1)),
                  static_cast<std::size_t>(end - begin), m.extent(1));
}

/// Chunks of equal size rather than full ones and a small rest; a multiple of 16 where it fits.
Index chunk_rows(Index rows, Index most) {
    const Index chunks = (rows + most - 1) / most;
    const Index equal = (rows + chunks - 1) / chunks;
    return std::min(most, round_up(equal, 16));
}

}  // namespace

template <class T>
void head_loss(const Exec& exec, const Head<T>& head, Mat<const T> y, Span<const Token> targets,
               float grad_scale, Mat<T> d_y, Mat<T> logits, Span<float> row_loss,
               Span<double> loss) {
    const Region region("scape::model::head");
    const bool with_gradient = grad_scale != 0.f;
    const auto n = static_cast<Index>(y.extent(0));
    const Index step = chunk_rows(n, static_cast<Index>(logits.extent(0)));
    for (Index begin = 0; begin < n; begin += step) {
        const Index end = std::min(n, begin + step);
        const Mat<const T> y_chunk = rows_of(y, begin, end);          // (R, C)
        const Mat<T> logits_chunk = rows_of(logits, 0, end - begin);  // (R, Vp)
        linear<T>(exec, y_chunk, head.weight, logits_chunk);
        kernels::softmax_cross_entropy<T>(exec, logits_chunk, slice(targets, begin, end),
                                          head.vocab, grad_scale, with_gradient,
                                          slice(row_loss, 0, end - begin), loss);
        if (!with_gradient) continue;
        const Mat<T> d_logits = logits_chunk;  // the same memory
        linear_input_gradient<T>(exec, d_logits, head.weight, rows_of(d_y, begin, end));
        linear_weight_gradient<T>(exec, d_logits, y_chunk, head.d_weight);
    }
}

template <class T>
void head_logits(const Exec& exec, const Head<T>& head, Mat<const T> y, Index row, Mat<T> logits,
                 Span<float> out) {
    const Mat<T> all = rows_of(logits, 0, 1);  // (1, Vp)
    linear<T>(exec, rows_of(y, row, row + 1), head.weight, all);
    kernels::for_each(
        exec, "scape::model::logits", head.vocab,
        KOKKOS_LAMBDA(Index j) { out(j) = static_cast<float>(all(0, j)); });
}

template void head_loss(const Exec&, const Head<float>&, Mat<const float>, Span<const Token>, float,
                        Mat<float>, Mat<float>, Span<float>, Span<double>);
template void head_logits(const Exec&, const Head<float>&, Mat<const float>, Index, Mat<float>,
                          Span<float>);

}  // namespace scape::model
