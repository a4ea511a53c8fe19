#pragma once
/// @file
/// exchange.bytes_per_param: what to send when so many bytes per parameter and step may travel, by
/// the measurements of tools/study_convergence.

#include <scape/config/deck.hpp>

#include <optional>
#include <string>

namespace scape::config {

/// One setting of the study that nothing cheaper was better than.
struct BudgetSetting {
    double bytes = 0;    ///< per parameter and step, there and back, average over the run
    double density = 1;  ///< target
    double warmup = 0;   ///< share of the run over which the density falls to it from 1
    Index value_bits = 32;
    Index delta_bits = 32;
    double over_adams = 0;  ///< validation loss over dense AdamS, nats a byte
};

/// The best setting within exchange.bytes_per_param for that optimizer: of any density for scape,
/// of all elements for others. Below the cheapest of scape's, the same with a lower density.
/// Nothing: without a budget, or where it is below all.
std::optional<BudgetSetting> budget_setting(const RunConfig& config);

/// The cheapest setting of all elements, in bytes per parameter and step.
double least_dense_budget();

/// Gives the keys that the setting decides its values, those apart that the deck gives itself.
void apply_budget(LoadedDeck& deck);

/// What was chosen and why, a line or two; empty without a budget.
std::string describe_budget(const RunConfig& config);

}  // namespace scape::config
