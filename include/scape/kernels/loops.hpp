#pragma once
/// @file
/// The two shapes that nearly every kernel here has, written once for hosts and devices:
///
///     for_each(exec, label, n, f)           f(i): independent elements of a flat array
///     for_each_row(exec, label, rows, f)    f(row, i): one row at a time; inside, row.each,
///                                           row.sum and row.max walk the row's columns
///
/// On a device an element is a thread's and a row a team's, with neighbouring threads on
/// neighbouring columns. On a host the inner loop is a plain loop for the vectoriser, and rows (or
/// chunks of elements) are what threads share. f is a KOKKOS_LAMBDA; what is passed to row.each and
/// the others is a plain [&] lambda. Sums have a fixed order in any one build.

#include <scape/base/types.hpp>

#include <string>

namespace scape::kernels {

namespace detail {

inline constexpr Index host_chunk = 2048;  // elements of one host task in for_each

template <class F>
struct ChunkOfElements {
    F f;
    Index n;
    KOKKOS_INLINE_FUNCTION void operator()(Index chunk) const {
        const Index begin = chunk * host_chunk;
        const Index end = begin + host_chunk < n ? begin + host_chunk : n;
#pragma omp simd
        for (Index i = begin; i < end; ++i) f(i);
    }
};

struct HostRow {
    template <class G>
    KOKKOS_INLINE_FUNCTION void each(Index n, const G& g) const {
#pragma omp simd
        for (Index j = 0; j < n; ++j) g(j);
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION float sum(Index n, const G& g) const {
        float total = 0;
#pragma omp simd reduction(+ : total)
        for (Index j = 0; j < n; ++j) total += g(j);
        return total;
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION float max(Index n, const G& g) const {
        float most = -3.402823466e38f;
#pragma omp simd reduction(max : most)
        for (Index j = 0; j < n; ++j) {
            const float x = g(j);
            most = x > most ? x : most;
        }
        return most;
    }
    /// f() by one thread of the row.
    template <class G>
    KOKKOS_INLINE_FUNCTION void once(const G& g) const {
        g();
    }
};

struct TeamRow {
    using Member = Kokkos::TeamPolicy<Exec>::member_type;
    const Member& team;
    template <class G>
    KOKKOS_INLINE_FUNCTION void each(Index n, const G& g) const {
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), g);
        team.team_barrier();
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION float sum(Index n, const G& g) const {
        float total = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, n), [&](Index j, float& t) { t += g(j); }, total);
        return total;
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION float max(Index n, const G& g) const {
        float most = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, n),
            [&](Index j, float& m) {
                const float x = g(j);
                m = x > m ? x : m;
            },
            Kokkos::Max<float>(most));
        return most;
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION void once(const G& g) const {
        Kokkos::single(Kokkos::PerTeam(team), g);
    }
};

template <class F>
struct RowOnTeam {
    F f;
    KOKKOS_INLINE_FUNCTION void operator()(const TeamRow::Member& team) const {
        f(TeamRow{team}, static_cast<Index>(team.league_rank()));
    }
};

template <class F>
struct RowOnHost {
    F f;
    KOKKOS_INLINE_FUNCTION void operator()(Index i) const { f(HostRow{}, i); }
};

}  // namespace detail

/// What a row kernel walks its columns with.
using Row = std::conditional_t<exec_is_host, detail::HostRow, detail::TeamRow>;

/// Policy over [0, n) with 64-bit indices.
inline auto range(const Exec& exec, Index n) {
    return Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>>(exec, 0, n);
}

template <class F>
void for_each(const Exec& exec, const std::string& label, Index n, const F& f) {
    if constexpr (exec_is_host) {
        const Index chunks = (n + detail::host_chunk - 1) / detail::host_chunk;
        Kokkos::parallel_for(label, range(exec, chunks), detail::ChunkOfElements<F>{f, n});
    } else {
        Kokkos::parallel_for(label, range(exec, n), f);
    }
}

template <class F>
void for_each_row(const Exec& exec, const std::string& label, Index rows, const F& f) {
    if constexpr (exec_is_host) {
        Kokkos::parallel_for(label, range(exec, rows), detail::RowOnHost<F>{f});
    } else {
        if (rows == 0) return;
        Kokkos::parallel_for(
            label, Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(rows), Kokkos::AUTO),
            detail::RowOnTeam<F>{f});
    }
}

}  // namespace scape::kernels
