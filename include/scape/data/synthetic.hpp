#pragma once
/// @file
/// A generated language whose entropy rate is known: what a model's loss can reach and never beat.

#include <scape/data/token_stream.hpp>

#include <vector>

namespace scape::data {

/// A Markov chain of order 1 over `vocab` tokens. Every token has K = min(8, vocab) distinct
/// successors, chosen by (seed, token), with probabilities that are the same for all tokens; so the
/// entropy rate is the entropy of that one distribution, whatever the chain's stationary state.
class Language {
   public:
    Language(Index vocab, std::uint64_t seed);

    Index vocab() const { return vocab_; }
    Index successors() const { return static_cast<Index>(probability_.size()); }
    const std::vector<double>& probabilities() const { return probability_; }
    /// Successor j of a token; distinct in j.
    Token successor(Token token, Index j) const;
    double entropy_rate() const;  ///< nats per token

    /// The token after `token`, chosen by 64 uniform bits.
    Token next(Token token, std::uint64_t bits) const;

   private:
    Index vocab_;
    std::vector<double> probability_;
    std::vector<std::uint32_t> cumulative_;  ///< of the integer weights
    std::vector<Token> table_;               ///< (vocab, K)
};

/// Sample n is a walk drawn from (seed, part, n) alone; parts (training, validation) never share a
/// number. The first token of a sample is uniform.
class SyntheticStream : public TokenStream {
   public:
    enum class Part : std::uint64_t { train = 0, valid = 1 };
    SyntheticStream(std::shared_ptr<const Language> language, Part part,
                    const StreamOptions& options);
    void sample(Index n, Token* tokens, Token* targets) const override;
    Index seq_len() const override { return options_.seq_len; }
    /// As good as endless.
    Index samples() const override { return Index{1} << 40; }

   private:
    std::shared_ptr<const Language> language_;
    std::uint64_t stream_;
    StreamOptions options_;
};

}  // namespace scape::data
