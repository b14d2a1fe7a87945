"""tools/gpu_checks.py on a machine without a GPU: gpu_checks_test.py TANDEM SOURCE_DIR"""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import struct
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

    def test_without_a_device_every_step_reports_that_it_was_skipped(self):
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

    def test_tokens_that_differ_from_the_reference_are_a_failure(self):
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

    def test_pytorch_is_measured_if_it_is_installed(self):
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

    def test_a_step_that_exceeds_its_time_is_stopped(self):
        programs = self.data / "programs"
        programs.mkdir(parents=True)
        (programs / "tandem").write_text(
            '#!/bin/sh\n[ "$1" = generate ] && sleep 60\necho \'{"device": "none"}\'\n')
        (programs / "tandem").chmod(0o755)
        status, steps = self.run_checks("--seconds", "5", "--only", "golden,pair", "--programs",
                                        str(programs))
        self.assertEqual(status, 1)
        self.assertEqual([steps[step][0] for step in ("device", "golden", "pair")],
                         ["passed", "timeout", "skipped"])
        self.assertEqual(steps["pair"][1], "no time is left")


MIB = 1 << 20


class Rehearsal(unittest.TestCase):
    """A whole visit: the script of the bundle, with stand-in programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.out = self.root / "out"
        self.calls = self.root / "calls"
        bundle = self.root / "bundle"
        (bundle / "torch").mkdir(parents=True)
        for name in ("gpu_checks.py", "run_gpu_checks.sh"):
            shutil.copy(SOURCE / "tools" / name, bundle)
        stand_in = SOURCE / "tests/gpu_stand_ins.py"
        for name in ("tandem", "gpu_test", "kernel_lab", "nvidia-smi", "compute-sanitizer"):
            (bundle / name).write_text(
                f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" {name} "$@"\n')
            (bundle / name).chmod(0o755)
        (bundle / "torch/__init__.py").touch()
        (bundle / "torch_passes.py").write_text(
            f"import os, sys\nos.execv({sys.executable!r}, [{sys.executable!r}, "
            f"{str(stand_in)!r}, 'torch', *sys.argv[1:]])\n")
        self.script = bundle / "run_gpu_checks.sh"
        self.environment = {**os.environ, "CALLS": str(self.calls), "PYTHONPATH": str(bundle),
                            "PATH": f"{bundle}:{os.environ['PATH']}"}
        # The repository that the script runs in, with one golden model and the pair.
        golden = self.root / "repository/tests/data/models/model"
        golden.mkdir(parents=True)
        (self.root / "repository/models/storyteller-7m").mkdir(parents=True)
        write_golden(golden / "golden.safetensors", {"input_ids": [1, 2], "greedy_ids": [5, 6, 7]})

    def start(self, *options, **environment):
        return subprocess.Popen(["bash", str(self.script), str(self.out), *options],
                                cwd=self.root / "repository", text=True,
                                env={**self.environment, **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def visit(self, *options, **environment):
        """The exit status and every step's status, in order."""
        process = self.start(*options, **environment)
        self.printed, _ = process.communicate()
        self.lines = [json.loads(line)
                      for line in (self.out / "results.jsonl").read_text().splitlines()]
        return process.returncode, {line["step"]: line["status"] for line in self.lines
                                    if "step" in line}

    def called(self, name):
        calls = [json.loads(line) for line in self.calls.read_text().splitlines()]
        return [words[1:] for words in calls if words[0] == name]

    def groups(self):
        listed = subprocess.run([sys.executable, str(SOURCE / "tools/gpu_checks.py"), "--list"],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        found = {}
        for line in listed.splitlines():
            number, step, limit = line.split()
            found.setdefault(number, []).append((step, int(limit)))
        return found

    def test_limits_of_a_group_fit_into_a_command_of_the_device_tool(self):
        self.assertEqual(list(self.groups()), ["1", "2", "3", "4", "5"])
        for number, steps in self.groups().items():
            self.assertEqual(steps[0][0], "device")
            self.assertLessEqual(sum(limit for _, limit in steps), 570, number)

    def test_correctness_checks_come_before_benchmarks(self):
        names = [step for steps in self.groups().values() for step, _ in steps
                 if step not in ("device", "nvidia-smi")]
        self.assertEqual(names[:4], ["kernel-lab", "gpu_test", "golden", "pair"])
        kinds = ["bench", "torch", "check"]
        first = [next(i for i, name in enumerate(names) if kind in name and i > 3)
                 for kind in kinds]
        self.assertEqual(first, sorted(first))
        self.assertLess(names.index("bench-large-pair"), names.index("torch-llama-8b"))

    def test_every_group_runs_its_steps_in_order(self):
        for number, steps in self.groups().items():
            status, found = self.visit("--group", number)
            self.assertEqual(status, 0, self.printed)
            self.assertEqual(list(found), [step for step, _ in steps])
            self.assertEqual(set(found.values()), {"passed"}, self.printed)
            self.assertIn((self.out / "summary.txt").read_text(), self.printed)
            files = list(self.out.rglob("*"))
            self.assertLessEqual(len(files), 8)
            for file in files:
                self.assertTrue(file.is_file() and file.stat().st_size < 16 * MIB, file)
                self.assertRegex(file.name, r"^[A-Za-z0-9._-]+$")
        self.assertEqual(len(self.called("compute-sanitizer")), 2)
        self.assertEqual(len(self.called("gpu_test")), 3)
        self.assertEqual(len(self.called("kernel_lab")), 1)
        self.assertTrue((self.out / "kernel_lab.jsonl").is_file())

    def test_benchmarks_cover_many_rows_and_long_contexts(self):
        self.visit("--only", "bench-llama-8b,bench-llama-8b-32k,torch-llama-8b-32k")
        bench = [words for words in self.called("tandem") if words[:2] == ["bench", "device"]]
        usual, long = bench[1:]  # after the search for the device
        self.assertIn("1,2,4,5,8,16,32,64,256,512,2048", usual)
        self.assertIn("32768", long)
        self.assertIn("32768", self.called("torch")[0])
        summary = (self.out / "summary.txt").read_text()
        for word in ("TFLOP/s", "of_bandwidth", "500", "0.75", "llama-8b-32k", "torch_ms"):
            self.assertIn(word, summary)

    def test_everything_fits_into_the_smaller_card(self):
        spec = importlib.util.spec_from_file_location("gpu_checks", SOURCE / "tools/gpu_checks.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, (shape, sizes, more) in module.SHAPES.items():
            printed = subprocess.run([str(TANDEM), "make-random", "--print-config", "--shape",
                                      shape], stdout=subprocess.PIPE, check=True).stdout
            self.assertLess(bytes_of(json.loads(printed), sizes, more), 72 << 30, name)

    def test_the_next_step_runs_after_one_hangs_or_fails(self):
        status, steps = self.visit("--group", "3", "--limit", "bench-llama-8b-32k=1",
                                   STAND_IN_HANGS="32768", STAND_IN_FAILS="q4_k")
        self.assertEqual(status, 1)
        self.assertEqual(steps, {"device": "passed", "bench-llama-1b": "passed",
                                 "bench-llama-8b-32k": "timeout", "bench-llama-8b-q4_k": "failed",
                                 "bench-pair": "passed", "bench-large-pair": "passed"})
        self.assertIn("it went wrong", self.printed)
        self.assertIn("-> stopped", (self.out / "log.txt").read_text())

    def test_a_killed_visit_keeps_its_results(self):
        process = self.start("--group", "2", STAND_IN_HANGS="--gtest_filter=*")
        while not (self.calls.exists() and self.called("gpu_test")):
            self.assertIsNone(process.poll())
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        summary = (self.out / "summary.txt").read_text()
        self.assertRegex(summary, "device +passed")
        self.assertNotIn("gpu_test", summary)

    def test_an_unknown_group_is_refused(self):
        process = self.start("--group", "6")
        printed, _ = process.communicate()
        self.assertEqual(process.returncode, 2)
        self.assertIn("--group: invalid choice: 6 (choose from 1, 2, 3, 4, 5)", printed)


def write_golden(path, tensors):
    header, data = {}, b""
    for name, numbers in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}i", *numbers)
        header[name] = {"dtype": "I32", "shape": [len(numbers)],
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def bytes_of(config, sizes, more):
    """The bytes of weights, of the largest cache, and of rows for logits and sampling."""
    bits = {"q4_k": 4.75, "q8_0": 8.5}[more[1]] if "--quantize" in more else 16
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads, head = config["num_key_value_heads"], config["head_dim"]
    layer = hidden * (2 * heads + 2 * kv_heads) * head + 3 * hidden * config["intermediate_size"]
    weights = config["num_hidden_layers"] * layer + config["vocab_size"] * hidden
    rows, batches, contexts = (max(map(int, sizes[name].split(",")))
                               for name in ("--rows", "--batches", "--contexts"))
    tokens = max(batches * (contexts + 1), contexts + rows)
    cache = tokens * config["num_hidden_layers"] * 2 * kv_heads * head * 2
    return weights * bits / 8 + cache + 3 * 4 * max(rows, batches) * config["vocab_size"]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
