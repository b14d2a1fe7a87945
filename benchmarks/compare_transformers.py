#!/usr/bin/env python3
"""Compares Tandem and Hugging Face transformers on the shipped pair, plain and with the draft, alternating within one run.

transformers (PyPI, with torch for the CPU) runs in one process for the whole comparison. Tandem runs as a new process per
turn, whose start does not count. Both generate the same number of tokens after the same prompt; times include the prompt.
Ratios are medians over turns of the ratio within a turn. This is a measurement, not a test. It writes nothing into the
repository: --venv is the folder of the environment, which is created if it is missing.
"""
import argparse
import json
import os
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402

TARGET = os.path.join(lib.ROOT, "models", "storyteller-7m")
DRAFT = os.path.join(lib.ROOT, "models", "storyteller-1m")
STORY = "Once upon a time there was a little girl who lived with her grandmother in a small house"


class Sides:
    def __init__(self, args, worker, tandem):
        self.args, self.worker, self.tandem = args, worker, tandem
        self.ids = [0] + tandem.ids(TARGET, STORY)

    def theirs(self, sample, draft_tokens, seed=1):
        """Runs generate() once. `draft_tokens`: 0 is plain decoding, None the default of transformers."""
        return self.worker.ask("generate", ids=self.ids, tokens=self.args.max_tokens, sample=sample,
                               assisted=draft_tokens != 0, draft_tokens=draft_tokens, seed=seed)

    def ours(self, sample, draft_tokens, seed=1, compute="auto"):
        model = ["--draft", DRAFT, "--drafter", "model", "-k", str(draft_tokens or "auto")]
        drafts = ["--drafter", "none"] if draft_tokens == 0 else model
        sampling = ["--temperature", "1", "--seed", str(seed), "--verifier", "block" if draft_tokens != 0 else "auto"]
        return self.tandem.json("generate", "--target", TARGET, "--prompt-ids", ",".join(map(str, self.ids)),
                                "--max-tokens", str(self.args.max_tokens), "--ignore-eos", "--compute", compute, *drafts,
                                *(sampling if sample else ["--temperature", "0"]))


def check_same(sides):
    """Compares greedy tokens in f32, plain and assisted; ends the program if the plain ones differ."""
    sides.worker.ask("load", target=TARGET, draft=DRAFT, dtype="float32", threads=sides.args.threads)
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
    times = {"tandem": [], "tandem_plain": [], "transformers": [], "transformers_plain": []}
    passes = []

    def run(key, seed):
        plain = 0 if key.endswith("_plain") else draft_tokens
        if key.startswith("tandem"):
            # The median of three processes, because each generates for only tens of milliseconds.
            times[key].append(lib.median([sides.ours(sample, plain, seed)["timings"]["e2e_ms"] for _ in range(3)]))
            return
        answer = sides.theirs(sample, plain, seed)
        times[key].append(answer["ms"])
        if not key.endswith("_plain"):
            passes.append(answer["passes"])

    for turn in range(sides.args.turns):
        for key in list(times)[::1 if turn % 2 == 0 else -1]:
            run(key, turn + 1)
    ratios = {"plain": lib.ratio_of_pairs(times["transformers_plain"], times["tandem_plain"]),
              "drafting": lib.ratio_of_pairs(times["transformers"], times["tandem"]),
              "tandem_speedup": lib.ratio_of_pairs(times["tandem_plain"], times["tandem"]),
              "transformers_speedup": lib.ratio_of_pairs(times["transformers_plain"], times["transformers"])}
    speeds = {key: sides.args.max_tokens * 1e3 / lib.median(values) for key, values in times.items()}
    return {"dtype": dtype, "sampled": sample, "draft_tokens": draft_tokens or "default", "tokens_per_second": speeds,
            "ratios": ratios, "transformers_tokens_per_pass": sides.args.max_tokens / lib.median(passes)}


def keep_others(earlier, results):
    """Returns `results`, and those of `earlier` that measured other settings."""
    def key(result):
        return result["sampled"], result["dtype"], str(result["draft_tokens"])

    new = {key(result) for result in results}
    return sorted([result for result in earlier if key(result) not in new] + results, key=key)


def print_results(results):
    def spread(ratio):
        return f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})"

    print(lib.table(
        ["transformers in", "sampling", "draft tokens", "plain tokens/s, Tandem / transformers", "with draft, Tandem / transformers",
         "plain ratio (spread)", "with draft ratio", "draft pays: Tandem", "transformers"],
        [[r["dtype"], "T = 1" if r["sampled"] else "greedy", str(r["draft_tokens"]),
          f"{r['tokens_per_second']['tandem_plain']:.0f} / {r['tokens_per_second']['transformers_plain']:.0f}",
          f"{r['tokens_per_second']['tandem']:.0f} / {r['tokens_per_second']['transformers']:.0f}",
          spread(r["ratios"]["plain"]), spread(r["ratios"]["drafting"]), spread(r["ratios"]["tandem_speedup"]),
          spread(r["ratios"]["transformers_speedup"])] for r in results]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--venv", default=lib.default_folder("tandem_transformers"), help="environment of transformers, created if missing")
    parser.add_argument("--only", default="same,greedy,sampled", help="any of prepare,same,greedy,sampled")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="types of transformers; Tandem uses its defaults")
    parser.add_argument("--draft-tokens", default="default,2,4", help="default (each side's own) or numbers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--verbose", action="store_true", help="show the standard error of transformers")
    parser.add_argument("--json", metavar="F", help="also write the figures to this file")
    parser.add_argument("--add", action="store_true", help="keep the other figures in the file of --json, and print all")
    args = parser.parse_args()
    python = lib.environment(args.venv, ["torch", "transformers"], "torch, transformers")
    measures = args.only.split(",")
    unknown = [one for one in measures if one not in ("prepare", "same", "greedy", "sampled")]
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; allowed: prepare, same, greedy, sampled")
    tandem = lib.Tandem(args.bin, args.threads)
    report = {"machine": lib.machine(args.threads), "tandem": tandem.version(), "results": []}
    variables = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": str(args.threads)}
    with lib.Worker(python, "transformers_worker.py", variables, not args.verbose) as worker:
        sides = Sides(args, worker, tandem)
        if "same" in measures:
            report["same"] = check_same(sides)
        for dtype in args.dtypes.split(",") if {"greedy", "sampled"} & set(measures) else []:
            report["versions"] = worker.ask("load", target=TARGET, draft=DRAFT, dtype=dtype, threads=args.threads)
            sides.theirs(False, 0), sides.theirs(False, None)
            for sample in [name == "sampled" for name in measures if name in ("greedy", "sampled")]:
                for text in args.draft_tokens.split(","):
                    report["results"].append(compare(sides, dtype, sample, None if text == "default" else int(text)))
    if args.json and args.add and os.path.exists(args.json):
        with open(args.json, encoding="utf-8") as file:
            report["results"] = keep_others(json.load(file)["results"], report["results"])
    print(f"{report['machine']}\n{report['tandem'].splitlines()[0]}\n{report.get('versions', '')}\n", flush=True)
    print_results(report["results"])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
