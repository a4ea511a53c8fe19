#include <scape/config/keys.hpp>
#include <scape/config/validate.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "refusal.hpp"

using namespace scape;
using namespace scape::config;

namespace {

std::string content(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::vector<std::filesystem::path> decks() {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(SCAPE_INPUTS)) {
        if (entry.path().extension() == ".toml") {
            paths.push_back(entry.path());
        }
    }
    return paths;
}

/// Parameters of the two families, counted here from their definitions.
Index parameters(const ModelConfig& m) {
    const Index C = m.width, F = m.ffn_width, V = m.vocab, KV = m.kv_heads * m.head_dim();
    const Index tables = m.tied ? V * C : 2 * V * C;
    if (m.family == Family::gpt) {
        const Index norms = 2 * 2 * C;
        const Index attention = (3 * C * C + 3 * C) + (C * C + C);
        const Index mlp = (C * F + F) + (F * C + C);
        return tables + m.max_seq_len * C + m.layers * (norms + attention + mlp) + 2 * C;
    }
    const Index attention = C * C + 2 * C * KV + C * C;
    return tables + m.layers * (2 * C + attention + 3 * C * F) + C;
}

std::string with_commas(Index n) {
    const std::string digits = std::to_string(n);
    std::string text;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) {
            text += ',';
        }
        text += digits[i];
    }
    return text;
}

}  // namespace

TEST_CASE("every deck in inputs/ parses, validates and comes back from its resolved form") {
    CHECK(decks().size() >= 10);
    for (const auto& path : decks()) {
        INFO(path.string());
        const auto deck = load_deck(path.string());
        CHECK_NOTHROW(validate(deck, 1));
        const auto again = parse_deck(resolved_deck(deck.config), "resolved");
        CHECK(again.config == deck.config);
        CHECK_NOTHROW(validate(again, 1));
    }
}

TEST_CASE("decks for several ranks divide their batches") {
    const std::map<std::string, std::vector<int>> ranks{
        {"quickstart", {1, 2}},         {"quickstart-scape", {1, 2}},
        {"quickstart-loco", {1, 2}},    {"tiny-loco", {1, 2, 3, 4}},
        {"tiny-gpt", {1, 2, 3, 4}},     {"tiny-llama", {1, 2, 3, 4}},
        {"tiny-scape", {1, 2, 3, 4}},   {"gpt2-124m", {1, 4, 8, 64}},
        {"gpt2-345m", {1, 4, 8, 64}},   {"llama-500m", {1, 4, 16, 64}},
        {"llama-1.8b", {1, 4, 16, 64}},
    };
    for (const auto& [name, counts] : ranks) {
        const auto deck = load_deck(std::string(SCAPE_INPUTS) + "/" + name + ".toml");
        for (const int count : counts) {
            INFO(name << " on " << count);
            CHECK_NOTHROW(validate(deck, count));
        }
    }
    const std::string folder = std::string(SCAPE_INPUTS) + "/";
    CHECK_NOTHROW(validate(
        load_deck(folder + "bench-gpt2-124m.toml", as_overrides({"train.micro_batch=2"})), 2));
    CHECK_NOTHROW(validate(load_deck(folder + "llama-1.8b.toml",
                                     as_overrides({"data.format=synthetic", "data.train="})),
                           1));
}

TEST_CASE("the decks of SCAPE name all its keys, and train the model and data of their namesakes") {
    const std::string folder = std::string(SCAPE_INPUTS) + "/";
    for (const auto& [name, dense] : std::map<std::string, std::string>{
             {"quickstart-scape", "quickstart"}, {"tiny-scape", "tiny-llama"}}) {
        INFO(name);
        const auto deck = load_deck(folder + name + ".toml");
        for (const Key& key : keys()) {
            const bool sparse = key.section == "scape" || key.section == "sparsity" ||
                                key.section == "exchange" || key.section == "error_feedback" ||
                                key.full_name() == "checkpoint.error_feedback";
            INFO(key.full_name());
            CHECK((!sparse || deck.places.count(key.full_name()) == 1));
        }
        CHECK(deck.config.optimizer.kind == OptimizerKind::scape);
        const RunConfig other = load_run_config(folder + dense + ".toml");
        CHECK(deck.config.model == other.model);
        CHECK(deck.config.data == other.data);
        CHECK(deck.config.train == other.train);
        CHECK(deck.config.run.dir != other.run.dir);
    }
    const RunConfig c = load_run_config(folder + "quickstart-scape.toml");
    CHECK(c.sparsity.density == 0.01);
    CHECK(c.sparsity.warmup_steps * 2 == c.train.steps);
}

TEST_CASE("the decks of LoCo name all its keys, and train the model and data of their namesakes") {
    const std::string folder = std::string(SCAPE_INPUTS) + "/";
    for (const auto& [name, dense] : std::map<std::string, std::string>{
             {"quickstart-loco", "quickstart"}, {"tiny-loco", "tiny-llama"}}) {
        INFO(name);
        const auto deck = load_deck(folder + name + ".toml");
        for (const char* key :
             {"exchange.elements", "exchange.value_bits", "exchange.delta_bits", "exchange.block",
              "exchange.error", "loco.beta", "loco.reset_every"})
            CHECK(deck.places.count(key) == 1);
        CHECK(has_loco(deck.config));
        const RunConfig other = load_run_config(folder + dense + ".toml");
        CHECK(deck.config.model == other.model);
        CHECK(deck.config.data == other.data);
        CHECK(deck.config.train == other.train);
        CHECK(deck.config.run.dir != other.run.dir);
    }
}

TEST_CASE("every key of every deck has a comment") {
    for (const auto& path : decks()) {
        std::istringstream in(content(path));
        std::string row;
        while (std::getline(in, row)) {
            const bool is_key = !row.empty() && row[0] != '#' && row[0] != '[';
            INFO(path.string() << ": " << row);
            CHECK((!is_key || has(row, "  # ")));
            CHECK(row.size() <= 100);
        }
    }
}

TEST_CASE("the README has every deck with its true parameter count") {
    const std::string readme = content(std::filesystem::path(SCAPE_INPUTS) / "README.md");
    for (const auto& path : decks()) {
        const std::size_t at = readme.find("| `" + path.filename().string() + "` |");
        INFO(path.string());
        REQUIRE(at != std::string::npos);
        const std::string row = readme.substr(at, readme.find('\n', at) - at);
        CHECK_SAYS(row,
                   "| " + with_commas(parameters(load_run_config(path.string()).model)) + " |");
    }
}
