#include <scape/base/profiling.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/optim/density.hpp>
#include <scape/optim/sharded_optimizer.hpp>

namespace scape::optim {

using config::RunConfig;
using kernels::Levels;
using kernels::ValueCode;

namespace {

/// `two_bits`: the levels of a code of 2 bits.
ValueCode value_code(Index bits, Index block, Levels two_bits) {
    if (bits == 32) return kernels::fp32_values;
    if (bits == 16) return kernels::bf16_values;
    const Levels levels = bits == 1 ? Levels::sign : bits == 2 ? two_bits : Levels::linear;
    return {levels, static_cast<int>(bits), block};
}

bool is_scape(const RunConfig& config) {
    return config.optimizer.kind == config::OptimizerKind::scape;
}

}  // namespace

Index bucket_bytes(const RunConfig& config, int ranks) {
    if (config.comm.bucket_mb > 0) return static_cast<Index>(config.comm.bucket_mb * 1e6);
    constexpr Index usual = 25'000'000;
    constexpr Index of_a_rank = 256'000;  // 5 us at 50 GB/s: what a message takes to arrive
    return std::max(usual, ranks * of_a_rank);
}

Exchange::Options exchange_options(const RunConfig& config) {
    const config::ExchangeSection& e = config.exchange;
    const Index block = config::block_of(e);
    Exchange::Options o;
    // The Gaussian levels have no zero: an average of the error in 8 bits gets stuck with them.
    o.values = value_code(e.value_bits, block,
                          e.error == config::ErrorKind::loco ? Levels::linear : Levels::gaussian);
    o.deltas = value_code(e.delta_bits, block, Levels::gaussian);
    if (config::has_error_feedback(config)) o.rest = kernels::Rest::kept;
    if (config::is_sparse(config)) o.largest_density = largest_sparse_density(config);
    return o;
}

OptimizerMemory optimizer_memory(const RunConfig& config, const FlatLayout& layout,
                                 const Sharding& sharding, int rank) {
    const config::Elements elements = config.exchange.elements;
    const bool baseline = elements != config::Elements::automatic;
    const Exchange::Options options = exchange_options(config);
    const MaskPlan everything = plan_of_everything(layout, sharding);
    const Index shard_bytes = sharding.shard_extent() * static_cast<Index>(sizeof(float));
    OptimizerMemory m;
    m.state = is_scape(config) ? scape_state_bytes(config, sharding)
                               : state_arrays(config.optimizer.kind) * shard_bytes;
    if (!options.deltas.exact()) m.state += shard_bytes;
    if (is_scape(config)) {
        m.masks = Masks::device_bytes(layout, sharding, config.sparsity, options.largest_density);
    } else if (baseline) {
        m.masks = baseline_device_bytes(elements, layout, sharding, config.sparsity,
                                        options.largest_density);
    }
    if (config::has_error_feedback(config)) {
        m.feedback = ErrorFeedback::memory_bytes(config.error_feedback, sharding);
    } else if (config::has_loco(config)) {
        m.feedback = Loco::memory_bytes(options.values, everything);
    }
    m.exchange = Exchange::buffer_bytes(MaskPlan(layout, sharding, config.sparsity), rank, baseline,
                                        elements == config::Elements::topk_ef, options);
    return m;
}

ShardedOptimizer::ShardedOptimizer(const RunConfig& config, comm::Communicator& comm,
                                   const FlatLayout& layout, const Sharding& sharding,
                                   Span<float> parameters, Span<float> gradients, int buffers)
    : config_(config), sharding_(sharding), gradients_(gradients) {
    const int rank = comm.rank();
    Exchange::Options options = exchange_options(config);
    options.buffers = buffers;
    if (config::has_error_feedback(config))
        feedback_ = std::make_unique<ErrorFeedback>(config.error_feedback, sharding, rank);
    if (config::has_loco(config))
        loco_ = std::make_unique<Loco>(config.loco, options.values,
                                       plan_of_everything(layout, sharding), rank);
    if (is_scape(config)) {
        auto masks = std::make_unique<Masks>(
            comm, layout, sharding, config.sparsity, options.largest_density,
            config.scape.lateness == 0 ? Masks::Lateness::none : Masks::Lateness::one_step);
        auto owner = make_scape(config, layout, sharding, rank, *masks);
        masks_ = masks.get();
        scape_ = owner.get();
        elements_ = std::move(masks);
        owner_ = std::move(owner);
    } else {
        if (config::is_sparse(config))
            elements_ = make_baseline(config.exchange.elements, comm, layout, sharding,
                                      config.sparsity, options.largest_density);
        owner_ = make_dense_owner(config.optimizer, layout, sharding, rank);
    }
    exchange_ = std::make_unique<Exchange>(
        comm, layout, sharding, parameters, gradients,
        Exchange::Parts{*owner_, elements_.get(), feedback_.get(), loco_.get()}, options);
}

void ShardedOptimizer::begin_step(const Exec& exec, Index t) {
    exchange_->begin_step(exec, {t, density(config_, t), density(config_, t + 1)});
    if (fused()) return;
    if (feedback_) {
        feedback_->begin_step(exec);
        feedback_->finish(exec);  // what was kept may still be on its way out of the gradients
        feedback_->expect();
    }
    if (!left_over_) kernels::fill_zero<float>(exec, gradients_);
    left_over_ = false;
}

void ShardedOptimizer::add_checks(const Exec& exec, Span<double> squares, Span<double> finite) {
    owner_->add_squares(exec, squares);
    if (feedback_) feedback_->add_check(exec, finite);
}

void ShardedOptimizer::update(const Exec& exec, const StepNumbers& numbers) {
    const Region region("scape::update");
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Weights weights = exchange_->weights(exec, b);
        const Arrived arrived = exchange_->arrived(exec, b);
        owner_->update(exec, numbers, arrived, weights);
        exchange_->gather_begin(exec, arrived);
    }
    owner_->end_step(exec);
    if (loco_) loco_->commit();
    if (feedback_ && exchange_->straight()) {
        forget(exec);
    } else if (feedback_) {
        feedback_->commit(exec, gradients_);  // what is left in the gradients
    }
    kept_in_gradients_ = feedback_ != nullptr;
    if (scape_ != nullptr) make_next_mask(exec);
}

/// The top k of the owner's score; the exchange overlaps the next forward and backward.
void ShardedOptimizer::make_next_mask(const Exec& exec) {
    const Region region("scape::next_mask");
    if (scape_->selects_after() && !masks_->next_plan().all()) {
        for (int b = 0; b < sharding_.buckets(); ++b) {
            scape_->select(exec, b, exchange_->own_gradients(b));
            exchange_->progress();
        }
    }
    masks_->begin(exec);
}

bool ShardedOptimizer::skip(const Exec& exec) {
    exchange_->give_up(exec);
    kept_in_gradients_ = fused();
    if (!fused()) return false;
    if (!exchange_->straight()) return true;
    kernels::fill_zero<float>(exec, gradients_);  // all of it was sent
    return false;
}

void ShardedOptimizer::forget(const Exec& exec) {
    kernels::fill_zero<float>(exec, gradients_);
    feedback_->commit_zero();
    kept_in_gradients_ = true;
}

void ShardedOptimizer::load_kept(const Exec& exec) {
    if (loco_) {
        loco_->load(exec, gradients_);
    } else if (!kept_in_gradients_) {
        feedback_->load(exec, gradients_);
        kept_in_gradients_ = true;
    }
}

void ShardedOptimizer::store_kept(const Exec& exec, bool any) {
    if (loco_ && any) loco_->store(exec, gradients_);
    if (feedback_ && any) feedback_->commit(exec, gradients_);
    if (feedback_ && !any) feedback_->commit_zero();
    kept_in_gradients_ = feedback_ != nullptr;
    left_over_ = !keeps() && any;
}

OptimizerMemory ShardedOptimizer::memory() const {
    OptimizerMemory m;
    m.state = owner_->state_bytes() + exchange_->master_bytes();
    if (elements_) m.masks = elements_->device_bytes();
    if (feedback_) m.feedback = feedback_->memory_bytes();
    if (loco_) m.feedback = loco_->memory_bytes();
    m.exchange = exchange_->buffer_bytes();
    return m;
}

}  // namespace scape::optim
