// scape: language-model pre-training with extremely sparse communication.

#include "commands.hpp"
#include "session.hpp"

#include <scape/base/error.hpp>
#include <scape/config/keys.hpp>
#include <scape/config/launcher.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <system_error>
#include <thread>

namespace {

using namespace scape;
using namespace scape::apps;

constexpr const char* exit_codes = R"(
Exit codes, the same on every rank:
  0  done, or stopped in good order with more to do
  1  a fault of the program
  2  command line or deck
  3  data or checkpoint
  4  nothing to do: the run is complete
  5  numbers: not finite for too long, or replicas differ
  6  the network was lost (where a rank is killed, the launcher ends the others, with its own code)
  7  disk or memory
)";

/// Every rank found the same mistake by itself: the first one says so. The others wait a moment,
/// because some launchers end all ranks as soon as one has failed.
int fail_alike(int code, const std::string& message) {
    if (config::rank_from_launcher() == 0)
        fmt::print(stderr, "scape: {}\n", message);
    else
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return code;
}

template <class E>
using Choices = std::map<std::string, E>;

template <class T, class E>
void add_choice(CLI::App& app, const std::string& name, T& value, const std::string& what,
                const Choices<E>& choices) {
    std::vector<std::string> words;
    for (const auto& [word, meaning] : choices) words.push_back(word);
    app.add_option_function<std::string>(
           name, [&value, choices](const std::string& word) { value = choices.at(word); }, what)
        ->check(CLI::IsMember(words));
}

/// CLI::Range lets NaN through.
CLI::Validator numbers_between(double min, double max) {
    const auto check = [min, max](const std::string& word) -> std::string {
        double x = 0;
        if (CLI::detail::lexical_cast(word, x) && x >= min && x <= max) return "";
        return fmt::format("{} is no number from {:g} to {:g}", word, min, max);
    };
    return CLI::Validator(check, fmt::format("{:g} to {:g}", min, max));
}

void add_exchange_options(CLI::App& app, BenchExchangeOptions& o) {
    app.add_option("--parameters", o.parameters, "Elements of the made-up model, e.g. 50e6")
        ->capture_default_str()
        ->check(numbers_between(1e4, 4e9));
    app.add_option("--density", o.density, "scape: share of them that travels (0.01); 1: all")
        ->check(numbers_between(1e-6, 1.0));
    app.add_option("--ranks", o.ranks, "The work of rank 0 of that many")
        ->capture_default_str()
        ->check(CLI::Range(1, 1024));
    app.add_option("--value-bits", o.value_bits, "Of gradients on their way: 32, 16, 8, 4, 2 or 1")
        ->capture_default_str()
        ->check(CLI::IsMember({32, 16, 8, 4, 2, 1}));
    app.add_option("--delta-bits", o.delta_bits, "The same of weights on their way back")
        ->capture_default_str()
        ->check(CLI::IsMember({32, 16, 8, 4, 2, 1}));
    app.add_option("--block", o.block, "Values that share a scale; 0: as in decks")
        ->capture_default_str()
        ->check(CLI::Range(0, 65536));
    using config::ErrorKind;
    using config::OptimizerKind;
    add_choice(
        app, "--error", o.error,
        "What value-bits loses: full, loco or none (the last two: no mask)",
        Choices<ErrorKind>{
            {"full", ErrorKind::full}, {"loco", ErrorKind::loco}, {"none", ErrorKind::none}});
    add_choice(app, "--optimizer", o.optimizer,
               "scape (without it adamw if error is not full), adamw, adams or sgd",
               Choices<OptimizerKind>{{"scape", OptimizerKind::scape},
                                      {"adamw", OptimizerKind::adamw},
                                      {"adams", OptimizerKind::adams},
                                      {"sgd", OptimizerKind::sgd}});
    using config::FeedbackStorage;
    using config::MaskCodeChoice;
    using config::ScapeRule;
    using config::ScapeScore;
    add_choice(app, "--mask-code", o.mask_code, "auto, bitmap, gaps, index or entropy",
               Choices<MaskCodeChoice>{{"auto", MaskCodeChoice::automatic},
                                       {"bitmap", MaskCodeChoice::bitmap},
                                       {"gaps", MaskCodeChoice::gaps},
                                       {"index", MaskCodeChoice::index},
                                       {"entropy", MaskCodeChoice::entropy}});
    add_choice(app, "--rule", o.rule, "catch_up or paper",
               Choices<ScapeRule>{{"catch_up", ScapeRule::catch_up}, {"paper", ScapeRule::paper}});
    add_choice(app, "--score", o.score, "after or before (the paper rule's)",
               Choices<ScapeScore>{{"after", ScapeScore::after}, {"before", ScapeScore::before}});
    add_choice(app, "--storage", o.storage, "Of error feedback: fused, device, host or hdf5",
               Choices<FeedbackStorage>{{"fused", FeedbackStorage::fused},
                                        {"device", FeedbackStorage::device},
                                        {"host", FeedbackStorage::host},
                                        {"hdf5", FeedbackStorage::hdf5}});
    app.add_option("--path", o.path, "Of the hdf5 storage: a directory on the node's own disk");
    app.add_option("--bucket-mb", o.bucket_mb,
                   "MB of parameters exchanged at a time; 0: as in decks")
        ->capture_default_str()
        ->check(numbers_between(0.0, 16000.0));
    app.add_option("--repeats", o.repeats, "Steps that are timed")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
}

void add_comm_options(CLI::App& app, BenchCommOptions& o) {
    app.add_option("--write", o.write, "Machine file to write, e.g. mycluster.toml");
    app.add_option("--name", o.name, "Of the machine, in that file");
    app.add_option("--max-mb", o.max_mb, "Largest buffer of a collective")
        ->capture_default_str()
        ->check(numbers_between(0.1, 16000.0));
    app.add_option("--seconds", o.seconds, "About how long all of it may take")
        ->capture_default_str()
        ->check(numbers_between(1.0, 86400.0));
    using config::CommBackend;
    add_choice(app, "--backend", o.backend, "auto, mpi or self",
               Choices<CommBackend>{{"auto", CommBackend::automatic},
                                    {"mpi", CommBackend::mpi},
                                    {"self", CommBackend::self}});
}

void add_project_options(CLI::App& app, ProjectOptions& o) {
    app.add_option("deck", o.deck, "Deck (TOML), see inputs/")->required();
    app.add_option("overrides", o.overrides, "section.key=value, over the deck's");
    app.add_option("--machine", o.machine, "Machine file, see inputs/machines/")->required();
    app.add_option("--gpus,--ranks", o.gpus, "Numbers of ranks (one per GPU), e.g. 4,8,16")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false)  // overrides may follow
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--bandwidths", o.bandwidths,
                   "GB/s of each rank in place of the machine's, e.g. 0.1,1,10")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(numbers_between(1e-6, 1e6));
    app.add_option("--calibrate", o.calibrate,
                   "Measured steps (files of `scape bench step --json`) that set the machine's "
                   "efficiency and local work; repeat the option for each, e.g. one "
                   "of a dense and one of a sparse optimizer")
        ->allow_extra_args(false);
    app.add_flag("--compare", o.compare,
                 "Also AdamW, AdamS, LoCo and SCAPE at several densities and bits, and which of "
                 "them wins at which bandwidth");
    app.add_option("--json", o.json, "Also write the figures to this file, for tools/plot");
}

}  // namespace

int main(int argc, char** argv) {
    // 0. Standard streams that are closed would lend their numbers to the files of a run.
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDWR) == -1) return 1;

    // 1. The command line
    CLI::App app{"scape: language-model pre-training with extremely sparse communication", "scape"};
    app.set_version_flag("--version", SCAPE_VERSION);
    app.footer(exit_codes);
    app.require_subcommand(1);
    std::function<ExitCode()> command;

    TrainOptions train_options;
    CLI::App* sub = app.add_subcommand("train", "Train the model that a deck describes");
    sub->add_option("deck", train_options.deck, "Deck (TOML), see inputs/")->required();
    sub->add_option("overrides", train_options.overrides, "section.key=value, over the deck's");
    sub->add_flag("--dry-run", train_options.dry_run,
                  "Print the resolved deck and what a step costs, and exit");
    sub->add_option("--ranks", train_options.ranks, "For --dry-run: as if on that many ranks")
        ->check(CLI::PositiveNumber);
    sub->add_option("--allow-change", train_options.allow_change,
                    "On resume: a key whose change is meant, e.g. data.train; once for each key")
        ->allow_extra_args(false);
    sub->callback([&] { command = [&] { return train(train_options, {argc, argv}); }; });

    GenerateOptions generate_options;
    sub = app.add_subcommand("generate", "Write text with a trained model");
    sub->add_option("checkpoint", generate_options.checkpoint, "Checkpoint file or run directory")
        ->required();
    sub->add_option("--prompt", generate_options.prompt, "Text to go on from");
    sub->add_option("--prompt-ids", generate_options.prompt_ids,
                    "The same as token ids, for vocabularies other than bytes");
    sub->add_option("--tokens", generate_options.tokens, "How many tokens to write")
        ->capture_default_str()
        ->check(CLI::Range(0, 1000000000));
    sub->add_option("--temperature", generate_options.temperature, "0 takes the likeliest token")
        ->capture_default_str();
    sub->add_option("--top-k", generate_options.top_k, "Among that many likeliest; 0 = all")
        ->capture_default_str()
        ->check(CLI::Range(0, 1000000000));
    sub->add_option("--seed", generate_options.seed, "Of the draws")->capture_default_str();
    sub->callback([&] { command = [&] { return generate(generate_options, {argc, argv}); }; });

    EvalOptions eval_options;
    sub = app.add_subcommand("eval", "Validation loss of a checkpoint on a deck's data");
    sub->add_option("checkpoint", eval_options.checkpoint, "Checkpoint file or run directory")
        ->required();
    sub->add_option("deck", eval_options.deck, "Deck whose [data], [train] and [eval] count")
        ->required();
    sub->add_option("overrides", eval_options.overrides, "section.key=value, over the deck's");
    sub->callback([&] { command = [&] { return eval(eval_options, {argc, argv}); }; });

    sub = app.add_subcommand("diag", "What this build and this machine have");
    sub->callback([&] { command = [&] { return diag({argc, argv}); }; });

    sub = app.add_subcommand("keys", "All deck keys with type, range, default and meaning");
    sub->callback([&] {
        command = [] {
            fmt::print("{}", config::describe_keys());
            return ExitCode::done;
        };
    });

    BenchStepOptions bench_options;
    CLI::App* bench = app.add_subcommand("bench", "Measurements");
    bench->require_subcommand(1);
    sub = bench->add_subcommand("step", "Time the parts of a training step");
    sub->add_option("deck", bench_options.deck, "Deck, e.g. inputs/bench-gpt2-124m.toml")
        ->required();
    sub->add_option("overrides", bench_options.overrides, "section.key=value, over the deck's");
    sub->add_option("--repeats", bench_options.repeats, "Steps that are timed")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    add_choice(*sub, "--communication", bench_options.communication,
               "off: the same work, but nothing is sent or awaited",
               Choices<bool>{{"on", true}, {"off", false}});
    sub->add_option("--ranks", bench_options.ranks,
                    "With --communication off and no launcher: the work of rank 0 of that many")
        ->check(CLI::PositiveNumber);
    sub->add_option("--json", bench_options.json, "Also write the figures to this file");
    sub->callback([&] { command = [&] { return bench_step(bench_options, {argc, argv}); }; });

    BenchCommOptions comm_options;
    sub = bench->add_subcommand("comm",
                                "Time the collectives that a step uses, over message sizes, and "
                                "write the machine file that `scape project` reads");
    add_comm_options(*sub, comm_options);
    sub->callback([&] { command = [&] { return bench_comm(comm_options, {argc, argv}); }; });

    BenchExchangeOptions exchange_options;
    sub = bench->add_subcommand("exchange",
                                "Time the local work of a sparse exchange, without a model and "
                                "without a network");
    add_exchange_options(*sub, exchange_options);
    sub->callback([&] {
        command = [&] { return bench_exchange(exchange_options, {argc, argv}); };
    });

    ProjectOptions project_options;
    sub = app.add_subcommand("project",
                             "Predict the time of a deck's step on a machine, on many ranks");
    add_project_options(*sub, project_options);
    sub->callback([&] { command = [&] { return project(project_options); }; });

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
        if (config::rank_from_launcher() == 0) app.exit(e);
        return static_cast<int>(ExitCode::usage);
    }

    // 2. The command. What a single rank of several suffers alone has been dealt with by the
    //    session; what arrives here has befallen all ranks alike.
    try {
        const ExitCode code = command();
        // What was asked for on standard output must have arrived there; a training run has its
        // log.
        if (code == ExitCode::done && !app.got_subcommand("train") &&
            (std::fflush(stdout) != 0 || std::ferror(stdout)))
            throw user_error(ExitCode::resources, "cannot write to standard output: disk full?");
        return static_cast<int>(code);
    } catch (const user_error& e) {
        return fail_alike(static_cast<int>(e.code()), e.what());
    } catch (const std::system_error& e) {
        return fail_alike(static_cast<int>(ExitCode::resources), e.what());  // a write that failed
    } catch (const std::exception& e) {
        if (is_out_of_memory(e))
            return fail_alike(static_cast<int>(ExitCode::resources), out_of_memory);
        return fail_alike(static_cast<int>(ExitCode::fault),
                          fmt::format("fault of the program: {}", e.what()));
    }
}
