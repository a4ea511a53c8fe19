#pragma once
/// @file
/// The SCAPE optimizer (arXiv 2607.01678; algorithm section 2), the owner's side. One step is, for
/// every bucket:
///
///     before_pack   score = before: the owner's own a, with m and tau of this step
///     after_send    ... and its top k, behind the exchange: the next mask
///     arrived       s = (1/P) sum_i a_i at the mask; its norm
///     update        decay on every element of the bucket, the rule at the mask of the own piece
///     select        score = after: with the m and R that the step leaves, behind the all-gather
///
/// The rules themselves are in scape_rule.hpp, which elements travel in masks.hpp.

#include <scape/optim/masks.hpp>
#include <scape/optim/owner.hpp>

#include <map>

namespace scape::optim {

class Scape : public Owner {
   public:
    /// Whether the next mask must still be chosen, by select, when a step has ended.
    virtual bool selects_after() const = 0;
    /// Chooses the next mask in a bucket.   residual: the own piece of R, as the step left it
    virtual void select(const Exec& exec, int bucket, Span<const float> residual) = 0;

    /// Counters that belong to state().
    virtual std::map<std::string, double> numbers() const = 0;
    virtual void set_numbers(const std::map<std::string, double>& numbers) = 0;
};

/// config.optimizer.kind must be scape. Everything given must outlive it.
std::unique_ptr<Scape> make_scape(const config::RunConfig& config, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Masks& masks);
/// Bytes that it will hold.
Index scape_state_bytes(const config::RunConfig& config, const Sharding& sharding);

}  // namespace scape::optim
