#include "scape_owner.hpp"

namespace scape::optim {

ScapeOwner::ScapeOwner(const config::RunConfig& config, const FlatLayout& layout,
                       const Sharding& sharding, int rank, Masks& masks)
    : config_(config.optimizer),
      sharding_(sharding),
      rank_(rank),
      masks_(masks),
      before_(config::score_of(config) == config::ScapeScore::before),
      squares_(sharding, sharding.ranks()),
      scratch_("scape::optim::score",
               static_cast<std::size_t>(sharding.largest_bucket() / sharding.ranks())),
      decay_(layout, sharding, rank) {}

Span<float> ScapeOwner::scratch(int bucket) const {
    return slice(scratch_, 0, sharding_.shard_piece(bucket).size());
}

Where ScapeOwner::where(const Arrived& a) const {
    Where w;
    w.positions = a.all ? nullptr : a.positions.data();
    w.piece = sharding_.piece(a.bucket, rank_).begin - sharding_.bucket(a.bucket).begin;
    w.shard = sharding_.shard_piece(a.bucket).begin;
    w.compact = a.all || a.compact;
    return w;
}

void ScapeOwner::before_pack(const Exec& exec, int bucket, Span<const float> a) {
    if (!before_ || masks_.next_plan().all()) return;
    score(exec, bucket, a, scratch(bucket));
    if (!masks_.late()) masks_.select(exec, bucket, scratch(bucket));
}

void ScapeOwner::after_send(const Exec& exec, int bucket) {
    if (before_ && masks_.late() && !masks_.next_plan().all())
        masks_.select(exec, bucket, scratch(bucket));
}

void ScapeOwner::select(const Exec& exec, int bucket, Span<const float> residual) {
    score(exec, bucket, residual, scratch(bucket));
    masks_.select(exec, bucket, scratch(bucket));
}

ElementNumbers ScapeOwner::decay(const Exec& exec, const StepNumbers& numbers, const Arrived& a,
                                 const Weights& weights) const {
    ElementNumbers n = element_numbers(config_, numbers, true);
    // Where everything travels as it is, the others' elements arrive with their decay.
    if (weights.apart || !a.all) decay_.bucket(exec, n.keep, a.bucket, weights.replica);
    if (weights.apart || a.all) decay_.piece(exec, n.keep, a.bucket, weights.master);
    n.keep = 1;
    return n;
}

std::unique_ptr<Scape> make_scape(const config::RunConfig& config, const FlatLayout& layout,
                                  const Sharding& sharding, int rank, Masks& masks) {
    if (config.scape.rule == config::ScapeRule::paper)
        return make_paper(config, layout, sharding, rank, masks);
    return make_catch_up(config, layout, sharding, rank, masks);
}

Index scape_state_bytes(const config::RunConfig& config, const Sharding& sharding) {
    const Index beside = config.scape.rule == config::ScapeRule::paper
                             ? static_cast<Index>(sizeof(std::uint8_t))
                             : static_cast<Index>(sizeof(std::uint32_t));
    const bool stored = config.scape.rule == config::ScapeRule::catch_up &&
                        config.scape.second_moment == config::SecondMoment::stored;
    const Index score = sharding.largest_bucket() / sharding.ranks();
    const Index floats = (stored ? 2 : 1) * static_cast<Index>(sizeof(float));
    return sharding.shard_extent() * (floats + beside) + score * static_cast<Index>(sizeof(float));
}

}  // namespace scape::optim
