#!/usr/bin/env python3
"""LoCo and low bits as a user runs them: what travels, what is said, what survives, what is refused."""
import os
import re
import unittest

from harness import INPUTS, Case

USAGE = 2
TINY_LOCO = os.path.join(INPUTS, "tiny-loco.toml")
TINY_SCAPE = os.path.join(INPUTS, "tiny-scape.toml")
TINY_LLAMA = os.path.join(INPUTS, "tiny-llama.toml")
KEYS = ("step", "loss", "grad_norm", "lr", "bytes", "data_hash")


def sent(record):
    return record["bytes"]["all_to_all"] + record["bytes"]["all_gather"]


class LowBits(Case):
    def dry_run(self, deck, *overrides, ranks=4):
        text = self.scape("train", deck, "--dry-run", "--ranks", str(ranks), *overrides)
        bytes_sent = re.search(r"(?m)^traffic +(\S+) (B|kB|MB) sent per rank and step", text)
        self.assertIsNotNone(bytes_sent, msg=text)
        unit = {"B": 1, "kB": 1e3, "MB": 1e6}[bytes_sent[2]]
        each = re.search(r"([0-9.]+) bytes per parameter and step, there and back "
                         r"\(dense fp32: 8, dense bf16: 4\)", text)
        self.assertIsNotNone(each, msg=text)
        return float(bytes_sent[1]) * unit, float(each[1]), text

    def test_loco_trains_on_any_number_of_ranks_and_sends_what_the_dry_run_says(self):
        for ranks in (1, 2, 3, 4):
            records = self.train(f"run{ranks}", "check.hash_every=1", "train.micro_batch=2",
                                 deck=TINY_LOCO, ranks=ranks)
            self.assertEqual([r["step"] for r in records], list(range(1, 21)))
            self.assertLess(records[-1]["valid_loss"], records[0]["loss"])
            said, _, _ = self.dry_run(TINY_LOCO, ranks=ranks)
            for r in records:
                self.assertAlmostEqual(sent(r), said, delta=0.006 * said)

    def test_the_dry_run_prints_bytes_per_parameter_beside_dense(self):
        # 4 bits and a scale of 2 bytes for every 64 or 256 values; slices of this model are small.
        for deck, overrides, low, high in (
                (TINY_LLAMA, [], 8, 8.1), (TINY_LLAMA, ["exchange.value_bits=16"], 6, 6.1),
                (TINY_LOCO, [], 1, 1.2), (TINY_LOCO, ["exchange.delta_bits=32"], 4.5, 4.7),
                (TINY_LLAMA, ["exchange.value_bits=2", "exchange.delta_bits=1"], 0.43, 0.6)):
            _, each, _ = self.dry_run(deck, *overrides)
            self.assertTrue(low <= each <= high, msg=f"{overrides}: {each}")
        _, _, text = self.dry_run(TINY_LOCO)
        self.assertIn("gradients in 4 bits in blocks of 256, changes back in 4 bits", text)
        self.assertIn("LoCo's average is kept", text)
        _, _, text = self.dry_run(TINY_LOCO, "exchange.error=none")
        self.assertIn("what the code loses is lost", text)
        _, _, text = self.dry_run(TINY_SCAPE, "exchange.value_bits=4")
        self.assertIn("what is not sent is kept (error_feedback.storage = \"fused\")", text)

    def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(self):
        for name, deck, overrides in (
                ("loco", TINY_LOCO, ["loco.reset_every=7"]),
                ("scape", TINY_SCAPE, ["exchange.value_bits=4", "exchange.delta_bits=2"]),
                ("sgd", TINY_LLAMA, ["optimizer.kind=sgd", "exchange.value_bits=8"])):
            for ranks in (1, 3):
                common = [*overrides, "checkpoint.every=9", "optimizer.decay_steps=20", "train.micro_batch=2",
                          "check.hash_every=1"]
                whole = self.train(f"{name}{ranks}-whole", *common, deck=deck, ranks=ranks)
                # The cool-down of the density counts from the end, so this is a cut, not a shorter run.
                self.train(f"{name}{ranks}-cut", *common, deck=deck, ranks=ranks)
                checkpoints = os.path.join(self.dir, f"{name}{ranks}-cut", "checkpoints")
                for left in os.listdir(checkpoints):
                    if left != "step-00000009.h5":
                        os.remove(os.path.join(checkpoints, left))
                again = self.train(f"{name}{ranks}-cut", *common, deck=deck, ranks=ranks)
                for x, y in zip(whole, again):
                    self.assertEqual([x[k] for k in KEYS], [y[k] for k in KEYS])
                self.assertEqual(len(whole), len(again))

    def test_evaluation_of_a_checkpoint_uses_the_master(self):
        for bits, equal in ((32, True), (1, False)):
            records = self.train(f"run{bits}", f"exchange.delta_bits={bits}", deck=TINY_LLAMA, ranks=2)
            text = self.scape("eval", f"run{bits}", self.path(f"run{bits}", "deck.resolved.toml"))
            evaluated = float(re.search(r"loss (\d+\.\d+)", text)[1])
            trained_with = records[-1]["valid_loss"]
            self.assertAlmostEqual(evaluated / trained_with, 1, delta=0.05)
            self.assertEqual(abs(evaluated - trained_with) < 1e-4, equal)

    def test_what_is_kept_and_the_fill_in_are_measured(self):
        records = self.train("loco", "metrics.feedback_every=5", "train.micro_batch=2", deck=TINY_LOCO, ranks=2)
        self.assertEqual([r["step"] for r in records if "feedback_norm" in r], [5, 10, 15, 20])
        self.assertTrue(all(r["feedback_norm"] > 0 for r in records if "feedback_norm" in r))
        again = self.train("plain", "metrics.feedback_every=0", "train.micro_batch=2", deck=TINY_LOCO, ranks=2)
        self.assertEqual([r["loss"] for r in records], [r["loss"] for r in again])
        records = self.train("topk", "exchange.elements=topk_ef", "sparsity.density=0.05",
                             "sparsity.density_start=0.05", "sparsity.sparsify_1d=true",
                             "metrics.feedback_every=5", "train.micro_batch=2", deck=TINY_LLAMA, ranks=4)
        for r in records[4::5]:  # between one rank's choice and four that have nothing in common
            self.assertTrue(0.05 <= r["fill_in"] <= 0.21, msg=r)

    def test_what_makes_no_sense_is_refused_on_every_rank(self):
        for deck, overrides, says in (
                (TINY_SCAPE, ["exchange.value_bits=4", "exchange.error=loco"], "must be kept"),
                (TINY_LOCO, ["exchange.value_bits=1"], "it is for 8, 4 and 2 bits"),
                (TINY_LOCO, ["exchange.value_bits=3"], "allowed: 32 | 16 | 8 | 4 | 2 | 1"),
                (TINY_LOCO, ["exchange.block=12"], "not a multiple of 8"),
                (TINY_LLAMA, ["loco.beta=0.5"], "has no effect")):
            for ranks in (1, 2):
                self.refused(USAGE, "train", deck, "run.dir=refused", *overrides, ranks=ranks, says=[says])

    def test_where_the_rest_lives_cannot_change_on_the_way(self):
        self.train("run", deck=TINY_LOCO)
        self.refused(USAGE, "train", TINY_LOCO, "run.dir=run", "train.steps=22", "exchange.error=none",
                     says=["exchange.error", "refused"])

    def test_low_bits_first_and_fp32_at_the_end(self):
        for name, deck, low in (("full", TINY_LLAMA, ["exchange.value_bits=4"]), ("loco", TINY_LOCO, [])):
            self.train(name, *low, "train.steps=10", "optimizer.decay_steps=20", deck=deck, ranks=2)
            records = self.train(name, "exchange.value_bits=32", "exchange.delta_bits=32", "exchange.error=full",
                                 "optimizer.kind=" + ("adams" if name == "full" else "adamw"),
                                 "optimizer.decay_steps=20", deck=TINY_LLAMA, ranks=2)
            self.assertIn("what its ranks had not sent goes with the first step", self.last_output)
            self.assertEqual([r["step"] for r in records], list(range(1, 21)))
            self.assertLess(records[-1]["valid_loss"], records[9]["valid_loss"])
        # And the other way round: nothing was lost before, so where the rest lives is free.
        self.train("late", "optimizer.kind=adamw", "train.steps=10", "optimizer.decay_steps=20", deck=TINY_LLAMA)
        self.train("late", "optimizer.decay_steps=20", deck=TINY_LOCO)


if __name__ == "__main__":
    unittest.main()
