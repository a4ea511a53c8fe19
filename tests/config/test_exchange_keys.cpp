// [exchange], [loco] and optimizer.kind = "sgd": what low bits may be combined with.
#include "deck_text.hpp"

using namespace scape::config;

namespace {

const std::string scape_deck = "[optimizer]\nkind = \"scape\"\n";
const std::string loco = "[exchange]\nvalue_bits = 4\nerror = \"loco\"\n";

}  // namespace

TEST_CASE("every key of a run in low bits is read into its member") {
    const RunConfig c = parse_run_config(
        "[optimizer]\nkind = \"sgd\"\nmomentum = 0.8\n"
        "[exchange]\nvalue_bits = 4\ndelta_bits = 2\nblock = 128\nerror = \"loco\"\n"
        "[loco]\nbeta = 0.7\nreset_every = 9\n",
        "d");
    CHECK(c.optimizer.kind == OptimizerKind::sgd);
    CHECK(c.optimizer.momentum == 0.8);
    CHECK(c.exchange == ExchangeSection{Elements::automatic, 4, 2, 128, ErrorKind::loco});
    CHECK(c.loco == LocoSection{0.7, 9});
    CHECK(has_loco(c));
    CHECK_FALSE(has_error_feedback(c));
    CHECK(refused(resolved_deck(c)) == nothing);
    CHECK(parse_run_config(resolved_deck(c), "d") == c);
}

TEST_CASE("bits are 32, 16, 8, 4, 2 or 1, there and back, with any optimizer") {
    const std::string allowed = ": unknown value; allowed: 32 | 16 | 8 | 4 | 2 | 1";
    for (const std::string key : {"value_bits", "delta_bits"}) {
        for (const std::string bits : {"0", "3", "24", "-32", "64"})
            CHECK(refused("[exchange]\n" + key + " = " + bits + "\n") ==
                  "d:2:14: exchange." + key + " = " + bits + allowed);
        CHECK_SAYS(refused("[exchange]\n" + key + " = 16.0\n"), "allowed: 32 | 16");
        for (const std::string bits : {"32", "16", "8", "4", "2", "1"}) {
            for (const std::string kind : {"adamw", "adams", "sgd", "scape"})
                CHECK(refused("[optimizer]\nkind = \"" + kind + "\"\n[exchange]\n" + key + " = " +
                              bits + "\n") == nothing);
            CHECK(refused("[exchange]\nelements = \"topk_ef\"\n" + key + " = " + bits + "\n") ==
                  nothing);
        }
    }
    CHECK_SAYS(refused("[exchange]\nvaluebits = 16\n"), "did you mean exchange.value_bits?");
    CHECK_SAYS(refused("[exchange]\nerror = \"lossy\"\n"), "allowed: full | loco | none");
}

TEST_CASE(
    "where the rest lives: kept for 32 bits of a mask and for any loss, else LoCo or nothing") {
    const auto kept = [](const std::string& deck) {
        return has_error_feedback(parse_run_config(deck, "d"));
    };
    CHECK_FALSE(kept(""));
    CHECK(kept(scape_deck));
    CHECK(kept("[exchange]\nvalue_bits = 16\n"));
    CHECK(kept("[exchange]\nvalue_bits = 4\n"));
    CHECK_FALSE(kept("[exchange]\ndelta_bits = 4\n"));
    CHECK_FALSE(kept("[exchange]\nvalue_bits = 4\nerror = \"none\"\n"));
    CHECK_FALSE(kept(loco));
    // Its keys then count.
    CHECK(refused("[exchange]\nvalue_bits = 4\n[error_feedback]\nstorage = \"host\"\n") == nothing);
    CHECK_SAYS(refused("[exchange]\nvalue_bits = 4\nerror = \"none\"\n"
                       "[error_feedback]\nstorage = \"host\"\n"),
               "error_feedback.storage = \"host\" (d:5:11) has no effect: nothing is kept");
    CHECK(refused(loco + "[checkpoint]\nerror_feedback = \"mean\"\n") == nothing);
    CHECK_SAYS(refused("[checkpoint]\nerror_feedback = \"mean\"\n"), "has no effect");
}

TEST_CASE("LoCo is for the low bits of dense optimizers") {
    CHECK(refused(loco) == nothing);
    CHECK(refused(loco + "delta_bits = 4\n[loco]\nbeta = 0\nreset_every = 0\n") == nothing);
    for (const std::string bits : {"16", "1"})
        CHECK_SAYS(refused("[exchange]\nvalue_bits = " + bits + "\nerror = \"loco\"\n"),
                   "exchange.error = \"loco\" (d:3:9) with exchange.value_bits = " + bits +
                       " (d:2:14); it is for 8, 4 and 2 bits");
    CHECK_SAYS(refused("[exchange]\nerror = \"loco\"\n"),
               "has no effect: exchange.value_bits is 32, which loses nothing; delete it");
    for (const std::string error : {"loco", "none"}) {
        const std::string low = "value_bits = 4\nerror = \"" + error + "\"\n";
        CHECK_SAYS(refused(scape_deck + "[exchange]\n" + low),
                   "exchange.error = \"" + error +
                       "\" (d:5:9) with optimizer.kind = \"scape\" (d:2:8): what a mask leaves out "
                       "must be kept; set it to \"full\"");
        CHECK_SAYS(refused("[exchange]\nelements = \"clt_k\"\n" + low),
                   "with exchange.elements = \"clt_k\"");
    }
    CHECK_SAYS(refused("[loco]\nbeta = 0.5\n"), "has no effect: exchange.error is not \"loco\"");
    CHECK_SAYS(refused(loco + "[loco]\nbeta = 1\n"), "out of range");
    CHECK_SAYS(refused(loco + "[loco]\nreset_every = -1\n"), "out of range");
}

TEST_CASE("blocks of a code") {
    const auto block = [](const std::string& deck) {
        return block_of(parse_run_config(deck, "d").exchange);
    };
    CHECK(block("[exchange]\nvalue_bits = 4\n") == 64);
    CHECK(block(loco) == 256);
    CHECK(block(loco + "block = 32\n") == 32);
    CHECK(refused("[exchange]\nvalue_bits = 4\nblock = 100\n") ==
          "exchange.block = 100 (d:3:9) is not a multiple of 8; 96 or 104 would be");
    CHECK_SAYS(refused("[exchange]\nvalue_bits = 16\nblock = 64\n"), "has no effect");
    CHECK(refused("[exchange]\ndelta_bits = 4\nblock = 65536\n") == nothing);
    CHECK_SAYS(refused("[exchange]\ndelta_bits = 4\nblock = 65544\n"), "out of range");
}

TEST_CASE("keys of other optimizers have no effect on SGD, and the other way round") {
    for (const std::string key :
         {"beta1 = 0.8", "beta2 = 0.9", "eps = 1e-6", "bias_correction = false"})
        CHECK_SAYS(refused("[optimizer]\nkind = \"sgd\"\n" + key + "\n"),
                   "has no effect: optimizer.kind is \"sgd\"");
    CHECK_SAYS(refused("[optimizer]\nmomentum = 0.5\n"),
               "has no effect: optimizer.kind is not \"sgd\"");
    CHECK_SAYS(refused("[optimizer]\nkind = \"sgd\"\nmomentum = 1\n"), "out of range");
}
