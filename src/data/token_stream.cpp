#include <scape/base/random.hpp>
#include <scape/data/permutation.hpp>
#include <scape/data/token_stream.hpp>

#include <algorithm>
#include <stdexcept>

namespace scape::data {

FileStream::FileStream(std::shared_ptr<const TokenFiles> files, Range range,
                       const StreamOptions& options)
    : files_(std::move(files)), range_(range), options_(options) {
    samples_ = std::max<Index>(0, (range.size() - 1) / options.seq_len);
    if (options.seq_len < 1 || samples_ < 1) {
        throw std::logic_error("FileStream: no sample of " + std::to_string(options.seq_len) +
                               " tokens in " + std::to_string(range.size()));
    }
}

void FileStream::sample(Index n, Token* tokens, Token* targets) const {
    const Index epoch = n / samples_;
    Index window = n % samples_;
    if (options_.shuffle) {
        // Streams of the sample order are numbered by epoch, apart from all other streams.
        window = permute(options_.seed, stream_of("data.order") + static_cast<std::uint64_t>(epoch),
                         window, samples_);
    }
    const Index first = range_.begin + window * options_.seq_len;
    // The targets are the tokens one further on: read those, and the token before them.
    files_->read(first, 1, tokens);
    files_->read(first + 1, options_.seq_len, targets);
    std::copy(targets, targets + options_.seq_len - 1, tokens + 1);
    mask_targets(targets, options_.seq_len, options_.ignore_token);
}

void mask_targets(Token* targets, Index count, Index ignore_token) {
    if (ignore_token < 0) return;
    std::replace(targets, targets + count, static_cast<Token>(ignore_token), ignored_target);
}

}  // namespace scape::data
