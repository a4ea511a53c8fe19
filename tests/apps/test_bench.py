"""The measurements say what they should; how fast anything is here is no test's business."""
import json
import os
import re
import unittest

from harness import INPUTS, TINY_LLAMA, Case

TINY_SCAPE = os.path.join(INPUTS, "tiny-scape.toml")
SPARSE = ["sparsity.density_start=0.05", "sparsity.warmup_steps=0", "sparsity.dense_steps=0",
          "sparsity.cooldown_steps=0"]


class Exchange(Case):
    def rows(self, *arguments):
        text = self.scape("bench", "exchange", "--parameters", "2e5", "--bucket-mb", "0.2",
                          "--repeats", "1", *arguments)
        self.assertRegex(text, r"(?m)^ratio +[0-9.]+$")
        return text, set(re.findall(r"(?m)^(\S.*?) +-?[0-9.]+ ms", text))

    def test_every_part_of_a_sparse_step_has_its_row(self):
        wanted = {"decode", "pack", "reduce-scatter, the sums", "norm", "decay", "update", "unpack",
                  "score", "select (top k)", "encode", "all of these", "the rest of the step",
                  "local work of the step"}
        for options in ([], ["--rule", "paper"], ["--score", "before", "--value-bits", "16"],
                        ["--mask-code", "bitmap", "--ranks", "3"], ["--mask-code", "index"],
                        ["--mask-code", "entropy"]):
            text, rows = self.rows(*options)
            self.assertEqual(wanted - rows, set(), msg=text)
            self.assertNotIn("error feedback", rows)

    def test_error_feedback_outside_the_gradients_has_a_row(self):
        for storage in (["device"], ["host"], ["hdf5", "--path", self.dir]):
            _, rows = self.rows("--storage", *storage)
            self.assertIn("error feedback", rows)

    def test_low_bits(self):
        for options, wanted, none in (
                (["--value-bits", "4", "--delta-bits", "4"], {"pack", "pack, back", "unpack", "decode"}, "pack, LoCo"),
                (["--value-bits", "4", "--error", "loco"], {"pack, LoCo", "update, dense"}, "decode"),
                (["--value-bits", "2", "--error", "none", "--block", "64"], {"pack", "update, dense"}, "pack, LoCo"),
                (["--value-bits", "2", "--optimizer", "adams", "--delta-bits", "1"],
                 {"pack", "pack, back", "unpack", "update, dense"}, "decode")):
            text, rows = self.rows(*options, "--ranks", "4")
            self.assertEqual((wanted | {"reduce-scatter, the sums", "norm"}) - rows, set(), msg=text)
            self.assertNotIn(none, rows)

    def test_bytes_on_the_wire(self):
        text, _ = self.rows("--ranks", "4", "--density", "1")
        # Dense: 3 of 4 pieces each way.
        parameters = int(re.search(r"(\d+) parameters", text)[1])
        sent = re.search(r"gradients (\S+) kB, weights (\S+) kB, masks 0 B", text)
        self.assertIsNotNone(sent, msg=text)
        for kilobytes in sent.groups():
            self.assertAlmostEqual(1e3 * float(kilobytes) / (3 * parameters), 1, delta=0.02)

    def test_what_makes_no_sense_is_refused(self):
        for wrong in (["--density", "0"], ["--rule", "none"], ["--value-bits", "7"],
                      ["--ranks", "0"], ["--value-bits", "4", "--block", "12"],
                      ["--value-bits", "16", "--error", "loco"], ["--error", "loco"], ["--error", "1"],
                      ["--value-bits", "4", "--error", "loco", "--optimizer", "scape"],
                      ["--value-bits", "4", "--error", "none", "--density", "0.1"],
                      ["--optimizer", "sgd", "--rule", "paper"], ["--block", "8"],
                      ["--optimizer", "adams", "--mask-code", "entropy"], ["--bucket-mb", "-1"]):
            self.scape("bench", "exchange", *wrong, code=2)
        self.refused(2, "bench", "exchange", ranks=2, says=["without a launcher"])


class Step(Case):
    def bench(self, *arguments, ranks=1, deck=(TINY_SCAPE, *SPARSE), repeats=1):
        text = self.scape("bench", "step", *deck, "--repeats", str(repeats), *arguments,
                          ranks=ranks)
        self.assertNotIn("WARNING: the last step", text)
        return int(re.search(r"(?m)^sent by this rank: (\d+) bytes in a step", text)[1])

    def test_the_same_bytes_with_and_without_communication(self):
        sent = self.bench(ranks=2)
        self.assertGreater(sent, 0)
        self.assertEqual(self.bench("--communication", "off", ranks=2), sent)
        self.assertEqual(self.bench("--communication", "off", "--ranks", "2"), sent)
        self.assertEqual(self.bench(), 0)

    def test_silence_is_finite_in_every_code(self):
        # Pieces of the two ranks hold different slices; what a rank makes up for the other must not
        # become NaN, because a skipped step does less work.
        for bits in (["16", "16"], ["8", "8"], ["4", "4"], ["2", "2"], ["1", "1"], ["4", "32"]):
            keys = [f"exchange.value_bits={bits[0]}", f"exchange.delta_bits={bits[1]}"]
            for deck in ((TINY_SCAPE, *SPARSE), (TINY_LLAMA, "optimizer.kind=adams")):
                self.bench("--communication", "off", "--ranks", "2", "model.width=48", *keys,
                           deck=deck, repeats=4)

    def test_the_figures_as_a_file(self):
        file = self.path("step.json")
        sent = self.bench("--json", file, ranks=2)
        with open(file) as f:
            step = json.load(f)
        self.assertEqual((step["kind"], step["ranks"], step["communication"]), ("step", 2, True))
        self.assertEqual(step["sent_bytes"], sent)
        self.assertGreater(step["total_sent_bytes"], 4 * sent)
        parts = step["compute_ms"] + step["local_ms"] + step["calls_ms"]
        self.assertAlmostEqual(parts, step["step_ms"], places=6)
        self.assertLessEqual(step["wait_ms"], step["calls_ms"])
        deck = self.write("deck.toml", step["resolved_deck"])
        self.assertEqual(self.bench(ranks=2, deck=(deck,)), sent)

    def test_a_file_that_cannot_be_written_is_refused_at_once(self):
        for place in (self.dir, self.path("nowhere", "step.json")):
            self.refused(7, "bench", "step", TINY_SCAPE, *SPARSE, "--json", place, says=[place])

    def test_ranks_need_silence(self):
        self.refused(2, "bench", "step", TINY_SCAPE, "--ranks", "2", says=["--communication off"])


if __name__ == "__main__":
    unittest.main()
