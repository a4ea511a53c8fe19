#include <scape/config/validate.hpp>

#include "refusal.hpp"

using namespace scape;
using namespace scape::config;

namespace {

std::string refused(const std::string& text, int ranks = 1,
                    const std::vector<std::string>& overrides = {}) {
    return refusal([&] { validate(parse_deck(text, "d", as_overrides(overrides)), ranks); });
}
const std::string small = "[train]\nseq_len = 64\nglobal_batch = 8\nmicro_batch = 2\n";

}  // namespace

TEST_CASE("the defaults are a valid run, on known and unknown numbers of ranks") {
    for (const int ranks : {-1, 1, 2, 4}) {
        CHECK_NOTHROW(validate(RunConfig{}, ranks));
        CHECK(refused(small, ranks) == nothing);
    }
}

TEST_CASE("heads and widths") {
    const auto m = refused("[model]\nwidth = 100\nheads = 12\n");
    CHECK(m ==
          "model.width = 100 (d:2:9) is not divisible by model.heads = 12 (d:3:9); nearest widths: "
          "96, 108");
    CHECK_SAYS(refused("[model]\nwidth = 100\n"), "model.heads = 12 (default)");
    CHECK_SAYS(refused("", 1, {"model.width=100"}), "model.width = 100 (command line)");
    CHECK_SAYS(refused("[model]\nwidth = 3\nheads = 12\n"), "nearest widths: 12");
    CHECK_SAYS(refused("[model]\nfamily = \"llama\"\nwidth = 60\nheads = 4\n"),
               "= 15 channels per head; RoPE");
    CHECK(refused("[model]\nwidth = 60\nheads = 4\n") == nothing);
    CHECK(refused("[model]\nfamily = \"llama\"\nwidth = 64\nheads = 4\n") == nothing);
}

TEST_CASE("key and value heads") {
    const std::string llama = "[model]\nfamily = \"llama\"\nwidth = 96\nheads = 12\n";
    CHECK_SAYS(refused(llama + "kv_heads = 5\n"),
               "model.kv_heads = 5 (d:5:12) does not divide model.heads = 12 (d:4:9)");
    CHECK_SAYS(refused(llama + "kv_heads = 24\n"), "does not divide");
    CHECK(refused(llama + "kv_heads = 3\n") == nothing);
    CHECK_SAYS(refused("[model]\nkv_heads = 4\n"), "with model.family = \"gpt\"");
    CHECK(refused("[model]\nkv_heads = 12\n") == nothing);
    CHECK(refused("[model]\nkv_heads = 0\n") == nothing);
}

TEST_CASE("keys without effect for the family are refused only where they were changed") {
    CHECK_SAYS(refused("[model]\nrope_base = 5e5\n"),
               "model.rope_base = 500000.0 (d:2:13) has no effect");
    CHECK(refused("[model]\nrope_base = 1e4\n") == nothing);
    CHECK(refused("[model]\nfamily = \"llama\"\nrope_base = 5e5\n") == nothing);
}

TEST_CASE("sequence length") {
    CHECK_SAYS(refused("[model]\nmax_seq_len = 128\n[train]\nseq_len = 129\n"),
               "train.seq_len = 129 (d:4:11) is longer than the model's maximum, "
               "model.max_seq_len = 128 (d:2:15)");
    CHECK(refused("[model]\nmax_seq_len = 128\n[train]\nseq_len = 128\n") == nothing);
}

TEST_CASE("the global batch is ranks x micro-batch x accumulation") {
    const auto m = refused(small, 3);
    CHECK_SAYS(m,
               "train.global_batch = 8 (d:3:16) is not a multiple of ranks x micro_batch = 3 x 2");
    CHECK_SAYS(m, "nearest global batches: 6, 12");
    CHECK_SAYS(refused(small, 8), "nearest global batches: 16");
    CHECK(refused(small, -1) == nothing);
    const auto more = refused(small, 9);
    CHECK_SAYS(more, "train.global_batch = 8 (d:3:16) sequences cannot be shared by 9 ranks");
    CHECK_FALSE(has(more, "not a multiple"));
    const std::string huge = "[train]\nsteps = 1000000000\nglobal_batch = 1000000000\n";
    CHECK_SAYS(refused(huge), "more tokens than a 64-bit counter holds");
    RunConfig c;
    c.train.global_batch = 24;
    c.train.micro_batch = 4;
    CHECK(accumulation(c, 2) == 3);
}

TEST_CASE("data") {
    CHECK_SAYS(refused("[data]\nformat = \"text\"\n"), "data.train is empty");
    CHECK_SAYS(refused("[data]\nformat = \"text\"\ntrain = \"x\"\n[model]\nvocab = 255\n"),
               "model.vocab = 255 (d:5:9)");
    CHECK(refused("[data]\nformat = \"text\"\ntrain = \"x\"\n[model]\nvocab = 256\n") == nothing);
    CHECK_SAYS(refused("[data]\nformat = \"raw_u16\"\ntrain = \"x\"\n[model]\nvocab = 65537\n"),
               "ids end at 65535");
    CHECK(refused("[data]\nformat = \"raw_u32\"\ntrain = \"x\"\n[model]\nvocab = 65537\n") ==
          nothing);
    CHECK_SAYS(refused("[data]\ntrain = \"x\"\n"), "which reads no file; set data.format");
    CHECK_SAYS(refused("[data]\nignore_token = 256\n"), "is no token of model.vocab = 256");
}

TEST_CASE("learning-rate schedule") {
    CHECK_SAYS(refused("[optimizer]\nlr = 1e-5\n"),
               "optimizer.min_lr = 0.0001 (default) is above optimizer.lr = 1e-05 (d:2:6)");
    CHECK(refused("[optimizer]\nlr = 1e-5\nschedule = \"constant\"\n") == nothing);
    CHECK(refused("[train]\nsteps = 20\n") == nothing);  // a short trial, all of it warm-up
    CHECK_SAYS(refused("[optimizer]\ndecay_steps = 49\n"), "optimizer.decay_steps = 49 (d:2:15)");
    CHECK(refused("[optimizer]\ndecay_steps = 50\n[train]\nsteps = 20\n") == nothing);
}

TEST_CASE("the back end of one rank") {
    CHECK_SAYS(refused(small + "[comm]\nbackend = \"self\"\n", 2),
               "comm.backend = \"self\" (d:6:11) is for one rank");
    CHECK(refused(small + "[comm]\nbackend = \"self\"\n", 1) == nothing);
    CHECK(refused(small + "[comm]\nbackend = \"mpi\"\n", 2) == nothing);
}

TEST_CASE("all contradictions at once; values out of range in configs made by hand") {
    const auto m = refused("[model]\nwidth = 100\nmax_seq_len = 8\n[data]\nformat = \"text\"\n");
    CHECK_SAYS(m, "model.width = 100");
    CHECK_SAYS(m, "train.seq_len = 256");
    CHECK_SAYS(m, "data.train is empty");
    RunConfig c;
    c.train.steps = 0;
    CHECK_SAYS(refusal([&] { validate(c, 1); }), "train.steps = 0: out of range");
    CHECK_SAYS(refused("[run]\ndir = \"\"\n"), "run.dir is empty");
}

TEST_CASE("wall limits") {
    CHECK(wall_limit_seconds("0") == 0);
    CHECK(wall_limit_seconds("90s") == 90);
    CHECK(wall_limit_seconds("47h30m") == 171000);
    CHECK(wall_limit_seconds("1h5m10s") == 3910);
    CHECK(wall_limit_seconds("2d") == 172800);
    for (const auto* bad : {"", "90", "h", "5x", "1m1h", "1h1h", "-1s", "1.5h", "1h ", " 1h", "1h5",
                            "99999999999h", "0 "}) {
        CHECK_SAYS(refusal([&] { wall_limit_seconds(bad); }), "is not a time");
    }
    CHECK_SAYS(refused("[run]\nwall_limit = \"soon\"\n"), "d:2:14: run.wall_limit = \"soon\"");
}

TEST_CASE("splits") {
    const auto s = split_shares("949,50,1");
    CHECK(s[0] == Approx(0.949));
    CHECK(s[1] == Approx(0.050));
    CHECK(s[2] == Approx(0.001));
    CHECK(split_shares("9, 1")[1] == Approx(0.1));
    CHECK(split_shares("9, 1")[2] == 0);
    CHECK(split_shares("0.5,0.5,0")[0] == Approx(0.5));
    for (const auto* bad : {"", "1", "0,1,1", "1,2,3,4", "1,-1,0", "a,b", "1,,2", "1,2,", "1;2",
                            "nan,1", "inf,1", "1,2x"}) {
        CHECK_SAYS(refusal([&] { split_shares(bad); }), "is not a split");
    }
    CHECK_SAYS(refused("[data]\nsplit = \"0,1,1\"\n"), "d:2:9: data.split = \"0,1,1\"");
}
