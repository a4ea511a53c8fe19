#include "checks.hpp"

#include <initializer_list>

namespace scape::config {
namespace {

void no_effect(CheckContext& c, std::initializer_list<const char*> keys, const std::string& why) {
    for (const char* key : keys) {
        c.no_effect(key, why);
    }
}

/// Keys of [scape], for any optimizer.
void check_scape(CheckContext& c) {
    const ScapeSection& s = c.config.scape;
    if (c.config.optimizer.kind != OptimizerKind::scape) {
        no_effect(c, {"scape.rule", "scape.score", "scape.second_moment", "scape.lateness"},
                  "optimizer.kind is not \"scape\"");
        return;
    }
    if (s.rule == ScapeRule::paper)
        c.no_effect("scape.second_moment",
                    "scape.rule is \"paper\", which takes it from the momentum");
    if (s.score != score_of(c.config) && c.given("scape.score")) {
        const char* why = s.rule == ScapeRule::paper ? "scape.rule" : "scape.lateness";
        c.add("scape.score", fmt::format("{} with {}, whose score is always \"before\"; delete it",
                                         c.show("scape.score"), c.show(why)));
    }
}

/// [sparsity] of a run that is sparse.
void check_schedule(CheckContext& c) {
    const SparsitySection& s = c.config.sparsity;
    if (s.density_start < s.density) {
        c.add("sparsity.density_start",
              fmt::format("{} is below {}, and the density only falls; raise the first or lower "
                          "the second",
                          c.show("sparsity.density_start"), c.show("sparsity.density")));
    }
    if (s.dense_steps + s.cooldown_steps > c.config.train.steps) {
        const bool both = s.dense_steps > 0 && s.cooldown_steps > 0;
        const std::string parts =
            both ? c.show("sparsity.dense_steps") + " + " + c.show("sparsity.cooldown_steps")
                 : c.show(s.dense_steps > 0 ? "sparsity.dense_steps" : "sparsity.cooldown_steps");
        c.add(s.dense_steps > 0 ? "sparsity.dense_steps" : "sparsity.cooldown_steps",
              fmt::format("{} is more than {}; lower {} or raise the {}", parts,
                          c.show("train.steps"), both ? "one of the first two" : "the first",
                          both ? "third" : "second"));
    }
    if (c.config.exchange.elements == Elements::topk_ef) {
        c.no_effect("sparsity.mask_code", "topk_ef sends a position with each value");
    }
}

void check_feedback(CheckContext& c) {
    const ErrorFeedbackSection& e = c.config.error_feedback;
    if (e.storage != FeedbackStorage::hdf5) {
        c.no_effect("error_feedback.path", "error_feedback.storage is not \"hdf5\"");
    } else if (e.path.empty()) {
        c.add("error_feedback.storage",
              fmt::format("{} and error_feedback.path is empty; set it to a directory on the "
                          "node's own disk",
                          c.show("error_feedback.storage")));
    }
}

}  // namespace

void check_sparse(CheckContext& c) {
    check_scape(c);
    if (!is_sparse(c.config)) {
        no_effect(c,
                  {"sparsity.density", "sparsity.density_start", "sparsity.warmup_steps",
                   "sparsity.dense_steps", "sparsity.cooldown_steps", "sparsity.sparsify_1d",
                   "sparsity.mask_code", "error_feedback.storage", "error_feedback.path",
                   "checkpoint.error_feedback"},
                  "everything is exchanged, because optimizer.kind is not \"scape\" and "
                  "exchange.elements is \"auto\"");
        return;
    }
    if (c.config.optimizer.kind == OptimizerKind::scape &&
        c.config.exchange.elements != Elements::automatic) {
        c.add("exchange.elements",
              fmt::format("{} with {}, which chooses the elements itself; delete the first, or set "
                          "optimizer.kind to adamw or adams",
                          c.show("exchange.elements"), c.show("optimizer.kind")));
        return;
    }
    check_schedule(c);
    check_feedback(c);
}

}  // namespace scape::config
