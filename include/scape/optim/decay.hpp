#pragma once
/// @file
/// Decoupled weight decay, w = (1 - eta lambda) w, of the tensors that it applies to, as a pass of
/// its own: for elements that their owner does not update.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>

#include <vector>

namespace scape::optim {

class Decay {
   public:
    Decay(const FlatLayout& layout, const Sharding& sharding, int rank);

    /// weights: a whole bucket
    void bucket(const Exec& exec, float keep, int bucket, Span<float> weights) const;
    /// weights: this rank's piece of it
    void piece(const Exec& exec, float keep, int bucket, Span<float> weights) const;

   private:
    const Sharding& sharding_;
    int rank_;
    std::vector<std::vector<Range>> decaying_;  // in each bucket
};

}  // namespace scape::optim
