#include "checks.hpp"

#include <scape/config/budget.hpp>

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

/// [exchange]: the code, and what it loses.
void check_code(CheckContext& c) {
    const ExchangeSection& e = c.config.exchange;
    if (e.value_bits == 32)
        c.no_effect("exchange.error", "exchange.value_bits is 32, which loses nothing");
    if (e.value_bits > 8 && e.delta_bits > 8) {
        c.no_effect(
            "exchange.block",
            "exchange.value_bits and exchange.delta_bits are 32 or 16, which have no scale");
    } else if (e.block % 8 != 0) {
        c.add("exchange.block",
              fmt::format("{} is not a multiple of 8; {} or {} would be", c.show("exchange.block"),
                          e.block / 8 * 8, e.block / 8 * 8 + 8));
    }
    if (!has_loco(c.config))
        no_effect(c, {"loco.beta", "loco.reset_every"},
                  e.error == ErrorKind::loco ? "exchange.value_bits is 32"
                                             : "exchange.error is not \"loco\"");
    if (has_loco(c.config) && (e.value_bits == 16 || e.value_bits == 1))
        c.add("exchange.error",
              fmt::format("{} with {}; it is for 8, 4 and 2 bits", c.show("exchange.error"),
                          c.show("exchange.value_bits")));
    if (is_sparse(c.config) && e.error != ErrorKind::full && e.value_bits < 32)
        c.add("exchange.error",
              fmt::format(
                  "{} with {}: what a mask leaves out must be kept; set it to \"full\"",
                  c.show("exchange.error"),
                  c.show(c.config.optimizer.kind == OptimizerKind::scape ? "optimizer.kind"
                                                                         : "exchange.elements")));
}

/// exchange.bytes_per_param
void check_budget(CheckContext& c) {
    const ExchangeSection& e = c.config.exchange;
    if (e.bytes_per_param <= 0) return;
    if (e.elements != Elements::automatic) {
        c.add("exchange.bytes_per_param",
              fmt::format("{} with {}: the baselines were not measured for it; delete one of them",
                          c.show("exchange.bytes_per_param"), c.show("exchange.elements")));
    } else if (!budget_setting(c.config)) {
        c.add("exchange.bytes_per_param",
              fmt::format("{} with {}, which exchanges all elements: {:.3g} is the least for that; "
                          "raise it, or set optimizer.kind to \"scape\"",
                          c.show("exchange.bytes_per_param"), c.show("optimizer.kind"),
                          least_dense_budget()));
    }
}

/// Keys of optimizers other than the one that runs.
void check_kind(CheckContext& c) {
    if (c.config.optimizer.kind == OptimizerKind::sgd) {
        no_effect(
            c, {"optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.bias_correction"},
            "optimizer.kind is \"sgd\"");
    } else {
        c.no_effect("optimizer.momentum", "optimizer.kind is not \"sgd\"");
    }
}

}  // namespace

void check_exchange(CheckContext& c) {
    check_kind(c);
    check_scape(c);
    check_code(c);
    check_budget(c);
    if (!is_sparse(c.config)) {
        no_effect(c,
                  {"sparsity.density", "sparsity.density_start", "sparsity.warmup_steps",
                   "sparsity.dense_steps", "sparsity.cooldown_steps", "sparsity.sparsify_1d",
                   "sparsity.mask_code"},
                  "everything is exchanged, because optimizer.kind is not \"scape\" and "
                  "exchange.elements is \"auto\"");
    } else if (c.config.optimizer.kind == OptimizerKind::scape &&
               c.config.exchange.elements != Elements::automatic) {
        c.add("exchange.elements",
              fmt::format("{} with {}, which chooses the elements itself; delete the first, or set "
                          "optimizer.kind to adamw, adams or sgd",
                          c.show("exchange.elements"), c.show("optimizer.kind")));
        return;
    } else {
        check_schedule(c);
    }
    if (has_error_feedback(c.config)) {
        check_feedback(c);
    } else {
        no_effect(c, {"error_feedback.storage", "error_feedback.path"},
                  "nothing is kept: everything is exchanged in fp32, or exchange.error is not "
                  "\"full\"");
        if (!has_loco(c.config))
            c.no_effect("checkpoint.error_feedback",
                        "nothing is kept: everything is exchanged in fp32, or exchange.error is "
                        "\"none\"");
    }
}

}  // namespace scape::config
