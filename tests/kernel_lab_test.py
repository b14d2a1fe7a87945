"""tools/kernel_lab on the host twin, and its report: kernel_lab_test.py KERNEL_LAB_ON_HOST SOURCE_DIR [unittest's arguments]"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
LAB, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "benchmarks"))
import kernel_resources as resources  # noqa: E402
from machine_code import Code  # noqa: E402

# The limit of a run: ten minutes less the time in which a machine starts and results are copied.
RUN_SECONDS = 540


class KernelLab(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out.jsonl"

    def run_lab(self, *arguments, status=0):
        done = subprocess.run([LAB, "--out", str(self.out), *arguments], capture_output=True,
                              text=True, check=False)
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
                if line["group"] not in ("bits", "bandwidth"):
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

    def test_the_time_for_all_lines_also_ends_a_line_that_hangs(self):
        # With this grace alone the line would hang for an hour.
        self.run_lab("--quick", "--faults", "--only", "hangs|softmax", "--grace", "3600", "--seconds", "3", status=1)
        lines, end = self.results()
        self.assertEqual([line["error"] for line in lines], ["stopped: it took too long"])
        self.assertEqual(end["skipped"], ["sampling/softmax/vocab=512/rows=2/variant=0"])
        self.assertEqual(end["errors"], 1)

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

    def test_probes_are_marked_until_a_result_of_them_is_committed(self):
        listed = self.run_lab("--list").stdout.splitlines()
        marked = {line.split()[1] for line in listed if line.endswith("(never run)")}
        self.assertIn("probe/wgmma_chain/n=64", marked)
        self.assertIn("bits/wgmma/n=8/registers", marked)
        for path in (SOURCE / "tests/data/gpu").glob("*.json"):
            ran = {line["line"] for line in json.loads(path.read_text())["lines"] if "error" not in line}
            self.assertEqual(marked & ran, set(), f"{path} has results: lines.cc must not say never_run")

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


class Archive(unittest.TestCase):
    """tools/kernel_lab.sh with stand-ins for compilers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        (self.root / "bin").mkdir()
        for name in ("kernel_lab.sh", "kernel_lab_report.py"):
            shutil.copy(SOURCE / "tools" / name, self.root / "tools")
        self.stand_in("nvcc", "exit 0")
        self.stand_in("cmake", 'echo "$CUDAARCHS" >> calls')
        self.stand_in("ninja", "mkdir -p build/gpu/tools/kernel_lab\n"
                      'head -c "$BYTES" /dev/urandom > build/gpu/tools/kernel_lab/kernel_lab')
        self.stand_in("strip", 'cp "$3" "$2"')
        self.stand_in("ldd", 'echo "libc.so.6 => /lib/libc.so.6 (0x1)"; echo "libm.so.6 => /lib/libm.so.6 (0x1)"; '
                      'echo "$NEEDS"')

    def stand_in(self, name, script):
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def pack(self, *arguments, size=1000, needs=""):
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "BYTES": str(size),
                       "NEEDS": needs}
        environment.pop("CUDAARCHS", None)
        return subprocess.run(["bash", str(self.root / "tools/kernel_lab.sh"), *arguments], env=environment,
                              capture_output=True, text=True, check=False)

    def test_packs_the_program_and_the_report_for_hopper(self):
        done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(self.root / "build/kernel_lab.tar.xz") as archive:
            self.assertEqual(sorted(archive.getnames()), ["kernel_lab", "kernel_lab/kernel_lab",
                                                          "kernel_lab/kernel_lab_report.py"])
        self.assertEqual((self.root / "calls").read_text(), "90a-real\n")
        self.assertIn("/tmp/kernel_lab/kernel_lab --out", done.stdout)
        self.assertEqual(self.pack().returncode, 0)  # again

    def test_refuses_a_large_archive_another_library_and_another_folder(self):
        (self.root / "other").mkdir()
        (self.root / "other/file").touch()
        for done, error in [
                (self.pack(size=7 << 20), "build/kernel_lab.tar.xz: at most 6291456 bytes, got 7"),
                (self.pack(needs="libabsl.so.1 => /lib/libabsl.so.1 (0x1)"), "but it needs: libabsl.so.1"),
                (self.pack("other"), "other: must be empty or an earlier kernel_lab"),
                (self.pack("a", "b"), "usage: tools/kernel_lab.sh")]:
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^kernel_lab: error: .*{re.escape(error)}")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


# Made up: no device has measured these numbers.
FACTS = {"kernel_lab": 1, "machine": "made-up device", "capability": "9.0", "sms": 100, "driver": "driver 1"}
READ = {"line": "bandwidth/read", "group": "bandwidth", "op": "read", "gb_per_s": 4000.0, "variant": 0}
END = {"end": True, "measured": 1, "errors": 0, "skipped": ["pass/later"]}


def product(variant, us, op="qkv", rows=1, mismatches=0):
    return {"line": f"product/llama-8b/{op}/bf16/rows={rows}/variant={variant}", "group": "product", "op": op,
            "model": "llama-8b", "dtype": "bf16", "outputs": 6144, "inputs": 4096, "rows": rows, "bytes": 4e7,
            "median_us": us, "mismatches": mismatches, "compared": 100, "variant": variant, "never_run": False}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.results = self.folder / "results.jsonl"

    def report(self, lines, *arguments, status=0):
        self.results.write_text("".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        done = subprocess.run(
            [sys.executable, str(SOURCE / "tools/kernel_lab_report.py"), str(self.results), "--folder",
             str(self.folder / "gpu"), *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status < 2 and not done.stderr else done.stderr

    def row(self, text, start):
        return next(line.split() for line in text.splitlines() if line.startswith(start))

    def test_chooses_the_fastest_variant_and_says_how_far_the_floor_is(self):
        text = self.report([FACTS, READ, product(0, 20.0), product(1, 12.5), product(2, 14.0), END])
        self.assertIn("made-up device, driver 1", text)
        # 4e7 bytes at 4,000 GB/s take 10 us.
        self.assertEqual(self.row(text, "llama-8b  qkv"),
                         ["llama-8b", "qkv", "bf16", "1", "1", "12.5", "20", "10", "0.8"])
        self.assertEqual(self.row(text, "product    bf16   1-8   0"), ["product", "bf16", "1-8", "0", "0", "1.6", "1.6"])
        self.assertEqual(self.row(text, "product    bf16   1-8   1"), ["product", "bf16", "1-8", "1", "1", "1", "1"])
        self.assertIn("pass/later", text)

    def test_never_chooses_other_bits_nor_what_is_hardly_faster(self):
        text = self.report([FACTS, READ, product(0, 20.0), product(1, 5.0, mismatches=3), product(2, 19.9)], status=1)
        self.assertEqual(self.row(text, "llama-8b  qkv")[4:6], ["0", "20"])
        self.assertIn("3 mismatches of 100", text)

    def test_shows_failures_goals_bits_and_probes(self):
        whole = {"line": "pass/a", "group": "pass", "op": "pass", "model": "llama-8b", "dtype": "bf16", "rows": 1,
                 "batch": 1, "context": 0, "bytes": 1.6e10, "median_us": 3900.0, "mismatches": 0, "variant": 0}
        probe = {"line": "probe/mma_chain/chains=1", "group": "probe", "op": "mma_chain", "cycles": 33.5}
        bits = {"line": "bits/scaled", "group": "bits", "op": "scaled", "compared": 768, "mismatches": 0}
        text = self.report([FACTS, READ, whole, probe, bits, {
            "line": "probe/x", "group": "probe", "op": "x", "error": "it hangs"}], status=1)
        self.assertEqual(self.row(text, "pass llama-8b")[-5:], ["6490", "3900", "3700", "4000", "1.054"])
        self.assertEqual(self.row(text, "probe/mma_chain"), ["probe/mma_chain/chains=1", "33.5", "-", "-", "-", "-"])
        self.assertEqual(self.row(text, "bits/scaled"), ["bits/scaled", "768", "0"])
        self.assertEqual(self.row(text, "probe/x"), ["probe/x", "it", "hangs"])

    def test_the_last_result_of_a_line_counts(self):
        text = self.report([FACTS, READ, product(0, 20.0), END, FACTS, product(0, 16.0)])
        self.assertEqual(self.row(text, "llama-8b  qkv")[5], "16")

    def test_writes_what_is_committed(self):
        text = self.report([FACTS, READ, product(0, 20.0)], "--commit", "made-up")
        path = self.folder / "gpu/made-up.json"
        self.assertIn(f"wrote {path}", text)
        kept = json.loads(path.read_text())
        self.assertEqual((kept["machine"], kept["driver"], len(kept["lines"])), ("made-up device", "driver 1", 2))
        self.assertRegex(kept["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertIn("--commit: must consist of", self.report([FACTS], "--commit", "A/b", status=1))
        self.assertIn("results of --quick are not kept",
                      self.report([{**FACTS, "quick": True}], "--commit", "a", status=1))

    def test_bad_input_is_one_error_with_file_line_and_field(self):
        for lines, error in [
                (["{"], "line 1: not JSON: "), ([], "line 1: kernel_lab: is missing"),
                ([READ], "line 1: kernel_lab: the line of the machine must come first"),
                ([FACTS, {**READ, "gb_per_s": "x"}], 'line 2: gb_per_s: must be a number of at least 0, got "x"'),
                ([FACTS, {**READ, "gb_per_s": 0}], "line 2: gb_per_s: must not be 0"),
                ([FACTS, {**READ, "group": "other"}], "line 2: group: must be one of bandwidth, "),
                ([FACTS, {**READ, "op": 1}], "line 2: op: must be a text, got 1"),
                ([FACTS, {"line": "a", "group": "product", "op": "x"}], "line 2: model: is missing"),
                ([FACTS, {**product(0, 1.0), "rows": None}], "line 2: rows: must be a number"),
                ([FACTS, {**product(0, 1.0), "never_run": 3}], "line 2: never_run: must be true or false, got 3"),
                ([FACTS, READ, {**FACTS, "driver": "2"}], "line 3: machine: differs"), ([[1]], "line 1: line: must be")]:
            told = self.report(lines, status=1)
            self.assertIn(f"{self.results}: {error}", told)
            self.assertEqual(len(told.splitlines()), 1, told)

    def test_reads_what_the_program_writes(self):
        subprocess.run([LAB, "--quick", "--only", "qkv|bandwidth|scaled", "--out", str(self.results)], check=True,
                       capture_output=True)
        text = self.report(self.results.read_text().splitlines())
        self.assertEqual(self.row(text, "small  qkv  bf16   1")[:4], ["small", "qkv", "bf16", "1"])
        self.assertIn("Bit tests", text)


# The instructions, and how many of each, that the timed loop of each probe must have.
LOOPS = [(r"MmaChain<(\d+)>", lambda chains: {"HMMA.16816.F32.BF16": 8 * int(chains)}),
         (r"WideChain<(\d+)>", lambda rows: {f"HGMMA.64x{rows}x16.F32.BF16": 4}),
         (r"WideBits<(\d+), \w+>", lambda rows: {f"HGMMA.64x{rows}x16.F32.BF16": 1}),
         (r"SharedLatency", lambda: {"LDS": 8}),
         (r"L2Latency", lambda: {"LDG.E.STRONG.GPU": 4}),
         (r"CopyRing<\d+, (\d+)>", lambda size: {"LDGSTS.E.BYPASS.128": int(size) // 512,
                                                 "LDS.128": int(size) // 512}),
         (r"BulkRing<\d+, (\d+)>", lambda size: {"UBLKCP": 1, "SYNCS.PHASECHK": 1, "SYNCS.ARRIVE": 1,
                                                 "LDS.128": int(size) // 512}),
         (r"ClusterBarrier", lambda: {"UCGABAR_ARV": 1, "UCGABAR_WAIT": 1}),
         (r"SharedAtomic<(unsigned [\w ]+)>",
          lambda kind: {"ATOMS.ADD" if kind == "unsigned int" else "ATOMS.CAST.SPIN.64": 1})]
# Probes whose instructions depend on each other: the result is the next one's operand.
CHAINS = {"MmaChain<1>": "HMMA", "WideChain<8>": "HGMMA", "WideChain<256>": "HGMMA",
          "SharedLatency": "LDS", "L2Latency": "LDG"}


def readable(symbol):
    text = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"tandem::kernel_lab::|\(anonymous namespace\)::|^void ", "", text.strip())
    return re.sub(r"\([\w:]*\)$", "", text)


def kernels_of(sass):
    """Returns each kernel's instructions: (address, condition, opcode, operands)."""
    return {readable(symbol): [(i.address, i.condition, i.opcode, i.operands.strip()) for i in Code(lines).instructions]
            for symbol, lines in resources.by_function(sass, r"Function : (\w+)").items()}


def loops_of(instructions):
    """Returns the instructions of each loop; a loop ends with a branch back."""
    found = []
    for address, _, opcode, operands in instructions:
        target = re.search(r"\b0x([0-9a-f]+)\b", operands)
        if opcode.startswith("BRA") and target and int(target[1], 16) < address:
            found.append([i for i in instructions if int(target[1], 16) <= i[0] <= address])
    return found


def count_of(opcode, loop):
    return sum(i[2] == opcode or i[2].startswith(opcode + ".") for i in loop)


def is_chain(loop, stem):
    """Whether each of the instructions reads the previous one's result, and the first the last one's."""
    steps = [re.findall(r"\bR\d+\b", i[3]) for i in loop if i[2].split(".")[0] == stem]
    results = [registers[0] for registers in steps]
    return all(results[i - 1] in registers[1:] or moved(loop, results[i - 1], registers[1:])
               for i, registers in enumerate(steps))


def moved(loop, result, operands):
    """Whether an instruction of the loop makes one of the operands from the result, as an address."""
    return any(result in re.findall(r"\bR\d+\b", i[3])[1:] and
               re.findall(r"\bR\d+\b", i[3])[0] in operands
               for i in loop if len(re.findall(r"\bR\d+\b", i[3])) > 1)


def faults_of(kernels):
    """Returns what is wrong with the probes' machine code."""
    wrong, seen = [], set()
    for kernel, instructions in kernels.items():
        opcodes = [i[2] for i in instructions]
        if kernel == "NothingEarly":
            seen.add("Nothing")
            if not {"PREEXIT", "ACQBULK"} <= set(opcodes):
                wrong.append(f"{kernel}: does not begin early and wait")
        for pattern, needs_of in LOOPS:
            match = re.fullmatch(pattern, kernel)
            if match is None:
                continue
            seen.add(pattern)
            needs = needs_of(*match.groups())
            loops = [loop for loop in loops_of(instructions)
                     if all(count_of(opcode, loop) >= count for opcode, count in needs.items())]
            if not loops:
                wrong.append(f"{kernel}: no loop has {needs}")
                continue
            loop = min(loops, key=len)
            if kernel in CHAINS and not is_chain(loop, CHAINS[kernel]):
                wrong.append(f"{kernel}: its {CHAINS[kernel]} do not depend on each other")
            clocks = [i[0] for i in instructions if i[3].endswith("SR_CLOCKLO")]
            if not kernel.startswith("WideBits") and not (
                    any(c < loop[0][0] for c in clocks) and any(c > loop[-1][0] for c in clocks)):
                wrong.append(f"{kernel}: the clock is not read before and after the loop")
            if any(i[2].startswith(("LDL", "STL")) for i in loop):
                wrong.append(f"{kernel}: spills in its loop")
    missing = {pattern for pattern, _ in LOOPS} | {"Nothing"}
    return wrong + [f"no kernel is {pattern}" for pattern in sorted(missing - seen)]


class MachineCode(unittest.TestCase):
    """Each probe has the instructions that it times, in a loop."""

    @classmethod
    def setUpClass(cls):
        tools = os.pathsep.join([str(SOURCE / "build/cuda_disassembler/bin"), os.environ["PATH"],
                                 "/usr/local/cuda/bin"])
        nvcc, cuobjdump = shutil.which("nvcc", path=tools), shutil.which("cuobjdump", path=tools)
        if nvcc is None or cuobjdump is None:
            raise unittest.SkipTest("nvcc or cuobjdump is missing")
        with tempfile.TemporaryDirectory() as folder:
            built = f"{folder}/probes.cubin"
            subprocess.run([nvcc, "-std=c++17", "--fmad=false", "--expt-relaxed-constexpr", "-cubin",
                            "-gencode", "arch=compute_90a,code=sm_90a", f"-I{SOURCE}", "-o", built,
                            str(SOURCE / "tools/kernel_lab/probes.cu")], check=True)
            cls.sass = subprocess.run([cuobjdump, "-sass", built], env={"PATH": tools}, text=True,
                                      capture_output=True, check=True).stdout

    def test_every_probe_times_what_it_claims(self):
        self.assertEqual(faults_of(kernels_of(self.sass)), [])

    def test_sees_what_a_compiler_might_delete_or_move(self):
        def planted(kernel, change):
            kernels = kernels_of(self.sass)
            kernels[kernel] = [change(*i) for i in kernels[kernel]]
            return faults_of(kernels)

        def without(stem):
            return lambda at, condition, opcode, operands: (
                at, condition, "NOP" if opcode.startswith(stem) else opcode, operands)

        for kernel, stem in [("WideChain<64>", "HGMMA"), ("BulkRing<8, 1024>", "UBLKCP"),
                             ("CopyRing<4, 2048>", "LDGSTS"), ("ClusterBarrier", "UCGABAR_WAIT"),
                             ("SharedAtomic<unsigned int>", "ATOMS"), ("L2Latency", "LDG")]:
            self.assertIn(f"{kernel}: no loop has", planted(kernel, without(stem))[0])
        self.assertEqual(planted("NothingEarly", without("ACQBULK")),
                         ["NothingEarly: does not begin early and wait"])
        self.assertEqual(
            planted("SharedLatency", lambda at, condition, opcode, operands: (
                at, condition, opcode, re.sub(r"\[R\d+\]", "[R99]", operands))),
            ["SharedLatency: its LDS do not depend on each other"])
        self.assertEqual(
            planted("MmaChain<2>", lambda at, condition, opcode, operands: (
                at, condition, opcode, operands.replace("SR_CLOCKLO", "SRZ"))),
            ["MmaChain<2>: the clock is not read before and after the loop"])
        kernels = kernels_of(self.sass)
        del kernels["SharedLatency"]
        self.assertEqual(faults_of(kernels), ["no kernel is SharedLatency"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
