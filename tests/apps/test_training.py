#!/usr/bin/env python3
"""Whole decks end to end: what a run leaves behind, stops and resumes, and its independence of how
the work is split over ranks."""
import os
import signal
import subprocess
import time
import unittest

from harness import Case, TINY_GPT, TINY_LLAMA

FIELDS = {"step", "loss", "lr", "grad_norm", "tokens", "seconds", "tokens_per_s", "bytes_sent", "bytes",
          "wait_seconds", "density", "memory_bytes", "data_hash"}
ENGLISH = ("It was the best of times, it was the worst of times, it was the age of wisdom, it was the "
           "age of foolishness, it was the epoch of belief, it was the epoch of incredulity. ") * 40


class Run(Case):
    def test_a_run_leaves_metrics_log_deck_and_checkpoint(self):
        records = self.train("run", "train.steps=6", "eval.every=3", "checkpoint.every=2")
        self.assertEqual([r["step"] for r in records], [1, 2, 3, 4, 5, 6])
        for r in records:
            self.assertLessEqual(FIELDS, set(r))
            self.assertEqual("valid_loss" in r, r["step"] % 3 == 0)
            self.assertEqual(r["bytes_sent"], 0)  # one rank
        self.assertIn("entropy rate", self.last_output)
        self.assertTrue(os.path.exists(self.path("run", "deck.resolved.toml")))
        self.assertIn("step      6/6", self.text("run", "log.txt"))
        self.assertEqual(self.checkpoints("run"), ["step-00000004.h5", "step-00000006.h5"])  # keep_last = 2

    def test_the_resolved_deck_gives_the_same_run(self):
        first = self.train("a", "train.steps=4")
        self.scape("train", self.path("a", "deck.resolved.toml"), "run.dir=b")
        self.assertEqual([r["loss"] for r in first], self.losses("b"))

    def test_loss_falls_below_what_frequencies_alone_give(self):
        text = self.write("text.txt", ENGLISH)
        records = self.train("run", "data.format=text", f"data.train={text}", "model.vocab=256",
                             "data.split=\"9,1\"", "train.steps=160", "optimizer.lr=3e-3",
                             "train.global_batch=8", "eval.every=160")
        self.assertLess(records[-1]["valid_loss"], 2.0)  # the unigram entropy is about 2.7
        self.assertIn("unigram entropy 2.", self.last_output)
        text = self.scape("generate", "run", "--prompt", "It was", "--tokens", "40")
        self.assertTrue(text.startswith("It was"))
        self.assertEqual(text, self.scape("generate", "run", "--prompt", "It was", "--tokens", "40"))
        evaluated = self.scape("eval", "run", self.path("run", "deck.resolved.toml"))
        self.assertIn(f"{records[-1]['valid_loss']:.4f}"[:6], evaluated)

    def test_generate_and_eval_under_a_launcher_speak_once(self):
        self.train("run", "train.steps=2")
        ids = ("generate", "run", "--prompt-ids", "1", "2", "--tokens", "4")
        self.assertEqual(self.scape(*ids, ranks=2), self.scape(*ids))
        self.assertEqual(self.scape("eval", "run", TINY_GPT, ranks=2), self.scape("eval", "run", TINY_GPT))

    def test_dry_run_says_what_a_step_costs_and_touches_nothing(self):
        text = self.scape("train", TINY_GPT, "--dry-run", "--ranks", "2", "run.dir=run")
        for words in ("2 ranks x", "parameters", "FLOPs", "memory", "[optimizer]"):
            self.assertIn(words, text)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_token_files(self):
        ids = bytes(b for i in range(4000) for b in ((i * i) % 50, 0))
        u16 = self.write("tokens.u16", ids)
        u32 = self.write("tokens.u32", bytes(b for i in range(4000) for b in ((i * i) % 50, 0, 0, 0)))
        a = self.train("a", "data.format=raw_u16", f"data.train={u16}", "train.steps=3")
        b = self.train("b", "data.format=raw_u32", f"data.train={u32}", "train.steps=3")
        self.assertEqual([r["loss"] for r in a], [r["loss"] for r in b])

    def test_recompute_changes_memory_and_not_results(self):
        for deck in (TINY_GPT, TINY_LLAMA):
            a = self.train("a", "train.steps=4", deck=deck)
            b = self.train("b", "train.steps=4", "model.recompute=layer", deck=deck)
            self.assertEqual([r["loss"] for r in a], [r["loss"] for r in b])
            self.assertLess(b[0]["memory_bytes"], a[0]["memory_bytes"])
            self.setUp()

    def test_weights_alone_of_another_run(self):
        self.train("a", "train.steps=3")
        records = self.train("b", "train.steps=2", "checkpoint.init_from=a", "optimizer.kind=adams")
        self.assertEqual([r["step"] for r in records], [1, 2])
        self.assertNotEqual(records[0]["loss"], self.losses("a")[0])


    def test_a_kokkos_tool_sees_regions_and_kernels(self):
        for variable in ("KOKKOS_PROFILE_LIBRARY", "KOKKOS_TOOLS_LIBS"):  # up to 3.7, and later
            os.environ[variable] = os.environ["TOOL"]
            self.addCleanup(os.environ.pop, variable)
        text = self.scape("train", TINY_GPT, "run.dir=run", "train.steps=2", "eval.every=1")
        for words in ("loaded", "finished", "kernel scape::kernels::attention_forward",
                      *(f"region scape::{part}" for part in ("step", "forward", "backward", "exchange",
                                                             "update", "checkpoint", "eval"))):
            self.assertIn(f"tool: {words}", text)


class Resume(Case):
    def test_resume_is_bitwise(self):
        for deck in (TINY_GPT, TINY_LLAMA):
            for ranks in (1, 2):
                whole = self.train("whole", "train.steps=8", "optimizer.decay_steps=8", deck=deck,
                                   ranks=ranks)
                self.train("cut", "train.steps=5", "optimizer.decay_steps=8", deck=deck, ranks=ranks)
                cut = self.train("cut", "train.steps=8", "optimizer.decay_steps=8", deck=deck,
                                 ranks=ranks)
                keys = ("step", "loss", "grad_norm", "lr", "tokens", "data_hash")
                for a, b in zip(whole, cut):
                    self.assertEqual([a[k] for k in keys], [b[k] for k in keys])
                self.assertIn("train.steps 5 -> 8 (applied)", self.last_output)
                self.setUp()

    def test_resume_on_other_ranks_gives_the_same_losses(self):
        common = ("train.global_batch=12", "train.micro_batch=1", "optimizer.decay_steps=12")
        whole = self.train("whole", "train.steps=12", *common)
        self.train("cut", "train.steps=4", *common, ranks=2)
        for ranks, steps in ((1, 6), (3, 8), (4, 10), (2, 12)):
            self.train("cut", f"train.steps={steps}", *common, ranks=ranks)
            self.assertIn(f"-> now {ranks}", self.last_output)
        self.assert_close(self.losses("cut"), [r["loss"] for r in whole], 1e-5)

    def test_stop_file_and_signals_stop_in_good_order(self):
        # wide enough for matrix products that take most of the time: a signal arrives within one
        endless = ("train.steps=1000000", "checkpoint.every=0", "eval.every=0", "model.width=192")
        for ranks, how in ((1, "file"), (2, "file"), (1, signal.SIGTERM), (1, signal.SIGINT),
                           (1, signal.SIGUSR1), (2, signal.SIGUSR1)):
            run = f"run-{ranks}-{how}"
            process = subprocess.Popen(
                self.command("train", TINY_GPT, f"run.dir={run}", *endless, ranks=ranks),
                cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.wait_for_steps(run, 3)
            if how == "file":
                self.write(f"{run}/STOP", "")
            else:
                process.send_signal(how)
            output = process.communicate(timeout=60)[0]
            self.assertEqual(process.returncode, 0, msg=output)
            self.assertIn("stopped after step", output)
            last = self.records(run)[-1]["step"]
            self.assertEqual(self.checkpoints(run), [f"step-{last:08}.h5"])
            self.assertFalse(os.path.exists(self.path(run, "STOP")))
            again = self.train(run, f"train.steps={last + 2}", "model.width=192", ranks=ranks)
            self.assertEqual([r["step"] for r in again], list(range(1, last + 3)))

    def wait_for_steps(self, run, count):
        deadline = time.time() + 60
        while time.time() < deadline:
            try:
                if len(self.records(run)) >= count:
                    return
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        self.fail("the run does not get on")

    def test_wall_limit_saves_in_time(self):
        self.train("run", "train.steps=1000000", "run.wall_limit=2s", "eval.every=0",
                   "checkpoint.every=0")
        self.assertIn("wall limit", self.last_output)
        self.assertEqual(len(self.checkpoints("run")), 1)

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        process = subprocess.Popen(
            self.command("train", TINY_GPT, "run.dir=run", "train.steps=1000000",
                         "checkpoint.every=4", "eval.every=0"), cwd=self.dir,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for_steps("run", 9)
        process.kill()
        process.wait()
        last = int(self.checkpoints("run")[-1][5:13])
        records = self.train("run", f"train.steps={last + 3}")
        self.assertEqual([r["step"] for r in records], list(range(1, last + 4)))

    def test_a_run_killed_before_its_first_checkpoint_keeps_its_records(self):
        old = self.train("run", "train.steps=3")
        for name in self.checkpoints("run"):
            os.remove(self.path("run", "checkpoints", name))
        self.train("run", "train.steps=2")
        self.assertIn("fresh start", self.last_output)
        kept = self.text("run", "metrics.previous-1.jsonl").splitlines()
        self.assertEqual(len(kept), len(old))

    def test_a_complete_run_has_nothing_to_do(self):
        self.train("run", "train.steps=2")
        before = self.text("run", "metrics.jsonl")
        self.scape("train", TINY_GPT, "run.dir=run", "train.steps=2", code=4)
        self.assertEqual(self.text("run", "metrics.jsonl"), before)


class Splits(Case):
    """The same global batch gives the same losses however it is split."""

    def check(self, deck, *overrides):
        common = ("train.global_batch=12", "train.steps=10", "check.hash_every=1", *overrides)
        reference = self.train("reference", "train.micro_batch=12", *common, deck=deck)
        for ranks, micro in ((1, 1), (1, 4), (2, 6), (2, 3), (3, 4), (3, 2), (4, 3), (4, 1)):
            run = f"run-{ranks}-{micro}"
            records = self.train(run, f"train.micro_batch={micro}", *common, deck=deck, ranks=ranks)
            self.assert_close([r["loss"] for r in records], [r["loss"] for r in reference], 1e-5)
            self.assertEqual([r["data_hash"] for r in records],
                             [r["data_hash"] for r in reference])

    def test_gpt(self):
        self.check(TINY_GPT)

    def test_llama_with_adams_and_masked_targets(self):
        # the masked token leaves unequal numbers of targets to the ranks
        self.check(TINY_LLAMA, "data.ignore_token=3", "optimizer.kind=adams", "comm.bucket_mb=0.005")

    def test_the_same_run_twice_is_bitwise_equal_and_counts_its_bytes(self):
        for ranks in (2, 3, 4):
            common = ("train.global_batch=12", "train.micro_batch=1", "train.steps=4",
                      "comm.bucket_mb=0.01")
            a = self.train(f"a{ranks}", *common, ranks=ranks)
            b = self.train(f"b{ranks}", *common, ranks=ranks)
            self.assertEqual([r["loss"] for r in a], [r["loss"] for r in b])
            self.assertEqual([r["grad_norm"] for r in a], [r["grad_norm"] for r in b])
            for r in a:
                # (P-1)/P of the padded buffer, each way
                self.assertEqual(r["bytes"]["all_to_all"], r["bytes"]["all_gather"])
                self.assertEqual(r["bytes"]["all_to_all"] % (ranks - 1), 0)
            flat = a[0]["bytes"]["all_to_all"] // (ranks - 1) * ranks
            self.assertEqual(flat % (4 * 64 * ranks), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
