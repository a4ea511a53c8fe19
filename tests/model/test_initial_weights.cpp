#include "fixture.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

#include <scape/model/initial_weights.hpp>

#include <cmath>

using namespace scape;
using config::Family;
using scape::test::tiny_config;

namespace {

std::vector<float> initial(const model::Model<float>& model, std::uint64_t seed, Range range) {
    std::vector<float> out(range.size(), -1.f);
    model::fill_initial(model, seed, range, HostSpan<float>(out.data(), out.size()));
    return out;
}

}  // namespace

TEST_CASE("any cut of the buffer gives the same initial weights") {
    for (const Family family : {Family::gpt, Family::llama}) {
        const auto model = model::make_model<float>(tiny_config(family, false));
        const Index extent = model->layout().extent() + 100;
        const std::vector<float> whole = initial(*model, 5, {0, extent});
        for (const Index step : {Index(63), Index(1000), Index(4096)}) {
            std::vector<float> pieces;
            for (Index begin = 0; begin < extent; begin += step) {
                const auto piece = initial(*model, 5, {begin, std::min(extent, begin + step)});
                pieces.insert(pieces.end(), piece.begin(), piece.end());
            }
            test::check_same_bits("pieces", pieces, whole);
        }
        CHECK(initial(*model, 6, {0, extent}) != whole);
    }
}

TEST_CASE("a tensor's values do not depend on where it lies or how it is padded") {
    config::ModelConfig c = tiny_config(Family::gpt, false);
    const auto usual = model::make_model<float>(c);
    c.vocab_multiple = 1;
    const auto bare = model::make_model<float>(c);
    for (const Tensor& t : usual->layout().tensors()) {
        const Index there = bare->layout().tensor(t.name).offset;
        test::check_same_bits(t.name, initial(*usual, 1, {t.offset, t.offset + t.size}),
                              initial(*bare, 1, {there, there + t.size}));
    }
}

TEST_CASE("initial weights have their spread, padding and gaps are zero") {
    config::ModelConfig c = tiny_config(Family::gpt);
    c.width = 96;
    c.ffn_width = 384;
    const auto model = model::make_model<float>(c);
    const std::vector<float> all = initial(*model, 3, {0, model->layout().extent()});
    Index next = 0;
    for (std::size_t i = 0; i < model->layout().tensors().size(); ++i) {
        const Tensor& t = model->layout().tensors()[i];
        INFO(t.name);
        for (; next < t.offset; ++next) CHECK(all[next] == 0);
        const model::Init init = model->init(static_cast<int>(i));
        double sum = 0, squares = 0;
        for (; next < t.offset + t.size; ++next) {
            sum += all[next];
            squares += static_cast<double>(all[next]) * all[next];
        }
        const double mean = sum / static_cast<double>(t.size);
        if (init.stddev > 0) {
            const double deviation = std::sqrt(squares / static_cast<double>(t.size));
            CHECK(std::abs(mean) < 5 * init.stddev / std::sqrt(static_cast<double>(t.size)));
            CHECK(deviation == Approx(init.stddev).epsilon(0.1));
        } else {
            CHECK(mean == init.value);
        }
        for (; next < t.offset + t.storage; ++next) CHECK(all[next] == 0);
    }
}
