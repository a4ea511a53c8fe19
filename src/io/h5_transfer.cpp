// Attributes, and the values of data sets.
#include <scape/io/h5.hpp>

#include <algorithm>
#include <functional>

namespace scape::io::h5 {
namespace {

hid_t memory_type(Element element) {
    switch (element) {
        case Element::f32:
            return H5T_NATIVE_FLOAT;
        case Element::u32:
            return H5T_NATIVE_UINT32;
        case Element::u8:
            return H5T_NATIVE_UINT8;
    }
    throw std::logic_error("h5: no such element type");
}

Id scalar() {
    return {check(H5Screate(H5S_SCALAR), "H5Screate"), H5Sclose};
}

/// UTF-8, fixed length, the terminating zero included.
Id text_type(std::size_t bytes) {
    Id type(check(H5Tcopy(H5T_C_S1), "H5Tcopy"), H5Tclose);
    check(H5Tset_size(type, bytes), "H5Tset_size");
    check(H5Tset_cset(type, H5T_CSET_UTF8), "H5Tset_cset");
    return type;
}

void write_value(hid_t object, const std::string& name, hid_t file_type, hid_t memory_type,
                 const void* value) {
    Id attribute(
        check(H5Acreate2(object, name.c_str(), file_type, scalar(), H5P_DEFAULT, H5P_DEFAULT),
              "H5Acreate(" + name + ")"),
        H5Aclose);
    check(H5Awrite(attribute, memory_type, value), "H5Awrite(" + name + ")");
    attribute.close("H5Aclose(" + name + ")");
}

Id open_attribute(hid_t object, const std::string& name) {
    return {check(H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen(" + name + ")"), H5Aclose};
}

using Sizes = std::vector<hsize_t>;
using Box = std::function<void(const Sizes& start, const Sizes& count, Index elements)>;

/// Cuts elements [begin, end) of a row-major array into boxes, in order: from dimension d on, a
/// part of the first row, whole rows, a part of the last. `start` and `count` are set up to d.
void boxes(const Sizes& shape, std::size_t d, Index begin, Index end, Sizes& start, Sizes& count,
           const Box& use) {
    if (begin >= end) return;
    Index row = 1;
    for (std::size_t i = d + 1; i < shape.size(); ++i) row *= shape[i];
    const auto rows = [&](Index first, Index last) {
        start[d] = first;
        count[d] = last - first;
        for (std::size_t i = d + 1; i < shape.size(); ++i) {
            start[i] = 0;
            count[i] = shape[i];
        }
        use(start, count, (last - first) * row);
    };
    const auto inside = [&](Index in_row, Index from, Index to) {
        start[d] = in_row;
        count[d] = 1;
        boxes(shape, d + 1, from, to, start, count, use);
    };
    Index first = begin / row, last = end / row;
    if (begin % row != 0) {
        inside(first, begin % row, std::min(end - first * row, row));
        ++first;
    }
    if (first < last) rows(first, last);
    if (end % row != 0 && last >= first) inside(last, 0, end % row);
}

void transfer(hid_t dataset, Index begin, Index end,
              const std::function<void(hid_t, hid_t, Index)>& move) {
    const Id space(check(H5Dget_space(dataset), "H5Dget_space"), H5Sclose);
    const auto logical = shape(dataset);
    const Sizes sizes(logical.begin(), logical.end());
    Sizes start(sizes.size()), count(sizes.size());
    Index done = 0;
    boxes(sizes, 0, begin, end, start, count,
          [&](const Sizes& from, const Sizes& extent, Index elements) {
              check(H5Sselect_hyperslab(space, H5S_SELECT_SET, from.data(), nullptr, extent.data(),
                                        nullptr),
                    "H5Sselect_hyperslab");
              // A memory space of the box's own shape: HDF5 walks element by element otherwise.
              const Id memory(
                  check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                        "H5Screate_simple"),
                  H5Sclose);
              move(memory, space, done);
              done += elements;
          });
}

}  // namespace

void write_attribute(hid_t object, const std::string& name, Index value) {
    const Lock lock;
    write_value(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void write_attribute(hid_t object, const std::string& name, double value) {
    const Lock lock;
    write_value(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
    const Lock lock;
    const Id type = text_type(value.size() + 1);
    write_value(object, name, type, type, value.c_str());
}

bool has_attribute(hid_t object, const std::string& name) {
    const Lock lock;
    return H5Aexists(object, name.c_str()) > 0;
}

Index read_index(hid_t object, const std::string& name) {
    const Lock lock;
    Index value = 0;
    check(H5Aread(open_attribute(object, name), H5T_NATIVE_INT64, &value), "H5Aread(" + name + ")");
    return value;
}

double read_number(hid_t object, const std::string& name) {
    const Lock lock;
    double value = 0;
    check(H5Aread(open_attribute(object, name), H5T_NATIVE_DOUBLE, &value),
          "H5Aread(" + name + ")");
    return value;
}

std::string read_text(hid_t object, const std::string& name) {
    const Lock lock;
    const Id attribute = open_attribute(object, name);
    const Id stored(check(H5Aget_type(attribute), "H5Aget_type(" + name + ")"), H5Tclose);
    if (H5Tget_class(stored) != H5T_STRING || H5Tis_variable_str(stored) > 0) {
        throw error("H5Aread(" + name + ") failed: not a text of fixed length");
    }
    std::string value(H5Tget_size(stored), '\0');
    check(H5Aread(attribute, text_type(value.size()), value.data()), "H5Aread(" + name + ")");
    value.resize(value.find('\0') == std::string::npos ? value.size() : value.find('\0'));
    return value;
}

std::vector<std::string> attributes(hid_t object) {
    const Lock lock;
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
        static_cast<std::vector<std::string>*>(out)->push_back(name);
        return 0;
    };
    check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Aiterate");
    return names;
}

void write(hid_t dataset, Index begin, Index end, const void* values, Element element) {
    const Lock lock;
    const auto* from = static_cast<const char*>(values);
    transfer(dataset, begin, end, [&](hid_t memory, hid_t file, Index done) {
        check(H5Dwrite(dataset, memory_type(element), memory, file, H5P_DEFAULT,
                       from + done * bytes_of(element)),
              "H5Dwrite");
    });
}

void read(hid_t dataset, Index begin, Index end, void* values, Element element) {
    const Lock lock;
    auto* to = static_cast<char*>(values);
    transfer(dataset, begin, end, [&](hid_t memory, hid_t file, Index done) {
        check(H5Dread(dataset, memory_type(element), memory, file, H5P_DEFAULT,
                      to + done * bytes_of(element)),
              "H5Dread");
    });
}

}  // namespace scape::io::h5
