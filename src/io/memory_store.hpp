#pragma once
// What every buffer store needs: host memory that kernels can reach, and their one kernel.

#include <scape/base/types.hpp>
#include <scape/io/buffer_store.hpp>

#include <type_traits>

namespace scape::io {

// Host memory; on a device pinned, so that kernels read it in place and copies need no staging.
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
using StagingSpace =
    std::conditional_t<exec_is_host, Kokkos::HostSpace, Kokkos::SharedHostPinnedSpace>;
#elif defined(KOKKOS_ENABLE_CUDA)
using StagingSpace = Kokkos::CudaHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_HIP)
using StagingSpace = Kokkos::Experimental::HIPHostPinnedSpace;
#else
using StagingSpace = Kokkos::HostSpace;
#endif
static_assert(Kokkos::SpaceAccessibility<Exec, StagingSpace>::accessible,
              "kernels read what lies in host memory in place");

/// values += stored, which lies where kernels can read it.
void add_stored(const Exec& exec, Span<float> values, const float* stored);

/// Throws std::logic_error unless `elements` is the size of the chunk.
void check_chunk(const std::vector<Index>& chunks, int chunk, std::size_t elements);

std::unique_ptr<BufferStore> make_hdf5_store(const std::vector<Index>& chunks,
                                             const std::string& directory, int rank);

}  // namespace scape::io
