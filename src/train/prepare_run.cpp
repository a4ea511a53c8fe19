#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/train/run.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace scape::train {

namespace fs = std::filesystem;

namespace {

/// Keys that change what a run means. Their old state (weights, moments, place in the data) would
/// not fit the new value.
bool changes_meaning(const std::string& key) {
    static constexpr std::array harmless_model_keys{"model.recompute", "model.vocab_multiple",
                                                    "model.logits_chunk_mb", "model.init_std"};
    static constexpr std::array others{"run.seed",      "train.seq_len",       "optimizer.kind",
                                       "scape.rule",    "scape.second_moment", "exchange.elements",
                                       "exchange.error"};
    if (key.starts_with("data.")) return true;
    if (key.starts_with("model."))
        return std::find(harmless_model_keys.begin(), harmless_model_keys.end(), key) ==
               harmless_model_keys.end();
    return std::find(others.begin(), others.end(), key) != others.end();
}

/// Notes about changed keys; throws when one of them may not change.
std::vector<std::string> compare_decks(const config::RunConfig& now, const std::string& old_deck,
                                       const std::string& checkpoint,
                                       const std::vector<std::string>& allowed) {
    std::vector<std::string> notes;
    std::string refused;
    const config::RunConfig before = config::parse_run_config(old_deck, checkpoint);
    for (const config::KeyChange& c : config::changed_keys(before, now)) {
        if (c.key == "run.dir") continue;
        // Where nothing is lost, before or from now on, exchange.error means nothing.
        const bool idle = c.key == "exchange.error" &&
                          (before.exchange.value_bits == 32 || now.exchange.value_bits == 32);
        const bool ok = idle || !changes_meaning(c.key) ||
                        std::find(allowed.begin(), allowed.end(), c.key) != allowed.end();
        notes.push_back(fmt::format("deck: {} {} -> {} ({})", c.key, c.before, c.after,
                                    ok ? "applied" : "refused"));
        if (!ok) refused += "\n  " + notes.back();
    }
    if (!refused.empty())
        throw user_error(
            ExitCode::usage,
            fmt::format("{}: this deck is not the one that the run began with:{}\n"
                        "Put the old values back, or begin another run (run.dir; "
                        "checkpoint.init_from takes the weights along), or, where the change is "
                        "meant, name the key: --allow-change KEY.",
                        checkpoint, refused));
    return notes;
}

void make_directory(const std::string& dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error)
        throw user_error(ExitCode::resources,
                         fmt::format("cannot make the directory '{}': {}. Choose another run.dir.",
                                     dir, error.message()));
}

/// Whether a former run has left something that a fresh start would overwrite.
bool holds_a_run(const config::RunConfig& config) {
    std::error_code error;
    if (fs::file_size(config.run.dir + "/metrics.jsonl", error) > 0 && !error) return true;
    for (const auto& entry : fs::directory_iterator(checkpoints_dir(config), error))
        if (io::checkpoint_step(entry.path().filename().string())) return true;
    return false;
}

/// Throws where checkpoint.init_from leads to no checkpoint.
void check_init_from(const config::RunConfig& config, std::vector<std::string>& notes) {
    const std::string& name = config.checkpoint.init_from;
    if (!name.empty()) io::CheckpointReader(find_checkpoint(name, notes));
}

Start find_start(const config::RunConfig& config, const std::vector<std::string>& allowed) {
    const config::CheckpointSection& c = config.checkpoint;
    const std::string dir = checkpoints_dir(config);
    Start start;
    if (c.resume == config::Resume::never) {
        if (holds_a_run(config))
            throw user_error(ExitCode::usage,
                             fmt::format("checkpoint.resume is \"never\", and '{}' already holds a "
                                         "run, which would be overwritten. Choose another run.dir, "
                                         "resume, or remove that directory.",
                                         config.run.dir));
        check_init_from(config, start.notes);
        return start;
    }
    const auto newest = io::find_latest(dir, start.notes);
    if (newest) {
        const io::CheckpointReader reader(*newest);
        start.checkpoint = *newest;
        start.step = reader.meta().step;
        const auto changes = compare_decks(config, reader.meta().deck, *newest, allowed);
        start.notes.insert(start.notes.end(), changes.begin(), changes.end());
        return start;
    }
    std::string why;
    for (const std::string& note : start.notes) why += "\n  " + note;
    if (c.resume == config::Resume::required)
        throw user_error(ExitCode::data,
                         fmt::format("checkpoint.resume is \"required\", and there is no usable "
                                     "checkpoint in '{}'.{}",
                                     dir, why));
    if (!start.notes.empty())
        throw user_error(ExitCode::data,
                         fmt::format("no checkpoint in '{}' can be read, and beginning again would "
                                     "overwrite them.{}\nRepair or remove them, or choose another "
                                     "run.dir.",
                                     dir, why));
    check_init_from(config, start.notes);
    return start;
}

void broadcast(comm::Communicator& comm, std::string& text) {
    auto size = static_cast<Index>(text.size());
    comm.broadcast_host(&size, sizeof size, 0);
    text.resize(static_cast<std::size_t>(size));
    if (size > 0) comm.broadcast_host(text.data(), size, 0);
}

}  // namespace

std::string checkpoints_dir(const config::RunConfig& config) {
    return config.run.dir + "/checkpoints";
}

std::string find_checkpoint(const std::string& name, std::vector<std::string>& notes) {
    if (fs::is_regular_file(name)) return name;
    for (const std::string& dir : {name + "/checkpoints", name}) {
        if (!fs::is_directory(dir)) continue;
        if (const auto found = io::find_latest(dir, notes)) return *found;
    }
    std::string why;
    for (const std::string& note : notes) why += "\n  " + note;
    throw user_error(ExitCode::data,
                     fmt::format("'{}' is neither a checkpoint file nor a run directory with a "
                                 "usable checkpoint in it.{}",
                                 name, why));
}

Start prepare_run(const config::RunConfig& config, const std::vector<std::string>& allowed,
                  comm::Communicator& comm) {
    Start start;
    comm::together(comm, [&] {
        if (comm.rank() != 0) return;
        start = find_start(config, allowed);
        if (start.step >= config.train.steps) return;  // nothing will be written
        make_directory(config.run.dir);
    });
    broadcast(comm, start.checkpoint);
    comm.broadcast_host(&start.step, sizeof start.step, 0);
    return start;
}

}  // namespace scape::train
