#include <scape/train/run.hpp>

#include <scape/base/profiling.hpp>
#include <scape/base/text_file.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/validate.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/train/stop_request.hpp>
#include <scape/train/trainer.hpp>

#include <fmt/format.h>

#include <memory>

namespace scape::train {

namespace {

/// The trainer at the step where this start begins.
void begin(Trainer& trainer, const config::RunConfig& config, const Start& start,
           comm::Communicator& comm, RunLog& log) {
    for (const std::string& note : start.notes) log.say(note);
    if (!start.checkpoint.empty()) {
        std::unique_ptr<io::CheckpointReader> checkpoint;
        comm::together(
            comm, [&] { checkpoint = std::make_unique<io::CheckpointReader>(start.checkpoint); });
        for (const std::string& line : trainer.resume(*checkpoint)) log.say(line);
        log.say(fmt::format("resumed at step {} from {}", start.step, start.checkpoint));
    } else if (!config.checkpoint.init_from.empty()) {
        const std::string file = config.checkpoint.init_from;
        std::vector<std::string> notes;  // prepare_run has told them
        comm::together(comm, [&] { trainer.start_from_weights(find_checkpoint(file, notes)); });
        log.say(fmt::format("fresh start from the weights of {}", file));
    } else {
        trainer.start_fresh();
        log.say(fmt::format("fresh start, seed {}", config.run.seed));
    }
}

/// deck.resolved.toml, once the start has succeeded: a refused one leaves the old deck alone.
void write_deck(const config::RunConfig& config) {
    write_text_file(config.run.dir + "/deck.resolved.toml", config::resolved_deck(config));
}

}  // namespace

ExitCode run(const config::RunConfig& config, const Start& start, const data::Dataset& dataset,
             comm::Communicator& comm, RunLog& log, const Exec& exec) {
    const Index last = config.train.steps;
    if (start.step >= last) return ExitCode::complete;

    std::unique_ptr<Trainer> made;
    comm::together(comm, [&] { made = std::make_unique<Trainer>(config, comm, dataset, exec); });
    Trainer& trainer = *made;
    begin(trainer, config, start, comm, log);
    const bool lead = comm.rank() == 0;
    comm::together(comm, [&] {
        if (lead) write_deck(config);
    });

    // Signals reach every rank; the clock and the STOP file are watched by one.
    StopRequest stop(lead ? config.run.dir : "",
                     lead ? config::wall_limit_seconds(config.run.wall_limit) : 0);
    const double flops_per_token = step_cost(config, comm.size()).flops_per_token;
    const double peak_flops = config.metrics.peak_tflops * 1e12 * comm.size();

    double save_seconds = 0;
    const auto save = [&] {
        const io::SaveResult saved = trainer.save(checkpoints_dir(config));
        save_seconds = saved.seconds;
        if (lead)
            io::prune(checkpoints_dir(config), trainer.step_number(), config.checkpoint.keep_last,
                      config.checkpoint.keep_every);
        log.say(fmt::format("checkpoint: {} ({}, {:.2f} s, {:.3g} GB/s)", saved.path,
                            short_bytes(saved.bytes), saved.seconds,
                            1e-9 * static_cast<double>(saved.bytes) / saved.seconds));
    };

    double valid_loss = 0;
    const Timer timer;
    const Index first_tokens = trainer.tokens_seen();
    for (bool stopping = false; trainer.step_number() < last && !stopping;) {
        StepRecord record = trainer.step(stop.wanted(save_seconds));
        stopping = trainer.stop_agreed() && record.step < last;
        const auto due = [&](Index every) { return every > 0 && record.step % every == 0; };
        const bool evaluate = config.eval.every > 0 && dataset.valid && !stopping;
        if (evaluate && (due(config.eval.every) || record.step == last))
            record.valid_loss = valid_loss = trainer.evaluate().loss;
        log.record(record, last, flops_per_token, peak_flops);
        if (due(config.checkpoint.every) || record.step == last || stopping) save();
        if (stopping) {
            log.say(fmt::format(
                "stopped after step {} of {} ({}); the same command goes on from here", record.step,
                last, stop.wanted(0) ? stop.reason() : "asked for by another rank"));
            stop.obeyed();
            return ExitCode::done;
        }
    }
    stop.obeyed();  // one that came in the last step
    const double seconds = timer.seconds();
    log.say(
        fmt::format("done: {} steps, {} tokens in {} ({:.0f} tokens/s, evaluation and "
                    "checkpoints included)",
                    last, trainer.tokens_seen(), short_duration(seconds),
                    static_cast<double>(trainer.tokens_seen() - first_tokens) / seconds));
    if (valid_loss > 0)
        log.say(
            fmt::format("validation loss {:.4f} nats per token; unigram entropy of the training "
                        "text {:.4f}",
                        valid_loss, dataset.unigram_entropy));
    return ExitCode::done;
}

}  // namespace scape::train
