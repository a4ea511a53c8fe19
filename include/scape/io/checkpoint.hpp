#pragma once
/// @file
/// Checkpoints: one HDF5 file of logical tensors, whole or absent.
///
///     <dir>/step-00000500.h5
///         attributes   format, format_version, step, tokens, samples, ranks, deck, meta_hash,
///                      versions of libraries; and last of all `complete`
///         numbers/     attributes: CheckpointMeta::numbers
///         texts/       attributes: CheckpointMeta::texts
///         weights/     a group per array; in it a data set per tensor, fp32, of the tensor's
///         adam_m/      logical shape (no padding), in checksummed chunks
///     <dir>/latest     the name of the newest file
///
/// Files never show how many ranks wrote them, so any number of ranks can read them.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/comm/communicator.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace scape::io {

struct CheckpointMeta {
    Index step = 0;     ///< steps done
    Index tokens = 0;   ///< trained on
    Index samples = 0;  ///< trained on; the next global sample index
    int ranks = 1;      ///< that wrote it
    std::string deck;   ///< resolved
    std::map<std::string, double> numbers;
    std::map<std::string, std::string> texts;
};

/// One array over the layout's tensors.
struct ArrayOut {
    std::string name;
    bool replicated = false;  ///< the flat buffer, equal on all ranks (rank 0's is written);
                              ///< otherwise this rank's shard, Sharding::shard_extent elements
    Span<const float> values;
};

struct SaveResult {
    std::string path;
    Index bytes = 0;  ///< of the file
    double seconds = 0;
};

/// Writes <dir>/step-<step>.h5 under a temporary name, flushes it to the disk, renames it, then
/// points `latest` to it. Collective: rank 0 writes, the others send their slices in bounded
/// pieces. Waits for all work on the device first. Throws user_error(resources) on every rank when
/// the directory cannot be written or the disk is full; then the temporary is gone, and older
/// checkpoints and `latest` are as they were.
SaveResult save(comm::Communicator& comm, const std::string& dir, const CheckpointMeta& meta,
                const FlatLayout& layout, const Sharding& sharding,
                const std::vector<ArrayOut>& arrays);

/// One checkpoint, opened read-only; every rank opens it itself and reads what it needs.
/// All errors are user_error(data), naming the file and what in it.
class CheckpointReader {
   public:
    /// Throws where there is no such file, it is not HDF5, is cut short, was not completed, or is
    /// of another format version.
    explicit CheckpointReader(const std::string& path);
    ~CheckpointReader();
    CheckpointReader(CheckpointReader&&) noexcept;

    const CheckpointMeta& meta() const { return meta_; }
    const std::string& path() const { return path_; }
    std::vector<std::string> arrays() const;
    bool has(const std::string& array) const;

    /// Throws unless the file holds exactly these arrays: one that nothing consumes is an error,
    /// and so is one that is missing.
    void expect_arrays(const std::vector<std::string>& names) const;

    /// Every tensor of the array into its place in the flat buffer; padding rows, gaps between
    /// tensors and what follows the last one are left as they are.
    void read_flat(const std::string& array, const FlatLayout& layout, Span<float> flat) const;
    /// The slices of `rank` into its shard (shard_extent elements), for any number of ranks.
    void read_shard(const std::string& array, const FlatLayout& layout, const Sharding& sharding,
                    int rank, Span<float> shard) const;

    /// Reads every chunk of every data set: throws naming the first that is damaged.
    void verify() const;

   private:
    struct File;
    void check_tensors(const std::string& array, const FlatLayout& layout) const;

    std::string path_;
    std::unique_ptr<File> file_;
    CheckpointMeta meta_;
};

/// File name of a checkpoint, "step-00000500.h5"; the step of such a name, or nothing.
std::string checkpoint_name(Index step);
std::optional<Index> checkpoint_step(const std::string& file_name);

/// The newest checkpoint in `dir` that opens and is complete: its path, or nothing. `log` receives
/// a line for each newer one that was passed over, with the reason.
std::optional<std::string> find_latest(const std::string& dir, std::vector<std::string>& log);

/// Of the checkpoints up to step `newest`, the one just written, removes all but the last
/// `keep_last` and those whose step is a multiple of `keep_every` (0: no others), and temporaries
/// that a killed run left behind. keep_last < 1 keeps all. Called by one rank. A file that cannot
/// be removed stays.
void prune(const std::string& dir, Index newest, Index keep_last, Index keep_every);

}  // namespace scape::io
