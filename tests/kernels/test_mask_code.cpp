// Codes of a mask against plain ones, byte for byte, and back; damaged codes stay in bounds. For
// the public functions and the device's behind them.
#include "kernels/mask_cases.hpp"
#include "support/catch.hpp"

#include <cstring>

using namespace scape;
using namespace scape::kernels;
using namespace scape::test;

namespace {

constexpr MaskCode codes[] = {MaskCode::bitmap, MaskCode::gaps, MaskCode::index};
constexpr MaskCode all_codes[] = {MaskCode::bitmap, MaskCode::gaps, MaskCode::index,
                                  MaskCode::entropy};
/// Straight from the description in the header.
Bytes reference_code(MaskCode code, Index n, const Positions& positions) {
    const Index k = static_cast<Index>(positions.size());
    if (k == n) return {};
    Bytes bytes;
    if (code == MaskCode::bitmap) {
        std::vector<std::uint64_t> words((n + 63) / 64, 0);
        for (const Position p : positions) words[p / 64] |= std::uint64_t{1} << p % 64;
        bytes.resize(8 * words.size());
        std::memcpy(bytes.data(), words.data(), bytes.size());
    } else if (code == MaskCode::gaps) {
        Index next = 0;
        for (const Position p : positions) {
            for (; p - next >= 255; next += 255) bytes.push_back(255);
            bytes.push_back(static_cast<unsigned char>(p - next));
            next = Index{p} + 1;
        }
        REQUIRE(static_cast<Index>(bytes.size()) <= k + n / 255);
        bytes.resize((k + n / 255 + 7) / 8 * 8, 255);
    } else {
        bytes.resize((4 * k + 7) / 8 * 8, 0);
        std::memcpy(bytes.data(), positions.data(), 4 * k);
    }
    return bytes;
}

/// Empty, or what is wrong with codes or positions.
std::string check(const Implementation& by, MaskCode code, const Case& c) {
    Positions selected(c.positions, unwritten), wanted(c.positions, unwritten);
    Bytes wanted_code(c.bytes, untouched);
    for (std::size_t i = 0; i < c.segments.size(); ++i) {
        const Segment& s = c.segments[i];
        std::copy(c.masks[i].begin(), c.masks[i].end(), selected.begin() + s.first);
        for (Index j = 0; j < s.selected; ++j) {
            wanted[s.first + j] = static_cast<Position>(s.begin + c.masks[i][j]);
        }
        const Bytes bytes = reference_code(code, s.size, c.masks[i]);
        REQUIRE(static_cast<Index>(bytes.size()) == mask_code_bytes(code, s.size, s.selected));
        std::copy(bytes.begin(), bytes.end(), wanted_code.begin() + s.code);
    }
    const Vec<Segment> segments = to_device(c.segments);
    const Vec<Position> in = to_device(selected);
    const Vec<Position> out = to_device(Positions(c.positions, unwritten));
    const Vec<unsigned char> coded = to_device(Bytes(c.bytes, untouched));
    by.encode(Exec{}, code, segments, in, coded);
    by.decode(Exec{}, code, segments, coded, out);
    return difference(by.name + ", code", to_host(coded), wanted_code) +
           difference(by.name + ", positions", to_host(out), wanted);
}

void check_all(MaskCode code, const Case& c) {
    INFO("code " << static_cast<int>(code) << ", first segment " << c.segments[0].size << ", "
                 << c.segments[0].selected);
    for (const Implementation& by : implementations()) {
        const std::string wrong = check(by, code, c);
        if (!wrong.empty()) FAIL_CHECK(wrong);
    }
}

}  // namespace

TEST_CASE("Masks are coded as described, and decoded to the same positions") {
    Random random(1);
    for (const MaskCode code : codes) {
        for (int i = 0; i < 700; ++i) check_all(code, random_case(code, i % 2 ? 70 : 3000, random));
        for (int i = 0; i < 5; ++i) check_all(code, random_case(code, 300000, random));
    }
}

TEST_CASE("Gaps about 255 and its multiples") {
    Random random(2);
    for (const Position gap :
         {0u, 1u, 253u, 254u, 255u, 256u, 508u, 509u, 510u, 511u, 765u, 70000u}) {
        for (const Position tail : {0u, 1u, 254u, 255u, 256u, 10000u}) {
            for (const Index k : {1, 2, 7, 33, 50}) {
                Positions mask;
                for (Position next = 0; static_cast<Index>(mask.size()) < k; ++next) {
                    mask.push_back(next += gap);
                }
                for (const MaskCode code : codes) {
                    Case c;
                    c.add(code, Index{mask.back()} + 1 + tail, mask, random);
                    c.finish();
                    check_all(code, c);
                }
            }
        }
    }
}

TEST_CASE("A mask of everything has no code") {
    for (const MaskCode code : all_codes) {
        CHECK(mask_code_bytes(code, 1, 1) == 0);
        CHECK(mask_code_bytes(code, 1000, 1000) == 0);
        CHECK(mask_code_bytes(code, 1000, 999) % 8 == 0);
    }
    CHECK(mask_code_bytes(MaskCode::bitmap, 65, 3) == 16);
    CHECK(mask_code_bytes(MaskCode::gaps, 255000, 10) == 1016);
    CHECK(mask_code_bytes(MaskCode::index, 5000000000, 3) == 16);
}

TEST_CASE("Damaged codes decode to positions of their segment") {
    Random random(3);
    for (const MaskCode code : all_codes) {
        for (int i = 0; i < 500; ++i) {
            const Case c = random_case(code, i % 3 ? 200 : i % 30 ? 20000 : 100000, random);
            Bytes coded(c.bytes);
            const Index kind = random.below(4);
            for (unsigned char& byte : coded) {
                const unsigned char any = static_cast<unsigned char>(random.bits());
                byte = kind == 0 ? any : kind == 1 ? 0 : kind == 2 ? 255 : any % 3 ? 255 : any;
            }
            const Vec<Segment> segments = to_device(c.segments);
            for (const Implementation& by : implementations()) {
                const Vec<Position> out = to_device(Positions(c.positions, unwritten));
                by.decode(Exec{}, code, segments, to_device(coded), out);
                Positions got = to_host(out);
                bool inside = true;
                for (const Segment& s : c.segments) {
                    for (Index j = 0; j < s.selected; ++j) {
                        Position& p = got[s.first + j];
                        inside = inside && p >= s.begin && p < s.begin + s.size;
                        p = unwritten;
                    }
                }
                INFO(by.name << ", code " << static_cast<int>(code) << ", case " << i);
                if (!inside) FAIL_CHECK("a position outside its segment");
                if (got != Positions(c.positions, unwritten)) FAIL_CHECK("a write outside");
            }
        }
    }
    SUCCEED();
}

TEST_CASE("Codes of no segments") {
    for (const Implementation& by : implementations()) {
        for (const MaskCode code : all_codes) {
            by.encode(Exec{}, code, {}, {}, {});
            by.decode(Exec{}, code, {}, {}, {});
        }
    }
    SUCCEED();
}
