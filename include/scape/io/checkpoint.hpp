#pragma once
/// @file
/// Checkpoints: one HDF5 file of logical tensors, whole or absent.
///
///     <dir>/step-00000500.h5
///         attributes   format, format_version, step, tokens, samples, ranks, deck, meta_hash,
///                      versions of libraries; and last of all `complete`
///         numbers/     attributes: CheckpointMeta::numbers
///         texts/       attributes: CheckpointMeta::texts
///         weights/     a group per array; in it a data set per tensor, fp32, uint32 or uint8, of
///         adam_m/      the tensor's logical shape (no padding), in checksummed chunks
///         error/       attribute `ranks`: an array that every rank has its own of;
///             rank-0000/ ...  in a group per rank
///     <dir>/latest     the name of the newest file
///
/// Apart from such arrays files never show how many ranks wrote them, and any number of ranks can
/// read all of them. Files of format version 1 (no array per rank, fp32 alone) are read too.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/comm/communicator.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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

/// Which elements of an array a rank brings, and what the file holds of them.
enum class Placement {
    replicated,  ///< the flat buffer, equal on all ranks: rank 0's is written
    sharded,     ///< the rank's shard, Sharding::shard_extent elements: written as one whole
    per_rank,    ///< the rank's own flat buffer: every rank's is written
    mean,        ///< the rank's own flat buffer, fp32: their mean is written, summed in rank order
                 ///< in double and rounded once
};

/// One array over the layout's tensors.
struct ArrayOut {
    using Values =
        std::variant<Span<const float>, Span<const std::uint32_t>, Span<const std::uint8_t>>;

    std::string name;
    Placement placement;
    Values values;

    ArrayOut(std::string n, Placement p, Span<const float> v)
        : name(std::move(n)), placement(p), values(v) {}
    ArrayOut(std::string n, Placement p, Span<const std::uint32_t> v)
        : name(std::move(n)), placement(p), values(v) {}
    ArrayOut(std::string n, Placement p, Span<const std::uint8_t> v)
        : name(std::move(n)), placement(p), values(v) {}
    /// replicated or sharded
    ArrayOut(std::string n, bool replicated, Span<const float> v)
        : ArrayOut(std::move(n), replicated ? Placement::replicated : Placement::sharded, v) {}
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

    /// How many ranks' own buffers the file holds of a per_rank array; 0: it is one whole array.
    int ranks_of(const std::string& array) const;

    /// Every tensor of the array into its place in the flat buffer; padding rows, gaps between
    /// tensors and what follows the last one are left as they are. Here and below: the array has
    /// elements of the type asked for, and is one whole array unless said otherwise.
    void read_flat(const std::string& array, const FlatLayout& layout, Span<float> flat) const;
    void read_flat(const std::string& array, const FlatLayout& layout,
                   Span<std::uint32_t> flat) const;
    void read_flat(const std::string& array, const FlatLayout& layout,
                   Span<std::uint8_t> flat) const;
    /// The slices of `rank` into its shard (shard_extent elements), for any number of ranks.
    void read_shard(const std::string& array, const FlatLayout& layout, const Sharding& sharding,
                    int rank, Span<float> shard) const;
    void read_shard(const std::string& array, const FlatLayout& layout, const Sharding& sharding,
                    int rank, Span<std::uint32_t> shard) const;
    void read_shard(const std::string& array, const FlatLayout& layout, const Sharding& sharding,
                    int rank, Span<std::uint8_t> shard) const;
    /// As read_flat: what `rank`, one of ranks_of(array), brought of a per_rank array.
    void read_rank(const std::string& array, int rank, const FlatLayout& layout,
                   Span<float> flat) const;
    void read_rank(const std::string& array, int rank, const FlatLayout& layout,
                   Span<std::uint32_t> flat) const;
    void read_rank(const std::string& array, int rank, const FlatLayout& layout,
                   Span<std::uint8_t> flat) const;
    /// As read_flat: the mean over ranks of a per_rank array (as Placement::mean forms it), or a
    /// whole array as it is.
    void read_mean(const std::string& array, const FlatLayout& layout, Span<float> flat) const;

    /// Reads every chunk of every data set: throws naming the first that is damaged.
    void verify() const;

   private:
    struct File;
    void check_tensors(const std::string& array, const std::string& group, const FlatLayout& layout,
                       const std::string& type) const;
    void check_whole(const std::string& array) const;
    void check_rank(const std::string& array, int rank) const;
    template <class T>
    void flat(const std::string& array, const std::string& group, const FlatLayout& layout,
              Span<T> values) const;
    template <class T>
    void shard(const std::string& array, const FlatLayout& layout, const Sharding& sharding,
               int rank, Span<T> values) const;

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
