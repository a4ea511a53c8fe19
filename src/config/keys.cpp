#include <scape/config/keys.hpp>

// Every key once. A new key is a member in run_config.hpp and a row here.

namespace scape::config {
namespace {

template <class E>
using Words = std::vector<std::pair<std::string, E>>;

Bounds at_least(double min) {
    return {.min = min};
}
Bounds between(double min, double max) {
    return {.min = min, .max = max};
}
Bounds above(double min) {
    return {.min = min, .above_min = true};
}
Bounds from_to_below(double min, double max) {
    return {.min = min, .max = max, .below_max = true};
}

/// Appends the keys of one section; `S` is its struct in RunConfig.
template <class S>
class Section {
   public:
    Section(std::vector<Key>& keys, std::string name, S RunConfig::*section)
        : keys_(keys), name_(std::move(name)), section_(section) {}

    Key& integer(const char* name, Index S::*member, Bounds bounds, const char* help) {
        return number_like<Index>(name, member, Type::integer, bounds, help);
    }
    Key& number(const char* name, double S::*member, Bounds bounds, const char* help) {
        return number_like<double>(name, member, Type::number, bounds, help);
    }
    Key& truth(const char* name, bool S::*member, const char* help) {
        return number_like<bool>(name, member, Type::truth, {}, help);
    }
    Key& text(const char* name, std::string S::*member, const char* help) {
        return number_like<std::string>(name, member, Type::text, {}, help);
    }
    template <class E>
    Key& word(const char* name, E S::*member, const Words<E>& words, const char* help) {
        Key& key = add(name, Type::word, help);
        for (const auto& [text, value] : words) {
            key.words.push_back(text);
        }
        auto section = section_;
        key.get = [=](const RunConfig& config) -> Value {
            for (const auto& [text, value] : words) {
                if (value == config.*section.*member) {
                    return text;
                }
            }
            return std::string("?");
        };
        key.set = [=](RunConfig& config, const Value& value) {
            for (const auto& [text, word] : words) {
                if (text == std::get<std::string>(value)) {
                    config.*section.*member = word;
                }
            }
        };
        return key;
    }

   private:
    Key& add(const char* name, Type type, const char* help) {
        Key key;
        key.section = name_;
        key.name = name;
        key.type = type;
        key.help = help;
        keys_.push_back(std::move(key));
        return keys_.back();
    }
    template <class T>
    Key& number_like(const char* name, T S::*member, Type type, Bounds bounds, const char* help) {
        Key& key = add(name, type, help);
        key.bounds = bounds;
        auto section = section_;
        key.get = [=](const RunConfig& config) -> Value { return config.*section.*member; };
        key.set = [=](RunConfig& config, const Value& value) {
            config.*section.*member = std::get<T>(value);
        };
        return key;
    }

    std::vector<Key>& keys_;
    std::string name_;
    S RunConfig::*section_;
};

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
           Words<OptimizerKind>{{"adamw", OptimizerKind::adamw}, {"adams", OptimizerKind::adams}},
           "adams: second moment from the momentum, half of AdamW's state");
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
}

void add_rest(std::vector<Key>& keys) {
    Section comm(keys, "comm", &RunConfig::comm);
    comm.word("backend", &CommSection::backend,
              Words<CommBackend>{{"auto", CommBackend::automatic},
                                 {"self", CommBackend::self},
                                 {"mpi", CommBackend::mpi}},
              "auto: mpi when started by a launcher, otherwise self (one rank)");
    comm.number("bucket_mb", &CommSection::bucket_mb, between(0.001, 1e6),
                "MB of parameters exchanged at a time, so that exchange overlaps with computing");

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

    Section check(keys, "check", &RunConfig::check);
    check.integer("hash_every", &CheckSection::hash_every, between(0, 1e9),
                  "steps between comparisons of all ranks' parameters; 0 = never");
    check.integer("skip_nonfinite", &CheckSection::skip_nonfinite, between(0, 1e9),
                  "consecutive steps with NaN or infinity that are skipped before the run stops");

    Section metrics(keys, "metrics", &RunConfig::metrics);
    metrics.number("peak_tflops", &MetricsSection::peak_tflops, at_least(0),
                   "peak of one rank's device or cores, for MFU; 0 = unknown, MFU is n/a");
}

}  // namespace

const std::vector<Key>& keys() {
    static const std::vector<Key> table = [] {
        std::vector<Key> keys;
        keys.reserve(64);
        add_run(keys);
        add_model(keys);
        add_data(keys);
        add_train(keys);
        add_optimizer(keys);
        add_rest(keys);
        return keys;
    }();
    return table;
}

}  // namespace scape::config
