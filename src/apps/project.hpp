#pragma once
// The parts of `scape project`.

#include "commands.hpp"

#include <scape/train/cost_model.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace scape::apps {

/// Measured steps, of files that `scape bench step --json` wrote. Throws user_error(usage) that
/// names the file, what is wrong with it and what it should be.
train::MeasuredStep read_measured_step(const std::string& path);

/// Why the deck's batch cannot be shared by so many ranks, and what to change; empty if it can.
std::string why_not(const config::RunConfig& config, int ranks);

/// The machine with another network.
config::Machine with_bandwidth(config::Machine machine, double gb_per_s);

/// Prints how the methods that send less compare with dense ones, and from which bandwidth on each
/// is enough. Returns the same figures, and the whole map of step times.
/// gpus: those that why_not has nothing against. bandwidths: of the tables, GB/s.
nlohmann::ordered_json compare_methods(const config::RunConfig& config,
                                       const std::vector<int>& gpus, const config::Machine& machine,
                                       const std::vector<double>& bandwidths);

}  // namespace scape::apps
