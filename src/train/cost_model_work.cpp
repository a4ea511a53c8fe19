// Which bytes a step moves, over the network and in memory, pass by pass.
#include <scape/train/cost_model.hpp>

#include <scape/model/flops.hpp>
#include <scape/model/model.hpp>
#include <scape/optim/density.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace scape::train {

namespace {

using optim::MaskPlan;

constexpr double word = 4;          // bytes of a float, of a position
constexpr double cache_line = 64;   // bytes
constexpr double top_k_passes = 3;  // over the scores: one on a host, five on a device

/// Bytes that a read of `count` elements moves that are scattered over `of`: whole cache lines, and
/// at most all of them.
double scattered(double count, double of, double size = word) {
    return std::min(cache_line * count, of * size);
}

/// Which passes there are.
struct Kind {
    bool scape, paper, stored, before, late;
    bool sparse;       // a part of the elements travels
    bool dense_owner;  // and the owner moves all of them: the baselines
    bool own_choice;   // every rank sends others
    bool deltas;       // weights travel as differences, and the owner's are apart
    bool straight;     // gradients travel as they are
    bool feedback, fused, loco, decay;
    bool compact;    // sums of a mask have an array of their own: their place is taken
    double moments;  // floats that the owner keeps for an element, beside its weight

    Kind(const config::RunConfig& c, const optim::Exchange::Options& options, bool all)
        : scape(c.optimizer.kind == config::OptimizerKind::scape),
          paper(scape && c.scape.rule == config::ScapeRule::paper),
          stored(scape && !paper && c.scape.second_moment == config::SecondMoment::stored),
          before(config::score_of(c) == config::ScapeScore::before),
          late(c.scape.lateness == 1),
          sparse(config::is_sparse(c) && !all),
          dense_owner(c.exchange.elements != config::Elements::automatic),
          own_choice(c.exchange.elements == config::Elements::topk_ef),
          deltas(!options.deltas.exact()),
          straight(!sparse && options.values.exact()),
          feedback(config::has_error_feedback(c)),
          fused(feedback && c.error_feedback.storage == config::FeedbackStorage::fused),
          loco(config::has_loco(c)),
          decay(c.optimizer.weight_decay > 0),
          compact(feedback && !options.values.exact()),
          moments(stored || c.optimizer.kind == config::OptimizerKind::adamw ? 2 : 1) {}

    bool all_back() const { return !sparse || dense_owner; }
};

/// Sizes of one bucket, in elements and bytes.
struct Sizes {
    double all, piece;          // elements: N of the bucket, N/P of the own piece
    double chosen, own_chosen;  // the same of the mask
    double there, back;         // bytes of the messages of all ranks, P parts
    double code;                // bytes of the coded mask, all ranks'
    double ranks;

    double chosen_of_all(double size = word) const { return scattered(chosen, all, size); }
    double chosen_of_own(double size = word) const { return scattered(own_chosen, piece, size); }
    double decode() const { return code + word * chosen; }
};

/// Own scores, the top k of them, and their code.
double select_bytes(const Kind& k, const Sizes& s) {
    const double state = k.paper ? word + 1 : 2 * word;  // z and a flag; m and the last visit
    return (state + 2 * word + top_k_passes * word) * s.piece + 2 * word * s.own_chosen +
           s.code / s.ranks;
}

double send_bytes(const Kind& k, const Sizes& s) {
    double bytes = 0;
    if (k.feedback && !k.fused) bytes += (3 + 1) * word * s.all;  // added, and its norm
    if (k.scape && k.before && k.sparse) bytes += select_bytes(k, s);
    if (k.straight) return bytes;
    if (!k.sparse) {
        const double gradients = k.feedback ? 2 * word : word;  // what is left is written back
        const double error = k.loco ? 2 : 0;                    // 8 bits, read and written
        return bytes + (gradients + error) * s.all + s.there;
    }
    if (k.dense_owner) bytes += top_k_passes * word * s.all + word * s.chosen;
    if (!k.own_choice) bytes += s.decode();
    return bytes + word * s.chosen + 2 * s.chosen_of_all() + s.there;
}

double sum_bytes(const Kind& k, const Sizes& s) {
    const double square = word * s.piece;
    if (k.straight) return (s.ranks > 1 ? s.there + word * s.piece : 0) + square;
    if (!k.sparse) return s.there + word * s.piece + square;
    const double positions = word * s.own_chosen;
    const double decoded = k.own_choice ? 0 : s.decode() / s.ranks;
    if (k.own_choice)  // one message after another
        return s.there + s.ranks * (positions + 2 * s.chosen_of_own()) + 2 * word * s.piece +
               square;
    const double sums = k.compact ? word * s.own_chosen : 2 * s.chosen_of_own();
    const double norm = k.dense_owner ? square
                                      : s.chosen_of_own(k.paper ? word + 1 : word) + sums / 2 +
                                            2 * word * s.own_chosen;
    return decoded + s.there + positions + sums + norm;
}

double update_bytes(const Kind& k, const Sizes& s) {
    double bytes = 0;
    // Decay of all elements that do not arrive with it; of the own ones in the update.
    if (k.decay && (k.deltas || (k.scape && k.sparse))) bytes += 2 * word * s.all;
    if (k.decay && k.scape && (k.deltas || !k.sparse)) bytes += 2 * word * s.piece;
    if (k.all_back()) {
        // gradient; weight and moments, read and written
        bytes += (1 + 2 * (1 + k.moments)) * word * s.piece;
    } else {
        bytes += s.decode() / s.ranks + word * s.own_chosen;
        const double sums = k.compact ? word * s.own_chosen : 2 * s.chosen_of_own();
        const double state =
            k.paper ? s.chosen_of_own() + s.chosen_of_own(1) : (k.moments + 1) * s.chosen_of_own();
        bytes += sums + 2 * (s.chosen_of_own() + state);
        if (k.paper) bytes += 2 * (word + 1) * s.piece;
    }
    if (!k.deltas) return bytes + (k.all_back() ? 0 : s.back / s.ranks);
    return bytes + s.back / s.ranks +
           (k.all_back() ? 2 * word * s.piece : word * s.own_chosen + 2 * s.chosen_of_own());
}

double unpack_bytes(const Kind& k, const Sizes& s) {
    if (k.all_back()) return k.deltas ? s.back + 2 * word * s.all : 0;
    return s.decode() + s.back + word * s.chosen + 2 * s.chosen_of_all();
}

/// Of the coded mask, the part of one bucket, all ranks'.
double code_bytes(const MaskPlan& plan, int bucket) {
    double bytes = 0;
    const Range rows = plan.rows(bucket);
    for (Index i = rows.begin; i < rows.end; ++i) {
        const kernels::Segment& s = plan.segments()[static_cast<std::size_t>(i)];
        bytes += static_cast<double>(kernels::mask_code_bytes(plan.code(), s.size, s.selected));
    }
    return bytes;
}

StepWork::Bucket bucket_work(const Kind& k, const MaskPlan& plan,
                             const optim::Exchange::Options& options, int b) {
    const Sharding& sharding = plan.sharding();
    const Index ranks = sharding.ranks();
    const Index there = plan.part_bytes(options.values, b, false);
    const Index positions =
        k.sparse && k.own_choice ? plan.padded(b) * static_cast<Index>(word) : 0;
    StepWork::Bucket w;
    w.begin = sharding.bucket(b).begin;
    w.there = there + positions;
    w.back = plan.part_bytes(options.deltas, b, k.dense_owner);
    // From the leader; or, without lateness, from every owner.
    const double code = k.sparse && !k.own_choice ? code_bytes(plan, b) : 0;
    if (k.sparse && !k.own_choice && (k.dense_owner || !k.late)) {
        w.broadcasts = k.dense_owner ? 1 : static_cast<int>(ranks);
        w.broadcast = static_cast<Index>(code) / w.broadcasts;
    }
    w.pooled_there = (ranks - 1) * w.there + (k.straight ? 0 : ranks * w.there);
    w.pooled_back = k.deltas || !k.all_back() ? ranks * w.back : 0;

    const auto of_ranks = static_cast<double>(ranks);
    const auto all = static_cast<double>(sharding.bucket(b).size());
    Sizes s{};
    s.ranks = of_ranks;
    s.all = all;
    s.piece = all / of_ranks;
    s.own_chosen = static_cast<double>(k.sparse ? plan.padded(b) : 0);
    s.chosen = s.own_chosen * of_ranks;
    s.there = static_cast<double>(ranks * w.there);
    s.back = static_cast<double>(ranks * w.back);
    s.code = code;
    w.send = send_bytes(k, s);
    w.sum = sum_bytes(k, s);
    w.update = update_bytes(k, s);
    w.unpack = unpack_bytes(k, s);
    w.select = k.scape && k.sparse && !k.before ? select_bytes(k, s) : 0;
    return w;
}

/// FLOPs of the matrix products, all layers alike. The head's are in one place, between forward and
/// backward; embeddings and norms have none.
void count_flops(const config::RunConfig& config, StepWork& w) {
    const model::Dimensions d = model::dimensions(config.model);
    const auto tokens = static_cast<double>(config.train.micro_batch * config.train.seq_len);
    const double all = tokens * model::flops_per_token(config.model, config.train.seq_len);
    w.head_flops = 6.0 * static_cast<double>(d.vocab * d.width) * tokens;
    w.layer_flops = (all - w.head_flops) / 3 / static_cast<double>(d.layers);
    // All but the last product of a layer; its input is kept.
    if (config.model.recompute == config::Recompute::layer)
        w.recompute_flops = w.layer_flops - 2.0 * static_cast<double>(d.ffn * d.width) * tokens;
}

}  // namespace

double StepWork::flops() const {
    const auto layers = static_cast<double>(groups.size() - (tied ? 2 : 3));
    return static_cast<double>(micro_batches) *
           (3 * layers * layer_flops + (layers - 1) * recompute_flops + head_flops);
}

double StepWork::local_bytes() const {
    double bytes = clear + keep + (fused ? static_cast<double>(micro_batches) * check : 0);
    for (const Bucket& b : buckets) bytes += b.send + b.sum + b.update + b.unpack + b.select;
    return bytes;
}

StepWork step_work(const config::RunConfig& config, int ranks) {
    const config::TrainSection& t = config.train;
    if (ranks < 1 || t.global_batch % (ranks * t.micro_batch) != 0)
        throw std::logic_error(
            fmt::format("cost model: {} sequences are not a multiple of {} ranks x {}",
                        t.global_batch, ranks, t.micro_batch));
    const model::ParameterPlan parameters = model::plan_parameters(config.model);
    const FlatLayout& layout = parameters.layout;
    const Sharding sharding(layout, ranks, optim::bucket_bytes(config, ranks));
    const optim::Exchange::Options options = optim::exchange_options(config);
    MaskPlan plan(layout, sharding, config.sparsity,
                  config.optimizer.kind == config::OptimizerKind::scape
                      ? MaskPlan::CodeOrder::by_rank
                      : MaskPlan::CodeOrder::by_bucket);
    plan.set(config::is_sparse(config) ? config.sparsity.density : 1);
    const Kind kind(config, options, plan.all());

    StepWork w;
    w.ranks = ranks;
    w.micro_batches = config::accumulation(config, ranks);
    count_flops(config, w);
    w.groups = parameters.group_begin;
    w.tied = config.model.tied;
    for (int b = 0; b < sharding.buckets(); ++b)
        w.buckets.push_back(bucket_work(kind, plan, options, b));

    const auto all = static_cast<double>(sharding.extent());
    w.fused = kind.fused;
    if (!kind.fused) w.clear = word * all;
    w.check = word * static_cast<double>(t.micro_batch * t.seq_len * config.model.width);
    if (kind.feedback && kind.straight) {
        w.keep = word * all;
    } else if (kind.feedback && !kind.fused) {
        w.keep = 2 * word * all;
    }
    if (kind.sparse && kind.scape && kind.late) w.mask = plan.code_bytes();
    w.pool = optim::Exchange::pool_bytes(plan, 0, kind.dense_owner, kind.own_choice, options);
    w.bytes_sent =
        plan.bytes_sent(options.values, options.deltas, config.exchange.elements).total();
    w.memory = memory_account(config, layout, sharding);
    return w;
}

}  // namespace scape::train
