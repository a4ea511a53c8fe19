#include "commands.hpp"
#include "session.hpp"

#include <scape/config/deck.hpp>
#include <scape/config/launcher.hpp>
#include <scape/config/validate.hpp>
#include <scape/data/dataset.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/train/evaluator.hpp>
#include <scape/train/run.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace scape::apps {

ExitCode eval(const EvalOptions& options, Arguments arguments) {
    // 1. The deck names the data; the checkpoint says which model it is
    const config::LoadedDeck deck =
        config::load_deck(options.deck, config::as_overrides(options.overrides));
    config::validate(deck, config::ranks_from_launcher());
    config::RunConfig config = deck.config;
    std::vector<std::string> notes;
    const io::CheckpointReader checkpoint(train::find_checkpoint(options.checkpoint, notes));
    if (config::rank_from_launcher() == 0)
        for (const std::string& note : notes) fmt::print(stderr, "{}\n", note);
    const config::RunConfig trained =
        config::parse_run_config(checkpoint.meta().deck, checkpoint.path());
    if (trained.model.vocab != config.model.vocab)
        throw user_error(
            ExitCode::usage,
            fmt::format("{}: model.vocab = {}, but the model in {} has {}; evaluate it "
                        "on data of its own vocabulary",
                        options.deck, config.model.vocab, checkpoint.path(), trained.model.vocab));
    if (config.train.seq_len > trained.model.max_seq_len)
        throw user_error(ExitCode::usage,
                         fmt::format("{}: train.seq_len = {}, but the model in {} takes at most {}",
                                     options.deck, config.train.seq_len, checkpoint.path(),
                                     trained.model.max_seq_len));
    config.model = trained.model;

    // 2. The machine, the data, the model
    Session session(config.comm.backend, &arguments.argc, &arguments.argv);
    return session.run([&] {
        comm::Communicator& comm = session.comm();
        data::Dataset dataset;
        comm::together(comm, [&] {
            dataset = data::open_dataset(config);
            if (!dataset.valid)
                throw user_error(
                    ExitCode::data,
                    fmt::format("{}: there is no validation text; set data.valid, or a "
                                "data.split with a larger second share",
                                options.deck));
        });
        const auto model = model::make_model<float>(config.model);
        const Vec<float> parameters("scape::apps::parameters", model->layout().extent());
        comm::together(comm, [&] { checkpoint.read_flat("weights", model->layout(), parameters); });
        model->bind(parameters, {});
        model->allocate(config.train.micro_batch, config.train.seq_len, false);
        data::BatchLoader loader(config.train.micro_batch, config.train.seq_len);

        // 3. The loss
        const Index samples =
            std::min(config.eval.batches * config.train.global_batch, dataset.valid->samples());
        const train::Evaluation result =
            train::evaluate(session.exec(), *model, comm, *dataset.valid, loader, samples,
                            config.train.micro_batch);
        if (session.lead())
            fmt::print(
                "{}: step {}\nvalidation loss {:.6f} nats per token (perplexity {:.4g}) over {} "
                "targets in {} sequences; unigram entropy of the training text {:.4f}\n",
                checkpoint.path(), checkpoint.meta().step, result.loss, std::exp(result.loss),
                result.targets, result.samples, dataset.unigram_entropy);
        return ExitCode::done;
    });
}

}  // namespace scape::apps
