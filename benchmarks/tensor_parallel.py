#!/usr/bin/env python3
"""Compares ranks of one thread with one process of as many threads: tensor_parallel.py --target MODEL [--ranks 2]

Decodes one sequence plainly after a prompt, alternating between both forms; each run is a new process. Prints the tokens per
second of both forms and their ratio. The texts must be equal.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess


def run(program, target, ranks, threads, ids, max_tokens):
    """Returns the tokens per second of the prompt and of decoding, and the token ids."""
    done = subprocess.run(
        [program, "generate", "--device", "cpu", "--target", target, "--drafter", "none", "--threads", str(threads),
         "--tensor-parallel", str(ranks), "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", str(max_tokens),
         "--ignore-eos", "--temperature", "0", "--json"],
        text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    answer = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    timings = answer["timings"] if "timings" in answer else answer
    return (len(ids) / timings["prefill_ms"] * 1e3, timings["decode_tokens_per_second"], answer["token_ids"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/tandem")
    parser.add_argument("--target", required=True)
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks with one thread each")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    random.seed(1)
    ids = [random.randrange(5, 30000) for _ in range(options.prompt_tokens)]
    forms = {"one process": (1, options.ranks), "ranks": (options.ranks, 1)}
    found = {form: [] for form in forms}
    for turn in range(options.repeat + 1):
        for form, (ranks, threads) in forms.items():
            result = run(options.program, options.target, ranks, threads, ids, options.max_tokens)
            if turn > 0:  # the first turn packs weights and reads files
                found[form].append(result)
    if len({tuple(ids) for runs in found.values() for _, _, ids in runs}) != 1:
        raise SystemExit("the forms gave different tokens")
    report = {"model": pathlib.Path(options.target).name, "ranks": options.ranks, "repeat": options.repeat}
    for name, which in (("prompt", 0), ("decode", 1)):
        one, ranks = ([run[which] for run in found[form]] for form in forms)
        ratios = [b / a for a, b in zip(one, ranks)]
        report[name] = {"one_process": statistics.median(one), "ranks": statistics.median(ranks),
                        "ratio": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}
    if options.json:
        print(json.dumps(report))
        return
    for name in ("prompt", "decode"):
        of = report[name]
        print(f"{report['model']} {name}: one process {of['one_process']:.1f}, {options.ranks} ranks {of['ranks']:.1f} "
              f"tokens/s, ratio {of['ratio']:.3f} ({of['least']:.3f} to {of['greatest']:.3f})")


if __name__ == "__main__":
    main()
