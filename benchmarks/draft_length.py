#!/usr/bin/env python3
"""Compares `-k auto` with the best fixed k on five workloads, and with a useless draft.

Prints a Markdown table: speeds as multiples of plain decoding (prompts included; the median over passes of the ratio to the
alternating plain pass), the speed of auto relative to the best fixed k or to plain decoding, and the speed of auto in a new
engine that has not learned yet. Needs the prompt sets next to the checkout (../shared/prompts); workloads whose prompts are
missing are skipped with a message. This is a measurement, not a test: timings depend on the machine and its load. Do not run
it with a real-time priority: Linux stops such processes for 50 ms of every second.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.path.join(os.path.dirname(ROOT), "shared", "prompts")

COPY = ("Tom has a red ball. Tom has a blue kite. Lily has a red ball. Lily has a blue kite. "
        "The cat sat on the mat. The dog sat on the mat. The cat sat on the mat. The dog sat on the mat. ")


def stories(count):
    path = os.path.join(SHARED, "tinystories_prompts_english.txt")
    lines = [line.strip() for line in open(path, encoding="utf-8") if line.strip()]
    return lines[:count]


def code(count):
    path = os.path.join(SHARED, "HumanEval.jsonl")
    return [json.loads(line)["prompt"] for line in open(path, encoding="utf-8")][:count]


def copies(count):
    return [COPY * 2 + f"{name} has a red ball. {name}" for name in
            ["Ben", "Mia", "Sam", "Anna", "Max", "Sue", "Tim", "Zoe"][:count]]


# Name, prompts, temperature, drafter.
WORKLOADS = [
    ("story text, T = 0.7", stories, 0.7, "model"),
    ("copy-heavy text, T = 0.7", copies, 0.7, "model+ngram"),
    ("code prompts, T = 0.7", code, 0.7, "model"),
    ("story text, T = 0", stories, 0.0, "model"),
    ("story text, T = 1.2", stories, 1.2, "model"),
]


def bench(args, options):
    """Returns the reports of `bench speculation` for all draft lengths, and for auto alone in a new engine."""
    command = args.prefix.split() + [args.bin, "bench", "speculation", "--json", "--max-tokens", str(args.max_tokens),
                                     "--repeat", str(args.repeat)] + options
    results = []
    for lengths in (args.lengths + ",auto", "auto"):
        done = subprocess.run(command + ["-k", lengths], capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            sys.exit(f"draft_length.py: {' '.join(command)}: {done.stderr.strip()}")
        results.append(json.loads(done.stdout))
    return results


def row(name, results, batch):
    swept, alone = results
    runs = {run["draft_tokens"]: run for run in swept["runs"] if run["batch"] == batch}
    auto = runs.pop("auto")
    speeds = {k: run["ratio_to_plain"] for k, run in runs.items()}
    best = max(speeds, key=speeds.get)
    best_speed = max(speeds[best], 1.0)
    auto_speed = auto["ratio_to_plain"]
    cold = next(run for run in alone["runs"] if run["batch"] == batch)
    print(f"| {name} | {batch} | {' / '.join('%.2f' % speed for speed in speeds.values())} | {best if speeds[best] > 1 else 0} | "
          f"{auto_speed:.2f} | {auto_speed / best_speed:.2f} | {auto['drafted_per_round']:.2f} | "
          f"{cold['ratio_to_plain']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "tandem"))
    parser.add_argument("--prefix", default="", help="words before every command, such as 'taskset -c 0,1'")
    parser.add_argument("--lengths", default="1,2,3,4,6")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--num-prompts", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--only", default="", help="run only workloads whose name contains this")
    args = parser.parse_args()
    print(f"| workload | batch | times plain at k = {args.lengths} | best k | auto | auto / best | auto's tokens per draft | "
          "auto, fresh engine |\n|---|---|---|---|---|---|---|---|")
    batches = [int(batch) for batch in args.batch.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        for name, prompts, temperature, drafter in WORKLOADS:
            if args.only not in name:
                continue
            path = os.path.join(folder, "prompts.jsonl")
            try:
                lines = prompts(args.num_prompts)
            except FileNotFoundError as error:
                print(f"draft_length.py: skipped {name}: {error.filename} is missing", file=sys.stderr)
                continue
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"prompt": line}) + "\n" for line in lines)
            results = bench(args, ["--prompts", path, "--temperature", str(temperature), "--drafter", drafter,
                                   "--batch", args.batch])
            for batch in batches:
                row(name, results, batch)
        if args.only in "a draft of no use":
            bad = os.path.join(folder, "bad")
            make_bad_draft(args, bad)
            results = bench(args, ["--target", os.path.join(ROOT, "models", "storyteller-7m"), "--draft", bad,
                                   "--temperature", "0.7", "--batch", args.batch])
            for batch in batches:
                row("a draft of no use, T = 0.7", results, batch)


def make_bad_draft(args, folder):
    """Makes a random model with the shape of the shipped draft and the target's tokenizer."""
    config = json.load(open(os.path.join(ROOT, "models", "storyteller-1m", "config.json"), encoding="utf-8"))
    keys = {"vocab": "vocab_size", "hidden": "hidden_size", "ffn": "intermediate_size", "layers": "num_hidden_layers",
            "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
            "context": "max_position_embeddings"}
    shape = ",".join(f"{key}={config[name]}" for key, name in keys.items() if name in config)
    subprocess.run([args.bin, "make-random", "--shape", shape, "--seed", "1", "--out", folder], check=True,
                   capture_output=True)
    tokenizer = os.path.join(ROOT, "models", "storyteller-7m", "tokenizer.json")
    with open(tokenizer, "rb") as source, open(os.path.join(folder, "tokenizer.json"), "wb") as target:
        target.write(source.read())


if __name__ == "__main__":
    main()
