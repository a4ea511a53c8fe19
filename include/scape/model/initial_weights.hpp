#pragma once
/// @file
/// Initial weights, any part of them by itself: each value depends on the seed, the tensor's name
/// and the element's number in it, so every rank fills its own pieces and all agree.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/model/model.hpp>

#include <cstdint>
#include <functional>

namespace scape::model {

/// out[i] = initial value of element range.begin + i of the flat buffer: 0 in padding rows, between
/// tensors and after the last. `init`: how tensor i of the layout starts. Throws std::logic_error
/// when out does not have range.size() elements.
void fill_initial(const FlatLayout& layout, const std::function<Init(int tensor)>& init,
                  std::uint64_t seed, Range range, HostSpan<float> out);

template <class T>
void fill_initial(const Model<T>& model, std::uint64_t seed, Range range, HostSpan<float> out) {
    fill_initial(
        model.layout(), [&](int tensor) { return model.init(tensor); }, seed, range, out);
}

}  // namespace scape::model
