#include <scape/io/h5.hpp>

#include <algorithm>
#include <cstdlib>

namespace scape::io::h5 {
namespace {

/// Room for the chunks that a partial read meets twice.
constexpr std::size_t chunk_cache_bytes = 32 << 20;

/// Before the first HDF5 call of the program: HDF5 reads the variable when it starts.
void start() {
    static const bool started = [] {
        ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
        // Everything is closed by its owner. At exit HDF5 would crash over a file that could not be
        // closed, because its disk is full or broken.
        H5dont_atexit();
        H5open();
        return true;
    }();
    (void)started;
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // per thread, where HDF5 knows threads
}

/// The innermost reason of HDF5's error stack. Of a failed system call only errno is of use.
std::string reason() {
    std::string text;
    const auto keep = [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
        *static_cast<std::string*>(out) = entry->desc != nullptr ? entry->desc : "";
        return 0;
    };
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &text);
    const std::string number = "errno = ", message = "error message = '";
    const auto at = text.find(number), from = text.find(message);
    if (at != std::string::npos && from != std::string::npos) {
        const auto begin = from + message.size();
        text = text.substr(begin, text.find('\'', begin) - begin) + " (errno " +
               std::to_string(std::atoi(text.c_str() + at + number.size())) + ")";
    }
    return text.empty() ? "no reason given" : text;
}

std::vector<hsize_t> dimensions(const std::vector<Index>& shape) {
    return {shape.begin(), shape.end()};
}

Id property_list(hid_t kind) {
    return {check(H5Pcreate(kind), "H5Pcreate"), H5Pclose};
}

hid_t stored_type(Element element) {
    switch (element) {
        case Element::f32:
            return H5T_IEEE_F32LE;
        case Element::u32:
            return H5T_STD_U32LE;
        case Element::u8:
            return H5T_STD_U8LE;
    }
    throw std::logic_error("h5: no such element type");
}

/// Whether data can be compressed with deflate: it is an optional part of HDF5.
bool can_deflate() {
    unsigned flags = 0;
    return H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0 &&
           H5Zget_filter_info(H5Z_FILTER_DEFLATE, &flags) >= 0 &&
           (flags & H5Z_FILTER_CONFIG_ENCODE_ENABLED) != 0;
}

/// For files, groups and data sets: no time stamps, so that equal contents are equal files.
Id creation_properties(hid_t kind) {
    Id list = property_list(kind);
    check(H5Pset_obj_track_times(list, false), "H5Pset_obj_track_times");
    return list;
}

/// The groups above `name`, for tensor names with a slash. HDF5 would give them time stamps.
void make_parents(hid_t parent, const std::string& name) {
    for (auto at = name.find('/', 1); at != std::string::npos; at = name.find('/', at + 1)) {
        const std::string above = name.substr(0, at);
        if (!exists(parent, above)) create_group(parent, above);
    }
}

}  // namespace

Lock::Lock() {
    static std::recursive_mutex mutex;
    lock_ = std::unique_lock(mutex);
}

hid_t check(hid_t value, const std::string& call) {
    if (value < 0) throw error(call + " failed: " + reason());
    return value;
}

Id& Id::operator=(Id&& other) noexcept {
    if (this != &other) {
        reset();
        id_ = std::exchange(other.id_, -1);
        close_ = other.close_;
    }
    return *this;
}

void Id::close(const std::string& call) {
    if (id_ < 0) return;
    const Lock lock;
    check(close_(std::exchange(id_, -1)), call);
}

void Id::reset() noexcept {
    if (id_ < 0) return;
    const Lock lock;
    close_(std::exchange(id_, -1));
}

Id create_file(const std::string& path) {
    const Lock lock;
    start();
    const Id access = property_list(H5P_FILE_ACCESS);
    check(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "H5Pset_libver_bounds");
    return {
        check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation_properties(H5P_FILE_CREATE), access),
              "H5Fcreate"),
        H5Fclose};
}

Id create_scratch_file(const std::string& path) {
    const Lock lock;
    start();
    const Id access = property_list(H5P_FILE_ACCESS);
    check(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "H5Pset_libver_bounds");
    check(H5Pset_fapl_sec2(access), "H5Pset_fapl_sec2");
    // Everything goes to the system at once, and an error shows where it happens.
    check(H5Pset_sieve_buf_size(access, 0), "H5Pset_sieve_buf_size");
    return {check(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access), "H5Fcreate"),
            H5Fclose};
}

void flush(hid_t file) {
    const Lock lock;
    check(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush");
}

int descriptor(hid_t file) {
    const Lock lock;
    void* handle = nullptr;
    check(H5Fget_vfd_handle(file, H5P_DEFAULT, &handle), "H5Fget_vfd_handle");
    return *static_cast<int*>(handle);
}

Id open_file(const std::string& path) {
    const Lock lock;
    start();
    return {check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen"), H5Fclose};
}

bool is_hdf5(const std::string& path) {
    const Lock lock;
    start();
    return H5Fis_hdf5(path.c_str()) > 0;
}

std::string version() {
    const Lock lock;
    start();
    unsigned major = 0, minor = 0, patch = 0;
    check(H5get_libversion(&major, &minor, &patch), "H5get_libversion");
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

Id create_group(hid_t parent, const std::string& name) {
    const Lock lock;
    make_parents(parent, name);
    return {check(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT,
                             creation_properties(H5P_GROUP_CREATE), H5P_DEFAULT),
                  "H5Gcreate(" + name + ")"),
            H5Gclose};
}

Id open_group(hid_t parent, const std::string& name) {
    const Lock lock;
    return {check(H5Gopen2(parent, name.c_str(), H5P_DEFAULT), "H5Gopen(" + name + ")"), H5Gclose};
}

bool exists(hid_t parent, const std::string& name) {
    const Lock lock;
    return H5Lexists(parent, name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> groups(hid_t parent) {
    const Lock lock;
    std::vector<std::string> names;
    const auto visit = [](hid_t at, const char* name, const H5L_info_t*, void* out) -> herr_t {
        const Id object(H5Oopen(at, name, H5P_DEFAULT), H5Oclose);
        if (object < 0) return -1;
        if (H5Iget_type(object) == H5I_GROUP)
            static_cast<std::vector<std::string>*>(out)->push_back(name);
        return 0;
    };
    check(H5Literate(parent, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Literate");
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<std::string> datasets(hid_t parent) {
    const Lock lock;
    std::vector<std::string> names;
    const auto visit = [](hid_t at, const char* name, const H5L_info_t*, void* out) -> herr_t {
        const Id object(H5Oopen(at, name, H5P_DEFAULT), H5Oclose);
        if (object < 0) return -1;
        if (H5Iget_type(object) == H5I_DATASET)
            static_cast<std::vector<std::string>*>(out)->push_back(name);
        return 0;
    };
    check(H5Lvisit(parent, H5_INDEX_NAME, H5_ITER_INC, visit, &names), "H5Lvisit");
    std::sort(names.begin(), names.end());
    return names;
}

Id create_dataset(hid_t parent, const std::string& name, const std::vector<Index>& shape,
                  Element element) {
    const Lock lock;
    make_parents(parent, name);
    const auto size = dimensions(shape), chunk = dimensions(chunk_shape(shape));
    const int rank = static_cast<int>(size.size());
    const Id space(check(H5Screate_simple(rank, size.data(), nullptr), "H5Screate_simple"),
                   H5Sclose);
    const Id how = creation_properties(H5P_DATASET_CREATE);
    check(H5Pset_chunk(how, rank, chunk.data()), "H5Pset_chunk");
    if (element == Element::u8 && can_deflate()) check(H5Pset_deflate(how, 1), "H5Pset_deflate");
    check(H5Pset_fletcher32(how), "H5Pset_fletcher32");
    const std::uint32_t zero = 0;  // in the unused part of a last chunk: equal data, equal files
    check(H5Pset_fill_value(how, stored_type(element), &zero), "H5Pset_fill_value");
    // No chunk cache: whole chunks are written, at once, so an error shows where it happens.
    const Id access = property_list(H5P_DATASET_ACCESS);
    check(H5Pset_chunk_cache(access, 1, 0, 1.0), "H5Pset_chunk_cache");
    return {check(H5Dcreate2(parent, name.c_str(), stored_type(element), space, H5P_DEFAULT, how,
                             access),
                  "H5Dcreate(" + name + ")"),
            H5Dclose};
}

Id create_scratch_dataset(hid_t parent, const std::string& name, Index size) {
    const Lock lock;
    const auto extent = static_cast<hsize_t>(size);
    const Id space(check(H5Screate_simple(1, &extent, nullptr), "H5Screate_simple"), H5Sclose);
    const Id how = creation_properties(H5P_DATASET_CREATE);
    check(H5Pset_layout(how, H5D_CONTIGUOUS), "H5Pset_layout");
    check(H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    check(H5Pset_fill_time(how, H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    return {check(H5Dcreate2(parent, name.c_str(), H5T_NATIVE_FLOAT, space, H5P_DEFAULT, how,
                             H5P_DEFAULT),
                  "H5Dcreate(" + name + ")"),
            H5Dclose};
}

Id open_dataset(hid_t parent, const std::string& name) {
    const Lock lock;
    const Id access = property_list(H5P_DATASET_ACCESS);
    check(H5Pset_chunk_cache(access, 521, chunk_cache_bytes, 1.0), "H5Pset_chunk_cache");
    return {check(H5Dopen2(parent, name.c_str(), access), "H5Dopen(" + name + ")"), H5Dclose};
}

std::vector<Index> shape(hid_t dataset) {
    const Lock lock;
    const Id space(check(H5Dget_space(dataset), "H5Dget_space"), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space);
    check(rank, "H5Sget_simple_extent_ndims");
    std::vector<hsize_t> size(rank);
    check(H5Sget_simple_extent_dims(space, size.data(), nullptr), "H5Sget_simple_extent_dims");
    return {size.begin(), size.end()};
}

Index bytes_of(Element element) {
    return element == Element::u8 ? 1 : 4;
}

std::string name_of(Element element) {
    return element == Element::f32 ? "fp32" : element == Element::u32 ? "uint32" : "uint8";
}

std::string type_name(hid_t dataset) {
    const Lock lock;
    const Id type(check(H5Dget_type(dataset), "H5Dget_type"), H5Tclose);
    for (const Element element : {Element::f32, Element::u32, Element::u8}) {
        if (H5Tequal(type, stored_type(element)) > 0) return name_of(element);
    }
    return "another type of " + std::to_string(H5Tget_size(type)) + " bytes";
}

std::vector<Index> chunk_shape(const std::vector<Index>& shape) {
    std::vector<Index> chunk(shape.size());
    Index room = chunk_elements;
    for (std::size_t d = shape.size(); d-- > 0;) {
        const Index most = std::clamp<Index>(room, 1, shape[d]);
        const Index pieces = (shape[d] + most - 1) / most;
        chunk[d] = (shape[d] + pieces - 1) / pieces;  // equal pieces waste no room in the last
        room /= chunk[d];
    }
    return chunk;
}

}  // namespace scape::io::h5
