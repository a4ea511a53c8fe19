#include <scape/base/random.hpp>
#include <scape/data/permutation.hpp>

namespace scape::data {
namespace {

constexpr int rounds = 6;

// One pass of the network over 2 * half_bits bits. The stream's number and the round go into the
// counter, so every (seed, stream) has its own functions.
std::uint64_t feistel(std::uint64_t x, int half_bits, std::uint64_t seed, std::uint64_t stream) {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
    std::uint64_t left = x >> half_bits, right = x & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        // half_bits <= 31, so the round's number does not meet the half.
        const std::uint64_t f = uniform_bits(seed, stream, round << 32 | right);
        const std::uint64_t mixed = left ^ (f & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

}  // namespace

Index permute(std::uint64_t seed, std::uint64_t stream, Index i, Index size) {
    int half_bits = 1;
    while ((Index{1} << (2 * half_bits)) < size) ++half_bits;
    std::uint64_t x = static_cast<std::uint64_t>(i);
    do {
        x = feistel(x, half_bits, seed, stream);
    } while (x >= static_cast<std::uint64_t>(size));
    return static_cast<Index>(x);
}

}  // namespace scape::data
