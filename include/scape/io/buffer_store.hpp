#pragma once
/// @file
/// A flat fp32 buffer that lives somewhere else than the gradients - in device memory, in host
/// memory, in a file - and is visited chunk by chunk once a step: error feedback, algorithm
/// section 5.

#include <scape/base/types.hpp>

#include <memory>
#include <string>
#include <vector>

namespace scape::io {

enum class Storage { device, host, hdf5 };

class BufferStore {
   public:
    virtual ~BufferStore() = default;

    /// The order in which add_to will be called next; a slow store starts to fetch. Optional.
    virtual void expect(const std::vector<int>& chunks) = 0;
    /// values += stored chunk. `values` (the chunk's size) is on the device.
    virtual void add_to(const Exec& exec, int chunk, Span<float> values) = 0;
    /// stored chunk = values, now or in the background: `values` must stay as they are until
    /// finish().
    virtual void write(const Exec& exec, int chunk, Span<const float> values) = 0;
    /// Waits until everything written is where it belongs. Errors of the background come out of
    /// whichever call follows them: user_error(resources) for a full disk, with path, bytes wanted
    /// and written.
    virtual void finish(const Exec& exec) = 0;

    struct Cost {
        double bytes = 0;           ///< moved to and from the store
        double seconds = 0;         ///< that moving them took, in the background or not; what a
                                    ///< device does by itself, unawaited, is not timed
        double waited_seconds = 0;  ///< of these, the caller stood still
    };
    virtual Cost cost() const = 0;
    virtual void reset_cost() = 0;
    virtual std::string name() const = 0;    ///< "device", "host", "hdf5 /path/file.h5"
    virtual Index device_bytes() const = 0;  ///< of Views in device memory
    virtual Index host_bytes() const = 0;    ///< of host memory beside them
};

/// All zero. `chunks`: their sizes in elements. `directory`, for hdf5 alone: node-local. The file
/// in it is this process's own, has its room reserved at once where the file system can, and no
/// name any more when this returns: however the process ends, nothing stays. Throws user_error:
/// usage where there is no such directory, resources where it cannot be written or has not the
/// room. Every store adds and keeps the same bits.
std::unique_ptr<BufferStore> make_buffer_store(Storage storage, const std::vector<Index>& chunks,
                                               const std::string& directory, int rank);

/// Bytes that such a store takes, before there is one.
struct StoreBytes {
    Index device = 0;
    Index host = 0;
};
StoreBytes buffer_store_bytes(Storage storage, const std::vector<Index>& chunks);

}  // namespace scape::io
