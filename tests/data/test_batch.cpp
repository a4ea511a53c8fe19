// From samples to the device; every split of a global batch is the same samples.
#include <scape/data/batch.hpp>

#include "support/catch.hpp"
#include "support/compare.hpp"

#include <stdexcept>

using namespace scape;
using data::BatchLoader;
using data::first_sample;

namespace {

/// Sample n: tokens 100 n + i, targets one more; target i is masked where (n + i) % 3 = 0.
class NumberStream : public data::TokenStream {
   public:
    explicit NumberStream(Index seq_len) : seq_len_(seq_len) {}
    void sample(Index n, Token* tokens, Token* targets) const override {
        if (n == broken) throw std::runtime_error("broken sample");
        for (Index i = 0; i < seq_len_; ++i) {
            tokens[i] = static_cast<Token>(100 * n + i);
            targets[i] = (n + i) % 3 == 0 ? ignored_target : tokens[i] + 1;
        }
    }
    Index seq_len() const override { return seq_len_; }
    Index samples() const override { return 1000; }
    Index broken = -1;

   private:
    Index seq_len_;
};

}  // namespace

TEST_CASE("a micro-batch is its samples, row by row") {
    const Exec exec;
    const NumberStream stream(5);
    BatchLoader loader(3, 5);
    CHECK(loader.device().tokens.extent(0) == 15);
    for (Index count : {3, 1, 2, 0}) {
        const Index unmasked = loader.fill(exec, stream, 7, count);
        const auto tokens = test::to_host(loader.device().tokens);
        const auto targets = test::to_host(loader.device().targets);
        Index counted = 0;
        std::vector<Token> want(5), want_targets(5);
        for (Index row = 0; row < count; ++row) {
            stream.sample(7 + row, want.data(), want_targets.data());
            CHECK(std::equal(want.begin(), want.end(), tokens.begin() + row * 5));
            CHECK(std::equal(want_targets.begin(), want_targets.end(), targets.begin() + row * 5));
            counted += std::count_if(want_targets.begin(), want_targets.end(),
                                     [](Token t) { return t != ignored_target; });
        }
        CHECK(unmasked == counted);
    }
}

TEST_CASE("the buffers are allocated once") {
    const Exec exec;
    const NumberStream stream(5);
    BatchLoader loader(3, 5);
    const void* const before = loader.device().tokens.data();
    loader.fill(exec, stream, 0, 3);
    loader.fill(exec, stream, 3, 3);
    CHECK(loader.device().tokens.data() == before);
}

TEST_CASE("what does not fit, and what a stream throws") {
    const Exec exec;
    NumberStream stream(5);
    BatchLoader loader(3, 5);
    CHECK_THROWS_AS(loader.fill(exec, stream, 0, 4), std::logic_error);
    CHECK_THROWS_AS(loader.fill(exec, stream, 0, -1), std::logic_error);
    CHECK_THROWS_AS(loader.fill(exec, NumberStream(6), 0, 3), std::logic_error);
    stream.broken = 1;
    CHECK_THROWS_AS(loader.fill(exec, stream, 0, 3), std::runtime_error);
}

TEST_CASE("every split of the global batch: the same samples, the same hash") {
    constexpr Index global_batch = 12, steps = 3;
    const Exec exec;
    const NumberStream stream(4);
    std::vector<std::uint64_t> wanted;
    for (const auto& [ranks, micro_batch] :
         std::vector<std::pair<int, Index>>{{1, 12}, {1, 1}, {2, 3}, {3, 2}, {4, 3}, {12, 1}}) {
        BatchLoader loader(micro_batch, 4);
        std::vector<std::uint64_t> hashes;
        for (Index step = 1; step <= steps; ++step) {
            std::uint64_t hash = 0;
            std::vector<int> seen(global_batch * steps, 0);
            for (int rank = 0; rank < ranks; ++rank) {
                for (Index micro = 0; micro < global_batch / (ranks * micro_batch); ++micro) {
                    const Index first =
                        first_sample(step, global_batch, ranks, rank, micro_batch, micro);
                    loader.fill(exec, stream, first, micro_batch);
                    hash += loader.hash();
                    for (Index b = 0; b < micro_batch; ++b) ++seen.at(first + b);
                }
            }
            for (Index n = 0; n < global_batch * steps; ++n) {
                CHECK(seen[n] == (n / global_batch == step - 1 ? 1 : 0));
            }
            hashes.push_back(hash);
        }
        if (wanted.empty()) wanted = hashes;
        CHECK(hashes == wanted);
        CHECK(hashes[0] != hashes[1]);
    }
}

TEST_CASE("the hash tells samples, tokens and their order apart") {
    const Token a[] = {1, 2, 3}, b[] = {1, 3, 2}, c[] = {1, 2, 4};
    const auto hash = data::sample_hash(5, a, 3);
    CHECK(hash == data::sample_hash(5, a, 3));
    CHECK(hash != data::sample_hash(6, a, 3));
    CHECK(hash != data::sample_hash(5, b, 3));
    CHECK(hash != data::sample_hash(5, c, 3));
    CHECK(hash != data::sample_hash(5, a, 2));
    // Large indices.
    const Index far = Index{1} << 50;
    CHECK(first_sample(far, 8, 2, 1, 2, 1) == (far - 1) * 8 + 4 + 2);
    CHECK(data::sample_hash(far, a, 3) != data::sample_hash(0, a, 3));
}
