#include <scape/config/budget.hpp>
#include <scape/config/keys.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

namespace scape::config {
namespace {

/// Rows of tools/study/table.md, AdamS's learning rate, means over seeds: catch_up with 4 bits both
/// ways, at a density that holds from the first step; the loss over dense AdamS with fp32.
struct Measured {
    double density;
    double over_adams;
};
constexpr std::array sparse_rows{Measured{0.3, 0.015}, Measured{0.1, 0.021}, Measured{0.05, 0.022},
                                 Measured{0.03, 0.029}};
/// All elements, AdamS: bits both ways, dearest first.
constexpr std::array dense_rows{
    BudgetSetting{.value_bits = 32, .delta_bits = 32, .bytes = 8, .over_adams = 0},
    BudgetSetting{.value_bits = 4, .delta_bits = 4, .bytes = 1.0625, .over_adams = 0.000},
    BudgetSetting{.value_bits = 2, .delta_bits = 2, .bytes = 0.5625, .over_adams = 0.011},
    BudgetSetting{.value_bits = 2, .delta_bits = 1, .bytes = 0.4375, .over_adams = 0.024},
};
/// scape.second_moment = "stored", at AdamW's learning rate: 4 bits both ways, the density falls
/// over half the run.
constexpr std::array stored_rows{
    BudgetSetting{0.1, 0.5, 4, 4, 0.376, 0.1, -0.003},
    BudgetSetting{0.01, 0.5, 4, 4, 0.17, 0.01, 0.009},
};

constexpr double coded = 1.0625;  // bytes of an element in 4 bits both ways, with its scales

/// For norm gains and biases, which travel whole, for the ends of slices, and for a first step that
/// is dense.
constexpr double reserve = 0.02;

/// Bytes per parameter at a density: values, and the smallest code of the mask.
double sparse_bytes(double density) {
    return coded * density + std::min({1.0 / 8, density + 1.0 / 255, 4 * density});
}

/// The other way round: each of the codes of a mask takes it to a density; the highest is right.
double density_for(double bytes) {
    return std::max(
        {(bytes - 1.0 / 8) / coded, (bytes - 1.0 / 255) / (coded + 1), bytes / (coded + 4)});
}

/// The keys that a setting decides, and its values.
using Decided = std::pair<const char*, Value>;
std::vector<Decided> decided(const BudgetSetting& s, const RunConfig& config) {
    std::vector<Decided> all;
    all.reserve(5);
    all.emplace_back("exchange.value_bits", s.value_bits);
    all.emplace_back("exchange.delta_bits", s.delta_bits);
    if (config.optimizer.kind != OptimizerKind::scape) return all;
    all.emplace_back("sparsity.density", s.density);
    all.emplace_back("sparsity.density_start", s.falling > 0 ? 1.0 : s.density);
    const auto steps = static_cast<double>(config.train.steps);
    if (s.falling > 0)
        all.emplace_back("sparsity.warmup_steps",
                         static_cast<Index>(std::llround(s.falling * steps)));
    return all;
}

const Key& key_of(const char* name) {
    for (const Key& key : keys())
        if (key.full_name() == name) return key;
    throw std::logic_error(fmt::format("budget: no key {}", name));
}

/// A mask that costs that much, in 4 bits.
BudgetSetting sparse_setting(double budget, SecondMoment second_moment) {
    if (second_moment == SecondMoment::stored)
        for (const BudgetSetting& s : stored_rows)
            if (s.bytes <= budget) return s;
    BudgetSetting s;
    s.value_bits = s.delta_bits = 4;
    // Three digits, downwards: it is read by people.
    const double density = std::min(1.0, density_for(budget * (1 - reserve)));
    const double digits = std::pow(10.0, 2 - std::floor(std::log10(density)));
    s.density = std::floor(density * digits) / digits;
    s.bytes = sparse_bytes(s.density);
    for (const Measured& m : sparse_rows) {
        s.measured_density = m.density;
        s.over_adams = m.over_adams;
        if (m.density <= s.density) break;
    }
    return s;
}

}  // namespace

std::optional<BudgetSetting> budget_setting(const RunConfig& config) {
    const double budget = config.exchange.bytes_per_param;
    if (budget <= 0) return {};
    std::optional<BudgetSetting> sparse;
    if (config.optimizer.kind == OptimizerKind::scape)
        sparse = sparse_setting(budget, config.scape.second_moment);
    for (const BudgetSetting& s : dense_rows) {
        if (s.value_bits == 32 && config.exchange.error != ErrorKind::full) continue;
        if (s.bytes <= budget && (!sparse || s.over_adams <= sparse->over_adams)) return s;
    }
    return sparse;
}

double least_dense_budget() {
    return dense_rows.back().bytes;
}

void apply_budget(LoadedDeck& deck) {
    const auto setting = budget_setting(deck.config);
    if (!setting) return;
    const auto by_hand = [&](const char* key) { return deck.places.count(key) > 0; };
    for (const auto& [key, value] : decided(*setting, deck.config))
        if (!by_hand(key)) key_of(key).set(deck.config, value);
    if (deck.config.optimizer.kind != OptimizerKind::scape) return;
    // The density only falls: of the two, the one that is not set by hand follows.
    SparsitySection& s = deck.config.sparsity;
    if (!by_hand("sparsity.density_start")) {
        s.density_start = std::max(s.density_start, s.density);
    } else if (!by_hand("sparsity.density")) {
        s.density = std::min(s.density, s.density_start);
    }
}

std::string describe_budget(const RunConfig& config) {
    const auto setting = budget_setting(config);
    if (!setting) return "";
    std::string text, by_hand;
    for (const auto& [name, value] : decided(*setting, config)) {
        text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, to_toml(value));
        const Value used = key_of(name).get(config);
        if (used != value)
            by_hand += fmt::format("{}{} = {}", by_hand.empty() ? "" : ", ", name, to_toml(used));
    }
    const bool within = setting->measured_density <= setting->density;
    return fmt::format(
        "budget          {} bytes per parameter and step: {}\n"
        "                {:.3g} bytes where tensors are large; measured at density {:g}: {:+.3f} "
        "over dense AdamS{}\n{}",
        config.exchange.bytes_per_param, text, setting->bytes, setting->measured_density,
        setting->over_adams, within ? "" : ", the lowest that was",
        by_hand.empty() ? "" : fmt::format("                by hand: {}\n", by_hand));
}

}  // namespace scape::config
