// The data of a run: split, synthetic language, unigram entropy, what is refused.
#include <scape/base/error.hpp>
#include <scape/data/dataset.hpp>
#include <scape/data/synthetic.hpp>

#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <cmath>
#include <map>
#include <set>

using namespace scape;
using data::Language;
using data::open_dataset;
using data::split_tokens;
using data::SyntheticStream;

namespace {

config::RunConfig text_run(const std::string& train, Index seq_len, Index batch) {
    config::RunConfig c;
    c.data.format = config::DataFormat::text;
    c.data.train = train;
    c.model.vocab = 256;
    c.train.seq_len = seq_len;
    c.train.global_batch = batch;
    return c;
}

std::string refusal(const config::RunConfig& config, ExitCode code) {
    try {
        open_dataset(config);
    } catch (const user_error& e) {
        CHECK(e.code() == code);
        return e.what();
    }
    FAIL_CHECK("nothing was refused");
    return "";
}

bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    UNSCOPED_INFO("'" << text << "' does not say '" << part << "'");
    return false;
}

}  // namespace

TEST_CASE("split weights cut contiguous ranges") {
    const auto split = split_tokens("949,50,1", 1000000);
    CHECK(split.train.begin == 0);
    CHECK(split.train.end == 949000);
    CHECK(split.valid.begin == 949000);
    CHECK(split.valid.end == 999000);
    CHECK(split_tokens("1,0", 77).train.size() == 77);
    CHECK(split_tokens("1,0", 77).valid.size() == 0);
    CHECK(split_tokens("9, 1", 100).valid.end == 100);
    CHECK(split_tokens("0.9,0.1,0", 100).valid.size() == 10);
    CHECK(split_tokens("1,0,1", 3).valid.size() == 0);
    const Index huge = (Index{1} << 52) + 1;
    CHECK(split_tokens("1,1", huge).valid.end == huge);
    for (const char* bad : {"", "a", "1,", "1,2,3,4", "-1,2", "0,1", "1;2", "nan,1", "inf,1"}) {
        CAPTURE(bad);
        try {
            split_tokens(bad, 100);
            FAIL_CHECK("accepted");
        } catch (const user_error& e) {
            CHECK(e.code() == ExitCode::usage);
            CHECK(has(e.what(), "data.split = \"" + std::string(bad) + "\""));
        }
    }
}

TEST_CASE("text: split, own validation file, entropy of its letters") {
    const test::Scratch dir;
    std::string text;
    for (int i = 0; i < 1000; ++i) text += i % 4 == 0 ? 'b' : 'a';
    auto config = text_run(dir.write("t.txt", text), 8, 4);
    config.data.split = "80,20";
    const auto set = open_dataset(config);
    REQUIRE(set.valid);
    CHECK(set.train->samples() == 99);
    CHECK(set.valid->samples() == 24);
    CHECK(set.train_tokens == 800);
    CHECK(set.valid_tokens == 200);
    CHECK_FALSE(set.entropy_rate.has_value());
    CHECK(set.unigram_entropy == Approx(-0.25 * std::log(0.25) - 0.75 * std::log(0.75)));
    CHECK(set.notes.empty());

    config.data.valid = dir.write("v.txt", std::string(50, 'z'));
    const auto own = open_dataset(config);
    CHECK(own.train_tokens == 1000);
    CHECK(own.valid_tokens == 50);
    std::vector<Token> tokens(8), targets(8);
    own.valid->sample(5, tokens.data(), targets.data());
    CHECK(targets == std::vector<Token>(8, 'z'));
}

TEST_CASE("an empty validation text turns validation off, with a note") {
    const test::Scratch dir;
    auto config = text_run(dir.write("t.txt", std::string(1000, 'x')), 8, 4);
    for (const char* split : {"1,0", "999,1", "992,8"}) {  // eight tokens have no ninth as target
        config.data.split = split;
        const auto set = open_dataset(config);
        CHECK(set.valid == nullptr);
        CHECK(set.valid_tokens == 0);
        REQUIRE(set.notes.size() == 1);
        CHECK(has(set.notes[0], "no validation"));
    }
    config.data.split = "991,9";
    CHECK(open_dataset(config).valid->samples() == 1);
    config.data.valid = dir.write("v.txt", "short");
    CHECK(has(open_dataset(config).notes.at(0), "v.txt\" has 5 tokens"));
}

TEST_CASE("only a training text shorter than a global batch is refused") {
    const test::Scratch dir;
    auto config = text_run(dir.write("t.txt", std::string(33, 'x')), 8, 4);
    config.data.split = "1,0";
    CHECK(open_dataset(config).train->samples() == 4);
    config.train.global_batch = 5;
    CHECK(has(refusal(config, ExitCode::data),
              "has 4 sequences of 8 tokens, fewer than one "
              "global batch (train.global_batch = 5)"));
    config.data.train = dir.write("one.txt", "x");
    CHECK(has(refusal(config, ExitCode::data), "has 1 tokens, fewer than one sequence"));
    CHECK(has(refusal(config, ExitCode::data), "(train.seq_len + 1 = 9)"));
    config.data.train = dir.write("t.txt", std::string(50, 'x'));
    config.data.split = "1,9";
    CHECK(has(refusal(config, ExitCode::data), "the training part (data.split = \"1,9\")"));
    config.data.train = dir.path("none");
    CHECK(has(refusal(config, ExitCode::data), "cannot find"));
}

TEST_CASE("an id over the vocabulary is found when the data are opened") {
    const test::Scratch dir;
    auto config = text_run(dir.write("t.txt", std::string(500, 'x') + "\xc3\xa9"), 8, 4);
    config.model.vocab = 128;
    config.data.split = "1,0";
    CHECK(has(refusal(config, ExitCode::data), "token 500 (byte 500): id 195 >= vocab 128"));
}

TEST_CASE("synthetic language: distinct successors, the stated probabilities and entropy") {
    for (Index vocab : {1, 2, 5, 8, 9, 97}) {
        const Language language(vocab, 3);
        const Index k = std::min<Index>(8, vocab);
        REQUIRE(language.successors() == k);
        double sum = 0, entropy = 0;
        for (const double p : language.probabilities()) {
            sum += p;
            entropy -= p * std::log(p);
        }
        CHECK(sum == Approx(1));
        CHECK(language.entropy_rate() == Approx(entropy));
        for (Token t = 0; t < vocab; ++t) {
            std::set<Token> distinct;
            for (Index j = 0; j < k; ++j) distinct.insert(language.successor(t, j));
            CHECK(static_cast<Index>(distinct.size()) == k);
            CHECK((*distinct.begin() >= 0 && *distinct.rbegin() < vocab));
        }
    }
    // All 32-bit draws at the borders of the probabilities.
    const Language language(64, 1);
    double below = 0;
    for (Index j = 0; j < 8; ++j) {
        const auto first = static_cast<std::uint64_t>(below * 0x1p32) << 32;
        below += language.probabilities()[j];
        const auto last = (static_cast<std::uint64_t>(below * 0x1p32) << 32) - 1;
        CHECK(language.next(5, first) == language.successor(5, j));
        CHECK(language.next(5, last) == language.successor(5, j));
    }
}

TEST_CASE("synthetic text: its measured conditional entropy is the stated rate") {
    const auto language = std::make_shared<const Language>(32, 11);
    data::StreamOptions o;
    o.seq_len = 257;
    o.seed = 11;
    const SyntheticStream train(language, SyntheticStream::Part::train, o);
    const SyntheticStream valid(language, SyntheticStream::Part::valid, o);
    std::vector<Token> tokens(257), targets(257), again(257), other(257);
    // Counts of (token, next): with 250 draws a cell the plug-in estimate is good to a percent.
    std::map<std::pair<Token, Token>, double> pairs;
    std::map<Token, double> singles;
    for (Index n = 0; n < 400; ++n) {
        train.sample(n, tokens.data(), targets.data());
        for (Index i = 0; i < 257; ++i) {
            ++pairs[{tokens[i], targets[i]}];
            ++singles[tokens[i]];
            if (i > 0) CHECK(tokens[i] == targets[i - 1]);
        }
    }
    double measured = 0;
    for (const auto& [pair, count] : pairs) {
        measured -= count * std::log(count / singles[pair.first]);
    }
    CHECK(measured / (400 * 257) == Approx(language->entropy_rate()).epsilon(0.01));

    train.sample(7, tokens.data(), targets.data());
    train.sample(7, again.data(), targets.data());
    valid.sample(7, other.data(), targets.data());
    CHECK(tokens == again);
    CHECK(tokens != other);
    train.sample((Index{1} << 40) + 7, again.data(), targets.data());
    CHECK(tokens != again);
}

TEST_CASE("synthetic data set: rate below the unigram entropy, below that of uniform tokens") {
    config::RunConfig config;
    config.model.vocab = 256;
    config.train.seq_len = 64;
    const auto set = open_dataset(config);
    REQUIRE(set.entropy_rate.has_value());
    REQUIRE(set.valid);
    CHECK(*set.entropy_rate > 1);
    CHECK(*set.entropy_rate < set.unigram_entropy - 2);
    CHECK(set.unigram_entropy < std::log(256.0));
    CHECK(set.train_tokens == set.train->samples() * 64);
}
