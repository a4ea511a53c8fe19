#include "commands.hpp"
#include "session.hpp"

#include <scape/base/signals.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/keys.hpp>
#include <scape/config/launcher.hpp>
#include <scape/config/validate.hpp>
#include <scape/data/dataset.hpp>
#include <scape/train/run.hpp>
#include <scape/train/step_cost.hpp>

#include <fmt/format.h>

#include <csignal>

namespace scape::apps {

ExitCode train(const TrainOptions& options, Arguments arguments) {
    // 1. The deck, before MPI is started: a mistake in it must show at once.
    const config::LoadedDeck deck =
        config::load_deck(options.deck, config::as_overrides(options.overrides));
    const config::RunConfig& config = deck.config;
    const int ranks = options.ranks > 0 ? options.ranks : config::ranks_from_launcher();
    config::validate(deck, ranks);

    for (const std::string& key : options.allow_change)
        if (config::find_key(key) == nullptr)
            throw user_error(ExitCode::usage,
                             fmt::format("--allow-change {}: unknown key; did you mean {}?", key,
                                         config::nearest_key(key)));

    // 2. What it would mean
    if (options.dry_run) {
        if (config::rank_from_launcher() == 0)
            fmt::print("{}\n{}", config::resolved_deck(config),
                       train::describe(train::step_cost(config, std::max(1, ranks)), config));
        return ExitCode::done;
    }

    // 3. The machine. Signals first: the threads of MPI and of the BLAS must not take them.
    watch_stop_signals();
    std::signal(SIGPIPE, SIG_IGN);  // `| head` must not end a run: its log goes on
    Session session(config.comm.backend, &arguments.argc, &arguments.argv);
    return session.run([&] {
        comm::Communicator& comm = session.comm();
        if (ranks < 1) comm::together(comm, [&] { config::validate(deck, comm.size()); });

        // 4. The data and the run directory
        data::Dataset dataset;
        comm::together(comm, [&] { dataset = data::open_dataset(config); });
        const train::Start start = train::prepare_run(config, options.allow_change, comm);
        if (start.step >= config.train.steps) {
            if (session.lead())
                fmt::print("nothing to do: {} has all {} steps. Raise train.steps to go on.\n",
                           start.checkpoint, config.train.steps);
            return ExitCode::complete;
        }
        train::RunLog log;
        comm::together(comm, [&] {
            if (session.lead()) log = train::RunLog(config.run.dir, start.step);
        });

        // 5. What the user should know
        for (const std::string& note : session.machine_notes()) log.say(note);
        std::string cost = train::describe(train::step_cost(config, comm.size()), config);
        if (!cost.empty()) cost.pop_back();  // say() ends the line
        log.say(cost);
        for (const std::string& note : dataset.notes) log.say(note);
        log.say(fmt::format(
            "data            {} training tokens, {} validation tokens; unigram entropy "
            "{:.4f} nats per token{}",
            dataset.train_tokens, dataset.valid_tokens, dataset.unigram_entropy,
            dataset.entropy_rate ? fmt::format(", entropy rate {:.4f}", *dataset.entropy_rate)
                                 : ""));

        // 6. Train
        return train::run(config, start, dataset, comm, log, session.exec());
    });
}

}  // namespace scape::apps
