#!/usr/bin/env python3
"""Compares the draft tokens that the rules `block` and `token` keep, on the same prompts and seeds.

Prints a Markdown table: accepted tokens per round (mean over seeds, with the standard error of the mean) and the mean of
the differences. In expectation `block` keeps at least as many tokens as `token`, but not for every seed. The figures are
counts, so they do not depend on the load of the machine.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPTS = os.path.join(os.path.dirname(ROOT), "shared", "prompts", "tinystories_prompts_english.txt")


def accepted_per_round(args, prompts, verifier, temperature, k, seed):
    command = [args.bin, "generate", "--prompts", prompts, "--batch", "8", "--drafter", "model", "--verifier", verifier, "-k", str(k),
               "--temperature", str(temperature), "--seed", str(seed), "--max-tokens", str(args.max_tokens), "--ignore-eos",
               "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"block_against_token.py: {' '.join(command)}: {done.stderr.strip()}")
    runs = [completion["speculation"] for completion in json.loads(done.stdout)]
    return sum(run["accepted"] for run in runs) / sum(run["rounds"] for run in runs)


def with_error(values):
    return f"{statistics.mean(values):.3f} +- {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "tandem"))
    parser.add_argument("--prompts", default=PROMPTS, help="a text file with one prompt per line")
    parser.add_argument("--num-prompts", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    try:
        lines = [line.strip() for line in open(args.prompts, encoding="utf-8") if line.strip()][:args.num_prompts]
    except OSError as error:
        sys.exit(f"block_against_token.py: {error}")
    print("| T | k | block, accepted per round | token | block - token | seeds where block kept more |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prompts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"prompt": line}) + "\n" for line in lines)
        for temperature in (0.7, 1.0):
            for k in (2, 4, 8):
                seeds = range(1, args.seeds + 1)
                block = [accepted_per_round(args, path, "block", temperature, k, seed) for seed in seeds]
                token = [accepted_per_round(args, path, "token", temperature, k, seed) for seed in seeds]
                differences = [b - t for b, t in zip(block, token)]
                print(f"| {temperature} | {k} | {with_error(block)} | {with_error(token)} | {with_error(differences)} | "
                      f"{sum(d > 0 for d in differences)} of {len(differences)} |", flush=True)


if __name__ == "__main__":
    main()
