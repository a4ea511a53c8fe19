#include "commands.hpp"
#include "session.hpp"

#include <scape/base/fence.hpp>
#include <scape/base/random.hpp>
#include <scape/config/deck.hpp>
#include <scape/config/launcher.hpp>
#include <scape/io/checkpoint.hpp>
#include <scape/kernels/gemm.hpp>
#include <scape/model/model.hpp>
#include <scape/train/run.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace scape::apps {

namespace {

std::vector<Token> prompt_tokens(const GenerateOptions& options, const config::RunConfig& config) {
    const Index vocab = config.model.vocab;
    std::vector<Token> tokens(options.prompt_ids.begin(), options.prompt_ids.end());
    if (tokens.empty()) {
        if (config.data.format != config::DataFormat::text)
            throw user_error(
                ExitCode::usage,
                fmt::format("this model's vocabulary of {} tokens is not bytes, so text "
                            "cannot be turned into tokens here; give the token ids: "
                            "--prompt-ids 464 3290",
                            vocab));
        for (const char c : options.prompt) tokens.push_back(static_cast<unsigned char>(c));
    }
    if (tokens.empty())
        throw user_error(ExitCode::usage, "the prompt is empty; give --prompt with some text");
    for (const Token t : tokens)
        if (t < 0 || t >= vocab)
            throw user_error(ExitCode::usage,
                             fmt::format("--prompt-ids: {} is not in 0 to {}", t, vocab - 1));
    return tokens;
}

/// Draws from softmax(logits / temperature) among the top_k largest (0: all). Temperature 0 takes
/// the largest. `uniform` is in [0, 1).
Token draw(const HostVec<float>& logits, const GenerateOptions& options, double uniform) {
    std::vector<Token> order(logits.extent(0));
    std::iota(order.begin(), order.end(), 0);
    const auto larger = [&](Token a, Token b) {
        return logits(a) != logits(b) ? logits(a) > logits(b) : a < b;
    };
    const std::size_t k = options.temperature <= 0 ? 1
                          : options.top_k > 0 ? std::min<std::size_t>(options.top_k, order.size())
                                              : order.size();
    std::partial_sort(order.begin(), order.begin() + k, order.end(), larger);
    std::vector<double> cumulative(k);
    double sum = 0;
    for (std::size_t i = 0; i < k; ++i) {
        if (k > 1) sum += std::exp((logits(order[i]) - logits(order[0])) / options.temperature);
        cumulative[i] = sum;
    }
    const auto at = std::upper_bound(cumulative.begin(), cumulative.end() - 1, uniform * sum);
    return order[at - cumulative.begin()];
}

}  // namespace

ExitCode generate(const GenerateOptions& options, Arguments arguments) {
    if (config::rank_from_launcher() > 0) return ExitCode::done;  // one rank writes it all
    if (!std::isfinite(options.temperature) || options.temperature < 0)
        throw user_error(ExitCode::usage, fmt::format("--temperature {}: allowed is 0 or more",
                                                      options.temperature));

    // 1. The checkpoint says which model it is
    std::vector<std::string> notes;
    const io::CheckpointReader checkpoint(train::find_checkpoint(options.checkpoint, notes));
    for (const std::string& note : notes) fmt::print(stderr, "{}\n", note);
    const config::RunConfig config =
        config::parse_run_config(checkpoint.meta().deck, checkpoint.path());
    std::vector<Token> text = prompt_tokens(options, config);

    // 2. The model
    Session session(config::CommBackend::self, &arguments.argc, &arguments.argv);
    const Exec& exec = session.exec();
    const auto model = model::make_model<float>(config.model);
    const Vec<float> parameters("scape::apps::parameters", model->layout().extent());
    checkpoint.read_flat("weights", model->layout(), parameters);
    model->bind(parameters, {});
    const Index longest = config.model.max_seq_len;
    model->allocate(1, longest, false);

    // 3. Token by token: the last `longest` tokens are the context
    const Vec<Token> context("scape::apps::context", longest);
    const auto context_host = Kokkos::create_mirror_view(context);
    const Vec<float> logits("scape::apps::logits", config.model.vocab);
    const HostVec<float> logits_host("scape::apps::logits_host", config.model.vocab);
    const bool bytes = config.data.format == config::DataFormat::text;
    const auto show = [&](Token t) {
        if (bytes)
            std::fputc(t, stdout);
        else
            fmt::print("{} ", t);
        std::fflush(stdout);
    };
    for (const Token t : text) show(t);
    for (int i = 0; i < options.tokens; ++i) {
        const Index length = std::min<Index>(longest, static_cast<Index>(text.size()));
        std::copy(text.end() - length, text.end(), context_host.data());
        Kokkos::deep_copy(exec, context, context_host);
        const model::Batch batch{slice(context, 0, length), {}, 1, length};
        model->forward(exec, batch, false, {});
        model->logits(exec, batch, length - 1, logits);
        Kokkos::deep_copy(exec, logits_host, logits);
        fence(exec, "scape::apps::logits");
        const std::uint64_t bits = uniform_bits(options.seed, stream_of("generate"), i);
        const Token next = draw(logits_host, options, static_cast<double>(bits >> 11) * 0x1p-53);
        text.push_back(next);
        show(next);
    }
    std::fputc('\n', stdout);
    return ExitCode::done;
}

}  // namespace scape::apps
