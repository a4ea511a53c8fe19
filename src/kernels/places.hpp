#pragma once
/// @file
/// Where the values of a message lie in a flat array: value i of the table of segments is element
/// i, or the element at position i. `origin` is the position of the array's first element.

#include <scape/kernels/loops.hpp>
#include <scape/kernels/pack.hpp>

namespace scape::kernels::detail {

struct InOrder {
    static constexpr bool scattered = false;
    Index origin;
    KOKKOS_FORCEINLINE_FUNCTION float load(const float* a, Index i) const { return a[i - origin]; }
    KOKKOS_FORCEINLINE_FUNCTION void store(float* a, Index i, float x) const { a[i - origin] = x; }
    KOKKOS_FORCEINLINE_FUNCTION void fetch(const float*, Index) const {}
    KOKKOS_FORCEINLINE_FUNCTION void fetch(const float*, Index, Index) const {}
    /// For what is written while several streams are read: a host then sees none of them coming.
    KOKKOS_FORCEINLINE_FUNCTION void fetch_to_fill(float* a, Index begin, Index end) const {
        constexpr Index line = 16, ahead = 1024;
        if constexpr (exec_is_host) {
            for (Index i = begin; i < end; i += line) prefetch_to_write(a + i - origin + ahead);
        }
    }
};

struct AtPositions {
    static constexpr bool scattered = true;
    const Position* positions;
    Index count;
    Index origin;
    KOKKOS_FORCEINLINE_FUNCTION float load(const float* a, Index i) const {
        const Position p = positions[i];
        return p == no_position ? 0.f : a[static_cast<Index>(p) - origin];
    }
    KOKKOS_FORCEINLINE_FUNCTION void store(float* a, Index i, float x) const {
        const Position p = positions[i];
        if (p != no_position) a[static_cast<Index>(p) - origin] = x;
    }
    /// Asks for an element that is needed soon.
    KOKKOS_FORCEINLINE_FUNCTION void fetch(const float* a, Index i) const {
        const Position p = positions[i < count ? i : count - 1];
        prefetch_to_write(a + (p == no_position ? 0 : static_cast<Index>(p) - origin));
    }
    KOKKOS_FORCEINLINE_FUNCTION void fetch(const float* a, Index begin, Index end) const {
        if constexpr (exec_is_host) {
            for (Index i = begin; i < end; ++i) fetch(a, i);
        }
    }
    KOKKOS_FORCEINLINE_FUNCTION void fetch_to_fill(float* a, Index begin, Index end) const {
        fetch(a, end, end + (end - begin));
    }
};

/// f(place) for what is selected.
template <class F>
void with_place(const Selected& selected, Index origin, const F& f) {
    if (selected.positions.extent(0) == 0) {
        f(InOrder{origin});
    } else {
        f(AtPositions{selected.positions.data(), static_cast<Index>(selected.positions.extent(0)),
                      origin});
    }
}

/// What `pack` sends: elements of a, of which the rest may stay.
template <class Place>
struct Elements {
    static constexpr bool scattered = Place::scattered;
    float* a;
    Place place;
    bool keep;
    KOKKOS_FORCEINLINE_FUNCTION float value(Index i) const { return place.load(a, i); }
    KOKKOS_FORCEINLINE_FUNCTION void leave(Index i, float rest) const {
        if (keep) place.store(a, i, rest);
    }
    template <class... I>
    KOKKOS_FORCEINLINE_FUNCTION void fetch(I... i) const {
        place.fetch(a, i...);
    }
};

/// What `pack_differences` sends.
template <class Place>
struct Differences {
    static constexpr bool scattered = Place::scattered;
    const float* master;
    const float* replica;
    Place place;
    KOKKOS_FORCEINLINE_FUNCTION float value(Index i) const {
        return place.load(master, i) - place.load(replica, i);
    }
    KOKKOS_FORCEINLINE_FUNCTION void leave(Index, float) const {}
    template <class... I>
    KOKKOS_FORCEINLINE_FUNCTION void fetch(I... i) const {
        place.fetch(master, i...);
        place.fetch(replica, i...);
    }
};

}  // namespace scape::kernels::detail
