#pragma once
/// @file
/// A training run from its first step to its last (or to a polite stop), in a run directory.

#include <scape/base/error.hpp>
#include <scape/comm/communicator.hpp>
#include <scape/config/run_config.hpp>
#include <scape/data/dataset.hpp>
#include <scape/train/metrics.hpp>

#include <string>
#include <vector>

namespace scape::train {

/// What a start finds in the run directory, the same on all ranks.
struct Start {
    std::string checkpoint;          ///< file to go on from; empty: from the beginning
    Index step = 0;                  ///< of that file
    std::vector<std::string> notes;  ///< for the log
};

/// Looks for a checkpoint as checkpoint.resume says, compares its deck with this one, and makes the
/// run directory. Nothing that a former run left is changed yet. `allowed` names keys whose change
/// is meant although it changes what the run means (data that moved, say). Collective. Throws
/// agreed_error: usage for a refused change, or a fresh start over an older run; data for a missing
/// or unreadable checkpoint; resources for a directory that cannot be written.
Start prepare_run(const config::RunConfig& config, const std::vector<std::string>& allowed,
                  comm::Communicator& comm);

/// Trains until config.train.steps or a stop. `peak_flops`: of all ranks together, 0 = unknown.
/// Collective. Returns done, or complete when there was nothing to do; throws what Trainer throws.
ExitCode run(const config::RunConfig& config, const Start& start, const data::Dataset& dataset,
             comm::Communicator& comm, RunLog& log, const Exec& exec);

/// <run.dir>/checkpoints
std::string checkpoints_dir(const config::RunConfig& config);

/// The checkpoint that a user names: the file itself, or the newest in a run directory (or in its
/// checkpoints/). Throws user_error(data) when there is none.
/// `notes`: newer ones that had to be passed over, a line each.
std::string find_checkpoint(const std::string& name, std::vector<std::string>& notes);

}  // namespace scape::train
