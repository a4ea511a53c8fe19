#pragma once
/// @file
/// The squared norm of what arrived, bucket by bucket: buckets may come in any order, the sum has
/// one order.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>

namespace scape::optim {

class Squares {
   public:
    /// For values of one piece of a bucket, or (`parts` = 1) of all of it.
    Squares(const Sharding& sharding, int parts);
    void clear(const Exec& exec);
    void add(const Exec& exec, int bucket, Span<const float> values);
    /// result[0] += the sums of all buckets, in double, in their order.
    void sum(const Exec& exec, Span<double> result);

   private:
    Vec<double> of_bucket_;
    Vec<double> partial_;  // workspace of one piece
};

}  // namespace scape::optim
