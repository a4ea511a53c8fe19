#include <scape/base/random.hpp>
#include <scape/model/initial_weights.hpp>

#include <algorithm>
#include <stdexcept>

namespace scape::model {

void fill_initial(const FlatLayout& layout, const std::function<Init(int tensor)>& init,
                  std::uint64_t seed, Range range, HostSpan<float> out) {
    if (static_cast<Index>(out.extent(0)) != range.size())
        throw std::logic_error("fill_initial: out has not the size of the range");
    float* const values = out.data();
    std::fill(values, values + range.size(), 0.f);
    const auto& tensors = layout.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& t = tensors[i];
        const Index begin = std::max(range.begin, t.offset);
        const Index end = std::min(range.end, t.offset + t.size);
        if (begin >= end) continue;
        const Init how = init(static_cast<int>(i));
        if (how.stddev == 0) {
            std::fill(values + (begin - range.begin), values + (end - range.begin),
                      static_cast<float>(how.value));
            continue;
        }
        fill_normal(seed, stream_of(t.name), static_cast<std::uint64_t>(begin - t.offset),
                    how.stddev, slice(out, begin - range.begin, end - range.begin));
    }
}

}  // namespace scape::model
