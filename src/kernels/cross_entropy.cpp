#include <scape/kernels/cross_entropy.hpp>
#include <scape/kernels/loops.hpp>
#include <scape/kernels/math.hpp>

#include <cmath>

namespace scape::kernels {

namespace {

/// One row of logits: its largest value, then the exponentials (kept in place when they are to
/// become the gradient) and their sum, then the gradient.
template <class T>
struct SoftmaxRow {
    Mat<T> logits;  // (N, Vp)
    Span<const Token> targets;
    Index vocab;
    float grad_scale;
    bool with_gradient;
    Span<float> row_loss;

    KOKKOS_INLINE_FUNCTION void operator()(const Row& row, Index i) const {
        T* z = logits.data() + i * static_cast<Index>(logits.extent(1));
        const Token target = targets(i);
        if (target == ignored_target) {
            if (with_gradient) zero(row, z, 0);
            row.once([&] { row_loss(i) = 0; });
            return;
        }
        const float z_target = static_cast<float>(z[target]);
        const float most = row.max(vocab, [&](Index j) { return static_cast<float>(z[j]); });
        const float sum = with_gradient ? exponentials(row, z, most) : sum_only(row, z, most);
        row.once([&] { row_loss(i) = (most - z_target) + logf(sum); });
        if (with_gradient) gradient(row, z, target, grad_scale / sum);
    }

    KOKKOS_FORCEINLINE_FUNCTION float sum_only(const Row& row, const T* z, float most) const {
        return row.sum(vocab, [&](Index j) { return exp_fast(static_cast<float>(z[j]) - most); });
    }
    KOKKOS_FORCEINLINE_FUNCTION float exponentials(const Row& row, T* z, float most) const {
        return row.sum(vocab, [&](Index j) {
            const float e = exp_fast(static_cast<float>(z[j]) - most);
            z[j] = static_cast<T>(e);
            return e;
        });
    }
    KOKKOS_FORCEINLINE_FUNCTION void gradient(const Row& row, T* z, Token target,
                                              float scale) const {
        row.each(vocab, [&](Index j) { z[j] = static_cast<T>(static_cast<float>(z[j]) * scale); });
        row.once([&] { z[target] = static_cast<T>(static_cast<float>(z[target]) - grad_scale); });
        zero(row, z, vocab);
    }
    KOKKOS_FORCEINLINE_FUNCTION void zero(const Row& row, T* z, Index begin) const {
        row.each(static_cast<Index>(logits.extent(1)) - begin,
                 [&](Index j) { z[begin + j] = T(0); });
    }
};

/// loss += row losses: on a host one after another, so that the cut into chunks does not show; on
/// a device by one team.
struct AddRowLosses {
    Span<const float> row_loss;
    Span<double> loss;

    KOKKOS_INLINE_FUNCTION void operator()(const Row& row, Index) const {
        const Index rows = row_loss.extent(0);
        if constexpr (exec_is_host) {
            double sum = loss(0);
            for (Index i = 0; i < rows; ++i) sum += row_loss(i);
            loss(0) = sum;
        } else {
            const double sum =
                row.sum(rows, [&](Index i) { return static_cast<double>(row_loss(i)); });
            row.once([&] { loss(0) += sum; });
        }
    }
};

}  // namespace

template <class T>
void softmax_cross_entropy(const Exec& exec, Mat<T> logits, Span<const Token> targets, Index vocab,
                           float grad_scale, bool with_gradient, Span<float> row_loss,
                           Span<double> loss) {
    const Index rows = logits.extent(0);
    if (rows == 0) return;
    for_each_row(exec, "scape::kernels::softmax_cross_entropy", rows,
                 SoftmaxRow<T>{logits, targets, vocab, grad_scale, with_gradient, row_loss});
    for_each_row(exec, "scape::kernels::add_row_losses", 1,
                 AddRowLosses{slice(row_loss, 0, rows), loss});
}

template void softmax_cross_entropy(const Exec&, Mat<float>, Span<const Token>, Index, float, bool,
                                    Span<float>, Span<double>);

}  // namespace scape::kernels
