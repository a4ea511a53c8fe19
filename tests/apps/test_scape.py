#!/usr/bin/env python3
"""SCAPE as a user runs it: what it says, what it survives, what it refuses."""
import os
import re
import signal
import subprocess
import time
import unittest

from harness import Case, INPUTS

USAGE, RESOURCES = 2, 7
TINY_SCAPE = os.path.join(INPUTS, "tiny-scape.toml")
KEYS = ("step", "loss", "grad_norm", "lr", "density", "bytes", "data_hash")


class Scape(Case):
    def train(self, run, *overrides, deck=TINY_SCAPE, ranks=1, code=0):
        return super().train(run, *overrides, deck=deck, ranks=ranks, code=code)

    def same(self, a, b):
        for x, y in zip(a, b):
            self.assertEqual([x[k] for k in KEYS], [y[k] for k in KEYS])
        self.assertEqual(len(a), len(b))

    def started(self, run, *overrides, ranks, steps):
        """A run in the background that has done so many steps."""
        process = subprocess.Popen(
            self.command("train", TINY_SCAPE, f"run.dir={run}", *overrides, ranks=ranks), cwd=self.dir,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.time() + 60
        while time.time() < deadline:
            try:
                if len(self.records(run)) >= steps:
                    return process
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        process.kill()
        self.fail("the run does not get on:\n" + process.communicate()[0])


class Training(Scape):
    def test_the_deck_trains_on_any_number_of_ranks(self):
        for ranks in (1, 2, 3, 4):
            records = self.train(f"run{ranks}", "metrics.feedback_every=1", "check.hash_every=1",
                                 "train.micro_batch=1", ranks=ranks)
            self.assertEqual([r["step"] for r in records], list(range(1, 21)))
            self.assertLess(records[-1]["valid_loss"], records[0]["loss"])
            self.assertEqual([r["density"] for r in records[:3]], [1, 1, 1])
            self.assertAlmostEqual(records[15]["density"], 0.05)
            self.assertEqual(records[-1]["density"], 1)
            for r in records:
                self.assertIn("feedback_norm", r)
                self.assertEqual("mask_overlap" in r, r["density"] < 1 and r["step"] < 19, msg=r["step"])
                if "mask_overlap" in r:
                    self.assertTrue(0 <= r["mask_overlap"] <= 1)
            self.assertEqual(records[0]["feedback_norm"], 0)
            self.assertGreater(records[15]["feedback_norm"], 0)
            if ranks > 1:
                self.assertLess(records[15]["bytes"]["all_to_all"],
                                0.12 * records[0]["bytes"]["all_to_all"])
            self.assertIn("density", self.text(f"run{ranks}", "log.txt"))

    def test_dry_run_prints_bytes_beside_dense_and_memory(self):
        text = self.scape("train", TINY_SCAPE, "--dry-run", "--ranks", "4")
        for words in ("traffic", "at density 0.05", "gradients", "masks", "averages over the run",
                      "dense steps", "dense fp32: 8", "error feedback", "optimizer", "exchange"):
            self.assertIn(words, text)
        target, average = (float(x) for x in re.findall(r"([0-9.]+) bytes per\s+parameter", text))
        self.assertLess(target, average)
        self.assertLess(average, 8)
        half = self.scape("train", TINY_SCAPE, "--dry-run", "--ranks", "4", "exchange.value_bits=16")
        self.assertLess(float(re.search(r"([0-9.]+) bytes per parameter", half)[1]), target)

    def test_the_bytes_are_those_of_the_dry_run(self):
        for ranks in (2, 3):
            records = self.train(f"run{ranks}", "train.micro_batch=1", "train.steps=14", ranks=ranks)
            text = self.text(f"run{ranks}", "log.txt")
            said = re.search(r"traffic +([0-9.]+) (k?B)", text)
            sent = records[10]["bytes"]["all_to_all"] + records[10]["bytes"]["all_gather"]
            self.assertAlmostEqual(float(said[1]) * (1000 if said[2] == "kB" else 1) / sent, 1, places=2)


class Resume(Scape):
    def test_resume_is_bitwise(self):
        for ranks, more in ((1, ()), (2, ("scape.rule=paper", "scape.score=before")),
                            (3, ("exchange.value_bits=16", "train.micro_batch=1"))):
            common = ("checkpoint.every=4", "checkpoint.keep_last=100", *more)
            whole = self.train(f"whole{ranks}", *common, ranks=ranks)
            run = f"cut{ranks}"
            self.train(run, *common, ranks=ranks)
            for name in self.checkpoints(run):
                if int(name[5:13]) > 8:
                    os.remove(self.path(run, "checkpoints", name))
            cut = self.train(run, *common, ranks=ranks)
            self.assertIn("resumed at step 8", self.last_output)
            self.same(whole, cut)

    def test_a_killed_run_and_a_stopped_one(self):
        common = ("checkpoint.every=3", "eval.every=0", "optimizer.decay_steps=1000",
                  "sparsity.cooldown_steps=0", "metrics.feedback_every=0")
        for ranks, how in ((1, signal.SIGKILL), (1, signal.SIGTERM), (2, signal.SIGUSR1)):
            run = f"run-{ranks}-{how}"
            process = self.started(run, *common, "train.steps=1000000", ranks=ranks, steps=13)
            process.send_signal(how)
            output = process.communicate(timeout=60)[0]
            if how != signal.SIGKILL:
                self.assertEqual(process.returncode, 0, msg=output)
                self.assertIn("stopped after step", output)
            last = int(self.checkpoints(run)[-1][5:13])
            whole = self.train(f"whole-{run}", *common, f"train.steps={last + 5}", ranks=ranks)
            cut = self.train(run, *common, f"train.steps={last + 5}", ranks=ranks)
            self.assertIn(f"resumed at step {last} ", self.last_output)
            self.same(whole, cut)

    def test_other_ranks(self):
        common = ("train.micro_batch=1", "sparsity.cooldown_steps=0", "optimizer.decay_steps=20")
        whole = self.train("whole", *common, "train.steps=11", ranks=2)
        for ranks in (1, 3, 4):
            run = f"run{ranks}"
            self.train(run, *common, "train.steps=10", ranks=2)
            records = self.train(run, *common, "train.steps=11", ranks=ranks)
            self.assertIn(f"checkpoint: 2 ranks -> now {ranks}", self.last_output)
            self.assertIn("chosen anew", self.last_output)
            self.assert_close([records[10]["loss"]], [whole[10]["loss"]], 1e-5)

    def test_changed_keys(self):
        self.train("run", "train.steps=8")
        before = self.text("run", "metrics.jsonl")
        self.refused(USAGE, "train", TINY_SCAPE, "run.dir=run", "scape.rule=paper",
                     "scape.score=before", says=["scape.rule", "refused"])
        self.assertEqual(self.text("run", "metrics.jsonl"), before)
        self.train("run", "train.steps=12", "sparsity.density=0.01", "error_feedback.storage=host")
        self.assertIn("sparsity.density 0.05 -> 0.01 (applied)", self.last_output)
        self.assertIn("error_feedback.storage \"fused\" -> \"host\" (applied)", self.last_output)

    def test_a_dense_run_goes_on(self):
        deck = self.text(TINY_SCAPE)
        for section in ("scape", "sparsity", "error_feedback"):
            deck = re.sub(rf"\[{section}\].*?(?=\n\[)", "", deck, flags=re.S)
        deck = re.sub(r'\nerror_feedback = "full".*', "", deck).replace('"scape"', '"adamw"', 1)
        dense = self.train("dense", "train.steps=6", deck=self.write("dense.toml", deck))
        self.assertEqual(dense[-1]["density"], 1)
        records = self.train("run", "checkpoint.init_from=dense")
        self.assertEqual(records[-1]["step"], 20)
        self.assertIn("fresh start from the weights of dense", self.last_output)


class Storage(Scape):
    def test_a_file_gives_what_memory_gives_and_is_removed(self):
        os.mkdir(self.path("scratch"))
        for ranks in (1, 2):
            memory = self.train(f"memory{ranks}", "error_feedback.storage=device", ranks=ranks)
            disk = self.train(f"disk{ranks}", "error_feedback.storage=hdf5",
                              "error_feedback.path=scratch", ranks=ranks)
            self.same(memory, disk)
            self.assertGreater(disk[10]["error_feedback"]["bytes"], 0)
            self.assertEqual(os.listdir(self.path("scratch")), [])

    def test_directory_that_is_not_there(self):
        for ranks in (1, 2):
            self.refused(USAGE, "train", TINY_SCAPE, f"run.dir=run{ranks}",
                         "error_feedback.storage=hdf5", "error_feedback.path=nowhere", ranks=ranks,
                         says=["error_feedback.path", "nowhere"])
        self.refused(USAGE, "train", TINY_SCAPE, "run.dir=run", "error_feedback.storage=hdf5",
                     says=["error_feedback.path"])

    def test_full_disk(self):
        small = self.path("small")
        os.mkdir(small)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small],
                                 stderr=subprocess.DEVNULL)
        if mounted.returncode != 0:
            self.skipTest("only root can make a small file system")
        try:
            for ranks in (1, 2):
                started = time.time()
                self.refused(RESOURCES, "train", TINY_SCAPE, f"run.dir=run{ranks}",
                             "error_feedback.storage=hdf5", "error_feedback.path=small", ranks=ranks,
                             says=["error_feedback", "small"])
                self.assertLess(time.time() - started, 30)
                self.assertEqual(os.listdir(small), [])
        finally:
            subprocess.run(["umount", small], check=True)


class Numbers(Scape):
    def test_numbers_that_explode(self):
        for ranks in (1, 2):
            text = self.scape("train", TINY_SCAPE, f"run.dir=run{ranks}", "optimizer.clip_norm=0",
                              "optimizer.lr=1e36", "optimizer.min_lr=0", "optimizer.warmup_steps=0",
                              ranks=ranks, code=5)
            self.assertIn("finite", text)
            skipped = [r for r in self.records(f"run{ranks}") if r.get("skipped")]
            self.assertEqual(len(skipped), 2)  # the third ends the run


if __name__ == "__main__":
    unittest.main(verbosity=2)
