// The simulator's codes: levels and scales worked out by hand, what one coding may lose, and what a
// normal distribution loses on average.
#include "optim/simulator_data.hpp"
#include "support/compare.hpp"

#include <cmath>
#include <limits>

using namespace scape;
using namespace scape::test;

namespace {

using Levels = SimCode::Levels;
using Floats = std::vector<float>;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float largest_float = std::numeric_limits<float>::max();

SimCode linear(int bits, Index block) {
    return {Levels::linear, bits, block};
}

const std::vector<SimCode> codes_in_blocks = {
    linear(8, 16), linear(4, 16), linear(2, 16), {Levels::gaussian, 2, 16}, {Levels::sign, 1, 16}};

}  // namespace

TEST_CASE("linear codes by hand") {
    check_same_bits("4 bits, scale 1",
                    sim_decoded(linear(4, 8), Floats{7, -3.4f, .5f, 1.5f, -2.5f}),
                    Floats{7, -3, 0, 2, -2});
    // 8 / 7 lies between two bf16, nearer to the lower one.
    const float scale = 1 + 18.f / 128;
    check_same_bits("4 bits, rounded", sim_decoded(linear(4, 8), Floats{-8, 4, .1f}),
                    Floats{-7 * scale, 4 * scale, 0});
    check_same_bits("8 bits", sim_decoded(linear(8, 8), Floats{127, -126.5f, 1.5f, -.5f}),
                    Floats{127, -126, 2, 0});
    check_same_bits("2 bits", sim_decoded(linear(2, 8), Floats{1, -.5f, -.51f, .49f}),
                    Floats{1, 0, -1, 0});
    check_same_bits("a block of its own for every two",
                    sim_decoded(linear(4, 2), Floats{7, 1, .7f, 14, 1.1f}),
                    Floats{7, 1, 0, 14, 7 * 161.f / 1024});
}

TEST_CASE("codes of one and two bits by hand") {
    const SimCode gaussian{Levels::gaussian, 2, 4}, sign{Levels::sign, 1, 4};
    check_same_bits("all outer", sim_decoded(gaussian, Floats{1, -1, 1, -1}),
                    Floats{1.510f, -1.510f, 1.510f, -1.510f});
    check_same_bits("one outer", sim_decoded(gaussian, Floats{4, 0, -0.f, 0, 0, -6}),
                    Floats{2 * 1.510f, 2 * .4528f, -2 * .4528f, 2 * .4528f,
                           // rms sqrt(18) = 4.2426, bf16 4.25
                           4.25f * .4528f, -4.25f * 1.510f});
    const float above = std::nextafter(.9816f, 1.f);  // the root mean square rounds to 1
    check_same_bits("threshold", sim_decoded(gaussian, Floats{.9816f, above, -.9816f, -1.054f}),
                    Floats{.4528f, 1.510f, -.4528f, -1.510f});
    check_same_bits("sign", sim_decoded(sign, Floats{3, -1, 0, -0.f, -5}),
                    Floats{1, -1, 1, -1, -5});
}

TEST_CASE("linear codes of decoded values are the same again") {
    for (const int bits : {8, 4, 2}) {
        const Floats once = sim_decoded(linear(bits, 4), normal_values(5000, 3, 1e-3));
        check_same_bits("coded again", sim_decoded(linear(bits, 4), once), once);
    }
    const auto scale = [](float x) { return sim_scale(linear(8, 4), Floats{x, -x / 2}, 0, 2); };
    CHECK(scale(127) == 1);
    CHECK(scale(127 * 0x1p-126f) == 0x1p-126f);
    CHECK(scale(126 * 0x1p-126f) == 0);
}

TEST_CASE("blocks that are zero, tiny or not finite") {
    for (const SimCode& code : codes_in_blocks) {
        INFO("levels " << static_cast<int>(code.levels) << ", " << code.bits << " bits");
        const Floats good = normal_values(40, 5);
        for (const float value : {not_a_number, infinite, -infinite}) {
            Floats x = good, wanted = sim_decoded(code, good);
            x[20] = value;
            std::fill(wanted.begin() + 16, wanted.begin() + 32, not_a_number);
            check_close("of three blocks the second", sim_decoded(code, x), wanted, 0, 0);
        }
        for (const float tiny : {0.f, 1e-45f, 0x1p-127f}) {
            check_close("zero", sim_decoded(code, Floats(5, -tiny)), Floats(5, 0.f), 0, 0);
            CHECK(sim_scale(code, Floats(5, tiny), 0, 5) == 0);
        }
        CHECK(sim_scale(code, Floats(5, 0x1p-118f), 0, 5) > 0);
        const float of_largest = sim_scale(code, Floats(5, largest_float), 0, 5);
        const bool divided = code.bits > 2;  // elsewhere it rounds up to infinity
        CHECK(std::isnan(of_largest) == !divided);
    }
    // Of many largest numbers neither the sum nor the sum of squares overflows.
    for (const SimCode& code : codes_in_blocks)
        CHECK(sim_scale(code, Floats(16, 1e38f), 0, 16) > 0);
}

TEMPLATE_TEST_CASE("a linear code errs by at most half a scale", "", float, double) {
    using Real = TestType;
    for (const int bits : {8, 4, 2}) {
        for (const Index block : {1, 7, 64, 5000}) {
            INFO(bits << " bits, blocks of " << block);
            const Floats drawn = normal_values(1003, 11, 1e-3);
            const std::vector<Real> x(drawn.begin(), drawn.end());
            const std::vector<Real> decoded = sim_decoded(linear(bits, block), x);
            const double q = std::pow(2, bits - 1) - 1;
            double worst = 0;  // of the error over half a scale
            for (Index begin = 0; begin < 1003; begin += block) {
                const Index end = std::min<Index>(1003, begin + block);
                double largest = 0;
                for (Index i = begin; i < end; ++i)
                    largest = std::max(largest, std::abs(static_cast<double>(x[i])));
                const auto scale =
                    static_cast<double>(sim_scale(linear(bits, block), x, begin, end - begin));
                CHECK(scale >= largest / q * (1 - 0x1p-8));
                CHECK(scale <= largest / q * (1 + 0x1p-8));
                for (Index i = begin; i < end; ++i) {
                    const double error = std::abs(static_cast<double>(x[i] - decoded[i]));
                    worst = std::max(worst, error / (scale / 2));
                }
            }
            CHECK(worst <= 1 + 1e-6);
            CHECK(worst > (block == 1 ? 0 : 0.9));
        }
    }
}

// Known mean square errors of a normal variable: 0.1175 with four levels (Max, 1960), 1 - 2/pi with
// two; linear scale^2 / 12, scale = M / q with M the largest of a block:
//     E M^2 = integral of 2 x (1 - erf(x / sqrt 2)^block) dx
TEST_CASE("what a normal distribution loses") {
    const Floats x = normal_values(64 * 1000, 13);
    const auto loss = [&](const SimCode& code) {
        const Floats decoded = sim_decoded(code, x);
        double sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
            sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(decoded[i]), 2);
        return sum / static_cast<double>(x.size());
    };
    CHECK(loss({Levels::gaussian, 2, 64}) == Approx(0.1175).epsilon(0.03));
    CHECK(loss({Levels::sign, 1, 64}) == Approx(1 - 2 / 3.14159265).epsilon(0.03));
    for (const Index block : {64, 256}) {
        double largest = 0;
        for (double z = 0.005; z < 8; z += 0.01)
            largest += 0.01 * 2 * z * (1 - std::pow(std::erf(z / std::sqrt(2.0)), block));
        CHECK(loss(linear(4, block)) == Approx(largest / (7 * 7 * 12)).epsilon(0.03));
        CHECK(loss(linear(8, block)) == Approx(largest / (127 * 127 * 12)).epsilon(0.03));
    }
    // A relative error of up to 2^-9, uniform: times 1/3, and the mean of the binade.
    CHECK(loss({Levels::number, 16, 1}) < 0x1p-18);
    CHECK(loss({Levels::number, 16, 1}) > 0x1p-18 / 12);
    CHECK(loss(linear(2, 64)) > 3 * loss({Levels::gaussian, 2, 64}));
}

TEST_CASE("which code a setting means") {
    SimConfig c;
    c.block = 40;
    const auto levels = [&](int bits, SimConfig::Error error) {
        c.value_bits = c.delta_bits = bits;
        c.error = error;
        return std::pair(sim_value_code(c).levels, sim_delta_code(c).levels);
    };
    using Error = SimConfig::Error;
    for (const auto error : {Error::full, Error::loco, Error::none}) {
        CHECK(levels(32, error) == std::pair(Levels::number, Levels::number));
        CHECK(levels(16, error) == std::pair(Levels::number, Levels::number));
        CHECK(levels(8, error) == std::pair(Levels::linear, Levels::linear));
        CHECK(levels(4, error) == std::pair(Levels::linear, Levels::linear));
        CHECK(levels(1, error) == std::pair(Levels::sign, Levels::sign));
        CHECK(sim_value_code(c).block == 40);
    }
    CHECK(levels(2, Error::full) == std::pair(Levels::gaussian, Levels::gaussian));
    CHECK(levels(2, Error::loco) == std::pair(Levels::linear, Levels::gaussian));
    CHECK(levels(2, Error::none) == std::pair(Levels::gaussian, Levels::gaussian));
}
