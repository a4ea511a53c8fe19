"""Runs the program as a user would, alone or under the MPI launcher.

Environment: SCAPE (the program), MPIEXEC (the launcher; empty: MPI tests are skipped),
MPIEXEC_FLAGS, INPUTS (the folder of decks).
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

SCAPE = os.environ["SCAPE"]
INPUTS = os.environ["INPUTS"]
MPIEXEC = os.environ.get("MPIEXEC", "")
FLAGS = os.environ.get("MPIEXEC_FLAGS", "").split()

TINY_GPT = os.path.join(INPUTS, "tiny-gpt.toml")
TINY_LLAMA = os.path.join(INPUTS, "tiny-llama.toml")


class Case(unittest.TestCase):
    """A scratch directory per test, and ways to run the program in it."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="scape-test-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def text(self, *parts):
        with open(self.path(*parts), encoding="utf-8") as f:
            return f.read()

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def command(self, *arguments, ranks=1):
        if ranks == 1:
            return [SCAPE, *arguments]
        if not MPIEXEC:
            self.skipTest("no MPI launcher")
        return [MPIEXEC, "-n", str(ranks), *FLAGS, SCAPE, *arguments]

    def scape(self, *arguments, ranks=1, code=0, timeout=120):
        """Runs to the end, checks the exit code, returns stdout + stderr."""
        done = subprocess.run(self.command(*arguments, ranks=ranks), cwd=self.dir, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, code, msg=f"{arguments} on {ranks} ranks:\n{done.stdout}")
        return done.stdout

    def refused(self, code, *arguments, ranks=1, says=()):
        """The program must end with that code and say all of these words, once."""
        text = self.scape(*arguments, ranks=ranks, code=code)
        for words in says:
            self.assertIn(words, text)
        self.assertEqual(text.count("scape: "), 1, msg=f"one message, please:\n{text}")
        return text

    def train(self, run, *overrides, deck=TINY_GPT, ranks=1, code=0):
        """Trains into `run` and returns the records of metrics.jsonl."""
        self.last_output = self.scape("train", deck, f"run.dir={run}", *overrides, ranks=ranks,
                                      code=code)
        return self.records(run)

    def records(self, run):
        with open(self.path(run, "metrics.jsonl")) as f:
            return [json.loads(line) for line in f]

    def losses(self, run):
        return [r["loss"] for r in self.records(run)]

    def assert_close(self, a, b, relative):
        self.assertEqual(len(a), len(b))
        for i, (x, y) in enumerate(zip(a, b)):
            self.assertLessEqual(abs(x - y), relative * abs(y), msg=f"entry {i}: {x} and {y}")

    def checkpoints(self, run):
        d = self.path(run, "checkpoints")
        return sorted(n for n in os.listdir(d) if n.endswith(".h5"))
