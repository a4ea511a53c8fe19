"""tools/netlab on a tiny model: rows, bytes, predictions, and that nothing of it stays behind.

Where this machine does not allow namespaces it says why and ends with code 77, which ctest shows as
skipped.
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from harness import INPUTS, SCAPE, Case

TOOLS = os.path.join(os.path.dirname(INPUTS), "tools")
TOOL = os.path.join(TOOLS, "netlab")
sys.path.insert(0, os.path.join(TOOLS, "network"))
from lab import Skip, check_allowed  # noqa: E402

SKIP = 77
TINY = ["model.layers=2", "model.width=64", "model.heads=2", "model.ffn_width=256",
        "model.vocab=512", "comm.bucket_mb=0.2"]


def leftovers():
    """Processes and namespaces that a lab would have."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                command = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "tools/netlab" in command or "10.213.77." in command:
            found.append(command)
    return found


class Netlab(Case):
    def command(self, *arguments):
        return [sys.executable, TOOL, "--program", SCAPE, "--rounds", "1", "--repeats", "1",
                "--link-seconds", "1", "--results", self.path("netlab.jsonl"), *arguments, *TINY]

    def lab(self, *arguments):
        done = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, msg=done.stdout)
        return done.stdout

    def rows(self):
        with open(self.path("netlab.json")) as f:
            return {(row["mbit"], row["method"]): row for row in json.load(f)["rows"]}

    def test_rows_bytes_and_predictions(self):
        self.lab("--mbit", "1000,50", "--methods", "adams,scape-0.01-4")
        rows = self.rows()
        self.assertEqual(set(rows), {(m, name) for m in (1000, 50) for name in ("adams",
                                                                                "scape-0.01-4")})
        for row in rows.values():
            self.assertAlmostEqual(row["counted_over_interface"], 1, delta=0.05)
            self.assertGreater(row["predicted_ms"], 0)
            parts = row["without_ms"] + row["wait_ms"] + row["network_work_ms"]
            self.assertAlmostEqual(parts, row["step_ms"], places=6)
        # 0.2 M parameters, 4 bytes, half of them each way: at least 130 ms at 50 Mbit/s.
        slow, fast = rows[50, "adams"], rows[1000, "adams"]
        self.assertGreater(slow["step_ms"], 0.6 * slow["wire_ms"])
        self.assertGreater(slow["wire_ms"], 10 * fast["wire_ms"])
        self.assertLess(rows[50, "scape-0.01-4"]["sent_bytes"], 0.2 * slow["sent_bytes"])
        # What was measured is not measured again, and the report is the same without a lab. A line
        # that a killed run left half written does no harm.
        with open(self.path("netlab.jsonl")) as f:
            before = f.read()
        with open(self.path("netlab.jsonl"), "a") as f:
            f.write(before.splitlines()[-1][:40])
        self.lab("--mbit", "1000,50", "--methods", "adams,scape-0.01-4")
        self.lab("--mbit", "1000,50", "--methods", "adams,scape-0.01-4", "--report")
        with open(self.path("netlab.jsonl")) as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(self.rows(), rows)
        # Lines of other settings are not mixed in.
        done = subprocess.run(self.command("--mbit", "1000", "train.micro_batch=1"),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 1, msg=done.stdout)
        self.assertIn("other settings", done.stdout)
        with open(self.path("netlab.jsonl")) as f:
            self.assertEqual(f.read(), before)

    def test_three_ranks(self):
        self.lab("--ranks", "3", "--mbit", "1000", "--methods", "scape-0.1", "train.global_batch=6")
        self.assertEqual(self.rows()[1000, "scape-0.1"]["ranks"], 3)

    def test_nothing_stays_behind_however_it_ends(self):
        self.lab("--mbit", "1000", "--methods", "adams")
        self.assertEqual(leftovers(), [])
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            if os.path.exists(self.path("netlab.jsonl")):
                os.remove(self.path("netlab.jsonl"))
            process = subprocess.Popen(self.command("--mbit", "20", "--methods", "adams,adamw"),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.time() + 60
            while time.time() < deadline and not any("mpirun" in c for c in leftovers()):
                time.sleep(0.1)
            self.assertTrue(any("mpirun" in c for c in leftovers()))
            process.send_signal(number)
            process.wait(timeout=20)
            deadline = time.time() + 20
            while time.time() < deadline and leftovers():
                time.sleep(0.1)
            self.assertEqual(leftovers(), [], msg=f"after signal {number}")
        names = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True).stdout
        self.assertNotIn("node0", names)

    def test_wrong_words(self):
        for wrong in (["--methods", "adamx"], ["--mbit", "fast"], ["--mbit", "0"], ["--mbit", "1e9"],
                      ["--ranks", "1"], ["--rounds", "0"], ["--link-seconds", "nan"],
                      ["--program", "/nowhere/scape"], ["--results", self.dir]):
            done = subprocess.run(self.command(*wrong), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            self.assertNotIn(done.returncode, (0, SKIP), msg=done.stdout)
            self.assertIn(wrong[1], done.stdout)


if __name__ == "__main__":
    try:
        check_allowed()
    except Skip as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    unittest.main()
