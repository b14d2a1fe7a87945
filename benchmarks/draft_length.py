#!/usr/bin/env python3
"""Compares `-k auto` with the best fixed k on five workloads, and with a useless draft.

Prints a Markdown table: speeds as multiples of plain decoding (prompts included; the median over passes of the ratio to the
alternating plain pass), the speed of auto relative to the best fixed k or to plain decoding, and the speed of auto in a new
engine that has not learned yet. Needs the prompt sets next to the checkout (../shared/prompts). This is a measurement, not
a test: timings depend on the machine and its load. Do not run it with a real-time priority: Linux stops such processes for
50 ms of every second.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402

COPY = ("Tom has a red ball. Tom has a blue kite. Lily has a red ball. Lily has a blue kite. "
        "The cat sat on the mat. The dog sat on the mat. The cat sat on the mat. The dog sat on the mat. ")
USELESS = "a draft of no use, T = 0.7"


def stories():
    return lib.lines_of("tinystories_prompts_english.txt")


def code():
    return [json.loads(line)["prompt"] for line in lib.lines_of("HumanEval.jsonl")]


def copies():
    return [COPY * 2 + f"{name} has a red ball. {name}" for name in ["Ben", "Mia", "Sam", "Anna", "Max", "Sue", "Tim", "Zoe"]]


# Prompts, temperature and drafter.
WORKLOADS = {
    "story text, T = 0.7": (stories, 0.7, "model"),
    "copy-heavy text, T = 0.7": (copies, 0.7, "model+ngram"),
    "code prompts, T = 0.7": (code, 0.7, "model"),
    "story text, T = 0": (stories, 0.0, "model"),
    "story text, T = 1.2": (stories, 1.2, "model"),
}


def make_useless_draft(args, folder):
    """Makes a random model with the shape of the shipped draft and the target's tokenizer."""
    with open(os.path.join(lib.DRAFT, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    keys = {"vocab": "vocab_size", "hidden": "hidden_size", "ffn": "intermediate_size", "layers": "num_hidden_layers",
            "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
            "context": "max_position_embeddings"}
    shape = ",".join(f"{key}={config[name]}" for key, name in keys.items() if name in config)
    subprocess.run([args.bin, "make-random", "--shape", shape, "--seed", "1", "--out", folder], check=True,
                   capture_output=True)
    shutil.copy(os.path.join(lib.TARGET, "tokenizer.json"), folder)


def row(name, swept, alone):
    """Returns the row of a workload: the runs at each draft length, and those of auto in a new engine."""
    runs = {run["draft_tokens"]: run for run in swept["runs"]}
    auto = runs.pop("auto")
    speeds = {k: run["ratio_to_plain"] for k, run in runs.items()}
    best = max(speeds, key=speeds.get)
    return [name, " / ".join("%.2f" % speed for speed in speeds.values()), best if speeds[best] > 1 else 0,
            f"{auto['ratio_to_plain']:.2f}", f"{auto['ratio_to_plain'] / max(speeds[best], 1.0):.2f}",
            f"{auto['drafted_per_round']:.2f}", f"{alone['runs'][0]['ratio_to_plain']:.2f}"]


def main():
    parser = lib.parser(__doc__, lengths="1,2,3,4,6", max_tokens=128, num_prompts=8, repeat=9)
    parser.add_argument("--only", default="", help="run only workloads whose name contains this")
    args = parser.parse_args()
    tandem, rows = lib.Tandem(args.bin, args.threads), []

    def measure(name, *options):
        rows.append(row(name, *(tandem.json("bench", "speculation", "--max-tokens", str(args.max_tokens), "--repeat", str(args.repeat), "-k", lengths,
                                            *options) for lengths in (args.lengths + ",auto", "auto"))))
        lib.say(" ".join(map(str, rows[-1])))

    for name, (prompts, temperature, drafter) in WORKLOADS.items():
        if args.only in name:
            with lib.prompts_file(prompts()[:args.num_prompts]) as path:
                measure(name, "--prompts", path, "--temperature", str(temperature), "--drafter", drafter)
    if args.only in USELESS:
        with tempfile.TemporaryDirectory() as folder:
            make_useless_draft(args, folder + "/draft")
            measure(USELESS, "--target", lib.TARGET, "--draft", folder + "/draft", "--temperature", "0.7")
    print(lib.table(["workload", f"times plain at k = {args.lengths}", "best k", "auto", "auto / best", "auto's tokens per draft",
                     "auto, fresh engine"], rows))
    lib.write_json(args, rows=rows)


if __name__ == "__main__":
    main()
