#!/usr/bin/env python3
"""Compares Tandem and llama.cpp on the same weights, alternating within one run: passes, start-up and memory.

  compare_llama_cpp.py --only decode,verify  measures these, and prints a Markdown table (--json F also writes the figures)

llama.cpp is the PyPI package llama-cpp-python built for this machine. Its C functions are called from one process that runs
for the whole comparison. For block formats both engines read one GGUF file, which `tandem quantize` writes. For floats Tandem
reads its own safetensors, and llama.cpp the same weights as a GGUF file. Tandem runs as a new process per turn. Ratios are
medians over turns of the ratio within a turn; above 1 Tandem is faster. This is a measurement, not a test. It writes nothing
into the repository: --work is the folder of models, --venv that of the environment; both are made if they are missing.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402

FLOATS = {"f32": ["--compute", "f32"], "bf16": []}  # with the options of Tandem
BLOCKS = ["q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "q3_k", "q2_k"]
FORMATS = [*FLOATS, *BLOCKS]
MEASURES = ["same", "decode", "verify", "prefill", "load", "pair"]


class Sides:
    """Both engines, the models in each engine's format, and the combinations that Tandem refuses."""

    def __init__(self, args, worker, tandem):
        self.args, self.worker, self.tandem = args, worker, tandem
        self.refused = {}
        for name in args.formats:
            _, error = tandem.try_json("generate", "--target", lib.TARGET, "--drafter", "none", "--prompt-ids", "0",
                                       "--max-tokens", "1", *self.at_load(name))
            if error:
                self.refused[name] = error.splitlines()[-1]
                lib.say(f"{name}: skipped on Tandem's side, which refuses {' '.join(self.at_load(name))}: {self.refused[name]}")

    @staticmethod
    def at_load(name):
        """Returns Tandem's options that load a folder of floats in a format."""
        return FLOATS[name] if name in FLOATS else ["--quantize", name]

    def folder(self, shape):
        """Returns Tandem's model: the shipped one for "pair", else a random one, which is created if missing."""
        if shape == "pair":
            return lib.TARGET
        folder = os.path.join(self.args.work, shape)
        if not os.path.exists(folder):
            lib.say(f"writing {folder}")
            subprocess.run([self.tandem.path, "make-random", "--shape", shape, "--seed", "1", "--out", folder],
                           check=True, stdout=sys.stderr)
        return folder

    def file(self, shape, name):
        """Returns llama.cpp's model, which is created if missing; for block formats it is also Tandem's."""
        path = os.path.join(self.args.work, f"{shape}-{name}.gguf")
        if os.path.exists(path):
            return path
        lib.say(f"writing {path}")
        part = path.removesuffix(".gguf") + ".part.gguf"
        if name in FLOATS:
            self.worker.ask("write", folder=self.folder(shape), path=part, dtype=name.upper())
        else:
            subprocess.run([self.tandem.path, "quantize", self.folder(shape), "--to", name, "--out", part], check=True,
                           stdout=sys.stderr)
        os.rename(part, path)
        return path

    def target(self, shape, name):
        """Returns the options for Tandem's model."""
        if name in FLOATS:
            return ["--target", self.folder(shape), *FLOATS[name]]
        return ["--target", self.file(shape, name)]

    def load(self, shape, name, **settings):
        """Loads the model into llama.cpp."""
        return self.worker.ask("load", path=self.file(shape, name), settings={**self.args.settings, **settings})

    def generate(self, shape, name, *options):
        return ["generate", *self.target(shape, name), "--drafter", "none", "--temperature", "0", "--ignore-eos", *options]


def llama_pass(sides, what, rows):
    if what == "prefill":
        return lib.median(sides.worker.ask("prefill", tokens=rows, repeat=sides.args.prefill_repeat)["ms"])
    return lib.median(sides.worker.ask("passes", rows=rows, context=sides.args.context, repeat=sides.args.repeat)["ms"])


def tandem_passes(sides, name, what, rows):
    """Returns the milliseconds of passes of these numbers of rows, by the number, from one process."""
    context, repeat = (0, sides.args.prefill_repeat) if what == "prefill" else (sides.args.context, sides.args.repeat)
    report = sides.tandem.json("bench", "kernels", *sides.target("1b", name), "--ops", "passes", "--pass-rows", ",".join(map(str, rows)),
                               "--pass-contexts", str(context), "--repeat", str(repeat))
    # `bench kernels` names passes by their rows, so look only at rows and context.
    return {one["rows"]: one["ms"] for one in report["passes"] if one["context"] == context}


def compare_passes(sides, what):
    """Compares every format and number of rows, alternating. Verification is also compared with one row in the same turn."""
    rows = {"decode": [1], "verify": sorted({1, *sides.args.rows}), "prefill": sides.args.prompts}[what]
    results = []
    for name in sides.args.formats:
        sides.load("1b", name)
        turns = list(zip(*lib.alternate(sides.args.turns, {
            "ours": lambda turn: {} if name in sides.refused else tandem_passes(sides, name, what, rows),
            "theirs": lambda turn: {n: llama_pass(sides, what, n) for n in rows}}).values()))
        for n in rows:
            results.append({"what": what, "model": "1b", "format": name, "rows": n,
                            "turns": [[ours.get(n), theirs[n]] for ours, theirs in turns]})
            if what == "verify":
                results[-1]["one_row"] = [[ours.get(1), theirs[1]] for ours, theirs in turns]
    return results


def compare_load(sides, fresh):
    """Compares the time to the first token and VmHWM of fresh processes, with the files in the page cache."""
    results = []
    prompt = ",".join(str(i) for i in range(16))
    for shape in ("1b", "pair"):
        for name in sides.args.formats:
            path = sides.file(shape, name)

            def theirs(turn):
                with fresh() as worker:
                    return worker.ask("load", path=path, settings=sides.args.settings)

            def ours(options, *more):
                if name in sides.refused:
                    return None
                return sides.tandem.first_token(*options, "--prompt-ids", prompt, "--max-tokens", "1", *more)

            # Tandem reads the quantised file, and also quantises at load.
            sources = {name: lambda turn: ours(sides.generate(shape, name))}
            if name in BLOCKS:
                sources[f"{name} at load"] = lambda turn: ours(sides.generate(shape, "bf16"), "--quantize", name)
            found = lib.alternate(sides.args.turns, {**sources, "theirs": theirs})
            for source in sources:
                turns = list(zip(found[source], found["theirs"]))
                results.append({"what": "load", "model": shape, "format": source, "rows": 16,
                                "turns": [[a and a[0], b["ms"]] for a, b in turns],
                                "peak_bytes": [[a and a[1], b["peak_bytes"]] for a, b in turns]})
    return results


def compare_pair(sides):
    """Compares plain greedy decoding of the shipped model on both sides, and Tandem's speculative decoding."""
    ids = [0] + sides.tandem.ids(lib.TARGET, lib.STORY)
    prompt = ["--prompt-ids", ",".join(map(str, ids)), "--max-tokens", str(sides.args.pair_tokens)]
    shared = ["--temperature", "0", "--ignore-eos", *prompt]
    results = []
    for name in sides.args.formats:
        sides.load("pair", name)

        def ours(*options):
            return sides.tandem.json("generate", *shared, *sides.target("pair", name), *options)["timings"]["tpot_ms"]

        def both(turn):
            return None if name in sides.refused else (ours("--drafter", "none"), ours("--draft", lib.DRAFT, "--drafter", "model"))

        turns = list(zip(*lib.alternate(sides.args.pair_turns, {"ours": both, "theirs": lambda turn: lib.median(
            [sides.worker.ask("generate", ids=ids, tokens=sides.args.pair_tokens)["ms_per_token"] for _ in range(3)])}).values()))
        for what, index in (("plain", 0), ("speculative", 1)):
            results.append({"what": what, "model": "pair", "format": name, "rows": 1,
                            "turns": [[a and a[index], b] for a, b in turns]})
    return results


def column(pairs, side):
    return lib.median([pair[side] for pair in pairs if pair[side] is not None])


def ratio(pairs):
    """Formats llama.cpp's time over Tandem's: the median over turns, the smallest, the largest, and the number of turns."""
    whole = [pair for pair in pairs if None not in pair]
    if not whole:
        return "-"
    middle, low, high = lib.ratio_of_pairs([b for _, b in whole], [a for a, _ in whole])
    return f"{middle:.2f} ({low:.2f}-{high:.2f}, {len(whole)})"


def cost_of_rows(result, side):
    pairs = [(n[side], one[side]) for n, one in zip(result["turns"], result["one_row"]) if None not in (n[side], one[side])]
    return lib.number(lib.ratio_of_pairs(*zip(*pairs))[0]) if pairs else "-"


def speed(result, side):
    time = column(result["turns"], side)
    return "-" if time is None else f"{result['rows'] * 1e3 / time:.{0 if result['model'] == 'pair' else 1}f}"


def both(result, column_of, key="turns", form="%.1f", scale=1.0):
    values = [column_of(result[key], side) for side in (0, 1)]
    return " / ".join("-" if value is None else form % (value * scale) for value in values)


def print_tables(results):
    """Prints each measure's table. Pairs of figures are Tandem / llama.cpp; ratios are llama.cpp's time over Tandem's."""
    def rows(names, cells):
        return [[r["what"], r["format"], *cells(r)] for r in results if r["what"] in names]

    spread = "ratio (spread, turns)"
    for header, body in (
            (["pass", "format", "tokens", "ms", "tokens/s", spread],
             rows(("decode", "prefill"), lambda r: [str(r["rows"]), both(r, column), f"{speed(r, 0)} / {speed(r, 1)}", ratio(r["turns"])])),
            (["pass", "format", "rows", "ms", "time of one row", spread],
             rows(("verify",), lambda r: [str(r["rows"]), both(r, column), f"{cost_of_rows(r, 0)} / {cost_of_rows(r, 1)}", ratio(r["turns"])])),
            (["measure", "format", "model", "first token, ms", spread, "peak memory, MB"],
             rows(("load",), lambda r: [r["model"], both(r, column, form="%.0f"), ratio(r["turns"]), both(r, column, "peak_bytes", "%.0f", 1e-6)])),
            (["Tandem's decoding of the shipped pair", "format", "tokens/s, llama.cpp plain", spread],
             rows(("plain", "speculative"), lambda r: [f"{speed(r, 0)} / {speed(r, 1)}", ratio(r["turns"])]))):
        if body:
            print(lib.table(header, body) + "\n", flush=True)


def check_same(sides):
    """Compares greedy tokens of the shipped model. Ends the program if they differ in f32 (with an f32 cache in llama.cpp)."""
    ids = [0] + sides.tandem.ids(lib.TARGET, lib.STORY)
    results = []
    for name, must_agree in (("f32", True), ("bf16", False)):
        sides.load("pair", name, **({"cache": "f32", "flash_attention": False} if must_agree else {}))
        theirs = sides.worker.ask("generate", ids=ids, tokens=sides.args.same_tokens)["ids"]
        ours = sides.tandem.json(*sides.generate("pair", name, "--prompt-ids", ",".join(map(str, ids)), "--max-tokens",
                                                 str(sides.args.same_tokens)))["token_ids"]
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))
        print(f"storyteller-7m, greedy, {name}: the first {same} of {len(ours)} tokens are the same", flush=True)
        if must_agree and same != len(ours):
            lib.fail(f"not the same model: tandem wrote {ours}, llama.cpp {theirs}")
        results.append({"what": "same", "format": name, "same_tokens": same, "of": len(ours)})
    return results


def main():
    parser = lib.parser(__doc__, turns=3)
    parser.add_argument("--venv", default=lib.default_folder("tandem_llama_cpp"), help="environment of llama.cpp, created if missing")
    parser.add_argument("--work", default=lib.default_folder("tandem_comparison"), help="folder of models, created if missing")
    parser.add_argument("--only", default=",".join(MEASURES), help="any of " + ",".join(MEASURES))
    parser.add_argument("--formats", default="bf16,q8_0,q4_0,q4_k", help="any of " + ",".join(FORMATS))
    parser.add_argument("--rows", type=lib.whole_numbers, default=[1, 2, 3, 4, 5, 6, 8, 12, 16])
    parser.add_argument("--prompts", type=lib.whole_numbers, default=[128, 512], help="lengths of prompts")
    parser.add_argument("--context", type=int, default=64, help="tokens before llama.cpp's passes")
    parser.add_argument("--repeat", type=int, default=9, help="passes per turn")
    parser.add_argument("--prefill-repeat", type=int, default=1, help="prompts per turn")
    parser.add_argument("--pair-tokens", type=int, default=256)
    parser.add_argument("--pair-turns", type=int, default=9)
    parser.add_argument("--same-tokens", type=int, default=64)
    parser.add_argument("--verbose", action="store_true", help="show the standard error of llama.cpp's process")
    args = parser.parse_args()
    args.only = lib.some_of(parser, "--only", args.only, MEASURES)
    args.formats = lib.some_of(parser, "--formats", args.formats, FORMATS)
    args.settings = {"threads": args.threads, "context": max(1024, args.context + 512), "cache": "f16", "flash_attention": True,
                     "repack": True, "load_mode": "mmap"}
    args.work = lib.outside_repository(args.work)
    os.makedirs(args.work, exist_ok=True)
    python = lib.environment(args.venv, ["llama-cpp-python", "gguf", "numpy"], "llama_cpp, gguf, numpy",
                             ["--no-binary", "llama-cpp-python"],
                             {"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())})

    def fresh():
        return lib.Worker(python, "llama_cpp_worker.py", {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores",
                                                          "OMP_NUM_THREADS": str(args.threads)}, not args.verbose)

    tandem = lib.Tandem(args.bin, args.threads)
    report = {"tandem": tandem.version(), "settings": args.settings, "results": []}
    with fresh() as worker:
        report["llama_cpp"] = worker.ask("about")
        print(lib.machine_line(args, report["tandem"].splitlines()[0], f"llama-cpp-python {report['llama_cpp']['version']}",
                               report["llama_cpp"]["system"].strip(), str(args.settings)), flush=True)
        sides = Sides(args, worker, tandem)
        for measure in args.only:
            run = {"same": check_same, "pair": compare_pair, "load": lambda sides: compare_load(sides, fresh)}.get(
                measure, lambda sides: compare_passes(sides, measure))
            report["results"] += run(sides)
    print_tables(report["results"])
    lib.write_json(args, **report)


if __name__ == "__main__":
    main()
