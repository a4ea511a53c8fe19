#pragma once
/// @file
/// exchange.bytes_per_param: what to send when so many bytes per parameter and step may travel,
/// there and back, by the measurements of tools/study_convergence.

#include <scape/config/deck.hpp>

#include <optional>
#include <string>

namespace scape::config {

struct BudgetSetting {
    double density = 1;
    double falling = 0;  ///< share of the run over which it falls to that from 1; 0: at once
    Index value_bits = 32;
    Index delta_bits = 32;
    double bytes = 0;  ///< per parameter and step, for tensors that are large
    /// The measured setting next to it, and its validation loss over dense AdamS, nats a byte.
    double measured_density = 1;
    double over_adams = 0;
};

/// The best setting within exchange.bytes_per_param for that optimizer: of any density for scape,
/// of all elements for others. Nothing: without a budget, or where it is below all.
std::optional<BudgetSetting> budget_setting(const RunConfig& config);

/// The cheapest setting of all elements, in bytes per parameter and step.
double least_dense_budget();

/// Gives the keys that the setting decides its values, those apart that the deck gives itself.
void apply_budget(LoadedDeck& deck);

/// What was chosen and why, some lines; empty without a budget.
std::string describe_budget(const RunConfig& config);

}  // namespace scape::config
