#pragma once
/// @file
/// What codes in blocks are tested on: all codes, odd tables of segments, and arrays in which their
/// values stand in order or at positions.

#include "support/catch.hpp"
#include "value_reference.hpp"

#include <scape/kernels/pack.hpp>

#include <numeric>
#include <string>

namespace scape::test {

inline constexpr Index block_sizes[]{8, 64, 256, 1000};

inline std::vector<kernels::ValueCode> all_codes() {
    std::vector<kernels::ValueCode> codes;
    for (const Index block : block_sizes) {
        for (const int bits : {8, 4, 2}) codes.push_back({kernels::Levels::linear, bits, block});
        codes.push_back({kernels::Levels::gaussian, 2, block});
        codes.push_back({kernels::Levels::sign, 1, block});
    }
    return codes;
}

inline std::string name_of(const kernels::ValueCode& code) {
    const char* const names[]{"number", "linear", "gaussian", "sign"};
    return std::string(names[static_cast<int>(code.levels)]) + " " + std::to_string(code.bits) +
           " bits, block " + std::to_string(code.block);
}

inline const std::vector<std::vector<Index>> lengths_of_segments{
    {},
    {0, 0},
    {1},
    {64},
    {1, 7, 0, 64, 65, 8, 130, 1000, 0, 0, 3, 257, 2049, 5, 0},
    std::vector<Index>(70, 13)};

struct DeviceTable {
    Vec<kernels::CodedSegment> segments;
    Vec<kernels::Position> positions;
    kernels::Selected selected;
    DeviceTable(const Table& t, const std::vector<kernels::Position>& at)
        : segments(to_device(t.segments)), positions(to_device(at)) {
        selected = {positions, segments, t.blocks};
    }
};

/// An array, and where the values of a table stand in it: everywhere in order, or at positions.
struct Array {
    std::vector<kernels::Position> positions;  // empty: value i at i
    Index size;
    Array(const Table& t, bool in_order, Index origin) : size(t.values) {
        if (in_order || t.values == 0) return;
        size = 2 * t.values + 3;
        std::vector<kernels::Position> all(static_cast<std::size_t>(size));
        std::iota(all.begin(), all.end(), static_cast<kernels::Position>(origin));
        Random random(static_cast<std::uint64_t>(size));
        for (Index i = size; i-- > 1;) std::swap(all[i], all[random.below(i + 1)]);
        positions.assign(all.begin(), all.begin() + t.values);
        for (Index i = 5; i < t.values; i += 11) positions[i] = kernels::no_position;
    }
    /// Element of value i, or -1.
    Index of(Index i, Index origin) const {
        if (positions.empty()) return i;
        return positions[i] == kernels::no_position ? -1
                                                    : static_cast<Index>(positions[i]) - origin;
    }
    std::vector<float> values(const Table& t, const std::vector<float>& a, Index origin) const {
        std::vector<float> x(static_cast<std::size_t>(t.values));
        for (Index i = 0; i < t.values; ++i) x[i] = of(i, origin) < 0 ? 0.f : a[of(i, origin)];
        return x;
    }
};

/// f(table, array, origin) for the tables of a code.
template <class F>
void for_each_table(const kernels::ValueCode& code, Index origin, const F& f) {
    for (const auto& lengths : lengths_of_segments) {
        for (const bool in_order : {true, false}) {
            const Table t = table_of(code, lengths, 3, 8, 17);
            INFO(name_of(code) << ", " << lengths.size() << " segments, in order " << in_order);
            f(t, Array(t, in_order, origin));
        }
    }
}

/// f(i): the element of each value that a segment of the table names.
template <class F>
void for_each_value(const Table& t, const F& f) {
    for (const auto& s : t.segments)
        for (Index i = s.first; i < s.first + s.values; ++i) f(i);
}

inline Vec<unsigned char> guarded(const Table& t) {
    return filled<unsigned char>(t.bytes, guard);
}

inline float decoded_scale(const std::vector<unsigned char>& message, Index at) {
    return from_bits((message[at] + 256u * message[at + 1]) << 16);
}

}  // namespace scape::test
