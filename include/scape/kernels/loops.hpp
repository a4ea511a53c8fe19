#pragma once
/// @file
/// The shapes that nearly every kernel here has, written once for hosts and devices:
///
///     for_each(exec, label, n, f)           f(i): independent elements of a flat array
///     for_each_row(exec, label, rows, f)    f(row, i): one row at a time; inside, row.each,
///                                           row.sum and row.max walk the row's columns
///     for_each_short_row(...)               the same, for rows of some tens of columns
///
/// On a device an element is a thread's, a row a team's, and a short row a warp's, with
/// neighbouring threads on neighbouring columns. On a host the inner loop is a plain loop for the
/// vectoriser, and rows (or chunks of elements) are what threads share. f is a KOKKOS_LAMBDA; what
/// is passed to row.each and the others is a plain [&] lambda. A sum is formed in the type that its
/// lambda returns (float or double) and has a fixed order in any one build.

#include <scape/base/types.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

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

/// Running sums or maxima of a host loop, side by side, and then folded in halves: the vectoriser
/// keeps them in a few registers, no addition waits for the one before, and the order does not
/// depend on the width of the machine's vectors.
template <class S>
struct Lanes {
    static constexpr Index count = 64;
    S lane[count];

    KOKKOS_FORCEINLINE_FUNCTION explicit Lanes(S start) {
        for (Index l = 0; l < count; ++l) lane[l] = start;
    }
    /// f(running value of a lane, j) for all j in [0, n): j goes to lane j % count.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION void walk(Index n, const F& f) {
        const Index whole = n / count * count;
        for (Index j = 0; j < whole; j += count) {
#pragma omp simd
            for (Index l = 0; l < count; ++l) lane[l] = f(lane[l], j + l);
        }
#pragma omp simd
        for (Index j = whole; j < n; ++j) lane[j - whole] = f(lane[j - whole], j);
    }
    template <class F, Index half = count / 2>
    KOKKOS_FORCEINLINE_FUNCTION S fold(const F& f) {
        for (Index l = 0; l < half; ++l) lane[l] = f(lane[l], lane[l + half]);
        if constexpr (half > 1) {
            return fold<F, half / 2>(f);
        } else {
            return lane[0];
        }
    }
};

struct HostRow {
    template <class G>
    KOKKOS_FORCEINLINE_FUNCTION void each(Index n, const G& g) const {
#pragma omp simd
        for (Index j = 0; j < n; ++j) g(j);
    }
    template <class G>
    KOKKOS_FORCEINLINE_FUNCTION auto sum(Index n, const G& g) const {
        using S = decltype(g(n));
        Lanes<S> lanes(0);
        lanes.walk(n, [&](S t, Index j) { return t + g(j); });
        return lanes.fold([](S a, S b) { return a + b; });
    }
    template <class G>
    KOKKOS_FORCEINLINE_FUNCTION float max(Index n, const G& g) const {
        const auto larger = [](float a, float b) { return b > a ? b : a; };
        Lanes<float> lanes(-3.402823466e38f);
        lanes.walk(n, [&](float m, Index j) { return larger(m, g(j)); });
        return lanes.fold(larger);
    }
    /// The largest of unsigned values; 0 of none.
    template <class G>
    KOKKOS_FORCEINLINE_FUNCTION std::uint32_t largest(Index n, const G& g) const {
        std::uint32_t most = 0;
#pragma omp simd reduction(max : most)
        for (Index j = 0; j < n; ++j) {
            const std::uint32_t x = g(j);
            most = x > most ? x : most;
        }
        return most;
    }
    template <class G>
    KOKKOS_FORCEINLINE_FUNCTION void once(const G& g) const {
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
    KOKKOS_INLINE_FUNCTION auto sum(Index n, const G& g) const {
        using S = decltype(g(n));
        S total = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, n), [&](Index j, S& t) { t += g(j); }, total);
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

inline constexpr int warp = 32;            // threads of a short row
inline constexpr Index rows_of_team = 16;  // short rows

struct WarpRow {
    using Member = TeamRow::Member;
    const Member& team;
    template <class G>
    KOKKOS_INLINE_FUNCTION void each(Index n, const G& g) const {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, n), g);
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION auto sum(Index n, const G& g) const {
        using S = decltype(g(n));
        S total = 0;
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, n), [&](Index j, S& t) { t += g(j); }, total);
        return total;
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION std::uint32_t largest(Index n, const G& g) const {
        std::uint32_t most = 0;
        Kokkos::parallel_reduce(
            Kokkos::ThreadVectorRange(team, n),
            [&](Index j, std::uint32_t& m) {
                const std::uint32_t x = g(j);
                m = x > m ? x : m;
            },
            Kokkos::Max<std::uint32_t>(most));
        return most;
    }
    template <class G>
    KOKKOS_INLINE_FUNCTION void once(const G& g) const {
        Kokkos::single(Kokkos::PerThread(team), g);
    }
};

template <class F>
struct ShortRowsOnTeam {
    F f;
    Index rows;
    KOKKOS_INLINE_FUNCTION void operator()(const WarpRow::Member& team) const {
        const Index first = static_cast<Index>(team.league_rank()) * rows_of_team;
        const Index count = rows - first < rows_of_team ? rows - first : rows_of_team;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count),
                             [&](Index i) { f(WarpRow{team}, first + i); });
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
using ShortRow = std::conditional_t<exec_is_host, detail::HostRow, detail::WarpRow>;

/// For a loop over elements that are scattered over memory: asks a host for the cache line of an
/// element that the loop will change `fetch_ahead` turns later. A device has threads for that.
inline constexpr Index fetch_ahead = 24;
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void prefetch_to_write([[maybe_unused]] const T* element) {
#if defined(__GNUC__) && !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)
    if constexpr (exec_is_host) __builtin_prefetch(element, 1);
#endif
}

/// The same for a loop over several streams, each too slow for a host to notice by itself.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void prefetch_to_read([[maybe_unused]] const T* element) {
#if defined(__GNUC__) && !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)
    if constexpr (exec_is_host) __builtin_prefetch(element, 0);
#endif
}

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
        Kokkos::parallel_for(label,
                             Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(rows), Kokkos::AUTO),
                             detail::RowOnTeam<F>{f});
    }
}

/// f(row, i); row: a ShortRow, with each, sum, largest and once.
template <class F>
void for_each_short_row(const Exec& exec, const std::string& label, Index rows, const F& f) {
    if constexpr (exec_is_host) {
        Kokkos::parallel_for(label, range(exec, rows), detail::RowOnHost<F>{f});
    } else {
        if (rows == 0) return;
        const Index teams = (rows + detail::rows_of_team - 1) / detail::rows_of_team;
        Kokkos::parallel_for(
            label,
            Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(teams), Kokkos::AUTO, detail::warp),
            detail::ShortRowsOnTeam<F>{f, rows});
    }
}

}  // namespace scape::kernels
