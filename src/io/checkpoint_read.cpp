// Opening a checkpoint, what it holds and whether that is whole. Values: checkpoint_values.cpp.
#include "checkpoint_format.hpp"
#include "checkpoint_reading.hpp"

#include <scape/base/error.hpp>
#include <scape/base/profiling.hpp>
#include <scape/io/checkpoint.hpp>

#include <unistd.h>

#include <filesystem>
#include <set>

namespace scape::io {

using reader::fail;
using reader::reading;

namespace {

namespace fs = std::filesystem;

/// No HDF5 file of this format is shorter.
constexpr std::uintmax_t superblock_bytes = 48;

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

h5::Element element_called(const std::string& type) {
    for (const auto element : {h5::Element::f32, h5::Element::u32, h5::Element::u8}) {
        if (h5::name_of(element) == type) return element;
    }
    throw h5::error("elements of " + type);
}

}  // namespace

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
        if (found < oldest_format_version || found > format_version) {
            fail(path, fmt::format("has format version {}; this program reads versions {} to {}",
                                   found, oldest_format_version, format_version));
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

int CheckpointReader::ranks_of(const std::string& array) const {
    if (!has(array)) {
        fail(path_, fmt::format("has no array '{}'; it has: {}", array, fmt::join(arrays(), ", ")));
    }
    int ranks = 0;
    reading(path_, "array '" + array + "'", [&] {
        const h5::Id group = h5::open_group(file_->id, array);
        if (!h5::has_attribute(group, ranks_attribute)) return;
        ranks = static_cast<int>(h5::read_index(group, ranks_attribute));
        std::vector<std::string> wanted;
        for (int rank = 0; rank < ranks; ++rank) wanted.push_back(rank_group(rank));
        const auto found = h5::groups(group);
        if (ranks < 1 ||
            !std::is_permutation(found.begin(), found.end(), wanted.begin(), wanted.end())) {
            fail(path_, fmt::format("is damaged: array '{}' of {} ranks holds: {}", array, ranks,
                                    fmt::join(found, ", ")));
        }
    });
    return ranks;
}

void CheckpointReader::check_whole(const std::string& array) const {
    const int ranks = ranks_of(array);
    if (ranks > 0) {
        fail(path_, fmt::format("holds array '{}' for each of {} ranks; one whole array is wanted",
                                array, ranks));
    }
}

void CheckpointReader::check_rank(const std::string& array, int rank) const {
    const int ranks = ranks_of(array);
    if (ranks == 0) {
        fail(path_,
             fmt::format("holds array '{}' as one whole; that of rank {} is wanted", array, rank));
    }
    if (rank < 0 || rank >= ranks) {
        fail(path_, fmt::format("holds array '{}' for each of {} ranks; that of rank {} is wanted",
                                array, ranks, rank));
    }
}

void CheckpointReader::check_tensors(const std::string& array, const std::string& group_name,
                                     const FlatLayout& layout, const std::string& type) const {
    reading(path_, "array '" + array + "'", [&] {
        const h5::Id group = h5::open_group(file_->id, group_name);
        const auto names = h5::datasets(group);
        const std::set<std::string> found(names.begin(), names.end());
        for (const Tensor& t : layout.tensors()) {
            if (!found.contains(t.name)) {
                fail(path_,
                     fmt::format("has no tensor '{}' in array '{}'; the model's has shape {}",
                                 t.name, array, text_of(t.shape)));
            }
            const h5::Id dataset = h5::open_dataset(group, t.name);
            const auto shape = h5::shape(dataset);
            const auto found_type = h5::type_name(dataset);
            if (found_type != type) {
                fail(path_, fmt::format("has elements of {} in tensor '{}' of array '{}'; {} is "
                                        "wanted",
                                        found_type, t.name, array, type));
            }
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

void CheckpointReader::verify() const {
    std::vector<std::uint32_t> block;
    for (const auto& array : arrays()) {
        ranks_of(array);
        std::vector<std::string> names;
        reading(path_, "array '" + array + "'",
                [&] { names = h5::datasets(h5::open_group(file_->id, array)); });
        for (const auto& tensor : names) {
            const std::string name = array + "/" + tensor;
            reading(path_, "data set '" + name + "'", [&] {
                const h5::Id dataset = h5::open_dataset(file_->id, name);
                const auto shape = h5::shape(dataset);
                const h5::Element element = element_called(h5::type_name(dataset));
                Index size = 1;
                for (const Index n : shape) size *= n;
                const Index step = block_of(shape);
                block.resize(std::max<std::size_t>(block.size(), std::min(step, size)));
                for (Index begin = 0; begin < size; begin += step) {
                    h5::read(dataset, begin, std::min(begin + step, size), block.data(), element);
                }
            });
        }
    }
}

}  // namespace scape::io
