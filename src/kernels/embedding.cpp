#include <scape/kernels/embedding.hpp>
#include <scape/kernels/loops.hpp>

namespace scape::kernels {

namespace {

template <class T>
struct TableGradient {
    const Token* tokens;  // (N)
    const T* d_x;         // (N, C)
    Index rows, columns;  // N, C
    Index seq;
    float* d_wte;  // (Vp, C)
    float* d_wpe;  // (T_max, C); null: none
};

/// On a host: a strip of columns of both tables, all tokens in order.
template <class T>
struct TableGradientStrip {
    TableGradient<T> a;
    Index width;
    KOKKOS_INLINE_FUNCTION void operator()(Index strip) const {
        const Index begin = strip * width;
        const Index n = a.columns - begin < width ? a.columns - begin : width;
        for (Index i = 0; i < a.rows; ++i) {
            const T* d = a.d_x + i * a.columns + begin;
            float* w = a.d_wte + a.tokens[i] * a.columns + begin;
#pragma omp simd
            for (Index j = 0; j < n; ++j) w[j] += static_cast<float>(d[j]);
            if (a.d_wpe == nullptr) continue;
            float* p = a.d_wpe + (i % a.seq) * a.columns + begin;
#pragma omp simd
            for (Index j = 0; j < n; ++j) p[j] += static_cast<float>(d[j]);
        }
    }
};

/// On a device: the team of a token's first occurrence owns that row of d_wte and adds all its
/// occurrences in order, looking for them a chunk at a time.
template <class T>
struct TokenGradientRow {
    using Member = Kokkos::TeamPolicy<Exec>::member_type;
    static constexpr Index chunk = 512;  // tokens
    TableGradient<T> a;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Index first = team.league_rank();
        const Token token = a.tokens[first];
        for (Index begin = 0; begin < first; begin += chunk) {
            const Index end = begin + chunk < first ? begin + chunk : first;
            if (occurrences(team, token, begin, end) != 0) return;  // not the first
        }
        for (Index begin = first; begin < a.rows; begin += chunk) {
            const Index end = begin + chunk < a.rows ? begin + chunk : a.rows;
            if (occurrences(team, token, begin, end) != 0) add(team, token, begin, end);
        }
    }

    KOKKOS_INLINE_FUNCTION int occurrences(const Member& team, Token token, Index begin,
                                           Index end) const {
        int count = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, begin, end),
            [&](Index i, int& c) { c += a.tokens[i] == token ? 1 : 0; }, count);
        return count;
    }

    KOKKOS_INLINE_FUNCTION void add(const Member& team, Token token, Index begin, Index end) const {
        float* w = a.d_wte + token * a.columns;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, a.columns), [&](Index j) {
            float sum = w[j];
            for (Index i = begin; i < end; ++i) {
                if (a.tokens[i] == token) sum += static_cast<float>(a.d_x[i * a.columns + j]);
            }
            w[j] = sum;
        });
    }
};

/// On a device: one element of d_wpe, over the sequences of the batch.
template <class T>
struct PositionGradient {
    TableGradient<T> a;
    KOKKOS_INLINE_FUNCTION void operator()(Index k) const {
        const Index position = k / a.columns, j = k % a.columns;
        float sum = a.d_wpe[k];
        for (Index i = position; i < a.rows; i += a.seq) {
            sum += static_cast<float>(a.d_x[i * a.columns + j]);
        }
        a.d_wpe[k] = sum;
    }
};

}  // namespace

template <class T>
void embedding_forward(const Exec& exec, Span<const Token> tokens, Index seq, Mat<const T> wte,
                       Mat<const T> wpe, Mat<T> x) {
    const Index n = x.extent(1);
    const bool has_positions = wpe.extent(0) != 0;
    for_each_row(
        exec, "scape::kernels::embedding_forward", x.extent(0),
        KOKKOS_LAMBDA(const Row& row, Index i) {
            const T* w = wte.data() + tokens(i) * n;
            T* out = x.data() + i * n;
            if (has_positions) {
                const T* p = wpe.data() + (i % seq) * n;
                row.each(n, [&](Index j) {
                    out[j] = static_cast<T>(static_cast<float>(w[j]) + static_cast<float>(p[j]));
                });
            } else {
                row.each(n, [&](Index j) { out[j] = w[j]; });
            }
        });
}

template <class T>
void embedding_backward(const Exec& exec, Span<const Token> tokens, Index seq, Mat<const T> d_x,
                        Mat<float> d_wte, Mat<float> d_wpe) {
    const bool has_positions = d_wpe.extent(0) != 0;
    const TableGradient<T> a{tokens.data(),
                             d_x.data(),
                             static_cast<Index>(d_x.extent(0)),
                             static_cast<Index>(d_x.extent(1)),
                             seq,
                             d_wte.data(),
                             has_positions ? d_wpe.data() : nullptr};
    const std::string label = "scape::kernels::embedding_backward";
    if (a.rows == 0) return;
    if constexpr (exec_is_host) {
        // A strip for each thread, of whole cache lines. Its width does not change the sums.
        const Index threads = exec.concurrency();
        const Index width = round_up((a.columns + threads - 1) / threads, 64);
        const Index strips = (a.columns + width - 1) / width;
        Kokkos::parallel_for(label, range(exec, strips), TableGradientStrip<T>{a, width});
    } else {
        Kokkos::parallel_for(label,
                             Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(a.rows), Kokkos::AUTO),
                             TokenGradientRow<T>{a});
        if (!has_positions) return;
        const Index used = seq < a.rows ? seq : a.rows;
        Kokkos::parallel_for(label, range(exec, used * a.columns), PositionGradient<T>{a});
    }
}

template void embedding_forward(const Exec&, Span<const Token>, Index, Mat<const float>,
                                Mat<const float>, Mat<float>);
template void embedding_backward(const Exec&, Span<const Token>, Index, Mat<const float>,
                                 Mat<float>, Mat<float>);

}  // namespace scape::kernels
