#pragma once
/// @file
/// Which tokens are in sample n. A pure function of (seed, n): nothing is drawn, so nothing has to
/// be stored to resume, and any number of ranks sees the same samples.

#include <scape/base/flat_layout.hpp>
#include <scape/base/types.hpp>
#include <scape/data/token_file.hpp>

#include <memory>

namespace scape::data {

class TokenStream {
   public:
    virtual ~TokenStream() = default;

    /// tokens, targets (seq_len). targets are the next tokens, with ignored_target where the next
    /// token is the one that does not count. n >= 0; sample n belongs to epoch n / samples().
    virtual void sample(Index n, Token* tokens, Token* targets) const = 0;

    virtual Index seq_len() const = 0;
    /// Per epoch.
    virtual Index samples() const = 0;
};

/// What a stream makes of a range of tokens.
struct StreamOptions {
    Index seq_len = 0;
    Index ignore_token = -1;  ///< -1: all targets count
    bool shuffle = true;      ///< false: in order, the same in every epoch
    std::uint64_t seed = 0;
};

/// Windows of seq_len tokens, one after another over tokens [range.begin, range.end) of the files;
/// the last target of a window is the first token of the next. (range.size() - 1) / seq_len samples
/// an epoch, each once, in an order that differs from epoch to epoch.
class FileStream : public TokenStream {
   public:
    FileStream(std::shared_ptr<const TokenFiles> files, Range range, const StreamOptions& options);
    void sample(Index n, Token* tokens, Token* targets) const override;
    Index seq_len() const override { return options_.seq_len; }
    Index samples() const override { return samples_; }

   private:
    std::shared_ptr<const TokenFiles> files_;
    Range range_;
    StreamOptions options_;
    Index samples_;
};

/// targets = ignored_target where they equal `ignore_token`; nothing when that is negative.
void mask_targets(Token* targets, Index count, Index ignore_token);

}  // namespace scape::data
