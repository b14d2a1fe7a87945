"""tools/gpu_checks.py where there is no GPU: gpu_checks_test.py TANDEM SOURCE_DIR"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TANDEM, SOURCE = (pathlib.Path(word) for word in sys.argv[1:3])


class GpuChecks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out"
        self.data = pathlib.Path(folder.name) / "data"

    def run_checks(self, *options, data=SOURCE):
        """The exit status, and the status and reason of every step."""
        command = [sys.executable, str(SOURCE / "tools/gpu_checks.py"), str(self.out),
                   "--programs", str(TANDEM.parent), "--data", str(data), *options]
        done = subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.lines = [json.loads(line)
                      for line in (self.out / "results.jsonl").read_text().splitlines()]
        steps = {line["step"]: (line["status"], line["why"]) for line in self.lines
                 if "step" in line}
        self.assertIn("device", steps, done.stdout)
        return done.returncode, steps

    def golden_model(self, name, golden):
        """Data with one model, whose reference outputs are those of `golden`."""
        models = SOURCE / "tests/data/models"
        folder = self.data / "tests/data/models" / name
        shutil.copytree(models / name, folder)
        shutil.copy(models / golden / "golden.safetensors", folder)

    def test_without_a_device_every_step_says_that_it_was_skipped(self):
        status, steps = self.run_checks()
        self.assertEqual(status, 0)
        self.assertGreaterEqual(len(steps), 10)
        for step, (status, why) in steps.items():
            self.assertEqual(status, "skipped", step)
            self.assertIn("cuda:0: ", why)
        self.assertIn("memcheck", (self.out / "summary.txt").read_text())

    def test_golden_models_are_compared_with_the_reference(self):
        self.golden_model("llama-gqa", "llama-gqa")
        status, steps = self.run_checks("--device", "cpu", "--only", "golden", data=self.data)
        self.assertEqual((status, steps["golden"]), (0, ("passed", "1 models")))

    def test_other_tokens_than_the_references_are_a_failure(self):
        self.golden_model("mistral-noisy", "mistral-full")
        status, steps = self.run_checks("--device", "cpu", "--only", "golden", data=self.data)
        self.assertEqual((status, steps["golden"][0]), (1, "failed"))
        self.assertIn("mistral-noisy", steps["golden"][1])

    def test_a_step_that_fails_does_not_stop_the_next(self):
        self.golden_model("mistral-noisy", "mistral-full")
        status, steps = self.run_checks("--device", "cpu", "--quick", "--only",
                                        "golden,pair,bench-llama-1b", data=self.data)
        self.assertEqual(status, 1)
        self.assertEqual([steps[step][0] for step in ("golden", "pair", "bench-llama-1b")],
                         ["failed", "skipped", "passed"])
        measured = [line for line in self.lines if line.get("bench") == "device"]
        self.assertEqual({line["op"] for line in measured},
                         {"read", "copy", "product", "attention", "pass"})
        self.assertTrue(all(line["of_read"] > 0 for line in measured))

    def test_pytorch_is_measured_beside_where_there_is_one(self):
        status, steps = self.run_checks("--device", "cpu", "--quick", "--only",
                                        "bench-llama-1b,torch-llama-1b")
        self.assertEqual(status, 0)
        if importlib.util.find_spec("torch") is None:
            self.assertEqual(steps["torch-llama-1b"], ("skipped", "there is no PyTorch here"))
            return
        self.assertEqual(steps["torch-llama-1b"], ("passed", "2 lines"))
        self.assertEqual([line["rows"] for line in self.lines if line.get("bench") == "torch"],
                         [1, 2])
        self.assertIn("torch_ms", (self.out / "summary.txt").read_text())

    def test_a_step_beyond_its_time_is_stopped(self):
        programs = self.data / "programs"
        programs.mkdir(parents=True)
        (programs / "tandem").write_text(
            '#!/bin/sh\n[ "$1" = generate ] && sleep 60\necho \'{"device": "none"}\'\n')
        (programs / "tandem").chmod(0o755)
        status, steps = self.run_checks("--seconds", "1", "--only", "golden,pair", "--programs",
                                        str(programs))
        self.assertEqual(status, 1)
        self.assertEqual([steps[step][0] for step in ("device", "golden", "pair")],
                         ["passed", "timeout", "skipped"])
        self.assertEqual(steps["pair"][1], "no time is left")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
