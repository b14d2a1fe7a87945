#!/usr/bin/env python3
"""Compares drafters with plain decoding, from Python: prompt lookup (ngram), an assistant (model), and both.

Needs the package `tandem` (docs/python.md); the one in the build tree is found automatically. After a warm-up round each
drafter generates from each prompt in turn, and must give the same tokens as plain decoding. Prints the acceptance, the
tokens per round, the speed and its ratio to plain decoding (medians of --rounds turns), over all prompts together.

  drafters.py [--target PATH] [--draft PATH] [--prompts FILE] [--max-tokens N] [--draft-tokens K] [--temperature T]
              [--rounds N] [--threads N] [--json]

--prompts: a file with one prompt per line; without it there are three prompts, one of which repeats a text.
"""
import argparse
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "build/release/python"))
try:
    import tandem
except ImportError as missing:
    sys.exit(f"drafters.py: {missing}; `pip install .` or ./dev test makes the package")

DRAFTERS = ["none", "ngram", "model", "model+ngram"]
LIST = "the fox, the wolf, the bear, the cat, the mouse, the bird and the sausage"
PROMPTS = ["Once upon a time there lived an old king who had three sons.", "The old woman went into the wood",
           f"There came {LIST}. And again there came {LIST}. And again there came the fox,"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=str(ROOT / "models/storyteller-7m"))
    parser.add_argument("--draft", default=str(ROOT / "models/storyteller-1m"))
    parser.add_argument("--prompts", type=pathlib.Path)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--draft-tokens", type=int, default=-1, help="-1, the default: the engine chooses")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error(f"--rounds: found {given.rounds}, allowed: 1 or more")
    return given


def measured(engine, drafter, prompts, params):
    """Returns the tokens of each prompt, and sums over all prompts. The seconds are the engine's, prompts included."""
    tokens, sums = [], {"tokens": 0, "seconds": 0.0, "proposed": 0, "accepted": 0, "rounds": 0}
    for prompt in prompts:
        completion = engine.generate(prompt, drafter=drafter, **params)
        tokens.append(completion.token_ids.tolist())
        sums["tokens"] += len(completion.token_ids)
        sums["seconds"] += completion.timings.end_to_end
        for name in ("proposed", "accepted", "rounds"):
            sums[name] += getattr(completion.stats, name)
    return tokens, sums


def main():
    given = arguments()
    prompts = PROMPTS
    if given.prompts:
        prompts = [line for line in given.prompts.read_text().splitlines() if line.strip()]
    params = {"max_tokens": given.max_tokens, "temperature": given.temperature, "seed": 1, "ignore_eos": True,
              "draft_tokens": given.draft_tokens, "verifier": "exact_match"}
    runs = {drafter: [] for drafter in DRAFTERS}
    with tandem.Engine(given.target, draft=given.draft, all_drafters=True, threads=given.threads,
                       prefix_cache=False, draft_memory_bytes=0, warm_up=True) as engine:
        for turn in range(given.rounds + 1):
            for drafter in DRAFTERS:
                tokens, sums = measured(engine, drafter, prompts, params)
                if drafter == "none":
                    plain = tokens
                if tokens != plain:
                    sys.exit(f"drafters.py: the tokens of {drafter} differ from those of plain decoding")
                if turn > 0:
                    runs[drafter].append(sums)
    rows = []
    for drafter in DRAFTERS:
        speeds = [run["tokens"] / run["seconds"] for run in runs[drafter]]
        ratios = [speed / (plain["tokens"] / plain["seconds"]) for speed, plain in zip(speeds, runs["none"])]
        proposed, accepted, tokens, rounds = (sum(run[name] for run in runs[drafter])
                                              for name in ("proposed", "accepted", "tokens", "rounds"))
        rows.append({"drafter": drafter, "acceptance": accepted / proposed if proposed else None,
                     "tokens_per_round": tokens / rounds, "tokens_per_second": statistics.median(speeds),
                     "beside_plain": statistics.median(ratios)})
    if given.json:
        print(json.dumps(rows))
        return
    print(f"{'drafter':12} {'acceptance':>10} {'tokens/round':>12} {'tokens/s':>9} {'times plain':>12}")
    for row in rows:
        acceptance = "-" if row["acceptance"] is None else f"{100 * row['acceptance']:.1f} %"
        print(f"{row['drafter']:12} {acceptance:>10} {row['tokens_per_round']:12.2f} "
              f"{row['tokens_per_second']:9.0f} {row['beside_plain']:12.2f}")
    print("every drafter gave the same tokens as plain decoding")


if __name__ == "__main__":
    main()
