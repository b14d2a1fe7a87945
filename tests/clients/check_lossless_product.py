#!/usr/bin/env python3
"""Compares speculative with plain decoding over a whole product of settings, using the program.

Every sampling setting x k x batch x drafter writes the same prompts under one seed and the rule
exact_match. Token ids, text, finish reason and log-probabilities must be those of plain decoding,
one prompt at a time, bit for bit: the program prints a float32 as the shortest decimal of its
double, so numbers read back are equal if and only if their bits are.

    ninja -C build/release tandem
    tests/clients/check_lossless_product.py                       # all: half an hour
    tests/clients/check_lossless_product.py --num-prompts 20 -k 1,4 --drafters model
    tests/clients/check_lossless_product.py --expect-different-seed   # must report differences

Prints a line per combination. Exit status: 0 all equal, 1 a difference (the first of each
combination is named), 2 a command could not be run. Needs only the standard library.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEFAULT_PROMPTS = ROOT.parent / "shared" / "prompts" / "tinystories_prompts_english.txt"

SETTINGS = {
    "greedy": ["--temperature", "0"],
    "T0.7,p0.9": ["--temperature", "0.7", "--top-p", "0.9"],
    "T1": ["--temperature", "1"],
    "T1.2,edits": [
        "--temperature", "1.2", "--top-k", "50", "--min-p", "0.02",
        "--repetition-penalty", "1.1", "--frequency-penalty", "0.3", "--presence-penalty", "0.2",
        "--logit-bias", "300:2.5", "--min-tokens", "8",
    ],
}
DRAWN = [name for name in SETTINGS if name != "greedy"]  # settings that depend on the seed
COMPARED = ("token_ids", "text", "finish_reason", "logprobs")


class CannotRun(Exception):
    pass


def read_prompts(path):
    """Lines of a text file, or the questions in a benchmark's JSON lines."""
    if not path.is_file():
        raise CannotRun(f"{path}: no such file; give --prompts")
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        if path.suffix != ".jsonl":
            prompts.append(line.strip())
            continue
        entry = json.loads(line)
        text = entry.get("prompt") or entry.get("question") or (entry.get("turns") or [""])[0]
        if not text:
            raise CannotRun(f"{path}:{number}: must have prompt, question or turns")
        prompts.append(text)
    return prompts


class Program:
    def __init__(self, arguments, prompts_file):
        self.arguments = arguments
        self.prompts_file = prompts_file

    def run(self, setting, seed, batch, drafter, k):
        """The program's list of completions, in the order of the prompts."""
        a = self.arguments
        command = [
            str(a.program), "generate", "--prompts", str(self.prompts_file), "--json",
            "--batch", str(batch), "--drafter", drafter, "-k", str(k), "--seed", str(seed),
            "--verifier", "exact_match", "--logprobs", str(a.logprobs),
            "--max-tokens", str(a.max_tokens), *SETTINGS[setting],
        ]
        for name in ("target", "draft", "threads", "compute"):
            if getattr(a, name) is not None:
                command += [f"--{name}", str(getattr(a, name))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise CannotRun(f"{a.program}: {error.strerror}; build it or give --program") from error
        if done.returncode != 0:
            raise CannotRun(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)


def first_difference(got, want):
    """The place of the first difference between two lists of completions, or None."""
    if len(got) != len(want):
        return f"{len(got)} completions, {len(want)} plain"
    for i, (g, w) in enumerate(zip(got, want)):
        for field in COMPARED:
            if field not in g or field not in w:
                return f"prompt {i + 1}: has no {field}"
            if g[field] == w[field]:
                continue
            if not isinstance(w[field], list):
                return f"prompt {i + 1}: {field} {g[field]!r}, plain {w[field]!r}"
            for j, (a, b) in enumerate(zip(g[field], w[field])):
                if a != b:
                    return f"prompt {i + 1}: {field}[{j}] {a}, plain {b}"
            return f"prompt {i + 1}: {len(g[field])} {field}, plain {len(w[field])}"
    return None


def check_the_comparison(plain):
    """Checks that the compared fields exist, and that the smallest change in each is seen."""
    if first_difference(copy.deepcopy(plain), plain) is not None:
        raise CannotRun("the comparison finds a difference between equal completions")
    last = max(i for i, completion in enumerate(plain) if completion["token_ids"])

    def change_token(c):
        c["token_ids"][-1] += 1

    def change_logprob(c):
        c["logprobs"][-1]["logprob"] -= 2.0**-30  # less than a float32 resolves

    def change_top(c):
        c["logprobs"][-1]["top"][-1][1] -= 2.0**-30

    def drop_logprob(c):
        c["logprobs"].pop()

    for change in (change_token, change_logprob, change_top, drop_logprob):
        changed = copy.deepcopy(plain)
        change(changed[last])
        if first_difference(changed, plain) is None:
            raise CannotRun(f"the comparison does not see {change.__name__}")


def speculation_of(completions):
    proposed = sum(c["speculation"]["proposed"] for c in completions)
    accepted = sum(c["speculation"]["accepted"] for c in completions)
    return accepted, proposed


def compare_product(arguments, program):
    """The number of combinations, and how many of them differ."""
    num_combinations = 0
    num_different = 0
    for setting in arguments.settings:
        plain = program.run(setting, arguments.seed, batch=1, drafter="none", k=0)
        check_the_comparison(plain)
        num_tokens = sum(len(c["token_ids"]) for c in plain)
        print(f"{setting}: {len(plain)} prompts, {num_tokens} tokens", flush=True)
        seed = arguments.seed + (1 if arguments.expect_different_seed else 0)
        for drafter in arguments.drafters:
            for batch in arguments.batch:
                for k in arguments.draft_tokens:
                    start = time.monotonic()
                    got = program.run(setting, seed, batch, drafter, k)
                    accepted, proposed = speculation_of(got)
                    difference = first_difference(got, plain)
                    if difference is None and k > 0 and proposed == 0:
                        difference = "no tokens were proposed, so this proves nothing"
                    num_combinations += 1
                    num_different += difference is not None
                    print(
                        f"{'same' if difference is None else 'DIFFERENT':<9} {setting:<10} "
                        f"drafter {drafter:<11} batch {batch} k {k}  "
                        f"accepted {accepted}/{proposed}  {time.monotonic() - start:.1f} s"
                        + ("" if difference is None else f"  {difference}"),
                        flush=True,
                    )
    return num_combinations, num_different


def numbers(text):
    """Parses numbers such as 1,4 or 0-8."""
    values = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        values += range(int(first), int(last or first) + 1)
    return values


def names(allowed):
    def parse(text):
        parts = text.split(",") if text not in allowed else [text]
        for part in parts:
            if part not in allowed:
                raise argparse.ArgumentTypeError(f"{part!r} is not one of {', '.join(allowed)}")
        return parts

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--program", type=pathlib.Path, default=ROOT / "build" / "release" / "tandem")
    add("--prompts", type=pathlib.Path, nargs="+", default=[DEFAULT_PROMPTS],
        help=".txt with a prompt per line, .jsonl with prompt, question or turns")
    add("--num-prompts", type=int, default=200, help="prompts from each file [200]")
    add("--max-prompt-chars", type=int, default=400, help="longer prompts are cut [400]")
    add("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    add("-k", "--draft-tokens", type=numbers, default=list(range(9)), help="[0-8]")
    add("--batch", type=numbers, default=[1, 5], help="[1,5]")
    add("--drafters", type=names(["model", "ngram", "model+ngram"]),
        default=["model", "ngram", "model+ngram"], help="[model,ngram,model+ngram]")
    add("--seed", type=int, default=1)
    add("--max-tokens", type=int, default=32)
    add("--logprobs", type=int, default=2, help="number of most likely tokens compared, at least 1 [2]")
    add("--expect-different-seed", action="store_true",
        help="speculate under another seed: every setting that draws must be reported, exit 1")
    add("--threads", type=int, default=1, help="threads do not change any bit; one is best for small models [1]")
    for name in ("target", "draft", "compute"):
        add(f"--{name}", help="passed on")
    arguments = parser.parse_args()
    if arguments.logprobs < 1 or arguments.num_prompts < 1 or arguments.max_tokens < 1:
        parser.error("--logprobs, --num-prompts and --max-tokens: must be at least 1")
    if arguments.expect_different_seed:
        arguments.settings = [name for name in arguments.settings if name in DRAWN]
        if not arguments.settings:
            parser.error("--expect-different-seed: greedy text does not depend on the seed")
    return arguments


def main():
    arguments = parse_arguments()
    start = time.monotonic()
    try:
        prompts = []
        for path in arguments.prompts:
            some = read_prompts(path)[: arguments.num_prompts]
            prompts += [text[: arguments.max_prompt_chars] for text in some]
        with tempfile.TemporaryDirectory() as folder:
            prompts_file = pathlib.Path(folder) / "prompts.jsonl"
            lines = (json.dumps({"prompt": text}) + "\n" for text in prompts)
            prompts_file.write_text("".join(lines), encoding="ascii")
            program = Program(arguments, prompts_file)
            num_combinations, num_different = compare_product(arguments, program)
    except CannotRun as error:
        print(f"check_lossless_product: error: {error}", file=sys.stderr)
        return 2
    print(
        f"{num_combinations} combinations of {len(prompts)} prompts, {num_different} different, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if num_different > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
