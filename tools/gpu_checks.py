#!/usr/bin/env python3
"""Runs the checks that need a GPU: kernel_lab, tests, golden models, benchmarks, PyTorch's passes, sanitizers.

tools/gpu_bundle.sh packs this script and its programs into one folder. The steps are in groups
whose time limits add up to at most 570 s; --list prints them. Each step has a time limit, and a
step that fails or is skipped does not stop the others. The results folder gets
  results.jsonl   a line for each step (step, status, seconds, why) and for each measurement
  summary.txt     the same as tables, rewritten after each step
  log.txt         the last MiB of each command's output
status is "passed", "failed", "timeout" or "skipped". Exits with 1 if a step failed or timed out,
else with 0.
"""

import argparse
import contextlib
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

# Only tests with small shapes: under a sanitizer a test takes about a hundred times as long.
SANITIZERS = ("memcheck", "racecheck")
SANITIZED_TESTS = "-*Long*:BenchDevice*:Meter.Replays*"
# Time limit of a group in seconds, including the search for the device.
GROUP_SECONDS = 570
DEVICE_SECONDS = 40
LAB_SECONDS = 500  # of measuring
LOGGED_BYTES = 1 << 20
# Sizes that `bench device` and torch_passes.py measure. The cache of llama-8b takes 128 KiB per
# token, that of llama-70b 320 KiB: together with the weights everything fits into 70 GiB.
USUAL = {"--rows": "1,2,4,5,8,16,32,64,256,512,2048", "--batches": "1,4,16,64",
         "--contexts": "0,1024,4096"}
LONG = {"--rows": "1,5,64,512,2048", "--batches": "1,4", "--contexts": "32768"}
LARGE = {"--rows": "1,5,64,512", "--batches": "1,16", "--contexts": "0,4096"}
QUICK = {"--rows": "1,2", "--batches": "1", "--contexts": "16"}
# Shape, sizes, and options for `bench device` only: how weights and cache are stored.
SHAPES = {
    "llama-8b": ("llama-8b", USUAL, []),
    "llama-1b": ("llama-1b", USUAL, []),
    "llama-8b-32k": ("llama-8b", LONG, ["--ops", "attention,pass"]),
    "llama-8b-q4_k": ("llama-8b", USUAL, ["--quantize", "q4_k"]),
    "llama-8b-q8_0": ("llama-8b", USUAL, ["--quantize", "q8_0", "--kv-cache", "int8"]),
    "qwen3-8b": ("qwen3-8b", USUAL, []),
    "qwen3-0.6b": ("qwen3-0.6b", USUAL, []),
    "llama-70b-q4_k": ("llama-70b", LARGE, ["--quantize", "q4_k"]),
}
# The steps of each group and their limits in seconds: single kernels first, then correctness, then
# speed, then PyTorch's speed, then the slow tools.
GROUPS = [
    {"nvidia-smi": 10, "kernel-lab": LAB_SECONDS + 15},
    {"gpu_test": 190, "golden": 110, "pair": 60, "bench-llama-8b": 150},
    {"bench-llama-1b": 90, "bench-llama-8b-32k": 60, "bench-llama-8b-q4_k": 100, "bench-pair": 60,
     "bench-large-pair": 200},
    {"torch-llama-8b": 110, "torch-llama-1b": 70, "torch-llama-8b-32k": 70,
     "bench-llama-8b-q8_0": 100, "bench-qwen3-8b": 110, "bench-qwen3-0.6b": 60},
    {"memcheck": 200, "racecheck": 200, "bench-llama-70b-q4_k": 120},
]


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class Checks:
    def __init__(self, arguments):
        self.device = arguments.device
        self.is_quick = arguments.quick
        self.limits = dict(arguments.limit)
        self.out = arguments.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.deadline = time.monotonic() + (
            arguments.seconds or (GROUP_SECONDS if arguments.group else 3600))
        self.step_deadline = self.deadline
        self.programs, self.data = arguments.programs, arguments.data
        self.results = open(self.out / "results.jsonl", "w", encoding="utf-8")
        self.log = open(self.out / "log.txt", "w", encoding="utf-8")
        self.lines = []
        self.missing = None  # the reason why the device is missing

    # ---- Running and recording ----

    def record(self, line):
        self.lines.append(line)
        self.results.write(json.dumps(line) + "\n")
        self.results.flush()

    def program(self, name):
        path = self.programs / name
        if not path.is_file():
            raise Skipped(f"the program {name} is missing")
        return str(path)

    def run(self, command, **fields):
        """Runs a command. Returns its exit status and output. Raises subprocess.TimeoutExpired.
        With `fields`, records the measurements in its output, even if it fails, with these fields."""
        self.log.write("$ " + " ".join(command) + "\n")
        self.log.flush()
        left = self.step_deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(command, 0)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            cwd=self.data, start_new_session=True)
        is_late = False
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            is_late = True
            os.killpg(process.pid, signal.SIGKILL)  # the command and its children
            output, _ = process.communicate()
        end = "stopped" if is_late else process.returncode
        self.log.write(output[-LOGGED_BYTES:] + f"-> {end}\n")
        self.log.flush()
        for line in re.findall(r"^\{.*", output, re.MULTILINE) if fields else []:
            with contextlib.suppress(ValueError):  # a line that was cut off
                report = json.loads(line)
                for run in report.pop("runs", [{}]):
                    self.record({**report, **run, **fields})
        if is_late:
            raise subprocess.TimeoutExpired(command, left)
        return process.returncode, output

    def output_of(self, command, **fields):
        """The same for a command that must succeed. Returns its output."""
        status, output = self.run(command, **fields)
        if status != 0:
            raise Failed(output.strip()[-300:])
        return output

    def measure(self, bench, command, **fields):
        """Records the measurements of a command. Returns their number as text."""
        before = len(self.lines)
        self.output_of(command, bench=bench, **fields)
        return f"{len(self.lines) - before} lines"

    def step(self, name, limit, action, needs_device=True):
        start = time.monotonic()
        self.step_deadline = min(self.deadline, start + self.limits.get(name, limit))
        status, why = "passed", ""
        try:
            if needs_device and self.missing:
                raise Skipped(self.missing)
            if start >= self.deadline:
                raise Skipped("no time is left")
            why = action() or ""
        except Skipped as skipped:
            status, why = "skipped", str(skipped)
        except Failed as failed:
            status, why = "failed", str(failed)
        except subprocess.TimeoutExpired:
            status, why = "timeout", f"after {time.monotonic() - start:.0f} s"
        except (OSError, ValueError, KeyError) as error:
            status, why = "failed", repr(error)
        seconds = round(time.monotonic() - start, 1)
        self.record({"step": name, "status": status, "seconds": seconds, "why": why})
        self.write_summary()
        print(f"{name}: {status}" + (f": {why}" if why else "") + f" ({seconds} s)", flush=True)

    # ---- Steps ----

    def action(self, name):
        """Returns the function that runs a step."""
        kind, _, shape = name.partition("-")
        if shape in SHAPES:
            return functools.partial(getattr(self, f"{kind}_shape"), shape)
        if name in SANITIZERS:
            return functools.partial(self.sanitizer, name)
        return getattr(self, name.replace("-", "_"))

    def find_device(self):
        tandem = self.program("tandem")
        status, output = self.run([
            tandem, "bench", "device", "--device", self.device, "--shape", "tiny", "--ops",
            "product", "--rows", "1", "--repeat", "1", "--sample-ms", "0", "--buffer-mb", "1",
            "--json"])
        if status == 0:
            first = next(line for line in output.splitlines() if line.startswith("{"))
            return json.loads(first)["device"]
        lines = output.strip().splitlines()
        self.missing = lines[-1] if lines else "no output"
        if f"{self.device}: " in self.missing:
            raise Skipped(self.missing)
        self.missing = f"the probe ended with status {status}: {self.missing}"
        raise Failed(self.missing)

    def nvidia_smi(self):
        if not shutil.which("nvidia-smi"):
            raise Skipped("nvidia-smi is missing")
        return self.output_of([
            "nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,"
            "temperature.gpu,power.draw", "--format=csv,noheader"]).strip()

    def gpu_test(self, prefix=(), tests="*"):
        program = self.program("gpu_test")
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            status, output = self.run(
                [*prefix, program, f"--gtest_filter={tests}", f"--gtest_output=json:{report}"])
            if not report.is_file():
                raise Failed(f"status {status}: {output.strip()[-200:]}")
            failed, skipped, total = [], 0, 0
            for suite in json.loads(report.read_text())["testsuites"]:
                for test in suite["testsuite"]:
                    total += 1
                    skipped += test["result"] == "SKIPPED"
                    if "failures" in test:
                        failed.append(f"{suite['name']}.{test['name']}")
        errors = [line for line in output.splitlines() if "ERROR SUMMARY" in line
                  or "RACECHECK SUMMARY" in line]
        told = f"{total - len(failed) - skipped} of {total} passed, {skipped} skipped" + "".join(
            "; " + line.strip(" =") for line in errors)
        if failed or status != 0:
            raise Failed(told + f"; status {status}; " + ", ".join(failed[:8]))
        if skipped == total:
            raise Skipped("every test skipped itself")
        return told

    def kernel_lab(self):
        """Measures kernels alone, into kernel_lab.jsonl; tools/kernel_lab_report.py reads it."""
        if not self.device.startswith("cuda:"):
            raise Skipped("it needs a device")
        status, output = self.run(
            [self.program("kernel_lab"), "--out", str((self.out / "kernel_lab.jsonl").resolve()),
             "--seconds", str(LAB_SECONDS), "--device", self.device.partition(":")[2],
             *(["--quick"] if self.is_quick else [])])
        lines = output.strip().splitlines()
        told = lines[-1] if lines else "no output"
        if status != 0:
            raise Failed(f"status {status}: {told}")
        return told

    def sanitizer(self, tool):
        path = shutil.which("compute-sanitizer") or next(
            (str(p) for p in pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)
        if not path:
            raise Skipped("compute-sanitizer is missing")
        return self.gpu_test(
            [path, "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"],
            SANITIZED_TESTS)

    def generate(self, device, target, ids, max_tokens, *more, temperature=0):
        command = [self.program("tandem"), "generate", "--device", device, "--target", str(target),
                   "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", str(max_tokens),
                   "--ignore-eos", "--temperature", str(temperature), "--seed", "7", "--kv-memory",
                   "64M", "--json", *more]
        status, output = self.run(command)
        line = next((text for text in output.splitlines() if text.startswith("{")), None)
        if status != 0 or line is None:
            raise Failed(f"{target}: {output.strip()[-200:]}")
        return json.loads(line)["token_ids"]

    def golden(self):
        folders = sorted(p.parent for p in (self.data / "tests/data/models").glob(
            "*/golden.safetensors"))
        if not folders:
            raise Skipped(f"golden models are missing in {self.data}")
        wrong = []
        for folder in folders:
            tensors = read_safetensors(folder / "golden.safetensors")
            prompt, want = tensors["input_ids"][:8], tensors["greedy_ids"]
            # The reference keeps its cache in f32.
            how = ["--drafter", "none", "--kv-cache", "f32"]
            cpu = self.generate("cpu", folder, prompt, len(want), *how)
            try:
                got = self.generate(self.device, folder, prompt, len(want), *how)
            except Failed as failed:
                if "found a model with experts" not in str(failed):
                    raise
                self.record({"golden": folder.name, "tokens": "refused: it has experts"})
                continue
            line = {"golden": folder.name, "tokens": len(want), "as_reference": same(got, want),
                    "cpu_as_reference": same(cpu, want), "as_cpu": same(got, cpu)}
            self.record(line)
            # Rounding activations to bf16 changes close decisions, also on CPUs that round. The
            # first quarter of a golden text does not have close decisions.
            least = max(line["cpu_as_reference"], len(want) // 4)
            if line["as_reference"] < least and "bf16" not in folder.name:
                wrong.append(f"{folder.name} after {line['as_reference']} tokens")
        if wrong:
            raise Failed("differs from the reference: " + ", ".join(wrong))
        return f"{len(folders)} models"

    def pair(self):
        """Checks that the shipped pair writes the target's own text, greedy and seeded, and
        compares the text with the CPU's."""
        target = self.data / "models/storyteller-7m"
        if not target.is_dir():
            raise Skipped(f"{target} is missing")
        prompt, count = [1, 40, 300, 77, 12], 24 if self.is_quick else 128
        cpu = self.generate("cpu", target, prompt, count, "--drafter", "none", "--kv-cache", "bf16")
        texts = {}
        for kind, temperature, lengths in (("seeded", 0.8, (1, 4)), ("greedy", 0, (1, 4, 8))):
            def text(*drafts):
                return self.generate(self.device, target, prompt, count, "--top-p", "0.95",
                                     *drafts, temperature=temperature)

            texts[kind] = text("--drafter", "none")
            for length in lengths:
                drafted = text("--draft", str(self.data / "models/storyteller-1m"), "-k",
                               str(length))
                if drafted != texts[kind]:
                    raise Failed(f"with {length} draft tokens the {kind} text differs "
                                 f"after {same(drafted, texts[kind])} tokens")
        shared = same(texts["greedy"], cpu)
        return f"the first {shared} of {count} tokens are the same as on the CPU"

    def benchmark(self, command, **fields):
        return self.measure(command[0], [self.program("tandem"), "bench", *command, "--json"],
                            **fields)

    def speculation(self, target, draft, *more):
        return self.benchmark(["speculation", "--device", self.device, "--target", str(target),
                               "--draft", str(draft), *more])

    def sizes(self, name):
        """Returns the shape's name, and options for the sizes to measure."""
        shape, sizes, _ = SHAPES[name]
        told = [word for pair in (QUICK if self.is_quick else sizes).items() for word in pair]
        often = ["--repeat", "1", "--sample-ms", "0"] if self.is_quick else ["--repeat", "5"]
        return "tiny" if self.is_quick else shape, told + often

    def bench_shape(self, name):
        shape, sizes = self.sizes(name)
        small = ["--buffer-mb", "1"] if self.is_quick else []
        return self.benchmark(["device", "--device", self.device, "--shape", shape, *sizes,
                               *SHAPES[name][2], *small], shape=name)

    def torch_shape(self, name):
        """Measures the same passes in PyTorch, if it is installed."""
        if importlib.util.find_spec("torch") is None:
            raise Skipped("there is no PyTorch here")
        shape, sizes = self.sizes(name)
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "config.json"
            config.write_text(self.output_of([self.program("tandem"), "make-random",
                                              "--print-config", "--shape", shape]))
            return self.measure("torch", [
                sys.executable, str(HERE / "torch_passes.py"), str(config), "--shape", name,
                "--device", self.device, *sizes])

    def bench_pair(self):
        models = self.data / "models"
        more = ["--num-prompts", "1", "--max-tokens", "8", "--repeat", "1"] if self.is_quick else []
        return ", ".join(self.speculation(models / "storyteller-7m", models / "storyteller-1m",
                                          "--temperature", temperature, *more)
                         for temperature in ("0", "0.7"))

    def bench_large_pair(self):
        """Measures a large target with synthetic acceptance, through the whole engine."""
        target, draft, need, memory, tokens, repeat = (
            ("tiny", "tiny", 0, "64M", "8", "1") if self.is_quick else
            ("llama-8b", "llama-1b", 20 << 30, "4G", "64", "3"))
        place = next((place for place in ("/dev/shm", tempfile.gettempdir())
                      if os.path.isdir(place) and shutil.disk_usage(place).free >= need), None)
        if place is None:
            raise Skipped(f"{tempfile.gettempdir()} does not have {need >> 30} GiB of free space")
        with tempfile.TemporaryDirectory(dir=place) as folder:
            for role, shape in (("target", target), ("draft", draft)):
                self.output_of([self.program("tandem"), "make-random", "--shape", shape, "--out",
                                f"{folder}/{role}"])
            return self.speculation(
                f"{folder}/target", f"{folder}/draft", "--synthetic-acceptance", "0.8", "-k", "4",
                "--num-prompts", "1", "--kv-memory", memory, "--max-tokens", tokens, "--repeat",
                repeat)

    # ---- The end ----

    def summary(self):
        def of(bench):
            return [line for line in self.lines if line.get("bench") == bench]

        device = of("device")
        ours = {pass_of(line): line for line in device if line["op"] == "pass"}
        tables = [
            (["step", "status", "seconds", "why"],
             [line for line in self.lines if "step" in line]),
            (["golden", "tokens", "as_reference", "cpu_as_reference", "as_cpu"],
             [line for line in self.lines if "golden" in line]),
            (["shape", "op", "part", "rows", "batch", "context", "ms", "device_ms", "TFLOP/s",
              "GB/s", "of_bandwidth", "of_one_row"],
             [{**line, "TFLOP/s": line.get("flops_per_second", 0.0) / 1e12,
               "GB/s": line["bytes_per_second"] / 1e9, "of_bandwidth": line["of_read"]}
              for line in device]),
            (["engine", "shape", "part", "rows", "batch", "context", "ours_ms", "torch_ms",
              "ratio"],
             [{**line, "ours_ms": best_ms(ours[pass_of(line)]), "torch_ms": best_ms(line),
               "ratio": best_ms(line) / best_ms(ours[pass_of(line)])}
              for line in of("torch") if pass_of(line) in ours]),
            (["model", "temperature", "draft_tokens", "batch", "plain_step_ms", "verify_ms",
              "draft_step_ms", "other_ms", "decode_ratio", "predicted_ratio", "identical"],
             [{**line, "model": pathlib.Path(line["target"]["path"]).name}
              for line in of("speculation")])]
        return "\n".join(table(keys, lines) for keys, lines in tables if lines)

    def write_summary(self):
        """Replaces the summary atomically: if this process is killed, the previous one stays."""
        part = self.out / "summary.part"
        part.write_text(self.summary(), encoding="utf-8")
        part.replace(self.out / "summary.txt")


def pass_of(line):
    return tuple(line[key] for key in ("shape", "rows", "batch", "context"))


def best_ms(line):
    return line["ms"] if line["device_ms"] is None else line["device_ms"]


def read_safetensors(path):
    """Returns the int32 tensors of a file as lists."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, about in header.items():
        if about.get("dtype") == "I32":
            begin, end = about["data_offsets"]
            tensors[name] = list(struct.unpack_from(f"<{(end - begin) // 4}i", data,
                                                    8 + size + begin))
    return tensors


def same(one, other):
    """Returns the length of the common prefix of two lists."""
    return len(os.path.commonprefix([one, other]))


def table(keys, lines):
    def cell(value):
        if value is None:
            return "-"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    rows = [keys] + [[cell(line.get(key, "")) for key in keys] for line in lines]
    widths = [max(len(row[i]) for row in rows) for i in range(len(keys))]
    return "".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() + "\n"
                   for row in rows)


def limit_of(text):
    name, _, seconds = text.partition("=")
    return name, float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path, help="folder for the results")
    parser.add_argument("--group", type=int, choices=range(1, len(GROUPS) + 1), metavar="N",
                        help="which group of steps [all]")
    parser.add_argument("--only", default="", help="comma-separated steps [all]")
    parser.add_argument("--list", action="store_true", help="print groups, steps and limits")
    parser.add_argument("--device", default="cuda:0",
                        help="cuda:N, or cpu to try the steps [cuda:0]")
    parser.add_argument("--seconds", type=float,
                        help=f"total time limit [{GROUP_SECONDS} for a group, else 3600]")
    parser.add_argument("--limit", type=limit_of, action="append", default=[],
                        metavar="STEP=SECONDS", help="change a step's limit; repeatable")
    parser.add_argument("--quick", action="store_true", help="use small sizes, to try the steps")
    parser.add_argument("--programs", type=pathlib.Path, default=HERE,
                        help="folder of tandem and gpu_test [this file's]")
    parser.add_argument("--data", type=pathlib.Path, help="folder of models/ and tests/data/ "
                        "[this file's, or without them there the current folder]",
                        default=HERE if (HERE / "tests/data").is_dir() else pathlib.Path.cwd())
    arguments = parser.parse_args()
    if arguments.list:
        for number, steps in enumerate(GROUPS, 1):
            for name, limit in {"device": DEVICE_SECONDS, **steps}.items():
                print(number, name, limit)
        return
    if arguments.out is None:
        parser.error("out: the folder for the results must be given")
    chosen = [GROUPS[arguments.group - 1]] if arguments.group else GROUPS
    steps = dict(itertools.chain.from_iterable(group.items() for group in chosen))
    only = list(filter(None, arguments.only.split(",")))
    if unknown := set(only) - set(steps):
        parser.error(f"--only: {', '.join(sorted(unknown))}: must be among {', '.join(steps)}")
    checks = Checks(arguments)
    checks.step("device", DEVICE_SECONDS, checks.find_device, needs_device=False)
    for name, limit in steps.items():
        if not only or name in only:
            checks.step(name, limit, checks.action(name))
    print("\n" + checks.summary())
    if any(line.get("status") in ("failed", "timeout") for line in checks.lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
