#include <scape/config/budget.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace scape::config {
namespace {

/// tools/study/table.md: the rows of the Llama that nothing cheaper is better than.
constexpr std::array front{
    BudgetSetting{8, 1, 0, 32, 32, 0},
    BudgetSetting{1.07, 1, 0, 4, 4, 0.001},
};

/// The keys that a setting decides, and its values.
struct Decided {
    const char* key;
    Value value;
};
std::vector<Decided> decided(const BudgetSetting& s, const RunConfig& config) {
    std::vector<Decided> all{{"exchange.value_bits", s.value_bits},
                             {"exchange.delta_bits", s.delta_bits}};
    if (config.optimizer.kind == OptimizerKind::scape) {
        const auto steps = static_cast<double>(config.train.steps);
        all.push_back({"sparsity.density", s.density});
        all.push_back({"sparsity.density_start", s.warmup > 0 ? 1.0 : s.density});
        all.push_back(
            {"sparsity.warmup_steps", static_cast<Index>(std::llround(s.warmup * steps))});
    }
    return all;
}

const Key& key_of(const char* name) {
    for (const Key& key : keys())
        if (key.full_name() == name) return key;
    throw std::logic_error(fmt::format("budget: no key {}", name));
}

}  // namespace

std::optional<BudgetSetting> budget_setting(const RunConfig& config) {
    const double budget = config.exchange.bytes_per_param;
    if (budget <= 0) return {};
    const bool scape = config.optimizer.kind == OptimizerKind::scape;
    for (const BudgetSetting& s : front)
        if (s.bytes <= budget && (scape || s.density >= 1)) return s;
    if (!scape) return {};
    BudgetSetting s = front.back();
    s.density *= budget / s.bytes;
    s.bytes = budget;
    return s;
}

double least_dense_budget() {
    double least = front.front().bytes;
    for (const BudgetSetting& s : front)
        if (s.density >= 1) least = s.bytes;
    return least;
}

void apply_budget(LoadedDeck& deck) {
    const auto setting = budget_setting(deck.config);
    if (!setting) return;
    for (const Decided& d : decided(*setting, deck.config))
        if (deck.places.count(d.key) == 0) key_of(d.key).set(deck.config, d.value);
}

std::string describe_budget(const RunConfig& config) {
    const auto setting = budget_setting(config);
    if (!setting) return "";
    std::string text, by_hand;
    for (const Decided& d : decided(*setting, config)) {
        const Key& key = key_of(d.key);
        text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", d.key, to_toml(d.value));
        if (key.get(config) != d.value)
            by_hand += fmt::format("{}{} = {}", by_hand.empty() ? "" : ", ", d.key,
                                   to_toml(key.get(config)));
    }
    const bool measured = setting->bytes < config.exchange.bytes_per_param;
    return fmt::format(
        "budget          {} bytes per parameter and step: {}\n"
        "                {}, {:+.3f} nats over dense AdamS (tools/study/table.md)\n{}",
        config.exchange.bytes_per_param, text,
        measured ? fmt::format("measured with {:.3g} bytes", setting->bytes)
                 : "below all that was measured; the nearest",
        setting->over_adams,
        by_hand.empty() ? "" : fmt::format("                by hand: {}\n", by_hand));
}

}  // namespace scape::config
