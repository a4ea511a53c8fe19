#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "refusal.hpp"

using namespace scape;
using namespace scape::config;

namespace {

std::string refused(const std::string& text) {
    return refusal([&] { parse_run_config(text, "d.toml"); });
}

/// A file in a folder of this process, gone with the object.
class TemporaryFile {
   public:
    explicit TemporaryFile(const std::string& content) {
        static int count = 0;
        path_ = std::filesystem::temp_directory_path() / ("scape_deck_" + std::to_string(getpid()) +
                                                          "_" + std::to_string(count++) + ".toml");
        std::ofstream(path_, std::ios::binary) << content;
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

   private:
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a deck sets every type of key, and leaves the others alone") {
    const auto c = parse_run_config(
        "[run]\ndir = \"out/a\"\nseed = 7\n[model]\nfamily = \"llama\"\ntied = false\n"
        "rope_base = 100000\n[optimizer]\nlr = 3e-4\n",
        "d.toml");
    CHECK(c.run.dir == "out/a");
    CHECK(c.run.seed == 7);
    CHECK(c.model.family == Family::llama);
    CHECK(c.model.tied == false);
    CHECK(c.model.rope_base == 100000.0);  // a whole number where a number is expected
    CHECK(c.optimizer.lr == 3e-4);
    CHECK(c.train.steps == TrainSection{}.steps);
    CHECK(parse_run_config("", "empty").optimizer == OptimizerSection{});
}

TEST_CASE("dotted keys are the same keys") {
    CHECK(parse_run_config("model.layers = 3\n", "d").model.layers == 3);
}

TEST_CASE("automatic values are resolved") {
    auto c = parse_run_config("[model]\nwidth = 96\nheads = 4\n", "d");
    CHECK(c.model.kv_heads == 4);
    CHECK(c.model.ffn_width == 384);
    c = parse_run_config("[model]\nfamily = \"llama\"\nwidth = 96\nheads = 4\nkv_heads = 2\n", "d");
    CHECK(c.model.kv_heads == 2);
    CHECK(c.model.ffn_width == 256);  // 8/3 x 96 = 256 exactly
    c = parse_run_config("[model]\nfamily = \"llama\"\nwidth = 97\n", "d");
    CHECK(c.model.ffn_width == 320);  // 258.7
    CHECK(c.optimizer.decay_steps == 0);
    CHECK(decay_steps(c) == c.train.steps);
    c.optimizer.decay_steps = 17;
    CHECK(decay_steps(c) == 17);
}

TEST_CASE("a byte-order mark and CRLF line ends are accepted, from a file too") {
    const std::string text =
        "\xEF\xBB\xBF# deck\r\n[model]\r\nlayers = 5\r\nfamily = \"llama\"\r\n";
    CHECK(parse_run_config(text, "d").model.layers == 5);
    const TemporaryFile file(text);
    const auto deck = load_deck(file.path());
    CHECK(deck.config.model.layers == 5);
    CHECK(deck.config.model.family == Family::llama);
    CHECK(deck.places.at("model.layers").text() == file.path() + ":3:10");
    CHECK(deck.places.count("model.width") == 0);
}

TEST_CASE("files that are no deck") {
    CHECK_SAYS(refusal([] { load_run_config("/nowhere/x.toml"); }), "/nowhere/x.toml");
    CHECK_SAYS(refusal([] { load_run_config("/nowhere/x.toml"); }), "No such file");
    CHECK_SAYS(refusal([] { load_run_config("/tmp"); }), "/tmp: is a folder");
    const TemporaryFile large(std::string((1 << 20) + 1, '#'));
    CHECK_SAYS(refusal([&] { load_run_config(large.path()); }), "larger than 1 MiB");
    const TemporaryFile most(std::string(1 << 20, '#'));
    CHECK_NOTHROW(load_run_config(most.path()));
    const TemporaryFile binary(std::string("\x01\x02\xff\xfe\0\x03", 6));
    CHECK_SAYS(refusal([&] { load_run_config(binary.path()); }), binary.path() + ":1:2: ");
    if (geteuid() != 0) {
        const TemporaryFile secret("");
        chmod(secret.path().c_str(), 0);
        CHECK_SAYS(refusal([&] { load_run_config(secret.path()); }), "Permission denied");
    }
}

TEST_CASE("a syntax error names line and column") {
    CHECK_SAYS(refused("[model]\nlayers = \n"), "d.toml:2:");
    CHECK_SAYS(refused("[model]\nlayers 3\n"), "d.toml:2:");
    CHECK_SAYS(refused("[model\nlayers = 3\n"), "d.toml:1:");
    CHECK_SAYS(refused("[run]\ndir = \"abc\n"), "d.toml:2:");
    CHECK_SAYS(refused("[train]\nsteps = 99999999999999999999\n"), "d.toml:2:");
}

TEST_CASE("unknown sections and keys come with the nearest known one") {
    auto m = refused("[model]\nlayers = 2\n\n  layer = 3\n");
    CHECK(m == "d.toml:4:3: model.layer: unknown key; did you mean model.layers?");
    CHECK_SAYS(refused("[optimizer]\nbeat1 = 0.9\n"), "did you mean optimizer.beta1?");
    CHECK_SAYS(refused("[train]\nwarmup_steps = 9\n"), "did you mean optimizer.warmup_steps?");
    CHECK_SAYS(refused("[eval]\nxyzzyplugh = 9\n"), "keys of [eval]: every, batches");
    CHECK_SAYS(refused("layers = 3\n"), "d.toml:1:1: layers: a key outside of a section");
    CHECK_SAYS(refused("layers = 3\n"), "did you mean model.layers?");
    m = refused("[run]\n[modle]\nlayers = 2\n");
    CHECK_SAYS(m, "d.toml:2:2: [modle]: unknown section; did you mean [model]?");
    CHECK_SAYS(m, "sections: run, model, data, train, optimizer, scape, sparsity, exchange");
    for (const auto* later : {"profile"}) {
        CHECK_SAYS(refused(fmt::format("[{}]\n", later)), "unknown section");
    }
    CHECK_SAYS(refused("[[model]]\nlayers = 2\n"), "it must be a section: write [model]");
    CHECK_SAYS(refused("model = 3\n"), "model is a whole number; it must be a section");
    CHECK_SAYS(refused("[model.layers]\nx = 1\n"), "model.layers = {...} is a table");
}

TEST_CASE("a key or section given twice names both lines") {
    const auto m = refused("[train]\nsteps = 4\n[model]\nlayers = 2\nwidth = 8\nlayers = 2\n");
    CHECK_SAYS(m, "d.toml:6:");
    CHECK_SAYS(m, "layers is given twice (first in line 4)");
    CHECK_SAYS(refused("[run]\nseed = 1\n[model]\nlayers = 2\n[run]\ndir = \"x\"\n"), "d.toml:5:");
    CHECK_SAYS(refused("[run]\n[run]\n"), "run is given twice");
}

TEST_CASE("wrong types say what was seen and what is allowed") {
    const auto m = refused("[model]\nlayers = 3.0\n");
    CHECK_SAYS(m, "d.toml:2:10: model.layers = 3.0 is a number with a fraction or exponent");
    CHECK_SAYS(m, "allowed: a whole number, 1 to 100000");
    CHECK_SAYS(refused("[model]\nlayers = \"3\"\n"), "model.layers = \"3\" is text");
    CHECK_SAYS(refused("[model]\nlayers = true\n"), "is a truth value");
    CHECK_SAYS(refused("[model]\nlayers = [1]\n"), "is a list");
    CHECK_SAYS(refused("[model]\nlayers = 1979-05-27\n"), "is a date or time");
    CHECK_SAYS(refused("[model]\ntied = 1\n"), "model.tied = 1 is a whole number; allowed: true");
    CHECK_SAYS(refused("[model]\nfamily = 1\n"), "allowed: gpt | llama");
    CHECK_SAYS(refused("[optimizer]\nlr = \"1e-3\"\n"), "allowed: a number, 0 or more");
    CHECK_SAYS(refused("[run]\nwall_limit = 0\n"), "allowed: text in quotes");
}

TEST_CASE("ranges, NaN, infinity and unknown words") {
    CHECK_SAYS(refused("[train]\nsteps = 0\n"), "train.steps = 0: out of range; allowed: a whole");
    CHECK_SAYS(refused("[model]\nlayers = -1\n"), "d.toml:2:10: model.layers = -1: out of range");
    CHECK_SAYS(refused("[model]\nvocab = 1\n"), "allowed: a whole number, 2 to 16777216");
    CHECK_SAYS(refused("[optimizer]\nbeta1 = 1.0\n"), "0 or more, less than 1");
    CHECK_SAYS(refused("[optimizer]\nbeta2 = -0.1\n"), "optimizer.beta2 = -0.1: out of range");
    CHECK_SAYS(refused("[optimizer]\neps = 0.0\n"), "more than 0");
    CHECK_SAYS(refused("[optimizer]\nlr = nan\n"), "optimizer.lr = nan: not a finite number");
    CHECK_SAYS(refused("[optimizer]\nlr = inf\n"), "not a finite number");
    CHECK_SAYS(refused("[optimizer]\nkind = \"admw\"\n"),
               "optimizer.kind = \"admw\": unknown word; allowed: adamw | adams | sgd | scape; did "
               "you mean "
               "\"adamw\"?");
    CHECK_SAYS(refused("[data]\nformat = \"megatron\"\n"),
               "allowed: text | raw_u16 | raw_u32 | synthetic");
    CHECK_SAYS(refused("[model]\nprecision = \"bf16\"\n"), "fp32 only so far");
}

TEST_CASE("all problems at once, in the order of the deck, the command line last") {
    const auto m = refusal([] {
        parse_run_config("[train]\nsteps = 0\n[optimizer]\nkind = \"x\"\n[model]\nlayerz = 1\n",
                         "d", {"model.width=0"});
    });
    CHECK(std::count(m.begin(), m.end(), '\n') == 3);
    CHECK(m.find("d:2:") == 0);
    CHECK(m.find("d:4:") < m.find("d:6:"));
    CHECK(m.find("d:6:") < m.find("command line: model.width = 0"));

    std::string many = "[model]\n";
    for (int i = 0; i < 25; ++i) {
        many += fmt::format("k{} = 1\n", i);
    }
    const auto cut = refused(many);
    CHECK(std::count(cut.begin(), cut.end(), '\n') == 20);
    CHECK_SAYS(cut, "\nand 5 more");
}

TEST_CASE("the resolved deck gives the same config, bit for bit") {
    RunConfig c;
    c.run.dir = "a \"b\" \\ \t\n \x7f \xC3\xA9 #";
    c.run.seed = std::numeric_limits<Index>::max();
    c.model.family = Family::llama;
    c.model.rope_base = 1e5 / 3;
    c.model.norm_eps = 1e-300 / 7;
    c.model.tied = false;
    c.model.recompute = Recompute::layer;
    c.data.format = DataFormat::raw_u32;
    c.optimizer.lr = std::nextafter(1e-3, 1.0);
    c.optimizer.weight_decay = 1e22;
    c.optimizer.clip_norm = 5e-324;
    c.optimizer.kind = OptimizerKind::adams;
    c.optimizer.schedule = ScheduleKind::linear;
    c.scape.score = ScapeScore::before;
    c.sparsity.density = 0.01 / 3;
    c.sparsity.sparsify_1d = true;
    c.sparsity.mask_code = MaskCodeChoice::gaps;
    c.exchange.elements = Elements::clt_k;
    c.exchange.value_bits = 16;
    c.error_feedback.storage = FeedbackStorage::hdf5;
    c.error_feedback.path = "/tmp/\xC3\xA9 \"x\"";
    c.checkpoint.error_feedback = FeedbackInCheckpoint::mean;
    c.checkpoint.resume = Resume::never;
    c.comm.backend = CommBackend::self;
    resolve_defaults(c.model);
    const std::string text = resolved_deck(c);
    CHECK(parse_run_config(text, "resolved") == c);
    CHECK(resolved_deck(parse_run_config(text, "resolved")) == text);
    for (const Key& key : keys()) {
        INFO(key.full_name());
        CHECK(has(text, "\n" + key.name + " = "));
        CHECK(has(text, "  # " + key.help));
    }
    RunConfig automatic;
    CHECK_SAYS(resolved_deck(automatic), "\nffn_width = 3072 ");
    CHECK_SAYS(resolved_deck(automatic), "\nkv_heads = 12 ");
}
