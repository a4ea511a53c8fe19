#include "section.hpp"

// Every key once. A new key is a member in run_config.hpp and a row here.

namespace scape::config {
namespace {

void add_run(std::vector<Key>& keys) {
    Section s(keys, "run", &RunConfig::run);
    s.text("dir", &RunSection::dir, "folder of this run: metrics, log, resolved deck, checkpoints");
    s.integer("seed", &RunSection::seed, at_least(0),
              "decides initial weights, sample order and synthetic data");
    s.text("wall_limit", &RunSection::wall_limit,
           "stop in time to save: \"90s\", \"47h30m\"; \"0\" = none");
}

void add_model(std::vector<Key>& keys) {
    Section s(keys, "model", &RunConfig::model);
    using M = ModelConfig;
    s.word("family", &M::family, Words<Family>{{"gpt", Family::gpt}, {"llama", Family::llama}},
           "gpt: learned positions, LayerNorm, GELU, biases; llama: RoPE, RMSNorm, SwiGLU");
    s.integer("layers", &M::layers, between(1, 100000), "transformer blocks");
    s.integer("width", &M::width, between(1, 1000000), "channels of the residual stream");
    s.integer("heads", &M::heads, between(1, 100000), "attention heads; they divide width");
    s.integer("kv_heads", &M::kv_heads, between(0, 100000),
              "llama: key and value heads; they divide heads; 0 = heads");
    s.integer("ffn_width", &M::ffn_width, between(0, 10000000),
              "hidden channels of the MLP; 0 = 4 width (gpt), 8/3 width rounded up to 64 (llama)");
    s.integer("max_seq_len", &M::max_seq_len, between(1, 100000000),
              "longest sequence that the model can take, in tokens");
    s.integer("vocab", &M::vocab, between(2, 1 << 24), "true size of the vocabulary");
    s.integer("vocab_multiple", &M::vocab_multiple, between(1, 65536),
              "stored vocabulary rows are padded to a multiple of this; changes no result");
    s.truth("tied", &M::tied, "output projection and token embedding are one tensor");
    s.number("rope_base", &M::rope_base, above(1), "llama: base of the rotary frequencies");
    s.number("norm_eps", &M::norm_eps, from_to_below(0, 1), "added to the variance in norms");
    s.word("recompute", &M::recompute,
           Words<Recompute>{{"none", Recompute::none}, {"layer", Recompute::layer}},
           "layer: activations inside a layer are computed again in backward, to save memory");
    s.number("init_std", &M::init_std, between(0, 100),
             "standard deviation of initial weights; residual projections: / sqrt(2 layers)");
    s.word("precision", &M::precision, Words<Precision>{{"fp32", Precision::fp32}},
           "type of parameters and activations")
        .not_yet = {{"bf16", "fp32 only so far"}};
    s.number("logits_chunk_mb", &M::logits_chunk_mb, above(0),
             "logits are made in chunks of rows of at most this many MB");
}

void add_data(std::vector<Key>& keys) {
    Section s(keys, "data", &RunConfig::data);
    using D = DataSection;
    s.word(
        "format", &D::format,
        Words<DataFormat>{{"text", DataFormat::text},
                          {"raw_u16", DataFormat::raw_u16},
                          {"raw_u32", DataFormat::raw_u32},
                          {"synthetic", DataFormat::synthetic}},
        "text: bytes; raw_u16, raw_u32: token ids, little-endian, no header; synthetic: made up");
    s.text("train", &D::train, "file or glob to train on; empty for synthetic");
    s.text("valid", &D::valid, "file or glob to validate on; empty: taken from train by split");
    s.text("split", &D::split, "shares of train, validation and test when valid is empty");
    s.integer("ignore_token", &D::ignore_token, at_least(-1),
              "targets equal to this id do not count in the loss; -1 = none");
}

void add_train(std::vector<Key>& keys) {
    Section s(keys, "train", &RunConfig::train);
    using T = TrainSection;
    s.integer("steps", &T::steps, between(1, 1e9),
              "optimizer steps, those before a resume included");
    s.integer("global_batch", &T::global_batch, between(1, 1e9),
              "sequences per step over all ranks: ranks x micro_batch x accumulation");
    s.integer("micro_batch", &T::micro_batch, between(1, 1e9),
              "sequences per rank in one forward and backward pass");
    s.integer("seq_len", &T::seq_len, between(1, 100000000), "tokens per sequence");
}

void add_optimizer(std::vector<Key>& keys) {
    Section s(keys, "optimizer", &RunConfig::optimizer);
    using O = OptimizerSection;
    s.word("kind", &O::kind,
           Words<OptimizerKind>{{"adamw", OptimizerKind::adamw},
                                {"adams", OptimizerKind::adams},
                                {"sgd", OptimizerKind::sgd},
                                {"scape", OptimizerKind::scape}},
           "adams: second moment from the momentum, half of AdamW's state; sgd: with momentum; "
           "scape: adams that exchanges a part of the elements");
    s.number("lr", &O::lr, at_least(0), "peak learning rate");
    s.number("min_lr", &O::min_lr, at_least(0), "learning rate at the end of the schedule");
    s.word("schedule", &O::schedule,
           Words<ScheduleKind>{{"cosine", ScheduleKind::cosine},
                               {"linear", ScheduleKind::linear},
                               {"constant", ScheduleKind::constant}},
           "from lr to min_lr after the warm-up; constant: stays at lr");
    s.integer("warmup_steps", &O::warmup_steps, between(0, 1e9), "steps of linear warm-up from 0");
    s.integer("decay_steps", &O::decay_steps, between(0, 1e9),
              "step at which the schedule ends; 0 = train.steps; set it to extend a run later");
    s.number("beta1", &O::beta1, from_to_below(0, 1), "decay of the first moment");
    s.number("beta2", &O::beta2, from_to_below(0, 1), "decay of the second moment");
    s.number("eps", &O::eps, above(0), "added to the root of the second moment");
    s.number("weight_decay", &O::weight_decay, at_least(0),
             "decoupled, times the learning rate; only on weights of two or more dimensions");
    s.number("clip_norm", &O::clip_norm, at_least(0),
             "largest global gradient norm; 0 = no clipping");
    s.truth("bias_correction", &O::bias_correction, "divide the moments by 1 - beta^step");
    s.number("momentum", &O::momentum, from_to_below(0, 1), "sgd: decay of the velocity");
}

void add_scape(std::vector<Key>& keys) {
    Section s(keys, "scape", &RunConfig::scape);
    s.word("rule", &ScapeSection::rule,
           Words<ScapeRule>{{"catch_up", ScapeRule::catch_up}, {"paper", ScapeRule::paper}},
           "catch_up: an element that was away gets the steps it missed; paper: one step");
    s.word(
        "score", &ScapeSection::score,
        Words<ScapeScore>{{"after", ScapeScore::after}, {"before", ScapeScore::before}},
        "the next mask is chosen by the state after or before this step's update; paper: before");
    s.word(
        "second_moment", &ScapeSection::second_moment,
        Words<SecondMoment>{{"momentum", SecondMoment::momentum}, {"stored", SecondMoment::stored}},
        "catch_up: AdamS's, from the momentum; stored: AdamW's, 4 bytes more a shard element");
    s.choice("lateness", &ScapeSection::lateness, {1, 0},
             "steps between choosing a mask and using it; 0 waits for the mask of the step itself");
}

void add_sparsity(std::vector<Key>& keys) {
    Section s(keys, "sparsity", &RunConfig::sparsity);
    using P = SparsitySection;
    s.number("density", &P::density, above_to(0, 1), "share of the elements exchanged in a step");
    s.number("density_start", &P::density_start, above_to(0, 1),
             "density at the first step after dense_steps");
    s.integer("warmup_steps", &P::warmup_steps, between(0, 1e9),
              "steps from density_start to density, geometric; 0 = density at once");
    s.integer("dense_steps", &P::dense_steps, between(0, 1e9), "dense steps at the beginning");
    s.integer("cooldown_steps", &P::cooldown_steps, between(0, 1e9),
              "last steps of the run, over which the density goes back to 1, geometric");
    s.truth("sparsify_1d", &P::sparsify_1d, "norm gains and biases too, which are dense otherwise");
    s.word(
        "mask_code", &P::mask_code,
        Words<MaskCodeChoice>{{"auto", MaskCodeChoice::automatic},
                              {"bitmap", MaskCodeChoice::bitmap},
                              {"gaps", MaskCodeChoice::gaps},
                              {"index", MaskCodeChoice::index},
                              {"entropy", MaskCodeChoice::entropy}},
        "how positions travel: a bit an element, a byte a gap, or 4 bytes; auto: the smallest of "
        "these; entropy: smaller, slower");
}

void add_exchange(std::vector<Key>& keys) {
    Section exchange(keys, "exchange", &RunConfig::exchange);
    using E = ExchangeSection;
    exchange.word("elements", &E::elements,
                  Words<Elements>{{"auto", Elements::automatic},
                                  {"topk_ef", Elements::topk_ef},
                                  {"clt_k", Elements::clt_k}},
                  "auto: scape's mask, else all; topk_ef: each rank's largest; clt_k: a leader's");
    const std::vector<Index> bits{32, 16, 8, 4, 2, 1};
    exchange.choice("value_bits", &E::value_bits, bits,
                    "bits of a gradient on the way to its owner: fp32, bf16, or codes in blocks");
    exchange.choice("delta_bits", &E::delta_bits, bits,
                    "bits on the way back: 32: the weights; else what their replicas lack");
    exchange.integer("block", &E::block, between(0, 65536),
                     "values that share a scale, for 8 bits and fewer, a multiple of 8; 0 = 64 for "
                     "error \"full\", else 256");
    exchange.word(
        "error", &E::error,
        Words<ErrorKind>{
            {"full", ErrorKind::full}, {"loco", ErrorKind::loco}, {"none", ErrorKind::none}},
        "what value_bits loses: full: sent later; loco: in part, from an 8-bit average; "
        "none: lost");
    exchange.number("bytes_per_param", &E::bytes_per_param, at_least(0),
                    "budget per parameter and step, there and back, that sets density and bits as "
                    "measured best; 0 = off");

    Section loco(keys, "loco", &RunConfig::loco);
    loco.number("beta", &LocoSection::beta, from_to_below(0, 1), "decay of the average error");
    loco.integer("reset_every", &LocoSection::reset_every, between(0, 1e9),
                 "optimizer steps after which the error starts from zero; 0 = never");

    Section feedback(keys, "error_feedback", &RunConfig::error_feedback);
    using F = ErrorFeedbackSection;
    feedback.word("storage", &F::storage,
                  Words<FeedbackStorage>{{"fused", FeedbackStorage::fused},
                                         {"device", FeedbackStorage::device},
                                         {"host", FeedbackStorage::host},
                                         {"hdf5", FeedbackStorage::hdf5}},
                  "where what was not sent is kept; fused: in the gradients, no memory of its own");
    feedback.text("path", &F::path, "hdf5: directory on the node's own disk");
}

void add_rest(std::vector<Key>& keys) {
    Section comm(keys, "comm", &RunConfig::comm);
    comm.word("backend", &CommSection::backend,
              Words<CommBackend>{{"auto", CommBackend::automatic},
                                 {"self", CommBackend::self},
                                 {"mpi", CommBackend::mpi}},
              "auto: mpi when started by a launcher, otherwise self (one rank)");
    comm.number(
        "bucket_mb", &CommSection::bucket_mb, between(0, 16000),
        "MB of parameters exchanged at a time, so that exchange overlaps with computing; 0 = "
        "25, and more on over 97 ranks: 0.256 for each");

    Section eval(keys, "eval", &RunConfig::eval);
    eval.integer("every", &EvalSection::every, between(0, 1e9),
                 "steps between validations; 0 = never");
    eval.integer("batches", &EvalSection::batches, between(1, 1e9),
                 "global batches in one validation");

    Section checkpoint(keys, "checkpoint", &RunConfig::checkpoint);
    using C = CheckpointSection;
    checkpoint.integer("every", &C::every, between(0, 1e9),
                       "steps between checkpoints; 0 = only at the end");
    checkpoint.word(
        "resume", &C::resume,
        Words<Resume>{
            {"auto", Resume::automatic}, {"required", Resume::required}, {"never", Resume::never}},
        "auto: go on from the newest checkpoint in run.dir if there is one");
    checkpoint.text("init_from", &C::init_from,
                    "checkpoint of another run whose weights a fresh start takes; empty = none");
    checkpoint.integer("keep_last", &C::keep_last, between(1, 1e9),
                       "newest checkpoints that are kept");
    checkpoint.integer("keep_every", &C::keep_every, between(0, 1e9),
                       "checkpoints at multiples of this step are kept for good; 0 = none");
    checkpoint.word("error_feedback", &C::error_feedback,
                    Words<FeedbackInCheckpoint>{{"full", FeedbackInCheckpoint::full},
                                                {"mean", FeedbackInCheckpoint::mean},
                                                {"none", FeedbackInCheckpoint::none}},
                    "what was not sent, in checkpoints: of every rank, its mean, or left out");

    Section check(keys, "check", &RunConfig::check);
    check.integer("hash_every", &CheckSection::hash_every, between(0, 1e9),
                  "steps between comparisons of all ranks' parameters; 0 = never");
    check.integer("skip_nonfinite", &CheckSection::skip_nonfinite, between(0, 1e9),
                  "consecutive steps with NaN or infinity that are skipped before the run stops");

    Section metrics(keys, "metrics", &RunConfig::metrics);
    metrics.number("peak_tflops", &MetricsSection::peak_tflops, at_least(0),
                   "peak of one rank's device or cores, for MFU; 0 = unknown, MFU is n/a");
    metrics.integer(
        "feedback_every", &MetricsSection::feedback_every, between(0, 1e9),
        "steps between norms of what is kept, overlaps of masks and fill-ins; 0 = never");
}

}  // namespace

const std::vector<Key>& keys() {
    static const std::vector<Key> table = [] {
        std::vector<Key> keys;
        keys.reserve(96);
        add_run(keys);
        add_model(keys);
        add_data(keys);
        add_train(keys);
        add_optimizer(keys);
        add_scape(keys);
        add_sparsity(keys);
        add_exchange(keys);
        add_rest(keys);
        return keys;
    }();
    return table;
}

}  // namespace scape::config
