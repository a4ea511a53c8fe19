// The entropy code of masks: its size against the entropy and against masks made to exceed it, and
// the way there and back. The host's and the device's must agree byte for byte.
#include "kernels/mask_cases.hpp"
#include "support/catch.hpp"

#include <scape/kernels/mask_code_phrases.hpp>

#include <cmath>
#include <set>

using namespace scape;
using namespace scape::kernels;
using namespace scape::test;

namespace {

/// log2 of n over k.
double entropy_bits(Index n, Index k) {
    return (std::lgamma(n + 1.) - std::lgamma(k + 1.) - std::lgamma(n - k + 1.)) / std::log(2.);
}

/// `coded` without the codes of the segments.
Bytes around(Bytes coded, const Case& c) {
    for (const Segment& s : c.segments) {
        const Index bytes = mask_code_bytes(MaskCode::entropy, s.size, s.selected);
        std::fill_n(coded.begin() + s.code, bytes, untouched);
    }
    return coded;
}

/// Empty, or what is wrong after coding and decoding.
std::string check(const Case& c) {
    Positions selected(c.positions, unwritten);
    Positions wanted = selected;
    for (std::size_t i = 0; i < c.segments.size(); ++i) {
        const Segment& s = c.segments[i];
        std::copy(c.masks[i].begin(), c.masks[i].end(), selected.begin() + s.first);
        for (Index j = 0; j < s.selected; ++j) {
            wanted[s.first + j] = static_cast<Position>(s.begin + c.masks[i][j]);
        }
    }
    const Vec<Segment> segments = to_device(c.segments);
    const Vec<Position> in = to_device(selected);
    std::string wrong;
    Bytes first;
    for (const Implementation& by : implementations()) {
        const Vec<unsigned char> coded = to_device(Bytes(c.bytes, untouched));
        const Vec<Position> out = to_device(Positions(c.positions, unwritten));
        by.encode(Exec{}, MaskCode::entropy, segments, in, coded);
        by.decode(Exec{}, MaskCode::entropy, segments, coded, out);
        const Bytes bytes = to_host(coded);
        if (first.empty()) first = bytes;
        wrong += difference(by.name + ", code", bytes, first) +
                 difference(by.name + ", around the codes", around(bytes, c),
                            Bytes(c.bytes, untouched)) +
                 difference(by.name + ", positions", to_host(out), wanted);
    }
    return wrong;
}

void check_mask(const Positions& mask, Index n, Random& random) {
    Case c;
    c.add(MaskCode::entropy, n, mask, random);
    c.finish();
    const std::string wrong = check(c);
    INFO("n " << n << ", k " << mask.size());
    if (!wrong.empty()) FAIL_CHECK(wrong);
}

/// k positions with gaps[j % gaps.size()] before the j-th.
Positions mask_of_gaps(Index k, const std::vector<Position>& gaps, Position next = 0) {
    Positions mask;
    for (Index j = 0; j < k; ++j) {
        mask.push_back(next += gaps[j % gaps.size()]);
        ++next;
    }
    return mask;
}

}  // namespace

TEST_CASE("The entropy code of a long segment is within 5 % of the entropy") {
    for (const Index n : {100000, 123457, 300001, 1600000, 50000000}) {
        for (const double density : {0.1, 0.03, 0.01}) {
            const Index k = std::llround(n * density);
            const double bits = 8. * mask_code_bytes(MaskCode::entropy, n, k);
            INFO("n " << n << ", k " << k << ": " << bits / entropy_bits(n, k));
            CHECK(bits < 1.05 * entropy_bits(n, k));
            CHECK(bits > entropy_bits(n, k));
        }
    }
}

TEST_CASE("Every phrase costs at most what its elements are worth") {
    for (int model = 0; model < kernels::detail::phrase_models; ++model) {
        const kernels::detail::PhraseTable& table = kernels::detail::phrase_table(model);
        REQUIRE(static_cast<Index>(table.phrases.size()) == kernels::detail::phrase_count);
        std::set<std::vector<int>> different;
        double least = 1e9;
        int unused = 0;
        for (const kernels::detail::Phrase& phrase : table.phrases) {
            const int selected = phrase.lanes[7] >> 4 & 15;
            const int raw_bits = phrase.lanes[7] >> 8;
            const int length = phrase.lanes[6];
            if (length == 0) {
                ++unused;
                continue;
            }
            const double worth = static_cast<double>(selected * table.view.selected +
                                                     (length - selected) * table.view.skipped);
            least = std::min(least, worth / (1 << kernels::detail::phrase_worth_bits) - raw_bits);
            std::vector<int> lanes(phrase.lanes, phrase.lanes + 8);
            different.insert(lanes);
        }
        INFO("model " << model);
        CHECK(least >= kernels::detail::phrase_bits);
        CHECK(least < kernels::detail::phrase_bits + 0.1);
        CHECK(static_cast<Index>(different.size()) + unused == kernels::detail::phrase_count);
        CHECK(unused < kernels::detail::phrase_count / 16);
    }
}

TEST_CASE("Masks made of the dearest phrases fit into their size") {
    Random random(11);
    for (int model = 0; model < kernels::detail::phrase_models; model += 4) {
        const kernels::detail::PhraseTable& table = kernels::detail::phrase_table(model);
        const double p = std::exp2(-(20 + model) / 8.);
        // Per count of selected elements, the phrase with the least that is worth more than paid.
        for (int selected = 1; selected <= 4; ++selected) {
            const kernels::detail::Phrase* dearest = nullptr;
            double least = 1e18;
            for (const kernels::detail::Phrase& phrase : table.phrases) {
                if ((phrase.lanes[7] >> 4 & 15) != selected) continue;
                const double surplus =
                    static_cast<double>((phrase.lanes[6] - selected) * table.view.skipped) -
                    std::ldexp(phrase.lanes[7] >> 8, kernels::detail::phrase_worth_bits);
                if (surplus < least) dearest = &phrase;
                least = std::min(least, surplus);
            }
            if (dearest == nullptr) continue;
            Positions mask;
            Position next = 0;
            const int full = dearest->lanes[7] & 15;
            while (mask.size() < 3000) {
                for (int l = 0; l < full; ++l) mask.push_back(next + dearest->lanes[l]);
                next += dearest->lanes[6];
                if (full < selected) mask.push_back(next - 1);
            }
            const auto n = static_cast<Index>(static_cast<double>(mask.size()) / p);
            check_mask(mask, std::max<Index>(n, mask.back() + 1), random);
        }
    }
}

TEST_CASE("Entropy codes of masks of every shape") {
    Random random(12);
    for (int i = 0; i < 700; ++i) {
        const std::string wrong = check(random_case(MaskCode::entropy, i % 2 ? 70 : 3000, random));
        INFO("case " << i);
        if (!wrong.empty()) FAIL_CHECK(wrong);
    }
    for (int i = 0; i < 15; ++i) {
        const std::string wrong = check(random_case(MaskCode::entropy, 300000, random));
        INFO("long case " << i);
        if (!wrong.empty()) FAIL_CHECK(wrong);
    }
    for (const double density : {0.1, 0.03, 0.01, 0.0003}) {
        for (const Index n : {99999, 800003}) {
            const Index k = std::llround(n * density);
            check_mask(random_mask(n, k, random), n, random);
        }
    }
}

TEST_CASE("Entropy codes of masks far from random") {
    Random random(13);
    const Index n = 400000;
    for (const Index k : {1, 2, 40, 4000, 12000, 20000, 40000, 70000, 200000, 399999}) {
        const auto room = static_cast<Position>((n - k) / k);
        const auto rest = static_cast<Position>(n - k);
        check_mask(mask_of_gaps(k, {room}), n, random);         // equal gaps
        check_mask(mask_of_gaps(k, {0}), n, random);            // all at the front
        check_mask(mask_of_gaps(k, {0}, rest), n, random);      // at the end
        check_mask(mask_of_gaps(k, {0}, rest / 2), n, random);  // in the middle
        check_mask(mask_of_gaps(k, {0, 2 * room}), n, random);  // tiny and huge
        check_mask(mask_of_gaps(k, {0, 0, 0, 4 * room}), n, random);
        check_mask(mask_of_gaps(k, {room / 2, room + room / 2}), n, random);
    }
    for (Position gap = 0; gap < 300; ++gap) {  // each at about the density of its gaps
        check_mask(mask_of_gaps(1500, {gap}), 1500 * (Index{gap} + 1), random);
    }
}
