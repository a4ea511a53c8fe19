// Sample order and windows: which tokens are in sample n.
#include <scape/data/permutation.hpp>
#include <scape/data/token_stream.hpp>

#include "support/catch.hpp"
#include "support/scratch.hpp"

#include <map>
#include <numeric>
#include <set>

using namespace scape;
using data::FileStream;
using data::permute;
using data::StreamOptions;
using data::TokenFiles;

namespace {

StreamOptions options(Index seq_len, bool shuffle, std::uint64_t seed = 5, Index ignore = -1) {
    StreamOptions o;
    o.seq_len = seq_len;
    o.shuffle = shuffle;
    o.seed = seed;
    o.ignore_token = ignore;
    return o;
}

/// Token i of the files is i % 251.
std::shared_ptr<const TokenFiles> counting_files(const test::Scratch& dir, Index tokens) {
    std::string bytes;
    for (Index i = 0; i < tokens; ++i) bytes.push_back(static_cast<char>(i % 251));
    dir.write("a", bytes.substr(0, tokens / 3));
    dir.write("b", bytes.substr(tokens / 3));
    return std::make_shared<const TokenFiles>(dir.path("?"), config::DataFormat::text, 256);
}

}  // namespace

TEST_CASE("permute is a permutation for every size, and depends on seed and stream") {
    for (Index size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 257, 1000, 4096, 5000}) {
        std::set<Index> seen;
        for (Index i = 0; i < size; ++i) {
            const Index j = permute(3, 1, i, size);
            CHECK((j >= 0 && j < size));
            seen.insert(j);
        }
        CHECK(static_cast<Index>(seen.size()) == size);
    }
    int same_seed = 0, same_stream = 0, fixed = 0;
    for (Index i = 0; i < 1000; ++i) {
        same_seed += permute(1, 0, i, 1000) == permute(2, 0, i, 1000);
        same_stream += permute(1, 0, i, 1000) == permute(1, 1, i, 1000);
        fixed += permute(1, 0, i, 1000) == i;
    }
    // One coincidence each is expected.
    CHECK(same_seed < 8);
    CHECK(same_stream < 8);
    CHECK(fixed < 8);
}

TEST_CASE("permute mixes: first elements and neighbours are uniform") {
    // All 24 orders of four elements, over seeds; 6000 draws, 250 each, deviation 15.5.
    std::map<std::vector<Index>, int> orders;
    for (int seed = 0; seed < 6000; ++seed) {
        std::vector<Index> order;
        for (Index i = 0; i < 4; ++i) order.push_back(permute(seed, 9, i, 4));
        ++orders[order];
    }
    CHECK(orders.size() == 24);
    for (const auto& [order, count] : orders) CHECK(std::abs(count - 250) < 5 * 15.5);
    // Correlation of neighbours in a large range.
    constexpr Index size = 1000003;
    double sum = 0;
    for (Index i = 0; i < 20000; ++i) {
        sum += (permute(1, 1, i, size) / double(size) - 0.5) *
               (permute(1, 1, i + 1, size) / double(size) - 0.5);
    }
    CHECK(std::abs(sum / 20000 * 12) < 4 / std::sqrt(20000.0));
}

TEST_CASE("permute beyond 2^32") {
    const Index size = (Index{1} << 40) + 12345;
    std::set<Index> seen;
    Index largest = 0;
    for (Index i = size - 1000; i < size; ++i) {
        const Index j = permute(1, 1, i, size);
        CHECK((j >= 0 && j < size));
        largest = std::max(largest, j);
        seen.insert(j);
    }
    CHECK(seen.size() == 1000);
    CHECK(largest > size / 2);
}

TEST_CASE("an epoch is every window once; targets are the next tokens") {
    const test::Scratch dir;
    const auto files = counting_files(dir, 1000);
    const Range range{100, 100 + 7 * 13 + 1 + 6};  // 13 windows, six tokens left over
    const FileStream stream(files, range, options(7, true));
    REQUIRE(stream.samples() == 13);
    CHECK(stream.seq_len() == 7);
    std::vector<std::vector<Index>> order;
    for (Index epoch = 0; epoch < 3; ++epoch) {
        std::vector<Index> windows;
        for (Index n = 0; n < 13; ++n) {
            std::vector<Token> tokens(7), targets(7);
            stream.sample(epoch * 13 + n, tokens.data(), targets.data());
            // Within 251 tokens of the start, the first token tells the position.
            const Index position = tokens[0];
            CHECK((position - range.begin) % 7 == 0);
            windows.push_back((position - range.begin) / 7);
            for (Index i = 0; i < 7; ++i) {
                CHECK(tokens[i] == (position + i) % 251);
                CHECK(targets[i] == (position + i + 1) % 251);
            }
        }
        order.push_back(windows);
        std::sort(windows.begin(), windows.end());
        std::vector<Index> each(13);
        std::iota(each.begin(), each.end(), 0);
        CHECK(windows == each);
    }
    CHECK(order[0] != order[1]);
    CHECK(order[1] != order[2]);
}

TEST_CASE("the order depends on the seed alone; validation is in order") {
    const test::Scratch dir;
    const auto files = counting_files(dir, 250);
    const auto firsts = [&](const StreamOptions& o) {
        const FileStream stream(files, {0, 250}, o);
        std::vector<Token> found, tokens(4), targets(4);
        for (Index n = 0; n < 2 * stream.samples(); ++n) {
            stream.sample(n, tokens.data(), targets.data());
            found.push_back(tokens[0]);
        }
        return found;
    };
    CHECK(firsts(options(4, true, 1)) == firsts(options(4, true, 1)));
    CHECK(firsts(options(4, true, 1)) != firsts(options(4, true, 2)));
    const auto in_order = firsts(options(4, false));
    REQUIRE(in_order.size() == 2 * 62);
    for (int i = 0; i < 124; ++i) CHECK(in_order[i] == i % 62 * 4);
}

TEST_CASE("targets equal to the ignored token do not count; inputs stay") {
    const test::Scratch dir;
    const auto files = counting_files(dir, 250);
    const FileStream stream(files, {0, 250}, options(10, false, 1, 4));
    std::vector<Token> tokens(10), targets(10);
    stream.sample(0, tokens.data(), targets.data());
    CHECK(tokens == std::vector<Token>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(targets == std::vector<Token>{1, 2, 3, ignored_target, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("one token long sequences, and the shortest range there can be") {
    const test::Scratch dir;
    const auto files = counting_files(dir, 250);
    const FileStream one(files, {3, 5}, options(1, true));
    CHECK(one.samples() == 1);
    Token token = 0, target = 0;
    one.sample(123456789012, &token, &target);
    CHECK(token == 3);
    CHECK(target == 4);
    CHECK_THROWS_AS(FileStream(files, {3, 4}, options(1, true)), std::logic_error);
}
