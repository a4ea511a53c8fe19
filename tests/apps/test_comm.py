"""`scape bench comm`: the table, the fit and the machine file agree; how fast anything is here is
no test's business."""
import os
import re
import statistics
import unittest

from harness import TINY_GPT, Case

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6}
SIZE = r"([0-9.]+) (B|kB|MB)"
ROW = re.compile(rf"(?m)^(all_to_all|all_gather|broadcast|all_gather_host) +{SIZE} +{SIZE} +(\S+) +(\S+)$")


def rows_of(text):
    """(collective, bytes of the buffer, bytes that a rank sends, microseconds, GB/s)"""
    return [(m[1], float(m[2]) * UNITS[m[3]], float(m[4]) * UNITS[m[5]], float(m[6]), float(m[7]))
            for m in ROW.finditer(text)]


def fit(rows, ranks):
    """Latency (us) of a message, GB/s: medians of small and of large messages."""
    rows = [(sent / (ranks - 1), time / (ranks - 1)) for name, _, sent, time, _ in rows
            if name in ("all_to_all", "all_gather")]
    least, most = min(rows)[0], max(rows)[0]
    large = [r for r in rows if 4 * r[0] >= 0.99 * most]
    slow = statistics.median(part / time for part, time in large)
    latency = max(0, statistics.median(time - part / slow
                                       for part, time in rows if part <= 4.04 * least))
    return latency, 1e-3 * statistics.median(part / (time - latency)
                                             for part, time in large if time > latency)


class Comm(Case):
    def bench(self, *arguments, ranks=2):
        return self.scape("bench", "comm", "--seconds", "1", *arguments, ranks=ranks)

    def value(self, name, key):
        """The last part of the file that has such a key counts: network before memory."""
        return float(re.findall(rf"(?m)^{key} = (\S+) ", self.text(name))[-1])

    def check_rows(self, rows, ranks, last):
        for name in ("all_to_all", "all_gather", "broadcast"):
            sizes = [r[1] for r in rows if r[0] == name]
            self.assertEqual(sizes, sorted(sizes))
            self.assertAlmostEqual(sizes[0] / 1000, 1, delta=0.05)
            self.assertAlmostEqual(sizes[-1] / last, 1, delta=0.01)
        for name, buffer, sent, time, rate in rows:
            share = ranks - 1 if name == "broadcast" else (ranks - 1) / ranks
            self.assertAlmostEqual(sent / buffer / share, 1, delta=0.02)
            self.assertAlmostEqual(rate / (1e-3 * sent / time), 1, delta=0.02)
        self.assertEqual([r[0] for r in rows].count("all_gather_host"), 1)

    def test_table_fit_and_file(self):
        self.write("m.toml", "not a machine file")
        for ranks, megabytes, count in ((2, "1", 6), (3, "0.1", 4)):
            text = self.bench("--write", "m.toml", "--max-mb", megabytes, "--name",
                              'some "odd" nodes', ranks=ranks)
            rows = rows_of(text)
            self.assertEqual(len(rows), 3 * count + 1, msg=text)
            self.check_rows(rows, ranks, 1e6 * float(megabytes))
            latency, rate = fit(rows, ranks)
            self.assertAlmostEqual(self.value("m.toml", "gb_per_s") / rate, 1, delta=0.03, msg=text)
            self.assertAlmostEqual(self.value("m.toml", "latency_us"), latency,
                                   delta=0.01 + 0.03 * latency, msg=text)
            self.assertIn('name = "some \\"odd\\" nodes"', self.text("m.toml"))
            self.assertIn(f"# {ranks} ranks, ", self.text("m.toml"))
            for key in ("peak_tflops", "gb_per_s", "capacity_gb"):
                self.assertGreater(self.value("m.toml", key), 0)
            self.assertTrue(0 <= self.value("m.toml", "overlap") <= 1)
            self.assertEqual(os.listdir(self.dir), ["m.toml"])
            self.scape("project", TINY_GPT, "--machine", "m.toml", "--gpus", "2")

    def test_only_a_table(self):
        self.assertEqual(len(rows_of(self.bench("--max-mb", "0.1", "--backend", "mpi"))), 13)
        self.assertEqual(os.listdir(self.dir), [])

    def test_buffers_that_take_too_long_are_left_out_and_that_is_said(self):
        text = self.bench("--max-mb", "400")
        self.assertIn("\nall_gather of more is left out", text)
        self.assertLess(max(r[1] for r in rows_of(text)), 390e6)

    def test_the_name_of_the_file_is_the_machines(self):
        self.bench("--max-mb", "0.1", "--write", self.path("new.cluster.toml"))
        self.assertIn('name = "new.cluster" ', self.text("new.cluster.toml"))

    def test_one_rank_is_refused(self):
        for options in ([], ["--backend", "self"]):
            self.refused(2, "bench", "comm", *options, says=["mpirun -n 2"])

    def test_a_place_that_cannot_be_written_is_refused_before_anything_is_timed(self):
        for path in (self.path("nowhere", "m.toml"), self.dir):
            text = self.refused(7, "bench", "comm", "--write", path, ranks=2,
                                says=[f"cannot write '{path}'"])
            self.assertEqual(rows_of(text), [])

    def test_what_makes_no_sense_is_refused(self):
        for wrong in (["--max-mb", "0"], ["--seconds", "0"], ["--backend", "smoke"], ["--gpus", "2"],
                      ["--write"]):
            self.scape("bench", "comm", *wrong, ranks=2, code=2)
        self.refused(2, "bench", "comm", "--name", "x", ranks=2, says=["--write"])
        self.refused(2, "bench", "comm", "--write", "m.toml", "--name", b"\xff", ranks=2,
                     says=["UTF-8"])


if __name__ == "__main__":
    unittest.main()
