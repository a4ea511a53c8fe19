#include <scape/data/batch.hpp>

#include <scape/base/fence.hpp>

#include <stdexcept>

namespace scape::data {
namespace {

Vec<Token> buffer(const char* label, Index size) {
    return Vec<Token>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), size);
}

}  // namespace

BatchLoader::BatchLoader(Index micro_batch, Index seq_len)
    : micro_batch_(micro_batch),
      seq_len_(seq_len),
      device_{buffer("scape::data::tokens", micro_batch * seq_len),
              buffer("scape::data::targets", micro_batch * seq_len)},
      tokens_(Kokkos::create_mirror_view(device_.tokens)),
      targets_(Kokkos::create_mirror_view(device_.targets)) {}

Index BatchLoader::fill(const Exec& exec, const TokenStream& stream, Index first_sample,
                        Index count) {
    if (count < 0 || count > micro_batch_ || stream.seq_len() != seq_len_) {
        throw std::logic_error("BatchLoader: made for " + std::to_string(micro_batch_) + " x " +
                               std::to_string(seq_len_) + " tokens, asked for " +
                               std::to_string(count) + " x " + std::to_string(stream.seq_len()));
    }
    if constexpr (!exec_is_host) fence(exec, "scape::data::staging");

    hash_ = 0;
    Index unmasked = 0;
    for (Index row = 0; row < count; ++row) {
        Token* const tokens = tokens_.data() + row * seq_len_;
        Token* const targets = targets_.data() + row * seq_len_;
        stream.sample(first_sample + row, tokens, targets);
        hash_ += sample_hash(first_sample + row, tokens, seq_len_);
        for (Index i = 0; i < seq_len_; ++i) unmasked += targets[i] != ignored_target;
    }
    if constexpr (!exec_is_host) {
        const Index filled = count * seq_len_;
        Kokkos::deep_copy(exec, slice(device_.tokens, 0, filled), slice(tokens_, 0, filled));
        Kokkos::deep_copy(exec, slice(device_.targets, 0, filled), slice(targets_, 0, filled));
    }
    return unmasked;
}

std::uint64_t sample_hash(Index sample, const Token* tokens, Index count) {
    constexpr std::uint64_t prime = 0x100000001b3;
    std::uint64_t hash = (0xcbf29ce484222325 ^ static_cast<std::uint64_t>(sample)) * prime;
    for (Index i = 0; i < count; ++i) {
        hash = (hash ^ static_cast<std::uint64_t>(tokens[i])) * prime;
    }
    // Products carry upwards only; the high half decides the low one too (finaliser of
    // MurmurHash3).
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    return hash ^ hash >> 33;
}

}  // namespace scape::data
