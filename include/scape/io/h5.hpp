#pragma once
/// @file
/// HDF5's C API with owners and exceptions. Works with 1.10 to 1.14, serial or parallel build (no
/// MPI-IO is used). Most builds of HDF5 are not thread-safe, and a buffer store has a thread of its
/// own: everything here holds one lock while it is in HDF5. Code that calls HDF5 itself takes Lock.
///
/// Before the first call, HDF5's own printing of errors is switched off, and file locking too
/// (HDF5_USE_FILE_LOCKING=FALSE, unless the user has set it): file systems of clusters often have
/// no locks, and a checkpoint has one writer.

#include <scape/base/types.hpp>

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace scape::io::h5 {

/// As long as it lives, no other thread is in HDF5. It may be taken again by the thread that has
/// it.
class Lock {
   public:
    Lock();

   private:
    std::unique_lock<std::recursive_mutex> lock_;
};

/// A call that failed, and HDF5's own reason.
class error : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

/// Value of an HDF5 call, or `error` naming `call` when it is negative.
hid_t check(hid_t value, const std::string& call);

/// Owner of an identifier. Closing can fail (it writes): call close() where that matters; the
/// destructor ignores it.
class Id {
   public:
    using Close = herr_t (*)(hid_t);
    Id() = default;
    Id(hid_t id, Close close) : id_(id), close_(close) {}
    Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Id& operator=(Id&& other) noexcept;
    ~Id() { reset(); }

    operator hid_t() const { return id_; }
    void close(const std::string& call);
    void reset() noexcept;

   private:
    hid_t id_ = -1;
    Close close_ = nullptr;
};

/// A new file, an existing one of the same name is overwritten. Its metadata carry checksums
/// (format of HDF5 1.10).
Id create_file(const std::string& path);
/// The same, to be written and read again, not to be kept: no checksums; an existing file is an
/// error.
Id create_scratch_file(const std::string& path);
Id open_file(const std::string& path);  ///< read-only
void flush(hid_t file);
int descriptor(hid_t file);  ///< of the operating system
bool is_hdf5(const std::string& path);
std::string version();  ///< of the library, e.g. "1.10.8"

Id create_group(hid_t parent, const std::string& name);
Id open_group(hid_t parent, const std::string& name);
bool exists(hid_t parent, const std::string& name);
/// Names of the groups right under `parent`, sorted.
std::vector<std::string> groups(hid_t parent);
/// Paths, from `parent`, of all data sets under it, sorted.
std::vector<std::string> datasets(hid_t parent);

/// Attributes: one 64-bit integer, one double or one UTF-8 text.
void write_attribute(hid_t object, const std::string& name, Index value);
void write_attribute(hid_t object, const std::string& name, double value);
void write_attribute(hid_t object, const std::string& name, const std::string& value);
bool has_attribute(hid_t object, const std::string& name);
Index read_index(hid_t object, const std::string& name);
double read_number(hid_t object, const std::string& name);
std::string read_text(hid_t object, const std::string& name);
std::vector<std::string> attributes(hid_t object);

/// Types of elements; in the file little endian.
enum class Element { f32, u32, u8 };
template <class T>
inline constexpr Element element_of = Element::f32;
template <>
inline constexpr Element element_of<std::uint32_t> = Element::u32;
template <>
inline constexpr Element element_of<std::uint8_t> = Element::u8;
Index bytes_of(Element element);
std::string name_of(Element element);  ///< "fp32", "uint32", "uint8"

/// In chunks of about `chunk_elements` with a Fletcher-32 checksum each; u8 (masks of 0 and 1)
/// compressed, where this HDF5 can.
Id create_dataset(hid_t parent, const std::string& name, const std::vector<Index>& shape,
                  Element element = Element::f32);
/// Elements of fp32 in one piece, its place in the file reserved, not written: to be written before
/// it is read.
Id create_scratch_dataset(hid_t parent, const std::string& name, Index size);
Id open_dataset(hid_t parent, const std::string& name);
std::vector<Index> shape(hid_t dataset);
std::string type_name(hid_t dataset);  ///< as name_of; of other types a description

inline constexpr Index chunk_elements = Index{1} << 20;
/// The chunk for a shape: whole trailing dimensions as far as they fit, of nearly equal size.
std::vector<Index> chunk_shape(const std::vector<Index>& shape);

/// Elements [begin, end) of the data set, counted in row-major order of its shape.
/// `values`: of the data set's own type.
void write(hid_t dataset, Index begin, Index end, const void* values, Element element);
void read(hid_t dataset, Index begin, Index end, void* values, Element element);
template <class T>
void write(hid_t dataset, Index begin, Index end, const T* values) {
    write(dataset, begin, end, values, element_of<T>);
}
template <class T>
void read(hid_t dataset, Index begin, Index end, T* values) {
    read(dataset, begin, end, values, element_of<T>);
}

}  // namespace scape::io::h5
