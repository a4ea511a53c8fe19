#pragma once
/// @file
/// From samples to a micro-batch on the device: the only host-to-device copy of a step.

#include <scape/base/types.hpp>
#include <scape/data/token_stream.hpp>

#include <cstdint>

namespace scape::data {

struct TokensOnDevice {
    Vec<Token> tokens;   ///< (B T)
    Vec<Token> targets;  ///< (B T), ignored_target where nothing is to be predicted
};

/// Global index of row 0 of micro-batch `micro` (from 0) of `rank` in step `step` (from 1):
/// (t-1) global_batch + r (global_batch / ranks) + m micro_batch. Rows follow one another.
constexpr Index first_sample(Index step, Index global_batch, int ranks, int rank, Index micro_batch,
                             Index micro) {
    return (step - 1) * global_batch + rank * (global_batch / ranks) + micro * micro_batch;
}

class BatchLoader {
   public:
    /// Room for micro_batch samples of seq_len tokens; nothing is allocated later.
    BatchLoader(Index micro_batch, Index seq_len);

    /// Samples [first_sample, first_sample + count) into rows 0, 1, ... of device(); the copy is
    /// queued on `exec`. Returns the number of targets that count. On a device build it first waits
    /// for `exec`, because an earlier copy may still read the staging buffer.
    /// Throws what the stream throws, before anything reaches the device; std::logic_error where
    /// count or the stream's seq_len does not fit.
    Index fill(const Exec& exec, const TokenStream& stream, Index first_sample, Index count);

    const TokensOnDevice& device() const { return device_; }
    Index micro_batch() const { return micro_batch_; }
    Index seq_len() const { return seq_len_; }

    /// Hash of the last fill: the sum (mod 2^64) over its samples of a hash of global sample index
    /// and tokens. So the sum over the micro-batches and ranks of a step is the same for every
    /// split of the global batch.
    std::uint64_t hash() const { return hash_; }

   private:
    using Staging = decltype(Kokkos::create_mirror_view(Vec<Token>()));

    Index micro_batch_;
    Index seq_len_;
    TokensOnDevice device_;
    Staging tokens_;  ///< staging; on a host build the device's own memory
    Staging targets_;
    std::uint64_t hash_ = 0;
};

/// Hash of one sample (FNV-1a over 64-bit words, then mixed).
std::uint64_t sample_hash(Index sample, const Token* tokens, Index count);

}  // namespace scape::data
