#!/usr/bin/env python3
"""Compares the draft tokens that the rules `block` and `token` keep, on the same prompts and seeds.

Prints a Markdown table: accepted tokens per round (mean over seeds, with the standard error of the mean) and the mean of
the differences. In expectation `block` keeps at least as many tokens as `token`, but not for every seed. The figures are
counts, so they do not depend on the load of the machine.
"""
import math
import statistics
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402


def with_error(values):
    return f"{statistics.mean(values):.3f} +- {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def main():
    args = lib.parser(__doc__, num_prompts=40, max_tokens=96, seeds=10).parse_args()
    tandem = lib.Tandem(args.bin, args.threads)
    rows = []
    with lib.prompts_file(lib.lines_of("tinystories_prompts_english.txt")[:args.num_prompts]) as prompts:
        def kept(verifier, temperature, k, seed):
            """Returns the accepted draft tokens per round."""
            runs = [one["speculation"] for one in tandem.json(
                "generate", "--prompts", prompts, "--batch", "8", "--drafter", "model", "--verifier", verifier, "-k", str(k), "--temperature",
                str(temperature), "--seed", str(seed), "--max-tokens", str(args.max_tokens), "--ignore-eos")]
            return sum(run["accepted"] for run in runs) / sum(run["rounds"] for run in runs)

        for temperature, k in ((t, k) for t in (0.7, 1.0) for k in (2, 4, 8)):
            block, token = ([kept(rule, temperature, k, seed + 1) for seed in range(args.seeds)] for rule in ("block", "token"))
            differences = [b - t for b, t in zip(block, token)]
            rows.append([temperature, k, with_error(block), with_error(token), with_error(differences),
                         f"{sum(d > 0 for d in differences)} of {len(differences)}"])
            lib.say(" ".join(map(str, rows[-1])))
    print(lib.table(["T", "k", "block, accepted per round", "token", "block - token", "seeds where block kept more"], rows))
    lib.write_json(args, rows=rows)


if __name__ == "__main__":
    main()
