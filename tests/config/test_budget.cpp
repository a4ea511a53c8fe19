// exchange.bytes_per_param: what it sets, what wins over it, what it refuses.
#include "deck_text.hpp"

#include <scape/config/budget.hpp>

using namespace scape::config;

namespace {

RunConfig with(const std::string& kind, const std::string& exchange, const std::string& rest = "") {
    return parse_run_config(
        "[optimizer]\nkind = \"" + kind + "\"\n[exchange]\n" + exchange + "\n" + rest, "d");
}

}  // namespace

TEST_CASE("a budget sets density and bits of scape, and spends what it may") {
    double before = 2;
    for (const double budget : {100.0, 8.0, 1.1, 0.9, 0.5, 0.2, 0.1, 0.05, 0.01, 0.001}) {
        const RunConfig c = with("scape", "bytes_per_param = " + std::to_string(budget));
        INFO("budget " << budget << ": density " << c.sparsity.density << ", "
                       << c.exchange.value_bits << "/" << c.exchange.delta_bits << " bits");
        const auto setting = budget_setting(c);
        REQUIRE(setting.has_value());
        CHECK(setting->bytes <= budget);
        if (budget < 0.5) CHECK(setting->bytes > 0.96 * budget);
        CHECK(c.sparsity.density == setting->density);
        CHECK(c.sparsity.density_start == setting->density);
        CHECK(c.sparsity.density <= before);
        before = c.sparsity.density;
        // Between the two, 2 bits of everything are better than 4 bits of a part.
        const scape::Index bits = budget >= 8 ? 32 : budget < 1 && budget > 0.5625 ? 2 : 4;
        CHECK(c.exchange.value_bits == bits);
        CHECK(c.exchange.delta_bits == bits);
        CHECK(refused(resolved_deck(c)) == nothing);
        CHECK(parse_run_config(resolved_deck(c), "d") == c);
    }
}

TEST_CASE("with a stored second moment the density falls over half the run") {
    const std::string stored = "[scape]\nsecond_moment = \"stored\"\n[train]\nsteps = 600\n";
    const auto density = [&](const std::string& budget) {
        const RunConfig c = with("scape", "bytes_per_param = " + budget, stored);
        CHECK(refused(resolved_deck(c)) == nothing);
        CHECK(parse_run_config(resolved_deck(c), "d") == c);
        CHECK(c.exchange.value_bits == 4);
        CHECK(c.exchange.delta_bits == 4);
        CHECK((c.sparsity.warmup_steps == 300) == (c.sparsity.density_start == 1.0));
        return c.sparsity.density;
    };
    CHECK(density("0.5") == 0.1);
    CHECK(density("0.2") == 0.01);
    CHECK(density("0.1") < 0.05);  // below what was measured with it
}

TEST_CASE("a budget sets the bits of dense optimizers, down to what they can") {
    for (const std::string kind : {"adamw", "adams", "sgd"}) {
        const auto bits = [&](const std::string& budget) {
            const ExchangeSection e = with(kind, "bytes_per_param = " + budget).exchange;
            return std::pair{e.value_bits, e.delta_bits};
        };
        CHECK(bits("8") == std::pair<scape::Index, scape::Index>{32, 32});
        CHECK(bits("2") == std::pair<scape::Index, scape::Index>{4, 4});
        CHECK(bits("0.6") == std::pair<scape::Index, scape::Index>{2, 2});
        CHECK(bits("0.44") == std::pair<scape::Index, scape::Index>{2, 1});
        CHECK(
            refused("[optimizer]\nkind = \"" + kind + "\"\n[exchange]\nbytes_per_param = 0.2\n") ==
            "exchange.bytes_per_param = 0.2 (d:4:19) with optimizer.kind = \"" + kind +
                "\" (d:2:8), which exchanges all elements: 0.438 is the least for that; raise "
                "it, or set optimizer.kind to \"scape\"");
    }
}

TEST_CASE("keys that are set by hand win over a budget") {
    const RunConfig c = with("scape", "bytes_per_param = 0.2\nvalue_bits = 8",
                             "[sparsity]\ndensity_start = 1.0\nwarmup_steps = 100\n");
    CHECK(c.exchange.value_bits == 8);
    CHECK(c.exchange.delta_bits == 4);
    CHECK(c.sparsity.density_start == 1.0);
    CHECK(c.sparsity.density == budget_setting(c)->density);
    // The density only falls: what is not set by hand follows what is.
    const RunConfig denser = with("scape", "bytes_per_param = 0.2", "[sparsity]\ndensity = 0.3\n");
    CHECK(denser.sparsity.density_start == 0.3);
    const RunConfig lower =
        with("scape", "bytes_per_param = 0.2", "[sparsity]\ndensity_start = 0.01\n");
    CHECK(lower.sparsity.density == 0.01);
    for (const RunConfig& other : {denser, lower}) CHECK(refused(resolved_deck(other)) == nothing);
    // LoCo has nothing to do at 32 bits.
    CHECK(with("adamw", "bytes_per_param = 8\nerror = \"loco\"").exchange.value_bits == 4);

    const std::string said = describe_budget(c);
    CHECK_SAYS(said, "by hand: exchange.value_bits = 8, sparsity.density_start = 1.0");
    CHECK_SAYS(said, "0.2 bytes per parameter and step: exchange.value_bits = 4");
    CHECK(describe_budget(RunConfig{}).empty());
}

TEST_CASE("a budget is not for the baselines") {
    CHECK_SAYS(refused("[exchange]\nelements = \"topk_ef\"\nbytes_per_param = 1.0\n"),
               "the baselines were not measured for it");
    CHECK_SAYS(refused("[exchange]\nbytes_per_param = -1\n"), "out of range");
}
