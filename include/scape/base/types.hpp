#pragma once
/// @file
/// The few types everything is written in. The execution space is fixed per build: this is a
/// program, not a header library.

#include <scape/base/index.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace scape {

using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

/// True where kernels run on the host: inner loops are then written for the vectoriser, and GEMMs
/// over tiles replace the team kernels of a device.
inline constexpr bool exec_is_host = std::is_same_v<Memory, Kokkos::HostSpace>;

/// Owning buffers. T is float now; bf16 parameters and activations use the same aliases.
template <class T>
using Vec = Kokkos::View<T*, Memory>;
template <class T>
using HostVec = Kokkos::View<T*, Kokkos::HostSpace>;

/// Pieces of flat buffers and arenas: they point, they do not own.
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
template <class T>
using Span = Kokkos::View<T*, Memory, Unmanaged>;
template <class T>
using HostSpan = Kokkos::View<T*, Kokkos::HostSpace, Unmanaged>;

/// Row-major matrix (rows, columns), dense: element (i, j) at i * columns + j.
template <class T>
using Mat = Kokkos::View<T**, Kokkos::LayoutRight, Memory, Unmanaged>;

/// Elements [begin, end) of `buffer`.
template <class T, class... P>
auto slice(const Kokkos::View<T*, P...>& buffer, Index begin, Index end) {
    return Kokkos::View<T*, typename Kokkos::View<T*, P...>::memory_space, Unmanaged>(
        buffer.data() + begin, static_cast<std::size_t>(end - begin));
}

/// The same memory seen as a row-major matrix.
template <class T, class... P>
Mat<T> as_matrix(const Kokkos::View<T*, P...>& buffer, Index rows, Index cols) {
    return Mat<T>(buffer.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(cols));
}

}  // namespace scape
