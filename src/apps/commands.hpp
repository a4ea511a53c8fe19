#pragma once
/// @file
/// The subcommands of `scape`. Each gets its parsed options and returns an exit code; errors are
/// user_error, printed by main.

#include <scape/base/error.hpp>
#include <scape/config/run_config.hpp>

#include <optional>
#include <string>
#include <vector>

namespace scape::apps {

/// argc, argv as main got them, for MPI and Kokkos.
struct Arguments {
    int argc;
    char** argv;
};

struct TrainOptions {
    std::string deck;
    std::vector<std::string> overrides;     // section.key=value
    std::vector<std::string> allow_change;  // keys
    bool dry_run = false;
    int ranks = 0;  // for a dry run: as if started with that many
};
ExitCode train(const TrainOptions& options, Arguments arguments);

struct GenerateOptions {
    std::string checkpoint;  // file or run directory
    std::string prompt;      // text, for byte vocabularies
    std::vector<int> prompt_ids;
    int tokens = 200;
    double temperature = 0.8;
    int top_k = 40;
    unsigned long seed = 1;
};
ExitCode generate(const GenerateOptions& options, Arguments arguments);

struct EvalOptions {
    std::string checkpoint;
    std::string deck;
    std::vector<std::string> overrides;
};
ExitCode eval(const EvalOptions& options, Arguments arguments);

ExitCode diag(Arguments arguments);

struct BenchStepOptions {
    std::string deck;
    std::vector<std::string> overrides;
    int repeats = 5;
    bool communication = true;
    int ranks = 0;     // without communication and without a launcher: as rank 0 of that many
    std::string json;  // file for the figures; empty: none
};
ExitCode bench_step(const BenchStepOptions& options, Arguments arguments);

struct BenchExchangeOptions {
    double parameters = 50e6;
    std::optional<double> density;  // scape: 0.01
    int ranks = 2;
    std::optional<config::OptimizerKind> optimizer;  // scape, or adamw without error feedback
    int value_bits = 32;
    int delta_bits = 32;
    int block = 0;
    config::ErrorKind error = config::ErrorKind::full;
    config::MaskCodeChoice mask_code = config::MaskCodeChoice::automatic;
    config::ScapeRule rule = config::ScapeRule::catch_up;
    config::ScapeScore score = config::ScapeScore::after;
    config::FeedbackStorage storage = config::FeedbackStorage::fused;
    std::string path;      // of the hdf5 storage: a directory
    double bucket_mb = 0;  // as in decks
    int repeats = 5;
};
ExitCode bench_exchange(const BenchExchangeOptions& options, Arguments arguments);

struct BenchCommOptions {
    std::string write;    // machine file; empty: only the table
    std::string name;     // of the machine in it
    double max_mb = 64;   // largest buffer of a collective
    double seconds = 60;  // for all of it, about
    config::CommBackend backend = config::CommBackend::automatic;
};
ExitCode bench_comm(const BenchCommOptions& options, Arguments arguments);

struct ProjectOptions {
    std::string deck;
    std::vector<std::string> overrides;
    std::string machine;                 // file
    std::vector<int> gpus;               // numbers of ranks
    std::vector<double> bandwidths;      // GB/s, in place of the machine's; empty: the machine's
    std::vector<std::string> calibrate;  // files of `bench step --json`
    bool compare = false;                // all methods beside the deck's own
    std::string json;                    // file for the figures; empty: none
};
ExitCode project(const ProjectOptions& options);

}  // namespace scape::apps
