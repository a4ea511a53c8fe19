#include <scape/train/trainer.hpp>

#include <scape/base/error.hpp>
#include <scape/base/fence.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/train/micro_batch.hpp>
#include <scape/train/schedule.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace scape::train {

Trainer::Trainer(const config::RunConfig& config, comm::Communicator& comm,
                 const data::Dataset& dataset, const Exec& exec)
    : config_(config),
      comm_(comm),
      dataset_(dataset),
      exec_(exec),
      model_(model::make_model<float>(config.model)),
      sharding_(model_->layout(), comm.size(), optim::bucket_bytes(config, comm.size())),
      parameters_("scape::train::parameters", sharding_.extent()),
      gradients_("scape::train::gradients", sharding_.extent()),
      sums_("scape::train::sums", 3),
      sums_host_("scape::train::sums_host", 3),
      partial_sums_("scape::train::partial_sums", kernels::sum_workspace(1 << 30)),
      optimizer_(config, comm_, model_->layout(), sharding_, parameters_, gradients_),
      loader_(config.train.global_batch / comm.size(), config.train.seq_len) {
    model_->bind(parameters_, gradients_);
    model_->allocate(config.train.micro_batch, config.train.seq_len);
    awaiting_.before_use = [this](Index end) {
        const Region exchange_region("scape::exchange");
        exchange().before_use(exec_, end);
        exchange().progress();
    };
    exchanging_ = awaiting_;
    exchanging_.gradients_final = [this](Index begin) {
        const Region exchange_region("scape::exchange");
        exchange().gradients_final(exec_, begin);
        exchange().progress();
    };
}

/// The page. Lines 1 to 3 run bucket by bucket inside the last backward, line 6 ends inside the
/// next forward.
///
///        tokens, forward, backward
///     1  mask = masks.ready()       begun last step            exchange.gradients_final
///     2  message = pack(a, mask)    a = gradients + feedback     "
///     3  mine = exchange(message)   (1/P) sum_i a_i, in rank   exchange.finish_reduce
///                                   order
///     4  clip                       one all-reduce, and the    agree
///                                   skip flag with it
///     5  update                     the shard, by its owner    optimizer.update
///     6  all-gather, unpack         new weights at the mask      ", exchange.before_use
///     7  the next mask              top k of the owner's score optimizer.update
///
/// Dense optimizers are the same without 1 and 7, and without 2 where values travel as fp32.
StepRecord Trainer::step(bool stop_wanted) {
    const Region region("scape::step");
    const Timer timer;
    const Index t = step_ + 1;
    comm_.reset();
    exchange().reset_wait();
    optim::Elements* const elements = optimizer_.elements();
    if (elements != nullptr) elements->reset_wait();
    optim::ErrorFeedback* const feedback = optimizer_.feedback();
    if (feedback != nullptr) feedback->reset_cost();

    optimizer_.begin_step(exec_, t);
    const bool exchanged = forward_and_backward();
    if (exchanged) {
        const Region exchange_region("scape::exchange");
        exchange().finish_reduce(exec_);
    }
    const Agreed agreed = agree(stop_wanted);

    optim::StepNumbers numbers;
    numbers.step = t;
    const double lr = learning_rate(config_, t);
    numbers.lr = static_cast<float>(lr);
    if (config_.optimizer.clip_norm > 0)
        numbers.grad_scale = static_cast<float>(
            std::min(1.0, config_.optimizer.clip_norm / (agreed.grad_norm + 1e-6)));
    const bool counts = exchanged && agreed.finite;
    StepRecord record;
    if (elements != nullptr) record.density = elements->plan().density();
    if (counts) {
        optimizer_.update(exec_, numbers);
    } else if (exchanged && optimizer_.skip(exec_)) {
        record.feedback_lost = drop_spoiled_feedback();
    }

    step_ = t;
    samples_ += config_.train.global_batch;
    tokens_ += config_.train.global_batch * config_.train.seq_len;
    skipped_in_a_row_ = counts ? 0 : skipped_in_a_row_ + 1;
    if (skipped_in_a_row_ > 0 && skipped_in_a_row_ >= config_.check.skip_nonfinite)
        throw agreed_error(
            ExitCode::numbers,
            fmt::format("step {}: loss or gradient was not finite in {} steps in a row "
                        "(check.skip_nonfinite = {}); the last checkpoint is untouched. Lower "
                        "optimizer.lr, lengthen optimizer.warmup_steps, or look at the data.",
                        t, skipped_in_a_row_, config_.check.skip_nonfinite));
    if (config_.check.hash_every > 0 && t % config_.check.hash_every == 0) check_replicas();

    fence(exec_, "scape::train::step");  // so that the seconds are those of the whole step
    record.step = t;
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    record.loss = exchanged ? agreed.loss_sum / all_targets_ : unknown;
    record.lr = lr;
    record.grad_norm = exchanged ? agreed.grad_norm : unknown;
    record.tokens = tokens_;
    record.step_tokens = config_.train.global_batch * config_.train.seq_len;
    record.seconds = timer.seconds();
    record.wait_seconds = exchange().wait_seconds();
    record.traffic = comm_.traffic();
    record.memory_bytes = memory().total();
    record.data_hash = agreed.data_hash;
    record.skipped = !counts;
    if (elements != nullptr) record.mask_wait_seconds = elements->wait_seconds();
    if (feedback != nullptr && !feedback->fused()) record.feedback = feedback->cost();
    const Index every = config_.metrics.feedback_every;
    if (optimizer_.keeps() && counts && every > 0 && t % every == 0) measure_feedback(record);
    return record;
}

/// Micro-batch by micro-batch; gradients leave during the last backward. False: the forward pass
/// was not finite somewhere, so nothing is sent. Fused error feedback then holds what it held, and
/// the gradients of the micro-batches before that one, which travel later like all that it keeps.
bool Trainer::forward_and_backward() {
    const Index share = config_.train.global_batch / comm_.size();  // sequences of this rank
    const Index micro = config_.train.micro_batch;

    // tokens: this rank's sequences of the global batch, and how many targets count in all of it
    const Index targets =
        loader_.fill(exec_, *dataset_.train, samples_ + comm_.rank() * share, share);
    std::vector<double> targets_of_rank;
    comm::Pending counting = comm_.all_gather_host({static_cast<double>(targets)}, targets_of_rank);

    kernels::fill_zero<double>(exec_, sums_);
    float grad_scale = 0;
    bool finite = true;  // on this rank
    for (Index first = 0; first < share; first += micro) {
        const bool last = first + micro >= share;
        const model::Hooks& hooks = last ? exchanging_ : awaiting_;
        const model::Batch batch = micro_batch(loader_, first, micro);
        {
            const Region forward("scape::forward");
            model_->forward(exec_, batch, true, awaiting_);
        }
        if (first == 0) {
            counting.wait(exec_);
            all_targets_ = 0;
            for (const double n : targets_of_rank) all_targets_ += n;
            if (all_targets_ == 0)
                throw agreed_error(ExitCode::data,
                                   fmt::format("step {}: no token of the global batch counts as a "
                                               "target; check data.ignore_token",
                                               step_ + 1));
            // P / (unmasked tokens of the global batch), so that the mean over ranks is the
            // gradient of the mean loss.
            grad_scale = static_cast<float>(comm_.size() / all_targets_);
        }
        if (optimizer_.fused()) {
            finite = finite && outputs_finite();
            if (last && comm_.any(!finite)) return false;
            if (!finite) continue;
        }
        const Region backward("scape::backward");
        model_->loss(exec_, batch, grad_scale, slice(sums_, 0, 1), hooks);
        model_->backward(exec_, batch, hooks);
    }
    return true;
}

/// Whether what the head gets is finite: the loss is then finite too, and so is what backward
/// begins with. Blocking.
bool Trainer::outputs_finite() {
    kernels::fill_zero<double>(exec_, slice(sums_, 1, 2));
    kernels::add_sum_of_squares(exec_, model_->outputs(), slice(sums_, 1, 2), partial_sums_);
    Kokkos::deep_copy(exec_, sums_host_, sums_);
    kernels::fill_zero<double>(exec_, slice(sums_, 1, 2));
    fence(exec_, "scape::train::outputs_finite");
    return std::isfinite(sums_host_(1));
}

/// One exchange of a few numbers: the gradient's norm and the loss of the whole batch, and with
/// them the flags that all ranks must see alike. Sums are formed in rank order on every rank.
Trainer::Agreed Trainer::agree(bool stop_wanted) {
    optimizer_.add_checks(exec_, slice(sums_, 1, 2), slice(sums_, 2, 3));
    Kokkos::deep_copy(exec_, sums_host_, sums_);
    fence(exec_, "scape::train::agree");
    // A double carries 53 bits exactly, so a 64-bit hash travels as two halves.
    const std::uint64_t hash = loader_.hash();
    const auto sums = comm_.all_reduce_sum(
        {sums_host_(0), sums_host_(1), stop_wanted ? 1.0 : 0.0, static_cast<double>(hash >> 32),
         static_cast<double>(hash & 0xffffffffu), std::isfinite(sums_host_(2)) ? 0.0 : 1.0});
    stop_agreed_ = sums[2] > 0;
    const bool finite = std::isfinite(sums[0]) && std::isfinite(sums[1]) && sums[5] == 0;
    return {sums[0], std::sqrt(sums[1]), finite,
            (static_cast<std::uint64_t>(sums[3]) << 32) + static_cast<std::uint64_t>(sums[4])};
}

/// Gradients that are not finite have been added to fused error feedback, and cannot be told apart
/// from it: a rank that has such loses all of its own. Returns how many did.
Index Trainer::drop_spoiled_feedback() {
    kernels::fill_zero<double>(exec_, sums_);
    kernels::add_sum_of_squares(exec_, gradients_, slice(sums_, 1, 2), partial_sums_);
    Kokkos::deep_copy(exec_, sums_host_, sums_);
    fence(exec_, "scape::train::drop_spoiled_feedback");
    const bool lost = !std::isfinite(sums_host_(1));
    if (lost) optimizer_.forget(exec_);
    return static_cast<Index>(comm_.all_reduce_sum({lost ? 1.0 : 0.0})[0]);
}

/// Norm of what the ranks keep (root mean square over ranks), how much of the next mask is in this
/// step's, and how many elements some rank sent.
void Trainer::measure_feedback(StepRecord& record) {
    const Region region("scape::measure_feedback");
    if (optimizer_.loco() != nullptr) optimizer_.load_kept(exec_);
    kernels::fill_zero<double>(exec_, sums_);
    kernels::add_sum_of_squares(exec_, gradients_, slice(sums_, 1, 2), partial_sums_);
    Kokkos::deep_copy(exec_, sums_host_, sums_);
    fence(exec_, "scape::train::measure_feedback");
    optim::Masks* const masks = optimizer_.masks();
    const bool masked = masks != nullptr && !masks->all() && !masks->next_plan().all();
    const auto common = masked ? static_cast<double>(masks->overlap(exec_)) : 0;
    const auto next =
        masked ? static_cast<double>(masks->next_plan().selected_of(comm_.rank())) : 0;
    const auto filled = static_cast<double>(exchange().filled(exec_));
    const auto sums = comm_.all_reduce_sum({sums_host_(1), common, next, filled});
    record.feedback_norm = std::sqrt(sums[0] / comm_.size());
    if (masked) record.mask_overlap = sums[1] / sums[2];
    if (sums[3] > 0) record.fill_in = sums[3] / static_cast<double>(layout().parameters());
}

Evaluation Trainer::evaluate() {
    const Region region("scape::eval");
    const Index wanted = config_.eval.batches * config_.train.global_batch;
    return train::evaluate(exec_, *model_, comm_, *dataset_.valid, loader_,
                           std::min(wanted, dataset_.valid->samples()), config_.train.micro_batch,
                           awaiting_);
}

Span<const float> Trainer::parameters() {
    exchange().finish_gathers(exec_);
    return parameters_;
}

std::uint64_t Trainer::parameter_hash() {
    return kernels::hash_bits(exec_, parameters());
}

void Trainer::check_replicas() {
    const std::uint64_t hash = parameter_hash();  // in two halves, as in agree()
    std::vector<double> all;
    comm_
        .all_gather_host({static_cast<double>(hash >> 32), static_cast<double>(hash & 0xffffffffu)},
                         all)
        .wait(exec_);
    for (int r = 1; r < comm_.size(); ++r)
        if (all[2 * r] != all[0] || all[2 * r + 1] != all[1])
            throw agreed_error(
                ExitCode::numbers,
                fmt::format(
                    "step {}: the parameters of rank {} differ from those of rank 0. A rank "
                    "computes or communicates wrongly; resume from the last checkpoint, "
                    "and check the node of that rank.",
                    step_, r));
}

MemoryAccount Trainer::memory() const {
    MemoryAccount m;
    m.parameters = parameters_.span() * sizeof(float);
    m.gradients = gradients_.span() * sizeof(float);
    static_cast<optim::OptimizerMemory&>(m) = optimizer_.memory();
    m.activations = model_->activation_bytes(config_.train.micro_batch, config_.train.seq_len);
    return m;
}

}  // namespace scape::train
