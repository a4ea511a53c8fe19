#!/usr/bin/env python3
"""Wrong input gets one clear message, the right exit code on every rank, and loses nothing."""
import os
import subprocess
import time
import unittest

from harness import Case, SCAPE, TINY_GPT, TINY_LLAMA

USAGE, DATA, COMPLETE, NUMBERS, RESOURCES = 2, 3, 4, 5, 7


class Decks(Case):
    def deck(self, text):
        return self.write("deck.toml", text)

    def test_missing_deck(self):
        for ranks in (1, 2):
            self.refused(USAGE, "train", "nowhere.toml", ranks=ranks, says=["nowhere.toml"])

    def test_syntax_error(self):
        self.refused(USAGE, "train", self.deck("[model]\nlayers = = 3\n"), says=["deck.toml:2"])

    def test_byte_order_mark_and_crlf_are_accepted(self):
        text = self.text(TINY_GPT).replace("\n", "\r\n")
        self.scape("train", self.write("dos.toml", b"\xef\xbb\xbf" + text.encode()), "--dry-run")

    def test_unknown_key_names_line_and_nearest(self):
        for ranks in (1, 2):
            self.refused(USAGE, "train", self.deck("[model]\nlayres = 3\n"), ranks=ranks,
                         says=["deck.toml:2", "layres", "model.layers"])

    def test_wrong_values(self):
        for key, words in (("model.layers=0", "model.layers"), ("optimizer.lr=fast", "optimizer.lr"),
                           ("train.steps=0", "train.steps"), ("model.layers=2.5", "model.layers"),
                           ("optimizer.kind=adamx", "adamw"), ("model.heads=5", "model.heads"),
                           ("train.seq_len=100000", "max_seq_len"), ("nonsense", "nonsense"),
                           ("train.micro_batch=5", "global_batch"), ("model.precision=bf16", "fp32")):
            self.refused(USAGE, "train", TINY_GPT, key, "run.dir=run", says=[words])
        self.assertFalse(os.path.exists(self.path("run")))

    def test_deck_errors_come_before_mpi_and_at_once(self):
        start = time.time()
        self.refused(USAGE, "train", TINY_GPT, "train.steps=0", ranks=4, says=["train.steps"])
        self.assertLess(time.time() - start, 20)

    def test_more_ranks_than_sequences(self):
        self.refused(USAGE, "train", TINY_GPT, "train.global_batch=2", "train.micro_batch=1", ranks=3,
                     says=["global_batch"])

    def test_command_line(self):
        self.scape("train", code=USAGE)
        self.scape("trian", code=USAGE)
        self.scape("train", TINY_GPT, "--dry-rnu", code=USAGE)
        self.assertIn("Exit codes", self.scape("--help"))


class Data(Case):
    def text_run(self, path, *more, ranks=1, says=()):
        self.refused(DATA, "train", TINY_GPT, "data.format=text", "model.vocab=256",
                     f"data.train={path}", "run.dir=run", *more, ranks=ranks, says=says)
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))

    def test_missing_empty_and_one_byte_files(self):
        self.text_run("nowhere.txt", says=["nowhere.txt"])
        self.text_run("nowhere.txt", ranks=2, says=["nowhere.txt"])
        self.text_run(self.write("empty.txt", ""), says=["empty.txt"])
        self.text_run(self.write("one.txt", "a"), says=["one.txt"])
        self.text_run(self.path("*.nothing"), says=["*.nothing"])

    def test_odd_bytes_and_ids_over_the_vocabulary(self):
        odd = self.write("odd.u16", b"\1\0" * 5000 + b"\1")
        self.refused(DATA, "train", TINY_GPT, "data.format=raw_u16", f"data.train={odd}",
                     "run.dir=run", says=["odd.u16", "10001"])
        high = self.write("high.u16", (b"\1\0" * 99 + b"\xff\xff") * 200)
        for ranks in (1, 2):
            text = self.scape("train", TINY_GPT, "data.format=raw_u16", f"data.train={high}",
                              f"run.dir=run{ranks}", ranks=ranks, code=DATA)
            self.assertIn("65535", text)
            self.assertIn("high.u16", text)


class Checkpoints(Case):
    def setUp(self):
        super().setUp()
        self.train("run", "train.steps=4", "checkpoint.every=2")
        self.newest = self.path("run", "checkpoints", "step-00000004.h5")

    def damage(self, path, at, data):
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(data)

    def test_cut_short_falls_back_to_the_one_before(self):
        os.truncate(self.newest, os.path.getsize(self.newest) // 2)
        records = self.train("run", "train.steps=5")
        self.assertIn("step-00000004.h5", self.last_output)
        self.assertEqual([r["step"] for r in records], [1, 2, 3, 4, 5])

    def test_nothing_usable_is_refused_and_kept(self):
        for name in self.checkpoints("run"):
            self.write(f"run/checkpoints/{name}", b"not a checkpoint")
        before = self.text("run", "metrics.jsonl")
        for ranks in (1, 2):
            self.refused(DATA, "train", TINY_GPT, "run.dir=run", "train.steps=5", ranks=ranks,
                         says=["step-00000004.h5"])
        self.assertEqual(self.text("run", "metrics.jsonl"), before)

    def test_damaged_contents_are_noticed(self):
        # checksums guard all arrays: overwrite a few bytes in several places of the file
        for i in range(1, 16):
            self.damage(self.newest, os.path.getsize(self.newest) * i // 16, b"\x55" * 64)
        before = self.text("run", "metrics.jsonl")
        for ranks in (1, 2):
            self.refused(DATA, "train", TINY_GPT, "run.dir=run", "train.steps=5", ranks=ranks,
                         says=["step-00000004.h5"])
        self.assertEqual(self.text("run", "metrics.jsonl"), before)

    def test_no_such_checkpoint(self):
        self.refused(DATA, "generate", "nowhere", "--prompt", "x", says=["nowhere"])
        self.refused(DATA, "train", TINY_GPT, "run.dir=other", "checkpoint.resume=required",
                     says=["required"])

    def test_another_shape(self):
        self.refused(USAGE, "train", TINY_GPT, "run.dir=run", "train.steps=5", "model.layers=3",
                     says=["model.layers", "refused"])
        self.refused(DATA, "train", TINY_GPT, "run.dir=new", "checkpoint.init_from=run",
                     "model.width=48", says=["shape"])
        self.refused(DATA, "train", TINY_LLAMA, "run.dir=new", "checkpoint.init_from=run",
                     says=["step-00000004.h5"])

    def test_a_fresh_start_over_a_run_is_refused(self):
        self.refused(USAGE, "train", TINY_GPT, "run.dir=run", "checkpoint.resume=never",
                     says=["run"])


    def test_an_unreadable_newer_one_is_not_counted_when_old_ones_are_removed(self):
        os.truncate(self.newest, 5000)
        self.train("run", "train.steps=3", "checkpoint.every=1", "checkpoint.keep_last=1")
        self.assertIn("step-00000003.h5", self.checkpoints("run"))
        self.assertEqual(self.text("run", "checkpoints", "latest").strip(), "step-00000003.h5")

    def test_generate_says_which_one_it_passed_over(self):
        os.truncate(self.newest, 5000)
        text = self.scape("generate", "run", "--prompt-ids", "1", "--tokens", "1")
        self.assertIn("step-00000004.h5", text)

    def test_a_refused_start_leaves_the_old_deck(self):
        before = self.text("run", "deck.resolved.toml")
        self.refused(DATA, "train", TINY_GPT, "run.dir=run", "train.steps=6", "model.width=64",
                     "--allow-change", "model.width", says=["shape"])
        self.assertEqual(self.text("run", "deck.resolved.toml"), before)

    def test_allow_change_takes_one_key_and_knows_it(self):
        self.scape("train", TINY_GPT, "--allow-change", "run.seed", "run.dir=run", "train.steps=5",
                   "run.seed=7")
        self.assertIn("seed = 7", self.text("run", "deck.resolved.toml"))
        self.refused(USAGE, "train", TINY_GPT, "run.dir=run", "--allow-change", "run.sed",
                     says=["run.seed"])

    def test_a_fresh_start_over_checkpoints_alone_is_refused(self):
        os.remove(self.path("run", "metrics.jsonl"))
        before = self.checkpoints("run")
        self.refused(USAGE, "train", TINY_GPT, "run.dir=run", "checkpoint.resume=never", says=["run"])
        self.assertEqual(self.checkpoints("run"), before)


class Output(Case):
    def test_closed_and_full_standard_output(self):
        subprocess.run(f"exec {SCAPE} train {TINY_GPT} run.dir=run train.steps=3 >&-", shell=True,
                       cwd=self.dir, check=True)
        self.assertEqual([r["step"] for r in self.records("run")], [1, 2, 3])
        full = subprocess.run(f"{SCAPE} generate run --prompt-ids 1 >/dev/full", shell=True,
                              cwd=self.dir, stderr=subprocess.PIPE, text=True)
        self.assertEqual(full.returncode, RESOURCES)
        self.assertIn("standard output", full.stderr)

    def test_models_too_large_for_memory_or_for_any_machine(self):
        big = ("model.width=1000000", "model.heads=1", "model.layers=1", "model.ffn_width=64",
               "train.micro_batch=1", "train.global_batch=4")
        for ranks in (1, 2):  # 16 TB of parameters
            self.refused(RESOURCES, "train", TINY_GPT, "run.dir=run", *big, ranks=ranks,
                         says=["out of memory", "--dry-run"])
        self.refused(USAGE, "train", TINY_GPT, "--dry-run", "model.layers=100000", "model.width=1000000",
                     "model.heads=1", says=["parameters"])

    def test_directory_that_cannot_be_written(self):
        self.write("file", "")
        for ranks in (1, 2):
            self.refused(RESOURCES, "train", TINY_GPT, "run.dir=file/run", ranks=ranks,
                         says=["file/run"])

    def test_numbers_that_explode(self):
        self.refused(NUMBERS, "train", TINY_GPT, "run.dir=run", "train.steps=50",
                     "optimizer.clip_norm=0", "optimizer.lr=1e36", "optimizer.min_lr=0",
                     "optimizer.warmup_steps=0", says=["finite"])
        skipped = [r for r in self.records("run") if r.get("skipped")]
        self.assertEqual(len(skipped), 2)  # the third ends the run


if __name__ == "__main__":
    unittest.main(verbosity=2)
