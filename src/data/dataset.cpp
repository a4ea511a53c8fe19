#include <scape/base/error.hpp>
#include <scape/data/dataset.hpp>
#include <scape/data/synthetic.hpp>

#include <scape/config/validate.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace scape::data {
namespace {

constexpr Index most_counted_bytes = Index{64} << 20;
constexpr Index counted_at_once = Index{16} << 10;   // tokens
constexpr Index counted_synthetic = Index{1} << 20;  // tokens

StreamOptions options(const config::RunConfig& config, bool shuffle) {
    StreamOptions o;
    o.seq_len = config.train.seq_len;
    o.ignore_token = config.data.ignore_token;
    o.shuffle = shuffle;
    o.seed = static_cast<std::uint64_t>(config.run.seed);
    return o;
}

Dataset open_synthetic(const config::RunConfig& config) {
    const auto language = std::make_shared<const Language>(
        config.model.vocab, static_cast<std::uint64_t>(config.run.seed));
    const StreamOptions o = options(config, false);
    Dataset set;
    set.train = std::make_unique<SyntheticStream>(language, SyntheticStream::Part::train, o);
    set.valid = std::make_unique<SyntheticStream>(language, SyntheticStream::Part::valid, o);
    set.entropy_rate = language->entropy_rate();
    set.train_tokens = set.train->samples() * o.seq_len;
    set.valid_tokens = set.valid->samples() * o.seq_len;

    std::vector<Index> counts(config.model.vocab);
    std::vector<Token> tokens(o.seq_len), targets(o.seq_len);
    for (Index n = 0; n * o.seq_len < counted_synthetic; ++n) {
        set.train->sample(n, tokens.data(), targets.data());
        for (const Token t : tokens) ++counts[t];
    }
    set.unigram_entropy = entropy(counts);
    return set;
}

double count_unigrams(const TokenFiles& files, Range range) {
    const Index most = most_counted_bytes / token_bytes(files.format());
    const Index end = range.begin + std::min(range.size(), most);
    std::vector<Index> counts(files.vocab());
    std::vector<Token> tokens(counted_at_once);
    for (Index first = range.begin; first < end; first += counted_at_once) {
        const Index part = std::min(counted_at_once, end - first);
        files.read(first, part, tokens.data());
        for (Index i = 0; i < part; ++i) ++counts[tokens[i]];
    }
    return entropy(counts);
}

// What `text` (a phrase) must hold at least: a sequence and the target of its last token.
void check_train(const config::RunConfig& config, const std::string& text, Range range) {
    const Index seq_len = config.train.seq_len;
    if (range.size() < seq_len + 1) {
        throw user_error(ExitCode::data,
                         fmt::format("data: {} has {} tokens, fewer than one sequence and its last "
                                     "target (train.seq_len + 1 = {})",
                                     text, range.size(), seq_len + 1));
    }
    const Index samples = (range.size() - 1) / seq_len;
    if (samples < config.train.global_batch) {
        throw user_error(ExitCode::data,
                         fmt::format("data: {} has {} sequences of {} tokens, fewer than one "
                                     "global batch (train.global_batch = {}): more text, a shorter "
                                     "train.seq_len or a smaller batch",
                                     text, samples, seq_len, config.train.global_batch));
    }
}

}  // namespace

double entropy(const std::vector<Index>& counts) {
    double total = 0, sum = 0;
    for (const Index n : counts) total += static_cast<double>(n);
    for (const Index n : counts) {
        if (n > 0) sum -= n / total * std::log(n / total);
    }
    return sum;
}

Split split_tokens(const std::string& weights, Index tokens) {
    const auto [train, valid, unused] = config::split_shares(weights);
    const auto cut = [&](double share) {
        return std::min(tokens, static_cast<Index>(std::llround(tokens * share)));
    };
    const Index first = cut(train);
    const Index second = std::max(first, cut(train + valid));
    return {{0, first}, {first, second}};
}

Dataset open_dataset(const config::RunConfig& config) {
    const auto& data = config.data;
    if (data.format == config::DataFormat::synthetic) return open_synthetic(config);

    const auto train =
        std::make_shared<const TokenFiles>(data.train, data.format, config.model.vocab);
    auto valid = train;
    Split split{{0, train->tokens()}, {}};
    std::string train_text = fmt::format("the text of data.train = \"{}\"", data.train);
    std::string valid_text = fmt::format("data.valid = \"{}\"", data.valid);
    if (data.valid.empty()) {
        split = split_tokens(data.split, train->tokens());
        valid_text = fmt::format("the validation part (data.split = \"{}\")", data.split);
        if (split.train.size() < train->tokens()) {
            train_text = fmt::format(
                "the training part (data.split = \"{}\") of data.train = \"{}\", "
                "{} tokens,",
                data.split, data.train, train->tokens());
        }
    } else {
        valid = std::make_shared<const TokenFiles>(data.valid, data.format, config.model.vocab);
        split.valid = {0, valid->tokens()};
    }
    check_train(config, train_text, split.train);

    Dataset set;
    set.train = std::make_unique<FileStream>(train, split.train, options(config, true));
    set.train_tokens = split.train.size();
    if (split.valid.size() >= config.train.seq_len + 1) {
        set.valid = std::make_unique<FileStream>(valid, split.valid, options(config, false));
        set.valid_tokens = split.valid.size();
    } else {
        set.notes.push_back(
            fmt::format("no validation: {} has {} tokens, fewer than one sequence "
                        "and its last target ({})",
                        valid_text, split.valid.size(), config.train.seq_len + 1));
    }
    set.unigram_entropy = count_unigrams(*train, split.train);
    return set;
}

}  // namespace scape::data
