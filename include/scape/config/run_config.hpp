#pragma once
/// @file
/// Everything a deck can say, as typed structs. The keys, their defaults, ranges and help are
/// declared once, in src/config/keys.cpp; these are the values.

#include <scape/base/index.hpp>

#include <string>
#include <vector>

namespace scape::config {

struct RunSection {
    std::string dir = "runs/default";
    Index seed = 1;
    std::string wall_limit = "0";

    bool operator==(const RunSection&) const = default;
};

enum class Family { gpt, llama };
enum class Recompute { none, layer };
enum class Precision { fp32 };

struct ModelConfig {
    Family family = Family::gpt;
    Index layers = 12;
    Index width = 768;
    Index heads = 12;
    Index kv_heads = 0;   ///< llama; 0 = heads
    Index ffn_width = 0;  ///< 0 = 4 width (gpt), 8/3 width rounded up to 64 (llama)
    Index max_seq_len = 1024;
    Index vocab = 256;
    Index vocab_multiple = 64;  ///< stored rows are padded up to a multiple of this
    bool tied = true;
    double rope_base = 10000.0;
    double norm_eps = 1e-5;
    Recompute recompute = Recompute::none;
    double init_std = 0.02;
    Precision precision = Precision::fp32;
    double logits_chunk_mb = 64;  ///< at most this much memory for a chunk of logits

    Index head_dim() const { return width / heads; }
    Index padded_vocab() const { return round_up(vocab, vocab_multiple); }

    bool operator==(const ModelConfig&) const = default;
};

enum class DataFormat { text, raw_u16, raw_u32, synthetic };

struct DataSection {
    DataFormat format = DataFormat::synthetic;
    std::string train;
    std::string valid;
    std::string split = "949,50,1";
    Index ignore_token = -1;  ///< targets equal to it do not count; -1 = none

    bool operator==(const DataSection&) const = default;
};

struct TrainSection {
    Index steps = 1000;
    Index global_batch = 32;
    Index micro_batch = 8;
    Index seq_len = 256;

    bool operator==(const TrainSection&) const = default;
};

enum class OptimizerKind { adamw, adams, sgd, scape };
enum class ScheduleKind { cosine, linear, constant };

struct OptimizerSection {
    OptimizerKind kind = OptimizerKind::adamw;
    double lr = 1e-3;
    double min_lr = 1e-4;
    ScheduleKind schedule = ScheduleKind::cosine;
    Index warmup_steps = 50;
    Index decay_steps = 0;  ///< 0 = train.steps
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;
    bool bias_correction = true;
    double momentum = 0.9;  ///< sgd

    bool operator==(const OptimizerSection&) const = default;
};

enum class ScapeRule { catch_up, paper };
enum class ScapeScore { after, before };
enum class SecondMoment { momentum, stored };

/// optimizer.kind = "scape"; algorithm section 2.
struct ScapeSection {
    ScapeRule rule = ScapeRule::catch_up;
    ScapeScore score = ScapeScore::after;  ///< see score_of
    SecondMoment second_moment = SecondMoment::momentum;
    Index lateness = 1;  ///< steps between choosing a mask and using it: 1, or 0 for comparison

    bool operator==(const ScapeSection&) const = default;
};

enum class MaskCodeChoice { automatic, bitmap, gaps, index, entropy };

/// Which part of the gradient travels, and when; algorithm section 2.2.
struct SparsitySection {
    double density = 0.1;
    double density_start = 1.0;
    Index warmup_steps = 0;    ///< from density_start to density, geometric
    Index dense_steps = 0;     ///< before that
    Index cooldown_steps = 0;  ///< back to 1 at the end of the run
    bool sparsify_1d = false;
    MaskCodeChoice mask_code = MaskCodeChoice::automatic;

    bool operator==(const SparsitySection&) const = default;
};

enum class Elements { automatic, topk_ef, clt_k };
enum class ErrorKind { full, loco, none };

/// Which elements travel, in which code, and where the rest lives; algorithm sections 2.10 and 3.
struct ExchangeSection {
    Elements elements = Elements::automatic;
    Index value_bits = 32;  ///< gradients on the way to their owner
    Index delta_bits = 32;  ///< differences of weights on the way back; 32: the weights themselves
    Index block = 0;        ///< see block_of
    ErrorKind error = ErrorKind::full;
    double bytes_per_param = 0;  ///< 0: no budget; see budget.hpp

    bool operator==(const ExchangeSection&) const = default;
};

/// exchange.error = "loco"; algorithm section 3.
struct LocoSection {
    double beta = 0.8;
    Index reset_every = 1024;  ///< optimizer steps; 0 = never

    bool operator==(const LocoSection&) const = default;
};

enum class FeedbackStorage { fused, device, host, hdf5 };

/// Where error feedback lives; algorithm section 5.
struct ErrorFeedbackSection {
    FeedbackStorage storage = FeedbackStorage::fused;
    std::string path;  ///< hdf5: node-local directory

    bool operator==(const ErrorFeedbackSection&) const = default;
};

enum class CommBackend { automatic, self, mpi };

struct CommSection {
    CommBackend backend = CommBackend::automatic;
    double bucket_mb = 0;  ///< see optim::bucket_bytes

    bool operator==(const CommSection&) const = default;
};

struct EvalSection {
    Index every = 100;
    Index batches = 10;

    bool operator==(const EvalSection&) const = default;
};

enum class Resume { automatic, required, never };
enum class FeedbackInCheckpoint { full, mean, none };

struct CheckpointSection {
    Index every = 500;
    Resume resume = Resume::automatic;
    std::string init_from;
    Index keep_last = 2;
    Index keep_every = 0;
    FeedbackInCheckpoint error_feedback = FeedbackInCheckpoint::full;

    bool operator==(const CheckpointSection&) const = default;
};

struct CheckSection {
    Index hash_every = 100;
    Index skip_nonfinite = 3;

    bool operator==(const CheckSection&) const = default;
};

struct MetricsSection {
    double peak_tflops = 0;
    Index feedback_every = 100;  ///< steps between norms of error feedback and mask overlaps

    bool operator==(const MetricsSection&) const = default;
};

struct RunConfig {
    RunSection run;
    ModelConfig model;
    DataSection data;
    TrainSection train;
    OptimizerSection optimizer;
    ScapeSection scape;
    SparsitySection sparsity;
    ExchangeSection exchange;
    LocoSection loco;
    ErrorFeedbackSection error_feedback;
    CommSection comm;
    EvalSection eval;
    CheckpointSection checkpoint;
    CheckSection check;
    MetricsSection metrics;

    bool operator==(const RunConfig&) const = default;
};

/// Replaces the automatic values of model.kv_heads and model.ffn_width (0) by the numbers they
/// stand for. load_deck has done it.
void resolve_defaults(ModelConfig& model);

/// Horizon of the learning-rate schedule: optimizer.decay_steps, or train.steps where that is 0.
/// Not resolved when the deck is read, because train.steps may be extended later.
inline Index decay_steps(const RunConfig& config) {
    return config.optimizer.decay_steps > 0 ? config.optimizer.decay_steps : config.train.steps;
}

/// Micro-batches that each of P ranks runs through per step:
/// train.global_batch = ranks x train.micro_batch x accumulation. validate() has made sure that it
/// divides.
inline Index accumulation(const RunConfig& config, int ranks) {
    return config.train.global_batch / (ranks * config.train.micro_batch);
}

/// The score that chooses scape's next mask: the paper rule knows only one.
inline ScapeScore score_of(const RunConfig& config) {
    const bool before = config.scape.rule == ScapeRule::paper || config.scape.lateness == 0;
    return before ? ScapeScore::before : config.scape.score;
}

/// An optimizer or exchange that sends a part of the gradient and keeps the rest.
inline bool is_sparse(const RunConfig& config) {
    return config.optimizer.kind == OptimizerKind::scape ||
           config.exchange.elements != Elements::automatic;
}

/// What is not sent, or lost by the code, is added to the next step's gradient, in fp32.
inline bool has_error_feedback(const RunConfig& config) {
    const ExchangeSection& e = config.exchange;
    return is_sparse(config) || (e.value_bits < 32 && e.error == ErrorKind::full);
}
inline bool has_loco(const RunConfig& config) {
    return config.exchange.error == ErrorKind::loco && config.exchange.value_bits < 32;
}

/// Values that share a scale.
inline Index block_of(const ExchangeSection& exchange) {
    if (exchange.block > 0) return exchange.block;
    return exchange.error == ErrorKind::full ? 64 : 256;
}

}  // namespace scape::config
