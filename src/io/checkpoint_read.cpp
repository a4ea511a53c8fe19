#include "checkpoint_format.hpp"

#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>
#include <scape/io/checkpoint.hpp>

#include <unistd.h>

#include <filesystem>
#include <set>

namespace scape::io {
namespace {

namespace fs = std::filesystem;

/// No HDF5 file of this format is shorter.
constexpr std::uintmax_t superblock_bytes = 48;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
    throw user_error(ExitCode::data, fmt::format("checkpoint '{}' {}", path, what));
}

/// Runs `work`; what HDF5 says against it becomes a message about `what` of the file.
template <class Work>
void reading(const std::string& path, const std::string& what, Work&& work) {
    try {
        work();
    } catch (const h5::error& e) {
        const bool sum = std::string(e.what()).find("hecksum") != std::string::npos;
        fail(path, fmt::format("is damaged: {} {} ({})", what,
                               sum ? "does not match its checksum" : "cannot be read", e.what()));
    }
}

h5::Id open_checkpoint(const std::string& path) {
    std::error_code error;
    if (!fs::exists(path, error)) fail(path, "is not there");
    if (!fs::is_regular_file(path, error)) fail(path, "is not a file");
    const auto bytes = fs::file_size(path, error);
    if (!h5::is_hdf5(path)) {
        if (::access(path.c_str(), R_OK) != 0) fail(path, "cannot be read: permission denied");
        fail(path, fmt::format("({} bytes) is no HDF5 file, or is cut short at its start", bytes));
    }
    try {
        return h5::open_file(path);
    } catch (const h5::error& e) {
        const bool cut = bytes < superblock_bytes ||
                         std::string(e.what()).find("truncated") != std::string::npos;
        fail(path, fmt::format("({} bytes) {} ({})", bytes,
                               cut ? "is cut short" : "cannot be opened", e.what()));
    }
}

CheckpointMeta read_meta(hid_t file) {
    CheckpointMeta meta;
    meta.step = h5::read_index(file, "step");
    meta.tokens = h5::read_index(file, "tokens");
    meta.samples = h5::read_index(file, "samples");
    meta.ranks = static_cast<int>(h5::read_index(file, "ranks"));
    meta.deck = h5::read_text(file, "deck");
    const h5::Id numbers = h5::open_group(file, numbers_group);
    for (const auto& name : h5::attributes(numbers)) {
        meta.numbers[name] = h5::read_number(numbers, name);
    }
    const h5::Id texts = h5::open_group(file, texts_group);
    for (const auto& name : h5::attributes(texts)) meta.texts[name] = h5::read_text(texts, name);
    return meta;
}

/// Elements [begin, end) of a data set into `out`, in bounded blocks of whole chunks.
void read_elements(hid_t dataset, const std::vector<Index>& shape, Index begin, Index end,
                   Span<float> out) {
    const Index block = block_of(shape);
    HostVec<float> staging;
    if constexpr (!exec_is_host) {
        staging = HostVec<float>(
            Kokkos::view_alloc(std::string("scape::io::block"), Kokkos::WithoutInitializing),
            std::min(block, end - begin));
    }
    for (Index from = begin; from < end;) {
        const Index to = std::min(end, (from / block + 1) * block);
        const auto target = slice(out, from - begin, to - begin);
        if constexpr (exec_is_host) {
            h5::read(dataset, from, to, target.data());
        } else {
            h5::read(dataset, from, to, staging.data());
            Kokkos::deep_copy(target, slice(staging, 0, to - from));
        }
        from = to;
    }
}

}  // namespace

struct CheckpointReader::File {
    h5::Id id;
};

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

CheckpointReader::CheckpointReader(const std::string& path)
    : path_(path), file_(std::make_unique<File>()) {
    file_->id = open_checkpoint(path);
    const hid_t file = file_->id;
    reading(path, "its description", [&] {
        if (!h5::has_attribute(file, "format") || h5::read_text(file, "format") != format_name) {
            fail(path, "is an HDF5 file, but not a checkpoint of this program");
        }
        const Index found = h5::read_index(file, "format_version");
        if (found != format_version) {
            fail(path, fmt::format("has format version {}; this program reads version {}", found,
                                   format_version));
        }
        if (!h5::has_attribute(file, "complete")) {
            fail(path, "is not complete: the program that wrote it was cut off");
        }
        meta_ = read_meta(file);
        if (meta_hash(meta_) != h5::read_index(file, "meta_hash")) {
            fail(path, "is damaged: its description does not match its checksum");
        }
    });
}

std::vector<std::string> CheckpointReader::arrays() const {
    std::vector<std::string> names;
    reading(path_, "its list of arrays", [&] { names = h5::groups(file_->id); });
    std::erase(names, numbers_group);
    std::erase(names, texts_group);
    return names;
}

bool CheckpointReader::has(const std::string& array) const {
    const auto names = arrays();
    return std::find(names.begin(), names.end(), array) != names.end();
}

void CheckpointReader::expect_arrays(const std::vector<std::string>& names) const {
    const auto found = arrays();
    for (const auto& name : names) {
        if (std::find(found.begin(), found.end(), name) == found.end()) {
            fail(path_, fmt::format("has no array '{}'; it has: {}", name, fmt::join(found, ", ")));
        }
    }
    for (const auto& name : found) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            fail(path_, fmt::format("has an array '{}' that this run does not use; it uses: {}",
                                    name, fmt::join(names, ", ")));
        }
    }
}

void CheckpointReader::check_tensors(const std::string& array, const FlatLayout& layout) const {
    if (!has(array)) {
        fail(path_, fmt::format("has no array '{}'; it has: {}", array, fmt::join(arrays(), ", ")));
    }
    reading(path_, "array '" + array + "'", [&] {
        const h5::Id group = h5::open_group(file_->id, array);
        const auto names = h5::datasets(group);
        const std::set<std::string> found(names.begin(), names.end());
        for (const Tensor& t : layout.tensors()) {
            if (!found.contains(t.name)) {
                fail(path_,
                     fmt::format("has no tensor '{}' in array '{}'; the model's has shape {}",
                                 t.name, array, text_of(t.shape)));
            }
            const auto shape = h5::shape(h5::open_dataset(group, t.name));
            if (shape != t.shape) {
                fail(path_, fmt::format("holds another model: tensor '{}' of array '{}' has shape "
                                        "{} in the file, {} in the model",
                                        t.name, array, text_of(shape), text_of(t.shape)));
            }
        }
        for (const auto& name : names) {
            if (!layout.contains(name)) {
                fail(path_,
                     fmt::format("holds a tensor '{}' of shape {} in array '{}' that the "
                                 "model does not have",
                                 name, text_of(h5::shape(h5::open_dataset(group, name))), array));
            }
        }
    });
}

void CheckpointReader::read_flat(const std::string& array, const FlatLayout& layout,
                                 Span<float> flat) const {
    const Region region("scape::io::read_flat");
    check_tensors(array, layout);
    for (const Tensor& t : layout.tensors()) {
        const std::string name = array + "/" + t.name;
        reading(path_, "data set '" + name + "'", [&] {
            const h5::Id dataset = h5::open_dataset(file_->id, name);
            read_elements(dataset, t.shape, 0, t.size, slice(flat, t.offset, t.offset + t.size));
        });
    }
}

void CheckpointReader::read_shard(const std::string& array, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Span<float> shard) const {
    const Region region("scape::io::read_shard");
    check_tensors(array, layout);
    h5::Id dataset;
    int opened = -1;
    for (const Slice& s : sharding.slices(rank)) {
        const Tensor& t = layout.tensors()[s.tensor];
        const std::string name = array + "/" + t.name;
        reading(path_, "data set '" + name + "'", [&] {
            if (opened != s.tensor) dataset = h5::open_dataset(file_->id, name);
            opened = s.tensor;
            read_elements(dataset, t.shape, s.tensor_begin, s.tensor_begin + s.flat.size(),
                          slice(shard, s.shard_begin, s.shard_begin + s.flat.size()));
        });
    }
}

void CheckpointReader::verify() const {
    std::vector<float> block;
    for (const auto& array : arrays()) {
        std::vector<std::string> names;
        reading(path_, "array '" + array + "'",
                [&] { names = h5::datasets(h5::open_group(file_->id, array)); });
        for (const auto& tensor : names) {
            const std::string name = array + "/" + tensor;
            reading(path_, "data set '" + name + "'", [&] {
                const h5::Id dataset = h5::open_dataset(file_->id, name);
                const auto shape = h5::shape(dataset);
                Index size = 1;
                for (const Index n : shape) size *= n;
                const Index step = block_of(shape);
                block.resize(std::max<std::size_t>(block.size(), std::min(step, size)));
                for (Index begin = 0; begin < size; begin += step) {
                    h5::read(dataset, begin, std::min(begin + step, size), block.data());
                }
            });
        }
    }
}

}  // namespace scape::io
