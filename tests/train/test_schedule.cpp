#include "support/catch.hpp"

#include <scape/train/schedule.hpp>

using namespace scape;
using train::learning_rate;

namespace {

config::RunConfig with(config::ScheduleKind kind) {
    config::RunConfig c;
    c.train.steps = 110;
    c.optimizer.lr = 1.0;
    c.optimizer.min_lr = 0.2;
    c.optimizer.warmup_steps = 10;
    c.optimizer.schedule = kind;
    return c;
}

}  // namespace

TEST_CASE("warm-up rises in equal steps to the peak") {
    const auto c = with(config::ScheduleKind::cosine);
    for (int t = 1; t <= 10; ++t) CHECK(learning_rate(c, t) == Approx(0.1 * t));
}

TEST_CASE("the three schedules, at their ends and in the middle") {
    const auto cosine = with(config::ScheduleKind::cosine);
    CHECK(learning_rate(cosine, 35) == Approx(0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2));
    CHECK(learning_rate(cosine, 60) == Approx(0.6));
    CHECK(learning_rate(cosine, 110) == Approx(0.2));
    CHECK(learning_rate(cosine, 5000) == Approx(0.2));
    const auto linear = with(config::ScheduleKind::linear);
    CHECK(learning_rate(linear, 35) == Approx(0.8));
    CHECK(learning_rate(linear, 110) == Approx(0.2));
    const auto constant = with(config::ScheduleKind::constant);
    CHECK(learning_rate(constant, 11) == 1.0);
    CHECK(learning_rate(constant, 5000) == 1.0);
}

TEST_CASE("a horizon of its own: a run can be extended without bending the curve") {
    auto c = with(config::ScheduleKind::cosine);
    c.optimizer.decay_steps = 110;
    const double before = learning_rate(c, 60);
    c.train.steps = 100000;
    CHECK(learning_rate(c, 60) == before);
}

TEST_CASE("no warm-up, and a horizon that is already over") {
    auto c = with(config::ScheduleKind::linear);
    c.optimizer.warmup_steps = 0;
    c.train.steps = 1;
    CHECK(learning_rate(c, 1) == Approx(0.2));
}
