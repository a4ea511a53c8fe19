#include <scape/config/deck.hpp>

#include "refusal.hpp"

using namespace scape;
using namespace scape::config;

namespace {

RunConfig with(const std::vector<std::string>& overrides) {
    return parse_run_config("[model]\nlayers = 4\n[data]\ntrain = \"x\"\n", "d.toml", overrides);
}
std::string refused(const std::vector<std::string>& overrides) {
    return refusal([&] { with(overrides); });
}

}  // namespace

TEST_CASE("overrides replace the deck's values") {
    const auto c = with({"model.layers=7", "optimizer.kind=adams", "data.train=/a/b.txt",
                         "optimizer.lr = 2e-3", "model.tied=false", "run.dir=\"with quotes\"",
                         "data.split=900,100,0", "run.wall_limit=1h", "optimizer.eps=1"});
    CHECK(c.model.layers == 7);
    CHECK(c.optimizer.kind == OptimizerKind::adams);
    CHECK(c.data.train == "/a/b.txt");
    CHECK(c.optimizer.lr == 2e-3);
    CHECK(c.model.tied == false);
    CHECK(c.run.dir == "with quotes");
    CHECK(c.data.split == "900,100,0");
    CHECK(c.run.wall_limit == "1h");
    CHECK(c.optimizer.eps == 1.0);
}

TEST_CASE("bare text may look like another type, hold '=' or be empty") {
    CHECK(with({"run.dir=123"}).run.dir == "123");
    CHECK(with({"run.dir=true"}).run.dir == "true");
    CHECK(with({"run.dir=a=b"}).run.dir == "a=b");
    CHECK(with({"data.train=a # b"}).data.train == "a # b");
    CHECK(with({"data.train=back\\slash \"q\""}).data.train == "back\\slash \"q\"");
    CHECK(with({"data.train="}).data.train.empty());
    CHECK(with({"run.wall_limit=0"}).run.wall_limit == "0");
    CHECK(with({"data.train=x\ny = 3"}).data.train == "x\ny = 3");
}

TEST_CASE("an override knows its place") {
    const auto deck = parse_deck("[model]\nlayers = 4\n", "d", as_overrides({"model.layers=5"}));
    CHECK(deck.places.at("model.layers").text() == "command line");
}

TEST_CASE("overrides that are refused") {
    CHECK_SAYS(refused({"model.layers"}), "command line: \"model.layers\": neither an option nor");
    CHECK_SAYS(refused({"model.layerz=3"}),
               "command line: model.layerz: unknown key; did you mean "
               "model.layers?");
    CHECK_SAYS(refused({"steps=3"}), "did you mean train.steps?");
    CHECK_SAYS(refused({"=3"}), "unknown key");
    CHECK_SAYS(refused({"model.layers=two"}),
               "model.layers=two: cannot read the value; allowed: a "
               "whole number");
    CHECK_SAYS(refused({"model.layers="}), "cannot read the value");
    CHECK_SAYS(refused({"model.layers=2\nx=3"}), "cannot read the value");
    CHECK_SAYS(refused({"model.layers=2.5"}), "command line: model.layers = 2.5 is a number");
    CHECK_SAYS(refused({"optimizer.lr=-1"}), "optimizer.lr = -1: out of range");
    CHECK_SAYS(refused({"model.family=lama"}), "did you mean \"llama\"?");
    CHECK_SAYS(refused({"data.train=\"open"}), "cannot read the value");
    CHECK_SAYS(refused({"data.train=\xff"}), "cannot read the value");
    const auto twice = refused({"train.steps=3", "model.layers=2", "train.steps=4"});
    CHECK_SAYS(twice, "train.steps is given twice: train.steps=3 and train.steps=4");
}
