#include <scape/base/random.hpp>
#include <scape/data/permutation.hpp>
#include <scape/data/synthetic.hpp>

#include <algorithm>
#include <cmath>

namespace scape::data {
namespace {

// Relative frequencies of a token's successors; 1.66 nats for all eight.
constexpr std::uint32_t weights[] = {96, 56, 36, 24, 16, 12, 10, 6};
constexpr Index most_successors = sizeof weights / sizeof weights[0];

}  // namespace

Language::Language(Index vocab, std::uint64_t seed) : vocab_(vocab) {
    const Index k = std::min(vocab, most_successors);
    std::uint32_t sum = 0;
    for (Index j = 0; j < k; ++j) cumulative_.push_back(sum += weights[j]);
    for (Index j = 0; j < k; ++j) probability_.push_back(static_cast<double>(weights[j]) / sum);

    table_.resize(vocab * k);
    for (Index token = 0; token < vocab; ++token) {
        const std::uint64_t stream = stream_of("synthetic.successors") + token;
        for (Index j = 0; j < k; ++j) {
            // The first K elements of a permutation of the vocabulary: distinct.
            table_[token * k + j] = static_cast<Token>(permute(seed, stream, j, vocab));
        }
    }
}

Token Language::successor(Token token, Index j) const {
    return table_[static_cast<Index>(token) * successors() + j];
}

double Language::entropy_rate() const {
    double sum = 0;
    for (const double p : probability_) sum -= p * std::log(p);
    return sum + 0.0;  // no negative zero for one successor
}

Token Language::next(Token token, std::uint64_t bits) const {
    const std::uint64_t draw = (bits >> 32) * cumulative_.back() >> 32;
    Index j = 0;
    while (draw >= cumulative_[j]) ++j;
    return successor(token, j);
}

SyntheticStream::SyntheticStream(std::shared_ptr<const Language> language, Part part,
                                 const StreamOptions& options)
    : language_(std::move(language)),
      stream_(stream_of("synthetic.text") + static_cast<std::uint64_t>(part)),
      options_(options) {}

void SyntheticStream::sample(Index n, Token* tokens, Token* targets) const {
    const auto bits = [&](Index position) {
        // A sample's numbers: seq_len + 1 counters of its own.
        const std::uint64_t first =
            static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(options_.seq_len + 1);
        return uniform_bits(options_.seed, stream_, first + static_cast<std::uint64_t>(position));
    };
    const auto vocab = static_cast<std::uint64_t>(language_->vocab());
    Token token = static_cast<Token>((bits(0) >> 32) * vocab >> 32);
    for (Index i = 0; i < options_.seq_len; ++i) {
        tokens[i] = token;
        token = language_->next(token, bits(i + 1));
        targets[i] = token;
    }
    mask_targets(targets, options_.seq_len, options_.ignore_token);
}

}  // namespace scape::data
