#!/usr/bin/env python3
"""Compares Tandem and Hugging Face transformers on the shipped pair, plain and with the draft, alternating within one run.

transformers (PyPI, with torch for the CPU) runs in one process for the whole comparison. Tandem runs as a new process per
turn, whose start does not count. Both generate the same number of tokens after the same prompt; times include the prompt.
Ratios are medians over turns of the ratio within a turn. This is a measurement, not a test. It writes nothing into the
repository: --venv is the folder of the environment, which is created if it is missing.
"""
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402

class Sides:
    def __init__(self, args, worker, tandem):
        self.args, self.worker, self.tandem = args, worker, tandem
        self.ids = [0] + tandem.ids(lib.TARGET, lib.STORY)

    def theirs(self, sample, draft_tokens, seed=1):
        """Runs generate() once. `draft_tokens`: 0 is plain decoding, None the default of transformers."""
        return self.worker.ask("generate", ids=self.ids, tokens=self.args.max_tokens, sample=sample,
                               assisted=draft_tokens != 0, draft_tokens=draft_tokens, seed=seed)

    def ours(self, sample, draft_tokens, seed=1, compute="auto"):
        model = ["--draft", lib.DRAFT, "--drafter", "model", "-k", str(draft_tokens or "auto")]
        drafts = ["--drafter", "none"] if draft_tokens == 0 else model
        sampling = ["--temperature", "1", "--seed", str(seed), "--verifier", "block" if draft_tokens != 0 else "auto"]
        return self.tandem.json("generate", "--target", lib.TARGET, "--prompt-ids", ",".join(map(str, self.ids)),
                                "--max-tokens", str(self.args.max_tokens), "--ignore-eos", "--compute", compute, *drafts,
                                *(sampling if sample else ["--temperature", "0"]))


def check_same(sides):
    """Compares greedy tokens in f32, plain and assisted; ends the program if the plain ones differ."""
    sides.worker.ask("load", target=lib.TARGET, draft=lib.DRAFT, dtype="float32", threads=sides.args.threads)
    plain = sides.theirs(False, 0)["ids"]
    ours = sides.ours(False, 0, compute="f32")["token_ids"]
    same = next((i for i, (a, b) in enumerate(zip(ours, plain)) if a != b), len(ours))
    print(f"greedy, f32: the first {same} of {len(ours)} tokens are the same; transformers' assisted tokens are its plain "
          f"ones: {sides.theirs(False, None)['ids'] == plain}; Tandem's: "
          f"{sides.ours(False, None, compute='f32')['token_ids'] == ours}\n", flush=True)
    if same != len(ours):
        lib.fail(f"not the same model: tandem wrote {ours}, transformers {plain}")
    return {"same_tokens": same, "of": len(ours)}


def compare(sides, dtype, sample, draft_tokens):
    """Runs both sides, plain and with drafts, in the order ABCD DCBA ...; returns medians."""
    passes = []

    def ours(drafts):
        # The median of three processes, because each generates for only tens of milliseconds.
        return lambda turn: lib.median([sides.ours(sample, drafts, turn + 1)["timings"]["e2e_ms"] for _ in range(3)])

    def theirs(drafts):
        def run(turn):
            answer = sides.theirs(sample, drafts, turn + 1)
            if drafts != 0:
                passes.append(answer["passes"])
            return answer["ms"]
        return run

    times = lib.alternate(sides.args.turns, {"tandem": ours(draft_tokens), "tandem_plain": ours(0), "transformers": theirs(draft_tokens),
                                             "transformers_plain": theirs(0)})
    ratios = {"plain": lib.ratio_of_pairs(times["transformers_plain"], times["tandem_plain"]),
              "drafting": lib.ratio_of_pairs(times["transformers"], times["tandem"]),
              "tandem_speedup": lib.ratio_of_pairs(times["tandem_plain"], times["tandem"]),
              "transformers_speedup": lib.ratio_of_pairs(times["transformers_plain"], times["transformers"])}
    speeds = {key: sides.args.max_tokens * 1e3 / lib.median(values) for key, values in times.items()}
    return {"dtype": dtype, "sampled": sample, "draft_tokens": draft_tokens or "default", "tokens_per_second": speeds,
            "ratios": ratios, "transformers_tokens_per_pass": sides.args.max_tokens / lib.median(passes)}


def cells(result):
    speeds = result["tokens_per_second"]
    return [result["dtype"], "T = 1" if result["sampled"] else "greedy", result["draft_tokens"],
            f"{speeds['tandem_plain']:.0f} / {speeds['transformers_plain']:.0f}", f"{speeds['tandem']:.0f} / {speeds['transformers']:.0f}",
            *map(lib.spread, result["ratios"].values())]


def main():
    parser = lib.parser(__doc__, max_tokens=128, turns=5)
    parser.add_argument("--venv", default=lib.default_folder("tandem_transformers"), help="environment of transformers, created if missing")
    parser.add_argument("--only", default="same,greedy,sampled", help="any of same,greedy,sampled")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="types of transformers; Tandem uses its defaults")
    parser.add_argument("--draft-tokens", default="default,2,4", help="default (each side's own) or numbers")
    parser.add_argument("--verbose", action="store_true", help="show the standard error of transformers")
    args = parser.parse_args()
    measures = lib.some_of(parser, "--only", args.only, ("same", "greedy", "sampled"))
    python = lib.environment(args.venv, ["torch", "transformers"], "torch, transformers")
    tandem = lib.Tandem(args.bin, args.threads)
    report = {"tandem": tandem.version(), "results": []}
    variables = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(args.threads)}
    with lib.Worker(python, "transformers_worker.py", variables, not args.verbose) as worker:
        sides = Sides(args, worker, tandem)
        if "same" in measures:
            report["same"] = check_same(sides)
        for dtype in args.dtypes.split(",") if {"greedy", "sampled"} & set(measures) else []:
            report["versions"] = worker.ask("load", target=lib.TARGET, draft=lib.DRAFT, dtype=dtype, threads=args.threads)
            sides.theirs(False, 0), sides.theirs(False, None)
            for sample in [name == "sampled" for name in measures if name in ("greedy", "sampled")]:
                for text in args.draft_tokens.split(","):
                    report["results"].append(compare(sides, dtype, sample, None if text == "default" else int(text)))
    print(lib.machine_line(args, report["tandem"].splitlines()[0], str(report.get("versions", ""))))
    print(lib.table(
        ["transformers in", "sampling", "draft tokens", "plain tokens/s, Tandem / transformers", "with draft, Tandem / transformers",
         "plain ratio (spread)", "with draft ratio", "draft pays: Tandem", "transformers"], map(cells, report["results"])))
    lib.write_json(args, **report)


if __name__ == "__main__":
    main()
