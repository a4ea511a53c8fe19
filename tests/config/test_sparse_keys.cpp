#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>
#include <scape/config/validate.hpp>

#include <algorithm>

#include "deck_text.hpp"

// [scape], [sparsity], [exchange], [error_feedback], checkpoint.error_feedback.

using namespace scape;
using namespace scape::config;

namespace {

const std::string scape_deck = "[optimizer]\nkind = \"scape\"\n";
const std::string baseline = "[exchange]\nelements = \"topk_ef\"\n";

Index lines(const std::string& text) {
    return 1 + std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("every key of a sparse run is read into its member") {
    const RunConfig c = parse_run_config(
        scape_deck +
            "[scape]\nrule = \"paper\"\nscore = \"before\"\n"
            "[sparsity]\ndensity = 0.1\ndensity_start = 0.5\nwarmup_steps = 7\ndense_steps = 3\n"
            "cooldown_steps = 2\nsparsify_1d = true\nmask_code = \"bitmap\"\n"
            "[exchange]\nvalue_bits = 16\n"
            "[error_feedback]\nstorage = \"hdf5\"\npath = \"/tmp\"\n"
            "[checkpoint]\nerror_feedback = \"mean\"\n",
        "d");
    CHECK(c.optimizer.kind == OptimizerKind::scape);
    CHECK(c.scape == ScapeSection{ScapeRule::paper, ScapeScore::before});
    CHECK(c.sparsity == SparsitySection{0.1, 0.5, 7, 3, 2, true, MaskCodeChoice::bitmap});
    CHECK(c.exchange == ExchangeSection{Elements::automatic, 16});
    CHECK(c.error_feedback == ErrorFeedbackSection{FeedbackStorage::hdf5, "/tmp"});
    CHECK(c.checkpoint.error_feedback == FeedbackInCheckpoint::mean);
    CHECK(is_sparse(c));
    CHECK_FALSE(is_sparse(RunConfig{}));
    CHECK(is_sparse(parse_run_config("[exchange]\nelements = \"clt_k\"\n", "d")));
    CHECK_FALSE(is_sparse(parse_run_config("[exchange]\nvalue_bits = 16\n", "d")));
}

TEST_CASE("ranges and words of the sparse keys") {
    for (const std::string key : {"density", "density_start"}) {
        const std::string out = ": out of range; allowed: a number, more than 0, at most 1";
        CHECK_SAYS(refused("[sparsity]\n" + key + " = 0\n"), "sparsity." + key + " = 0" + out);
        CHECK_SAYS(refused("[sparsity]\n" + key + " = 1.01\n"), "= 1.01" + out);
        CHECK_SAYS(refused("[sparsity]\n" + key + " = -0.1\n"), out);
        CHECK_SAYS(refused("[sparsity]\n" + key + " = nan\n"), "not a finite number");
    }
    for (const std::string key : {"warmup_steps", "dense_steps", "cooldown_steps"}) {
        CHECK_SAYS(refused("[sparsity]\n" + key + " = -1\n"), "out of range");
    }
    CHECK_SAYS(refused("[sparsity]\nmask_code = \"bitmpa\"\n"), "did you mean \"bitmap\"?");
    CHECK_SAYS(refused("[scape]\nrule = \"catchup\"\n"), "did you mean \"catch_up\"?");
    CHECK_SAYS(refused("[scape]\nscore = \"late\"\n"), "allowed: after | before");
    CHECK_SAYS(refused("[exchange]\nelements = \"topk_fe\"\n"), "did you mean \"topk_ef\"?");
    CHECK_SAYS(refused("[error_feedback]\nstorage = \"disk\"\n"),
               "allowed: fused | device | host | hdf5");
    CHECK_SAYS(refused("[checkpoint]\nerror_feedback = true\n"), "allowed: full | mean | none");
    CHECK_SAYS(refused("[comm]\nbucket_mb = 16001\n"), "allowed: a number, 0 to 16000");
    CHECK(refused("[comm]\nbucket_mb = 16000\n") == nothing);
}

TEST_CASE("the density only falls") {
    const std::string s = scape_deck + "[sparsity]\n";
    CHECK(refused(s + "density = 0.5\ndensity_start = 0.25\n") ==
          "sparsity.density_start = 0.25 (d:5:17) is below sparsity.density = 0.5 (d:4:11), and "
          "the density only falls; raise the first or lower the second");
    CHECK_SAYS(refused(s + "density_start = 0.005\n"), "is below sparsity.density = 0.1 (default)");
    CHECK(refused(s + "density = 0.5\ndensity_start = 0.5\n") == nothing);
    CHECK(refused(s + "density = 1\n") == nothing);
    CHECK(refused(scape_deck) == nothing);
}

TEST_CASE("the dense steps and the cool-down are inside of the run") {
    const std::string s = scape_deck + "[train]\nsteps = 10\n[sparsity]\n";
    CHECK(refused(s + "dense_steps = 4\ncooldown_steps = 7\n") ==
          "sparsity.dense_steps = 4 (d:6:15) + sparsity.cooldown_steps = 7 (d:7:18) is more than "
          "train.steps = 10 (d:4:9); lower one of the first two or raise the third");
    CHECK(refused(s + "dense_steps = 11\n") ==
          "sparsity.dense_steps = 11 (d:6:15) is more than train.steps = 10 (d:4:9); lower the "
          "first or raise the second");
    CHECK_SAYS(refused(s + "cooldown_steps = 11\n"), "sparsity.cooldown_steps = 11 (d:6:18) is");
    CHECK(refused(s + "dense_steps = 4\ncooldown_steps = 6\n") == nothing);
    CHECK(refused(s + "warmup_steps = 1000\n") == nothing);  // a short trial of a long deck
}

TEST_CASE("the paper rule has one score") {
    const std::string s = scape_deck + "[scape]\nrule = \"paper\"\n";
    CHECK(refused(s + "score = \"after\"\n") ==
          "scape.score = \"after\" (d:5:9) with scape.rule = \"paper\" (d:4:8), whose score is "
          "always \"before\"; delete it");
    CHECK(refused(s) == nothing);
    CHECK(refused(s + "score = \"before\"\n") == nothing);

    RunConfig c;
    CHECK(score_of(c) == ScapeScore::after);
    c.scape.score = ScapeScore::before;
    CHECK(score_of(c) == ScapeScore::before);
    c.scape = {ScapeRule::paper, ScapeScore::after};
    CHECK(score_of(c) == ScapeScore::before);

    // The resolved deck says what is used, so that it is a deck that can be run.
    const RunConfig paper = parse_run_config(s, "d");
    CHECK(paper.scape.score == ScapeScore::before);
    CHECK(refused(resolved_deck(paper)) == nothing);
    CHECK(parse_run_config(resolved_deck(paper), "d") == paper);
    CHECK_SAYS(resolved_deck(c), "\nscore = \"before\" ");
}

TEST_CASE("keys without effect in a dense run are refused where they were changed") {
    const auto m = refused(
        "[sparsity]\ndensity = 0.2\nwarmup_steps = 1\nsparsify_1d = true\n"
        "[error_feedback]\nstorage = \"host\"\n[checkpoint]\nerror_feedback = \"none\"\n");
    CHECK(lines(m) == 5);
    CHECK_SAYS(m,
               "sparsity.density = 0.2 (d:2:11) has no effect: everything is exchanged, because "
               "optimizer.kind is not \"scape\" and exchange.elements is \"auto\"; delete it");
    CHECK_SAYS(m, "sparsity.warmup_steps = 1 (d:3:16) has no effect");
    CHECK_SAYS(m, "sparsity.sparsify_1d = true (d:4:15) has no effect");
    CHECK_SAYS(m, "error_feedback.storage = \"host\" (d:6:11) has no effect");
    CHECK_SAYS(m, "checkpoint.error_feedback = \"none\" (d:8:18) has no effect");
    for (const std::string key :
         {"density_start = 0.5", "dense_steps = 1", "cooldown_steps = 1", "mask_code = \"gaps\""}) {
        CHECK_SAYS(refused("[sparsity]\n" + key + "\n"), "has no effect: everything is exchanged");
    }
    CHECK_SAYS(refused("[error_feedback]\npath = \"/tmp\"\n"), "has no effect");
    const std::string why = "has no effect: optimizer.kind is not \"scape\"; delete it";
    CHECK_SAYS(refused("[scape]\nrule = \"paper\"\n"), "scape.rule = \"paper\" (d:2:8) " + why);
    CHECK_SAYS(refused("[scape]\nscore = \"before\"\n"), why);
    CHECK(refused("[scape]\nrule = \"catch_up\"\n[sparsity]\ndensity = 0.1\n"
                  "[error_feedback]\nstorage = \"fused\"\n") == nothing);
    CHECK(refused(resolved_deck(RunConfig{})) == nothing);
}

TEST_CASE("baselines: an exchange of a dense optimizer") {
    for (const std::string elements : {"topk_ef", "clt_k"}) {
        for (const std::string kind : {"adamw", "adams", "sgd"}) {
            CHECK(refused("[optimizer]\nkind = \"" + kind + "\"\n[exchange]\nelements = \"" +
                          elements +
                          "\"\n[sparsity]\ndensity = 0.1\nsparsify_1d = true\n"
                          "[error_feedback]\nstorage = \"device\"\n"
                          "[checkpoint]\nerror_feedback = \"mean\"\n") == nothing);
        }
        CHECK(refused(scape_deck + "[exchange]\nelements = \"" + elements + "\"\n") ==
              "exchange.elements = \"" + elements +
                  "\" (d:4:12) with optimizer.kind = \"scape\" (d:2:8), which chooses the elements "
                  "itself; delete the first, or set optimizer.kind to adamw, adams or "
                  "sgd");
    }
    CHECK(refused(baseline) == nothing);  // adamw is the default
    CHECK_SAYS(refused(baseline + "[scape]\nrule = \"paper\"\n"),
               "scape.rule = \"paper\" (d:4:8) has no effect: optimizer.kind is not \"scape\"");
    CHECK_SAYS(
        refused(baseline + "[sparsity]\nmask_code = \"gaps\"\n"),
        "sparsity.mask_code = \"gaps\" (d:4:13) has no effect: topk_ef sends a position with "
        "each value; delete it");
    CHECK(refused("[exchange]\nelements = \"clt_k\"\n[sparsity]\nmask_code = \"gaps\"\n") ==
          nothing);
    CHECK_SAYS(refused(baseline + "[sparsity]\ndensity = 0.5\ndensity_start = 0.1\n"), "is below");
}

TEST_CASE("the file tier of error feedback needs a directory, the others have none") {
    const std::string s = scape_deck + "[error_feedback]\n";
    CHECK(
        refused(s + "storage = \"hdf5\"\n") ==
        "error_feedback.storage = \"hdf5\" (d:4:11) and error_feedback.path is empty; set it to a "
        "directory on the node's own disk");
    CHECK(refused(s + "storage = \"hdf5\"\npath = \"/tmp\"\n") == nothing);
    for (const std::string storage : {"fused", "device", "host"}) {
        CHECK(refused(s + "storage = \"" + storage + "\"\n") == nothing);
        CHECK(refused(s + "storage = \"" + storage + "\"\npath = \"/tmp\"\n") ==
              "error_feedback.path = \"/tmp\" (d:5:8) has no effect: error_feedback.storage is not "
              "\"hdf5\"; delete it");
    }
}
