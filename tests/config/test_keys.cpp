#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>

#include <set>

#include "refusal.hpp"

using namespace scape::config;

TEST_CASE("every key is declared once, with help, and its default is allowed") {
    std::set<std::string> seen;
    for (const Key& key : keys()) {
        INFO(key.full_name());
        CHECK(seen.insert(key.full_name()).second);
        CHECK_FALSE(key.help.empty());
        CHECK(key.problem(key.get(RunConfig{})).empty());
        CHECK(find_key(key.full_name()) == &key);
    }
    CHECK(find_key("model.nothing") == nullptr);
}

TEST_CASE("every key reads and writes a member of its own") {
    for (const Key& key : keys()) {
        INFO(key.full_name());
        RunConfig c;
        Value other = key.get(c);
        if (auto* truth = std::get_if<bool>(&other)) {
            *truth = !*truth;
        } else if (auto* integer = std::get_if<scape::Index>(&other)) {
            *integer = key.choices.empty() ? *integer + 1 : key.choices.back();
        } else if (auto* number = std::get_if<double>(&other)) {
            *number += 0.25;
        } else if (key.type == Type::text) {
            std::get<std::string>(other) += "x";
        } else {
            for (const auto& word : key.words) {
                key.set(c, word);
                CHECK(key.get(c) == Value(word));
            }
            other = key.words.back();
            if (key.get(RunConfig{}) == other) {
                other = key.words.front();
            }
        }
        key.set(c, other);
        CHECK(key.get(c) == other);
        const auto changed = changed_keys(RunConfig{}, c);
        if (key.type == Type::word && key.words.size() == 1) {
            CHECK(changed.empty());
        } else {
            REQUIRE(changed.size() == 1);
            CHECK(changed[0].key == key.full_name());
            CHECK(changed[0].before == value_text(RunConfig{}, key.full_name()));
            CHECK(changed[0].after == to_toml(other));
        }
    }
}

TEST_CASE("edit distance") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("beat1", "beta1") == 1);  // neighbours swapped
    CHECK(edit_distance("layer", "layers") == 1);
}

TEST_CASE("nearest keys, and none when nothing is near") {
    CHECK(nearest_key("model.widht") == "model.width");
    CHECK(nearest_key("modle.width") == "model.width");
    CHECK(nearest_key("optimiser.weight_decay") == "optimizer.weight_decay");
    CHECK(nearest_key("train.lr") == "optimizer.lr");
    CHECK(nearest_key("lr") == "optimizer.lr");
    CHECK(nearest_key("model.quux_frobnicate").empty());
    CHECK(nearest_word("zzz", {"gpt", "llama"}).empty());
}

TEST_CASE("numbers are written so that they stay numbers of their type") {
    CHECK(to_toml(25.0) == "25.0");
    CHECK(to_toml(1e-3) == "0.001");
    CHECK(to_toml(1e22) == "1e+22");
    CHECK(to_toml(scape::Index{25}) == "25");
    CHECK(to_toml(std::string("a\"b")) == "\"a\\\"b\"");
}

TEST_CASE("the page of keys has them all, with range and default") {
    const auto page = describe_keys();
    for (const Key& key : keys()) {
        CHECK_SAYS(page, key.help);
    }
    CHECK_SAYS(page, "a whole number, 1 to 100000; default 12");
    CHECK_SAYS(page, "gpt | llama; default \"gpt\"");
    CHECK_SAYS(page, "32 | 16 | 8 | 4 | 2 | 1; default 32");
}
