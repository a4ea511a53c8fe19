// Rotary positions (arXiv 2104.09864): the pair (a, b) = (x[j], x[j + D/2]) of a head is turned by
// the angle position / base^(2 j / D).
//
//     forward   (a, b) <- (a cos - b sin, b cos + a sin);    backward: the same with -sin
#include <scape/kernels/loops.hpp>
#include <scape/kernels/pointwise.hpp>

#include <cmath>

namespace scape::kernels {

namespace {

template <class T>
struct Rotation {
    const float* cosine;  // (D/2), of this position
    const float* sine;
    float sign;
    Index half;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(T* head, Index j) const {
        const float c = cosine[j], s = sign * sine[j];
        const float a = static_cast<float>(head[j]), b = static_cast<float>(head[j + half]);
        head[j] = static_cast<T>(a * c - b * s);
        head[j + half] = static_cast<T>(b * c + a * s);
    }
};

/// One token. On a host head by head, so that the loop over pairs has no division.
template <class T>
struct RotateRow {
    T* x;
    Index columns, seq, heads, head_dim;
    const float* table;
    float sign;
    KOKKOS_INLINE_FUNCTION void operator()(const Row& row, Index i) const {
        const Index half = head_dim / 2;
        const float* angle = table + (i % seq) * head_dim;
        const Rotation<T> rotate{angle, angle + half, sign, half};
        T* token = x + i * columns;
        if constexpr (exec_is_host) {
            for (Index h = 0; h < heads; ++h) {
                T* head = token + h * head_dim;
                row.each(half, [&](Index j) { rotate(head, j); });
            }
        } else {
            const int pairs = static_cast<int>(half);
            row.each(heads * half, [&](Index k) {
                const int h = static_cast<int>(k) / pairs;
                rotate(token + h * head_dim, static_cast<int>(k) - h * pairs);
            });
        }
    }
};

}  // namespace

template <class T>
void rope(const Exec& exec, Mat<T> x, Index seq, Index rotated_heads, Index head_dim,
          Mat<const float> table, int direction) {
    const Index columns = x.extent(1);
    const RotateRow<T> rotate{
        x.data(), columns, seq, rotated_heads, head_dim, table.data(), direction < 0 ? -1.f : 1.f};
    for_each_row(exec, "scape::kernels::rope", x.extent(0), rotate);
}

void rope_table(const Exec& exec, double base, Mat<float> table) {
    const Index head_dim = table.extent(1), half = head_dim / 2;
    for_each_row(
        exec, "scape::kernels::rope_table", table.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index position) {
            float* cosine = table.data() + position * head_dim;
            float* sine = cosine + half;
            row.each(half, [&](Index j) {
                const double exponent =
                    -2.0 * static_cast<double>(j) / static_cast<double>(head_dim);
                const double angle = static_cast<double>(position) * pow(base, exponent);
                cosine[j] = static_cast<float>(cos(angle));
                sine[j] = static_cast<float>(sin(angle));
            });
        });
}

template void rope(const Exec&, Mat<float>, Index, Index, Index, Mat<const float>, int);

}  // namespace scape::kernels
