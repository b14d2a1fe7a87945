"""tools/kernel_lab on the host twin, and its report: kernel_lab_test.py KERNEL_LAB_ON_HOST SOURCE_DIR [unittest's arguments]"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
LAB, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
# What the program may take: ten minutes less what a machine needs to start and to copy results.
RUN_SECONDS = 540


class KernelLab(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out.jsonl"

    def run_lab(self, *arguments, status=0):
        done = subprocess.run([LAB, "--out", str(self.out), *arguments], capture_output=True,
                              text=True, timeout=500, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def results(self):
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        self.assertIn("kernel_lab", lines[0])
        self.assertTrue(lines[-1]["end"])
        return lines[1:-1], lines[-1]

    def test_measures_every_small_line_and_finds_no_mismatch(self):
        self.run_lab("--quick")
        lines, end = self.results()
        listed = self.run_lab("--quick", "--list").stdout.splitlines()
        self.assertEqual(len(lines), len(listed) - 1)
        self.assertEqual(len({line["line"] for line in lines}), len(lines))
        for line in lines:
            with self.subTest(line["line"]):
                self.assertNotIn("error", line)
                self.assertEqual(line.get("mismatches", 0), 0)
                if line["group"] == "product":
                    self.assertGreater(line["compared"], 100)
                if line["group"] not in ("bits", "probe"):
                    self.assertGreater(line["median_us"], 0)
        self.assertEqual((end["errors"], end["skipped"]), (0, []))

    def test_a_line_that_differs_fails_crashes_or_hangs_loses_no_other(self):
        self.run_lab("--quick", "--faults", "--only", "^fault|bandwidth", "--grace", "1", status=1)
        lines, end = self.results()
        by_name = {line["line"]: line for line in lines}
        self.assertEqual(by_name["fault/differs"]["mismatches"], 1)
        self.assertEqual(by_name["fault/fails"]["error"], "a planted failure")
        self.assertEqual(by_name["fault/crashes"]["error"], "the worker ended")
        self.assertEqual(by_name["fault/hangs"]["error"], "stopped: it took too long")
        self.assertNotIn("fault/lasts", by_name)
        self.assertEqual(end["skipped"], ["fault/lasts"])
        self.assertGreater(by_name["bandwidth/read"]["gb_per_s"], 0)
        self.assertEqual((end["measured"], end["errors"]), (2, 3))

    def test_appends_and_skips_what_does_not_fit(self):
        self.run_lab("--quick", "--seconds", "0", "--only", "small/qkv")
        lines, end = self.results()
        self.assertEqual(lines, [])
        self.assertIn("product/small/qkv/bf16/rows=1/variant=0", end["skipped"])
        before = self.out.read_text()
        self.run_lab("--quick", "--only", "bandwidth")
        self.assertTrue(self.out.read_text().startswith(before))

    def test_the_whole_run_fits_ten_minutes(self):
        listed = self.run_lab("--list").stdout.splitlines()
        planned = sum(float(re.match(r" *([\d.]+)  ", line)[1]) for line in listed[:-1])
        self.assertLess(planned, RUN_SECONDS)
        self.assertIn(f"{len(listed) - 1} lines", listed[-1])
        self.assertTrue(listed[0].endswith("bandwidth/read"), listed[0])

    def test_refuses_wrong_options(self):
        for arguments, error in [
                (["--only", "("], "--only: "), (["--only", "nothing"], "no line has a match: nothing"),
                (["--seconds", "x"], "--seconds: must be a number from 0 to 86400, got x"),
                (["--out"], "--out: a value must follow"), (["--wrong"], "--wrong: unknown option"),
                (["--quick", "--device", "7"], "cuda:7: invalid device ordinal")]:
            done = self.run_lab(*arguments, status=2)
            self.assertIn(error, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = self.run_lab("--out", "/nowhere/a.jsonl", "--quick", status=2)
        self.assertIn("/nowhere/a.jsonl: No such file", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
