#include <scape/train/trainer.hpp>

#include <scape/base/error.hpp>
#include <scape/base/fence.hpp>
#include <scape/config/deck.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/model/initial_weights.hpp>
#include <scape/train/micro_batch.hpp>
#include <scape/train/schedule.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace scape::train {

namespace {

Index bucket_bytes(const config::RunConfig& config) {
    return static_cast<Index>(config.comm.bucket_mb * 1e6);
}

}  // namespace

Trainer::Trainer(const config::RunConfig& config, comm::Communicator& comm,
                 const data::Dataset& dataset, const Exec& exec)
    : config_(config),
      comm_(comm),
      dataset_(dataset),
      exec_(exec),
      model_(model::make_model<float>(config.model)),
      sharding_(model_->layout(), comm.size(), bucket_bytes(config)),
      slices_(sharding_.slices(comm.rank())),
      parameters_("scape::train::parameters", sharding_.extent()),
      gradients_("scape::train::gradients", sharding_.extent()),
      sums_("scape::train::sums", 2),
      sums_host_("scape::train::sums_host", 2),
      exchange_(comm_, sharding_, parameters_, gradients_),
      optimizer_(optim::make_optimizer(config.optimizer, sharding_.shard_extent())),
      loader_(config.train.global_batch / comm.size(), config.train.seq_len) {
    model_->bind(parameters_, gradients_);
    model_->allocate(config.train.micro_batch, config.train.seq_len);
    awaiting_.before_use = [this](Index end) {
        exchange_.before_use(exec_, end);
        exchange_.progress();
    };
    exchanging_ = awaiting_;
    exchanging_.gradients_final = [this](Index begin) {
        exchange_.gradients_final(exec_, begin);
        exchange_.progress();
    };
}

StepRecord Trainer::step(bool stop_wanted) {
    const Region region("scape::step");
    const Timer timer;
    const Index t = step_ + 1;
    const Index share = config_.train.global_batch / comm_.size();  // sequences of this rank
    const Index micro = config_.train.micro_batch;
    comm_.reset();
    exchange_.reset_wait();

    // tokens: this rank's sequences of the global batch, and how many targets count in all of it
    const Index targets =
        loader_.fill(exec_, *dataset_.train, samples_ + comm_.rank() * share, share);
    std::vector<double> targets_of_rank;
    comm::Pending counting = comm_.all_gather_host({static_cast<double>(targets)}, targets_of_rank);

    // forward and backward, micro-batch by micro-batch; gradients leave during the last backward
    kernels::fill_zero<float>(exec_, gradients_);
    kernels::fill_zero<double>(exec_, sums_);
    exchange_.begin_step();
    double all_targets = 0;
    float grad_scale = 0;
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
            for (const double n : targets_of_rank) all_targets += n;
            if (all_targets == 0)
                throw agreed_error(ExitCode::data,
                                   fmt::format("step {}: no token of the global batch counts as a "
                                               "target; check data.ignore_token",
                                               t));
            // P / (unmasked tokens of the global batch), so that the mean over ranks is the
            // gradient of the mean loss.
            grad_scale = static_cast<float>(comm_.size() / all_targets);
        }
        const Region backward("scape::backward");
        model_->loss(exec_, batch, grad_scale, slice(sums_, 0, 1), hooks);
        model_->backward(exec_, batch, hooks);
    }

    {
        const Region exchange("scape::exchange");
        exchange_.finish_reduce(exec_);
    }
    const Agreed agreed = agree(stop_wanted);

    optim::StepNumbers numbers;
    numbers.step = t;
    const double lr = learning_rate(config_, t);
    numbers.lr = static_cast<float>(lr);
    if (config_.optimizer.clip_norm > 0)
        numbers.grad_scale = static_cast<float>(
            std::min(1.0, config_.optimizer.clip_norm / (agreed.grad_norm + 1e-6)));
    if (agreed.finite) update(numbers);

    step_ = t;
    samples_ += config_.train.global_batch;
    tokens_ += config_.train.global_batch * config_.train.seq_len;
    skipped_in_a_row_ = agreed.finite ? 0 : skipped_in_a_row_ + 1;
    if (skipped_in_a_row_ > 0 && skipped_in_a_row_ >= config_.check.skip_nonfinite)
        throw agreed_error(
            ExitCode::numbers,
            fmt::format("step {}: loss or gradient was not finite in {} steps in a row "
                        "(check.skip_nonfinite = {}); the last checkpoint is untouched. Lower "
                        "optimizer.lr, lengthen optimizer.warmup_steps, or look at the data.",
                        t, skipped_in_a_row_, config_.check.skip_nonfinite));
    if (config_.check.hash_every > 0 && t % config_.check.hash_every == 0) check_replicas();

    fence(exec_, "scape::train::step");  // so that the seconds are those of the whole step
    StepRecord record;
    record.step = t;
    record.loss = agreed.loss_sum / all_targets;
    record.lr = lr;
    record.grad_norm = agreed.grad_norm;
    record.tokens = tokens_;
    record.step_tokens = config_.train.global_batch * config_.train.seq_len;
    record.seconds = timer.seconds();
    record.wait_seconds = exchange_.wait_seconds();
    record.traffic = comm_.traffic();
    record.memory_bytes = memory().total();
    record.data_hash = agreed.data_hash;
    record.skipped = !agreed.finite;
    return record;
}

/// One exchange of a few numbers: the gradient's norm and the loss of the whole batch, and with
/// them the flags that all ranks must see alike. Sums are formed in rank order on every rank.
Trainer::Agreed Trainer::agree(bool stop_wanted) {
    exchange_.add_sum_of_squares(exec_, slice(sums_, 1, 2));
    Kokkos::deep_copy(exec_, sums_host_, sums_);
    fence(exec_, "scape::train::agree");
    // A double carries 53 bits exactly, so a 64-bit hash travels as two halves.
    const std::uint64_t hash = loader_.hash();
    const auto sums = comm_.all_reduce_sum({sums_host_(0), sums_host_(1), stop_wanted ? 1.0 : 0.0,
                                            static_cast<double>(hash >> 32),
                                            static_cast<double>(hash & 0xffffffffu)});
    stop_agreed_ = sums[2] > 0;
    return {sums[0], std::sqrt(sums[1]), std::isfinite(sums[0]) && std::isfinite(sums[1]),
            (static_cast<std::uint64_t>(sums[3]) << 32) + static_cast<std::uint64_t>(sums[4])};
}

/// The owner moves its weights; each bucket travels as soon as it is done, in the order in which
/// the next forward will ask for them.
void Trainer::update(const optim::StepNumbers& numbers) {
    const Region region("scape::update");
    auto slice_of = slices_.begin();
    for (int b = 0; b < sharding_.buckets(); ++b) {
        for (; slice_of != slices_.end() && slice_of->bucket == b; ++slice_of) {
            const auto [begin, end] = slice_of->flat;
            optimizer_->update(exec_, numbers, *slice_of,
                               layout().tensors()[slice_of->tensor].decay,
                               slice(parameters_, begin, end), slice(gradients_, begin, end));
        }
        exchange_.gather_begin(exec_, b);
    }
}

Evaluation Trainer::evaluate() {
    const Region region("scape::eval");
    const Index wanted = config_.eval.batches * config_.train.global_batch;
    return train::evaluate(exec_, *model_, comm_, *dataset_.valid, loader_,
                           std::min(wanted, dataset_.valid->samples()), config_.train.micro_batch,
                           awaiting_);
}

Span<const float> Trainer::parameters() {
    exchange_.finish_gathers(exec_);
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
    for (const optim::State& s : optimizer_->state())
        m.optimizer += s.values.span() * sizeof(float);
    m.activations = model_->activation_bytes(config_.train.micro_batch, config_.train.seq_len);
    m.exchange = exchange_.buffer_bytes();
    return m;
}

// --- Where training starts, and what a checkpoint holds ----------------------------------------

void Trainer::start_fresh() {
    // Each rank makes the weights that it owns; the others arrive as after any update.
    HostVec<float> host("scape::train::initial", sharding_.shard_piece(0).size());
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range piece = sharding_.piece(b, comm_.rank());
        const auto values = slice(host, 0, piece.size());
        model::fill_initial(
            layout(), [this](int tensor) { return model_->init(tensor); },
            static_cast<std::uint64_t>(config_.run.seed), piece, values);
        Kokkos::deep_copy(exec_, exchange_.my_weights(b), values);
        fence(exec_, "scape::train::initial");  // `host` is filled again for the next bucket
        exchange_.gather_begin(exec_, b);
    }
    exchange_.finish_gathers(exec_);
}

void Trainer::start_from_weights(const std::string& checkpoint_file) {
    const io::CheckpointReader checkpoint(checkpoint_file);
    checkpoint.read_flat("weights", layout(), parameters_);
}

std::vector<std::string> Trainer::resume(const io::CheckpointReader& checkpoint) {
    std::vector<std::string> arrays{"weights"};
    for (const optim::State& s : optimizer_->state()) arrays.push_back(s.name);
    checkpoint.expect_arrays(arrays);
    checkpoint.read_flat("weights", layout(), parameters_);
    for (const optim::State& s : optimizer_->state())
        checkpoint.read_shard(s.name, layout(), sharding_, comm_.rank(), s.values);

    const io::CheckpointMeta& m = checkpoint.meta();
    step_ = m.step;
    tokens_ = m.tokens;
    samples_ = m.samples;
    skipped_in_a_row_ = static_cast<Index>(m.numbers.at("skipped_in_a_row"));
    std::vector<std::string> lines;
    if (m.ranks != comm_.size())
        lines.push_back(fmt::format("checkpoint: {} ranks -> now {}", m.ranks, comm_.size()));
    return lines;
}

io::SaveResult Trainer::save(const std::string& checkpoints_dir) {
    const Region region("scape::checkpoint");
    std::vector<io::ArrayOut> arrays{{"weights", true, parameters()}};
    for (const optim::State& s : optimizer_->state()) arrays.push_back({s.name, false, s.values});
    return io::save(comm_, checkpoints_dir, meta(), layout(), sharding_, arrays);
}

io::CheckpointMeta Trainer::meta() const {
    io::CheckpointMeta m;
    m.step = step_;
    m.tokens = tokens_;
    m.samples = samples_;
    m.ranks = comm_.size();
    m.deck = config::resolved_deck(config_);
    m.numbers["skipped_in_a_row"] = static_cast<double>(skipped_in_a_row_);
    return m;
}

}  // namespace scape::train
