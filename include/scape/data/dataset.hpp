#pragma once
/// @file
/// The data of a run, as its deck describes them.

#include <scape/config/run_config.hpp>
#include <scape/data/token_stream.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace scape::data {

struct Dataset {
    std::unique_ptr<TokenStream> train;
    std::unique_ptr<TokenStream> valid;  ///< in order; null: there is no validation text
    /// Nats per token of the training text's token frequencies, counted over at most its first
    /// 64 MiB: what a model that knows nothing but frequencies reaches.
    double unigram_entropy = 0;
    std::optional<double> entropy_rate;  ///< nats per token, where the source's is known
    Index train_tokens = 0;              ///< synthetic data: of its (endless) epoch
    Index valid_tokens = 0;
    std::vector<std::string> notes;  ///< what a user should read: one line each
};

/// Opens what [data] names, cut into training and validation text: data.valid's own files, or
/// contiguous ranges of the training files in the proportion of data.split. A validation text that
/// is shorter than one sequence is null, with a note. Throws user_error(data) as TokenFiles does,
/// and where the training text is shorter than one sequence or one global batch;
/// user_error(usage) on a split that cannot be read.
Dataset open_dataset(const config::RunConfig& config);

/// "949,50,1": up to three weights, of training, validation and unused text.
struct Split {
    Range train;
    Range valid;
};
Split split_tokens(const std::string& weights, Index tokens);

/// - sum p log p over counts / total, in nats.
double entropy(const std::vector<Index>& counts);

}  // namespace scape::data
