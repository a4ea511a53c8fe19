#include "project.hpp"

#include <scape/config/deck.hpp>
#include <scape/optim/density.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

namespace scape::apps {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
    throw user_error(
        ExitCode::usage,
        fmt::format("--calibrate {}: {}. It should be a file that `scape bench step DECK --json "
                    "FILE` wrote.",
                    path, what));
}

json read(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
    if (file.bad() || (!file.eof() && !file))  // a folder opens, but cannot be read
        refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    json j = json::parse(text.str(), nullptr, false);
    if (j.is_discarded()) refuse(path, "is not JSON");
    if (!j.is_object() || j.value("kind", json()) != "step")
        refuse(path, "has no \"kind\": \"step\"");
    return j;
}

double number(const json& j, const std::string& path, const char* key, double least) {
    if (!j.contains(key)) refuse(path, fmt::format("has no \"{}\"", key));
    const json& value = j[key];
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < least)
        refuse(path, fmt::format("\"{}\" is {}, and it must be a number{}", key, value.dump(),
                                 least > 0 ? fmt::format(" of at least {}", least) : ""));
    return value.get<double>();
}

}  // namespace

train::MeasuredStep read_measured_step(const std::string& path) {
    constexpr double least_ms = 1e-6;
    const json j = read(path);
    train::MeasuredStep step;
    const double ranks = number(j, path, "ranks", 1);
    if (ranks != std::floor(ranks) || ranks > (1 << 20))
        refuse(path, fmt::format("\"ranks\" is {}, and whole numbers up to {} are allowed", ranks,
                                 1 << 20));
    step.ranks = static_cast<int>(ranks);
    step.compute_seconds = 1e-3 * number(j, path, "compute_ms", least_ms);
    // What is left of the step beside the model: of a tiny one it can be lost in the noise.
    const double local_ms = number(j, path, "local_ms", -1e300);
    if (local_ms > 0) step.local_seconds = 1e-3 * local_ms;
    if (!j.contains("resolved_deck") || !j["resolved_deck"].is_string() ||
        j["resolved_deck"].get<std::string>().empty())
        refuse(path, "has no \"resolved_deck\", a text");
    try {
        step.config = config::parse_run_config(j["resolved_deck"].get<std::string>(), path);
    } catch (const user_error& e) {
        refuse(path, fmt::format("\"resolved_deck\" is not a deck: {}", e.what()));
    }
    if (const std::string reason = why_not(step.config, step.ranks); !reason.empty())
        refuse(path, fmt::format("\"resolved_deck\" does not go with \"ranks\": {}", reason));
    // The model is about steps at the target.
    constexpr Index measured_step = 5;  // the first after bench step's warm-up
    const double target = step.config.sparsity.density;
    if (const double density = optim::density(step.config, measured_step);
        config::is_sparse(step.config) && density != target)
        refuse(path, fmt::format("its steps were measured at density {:.3g}, on the way to "
                                 "sparsity.density = {}; measure with sparsity.density_start={} "
                                 "sparsity.warmup_steps=0 sparsity.dense_steps=0 "
                                 "sparsity.cooldown_steps=0",
                                 density, target, target));
    return step;
}

}  // namespace scape::apps
