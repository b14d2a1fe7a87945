#!/usr/bin/env python3
"""Compares ranks of one thread with one process of as many threads: tensor_parallel.py --target MODEL [--ranks 2]

Decodes one sequence plainly after a prompt, alternating between both forms; each run is a new process. Prints the tokens per
second of both forms and their ratio. The texts must be equal.
"""
import pathlib
import random
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402


def main():
    parser = lib.parser(__doc__, ranks=2, prompt_tokens=512, max_tokens=48, repeat=5)
    parser.add_argument("--target", required=True)
    args = parser.parse_args()
    draw = random.Random(1)
    ids = [draw.randrange(5, 4000) for _ in range(args.prompt_tokens)]
    texts = set()

    def run(ranks):
        """Returns the tokens per second of the prompt and of decoding. Each rank has a thread, one process as many as all ranks."""
        answer = lib.Tandem(args.bin, args.ranks // ranks).json(
            "generate", "--device", "cpu", "--target", args.target, "--drafter", "none", "--tensor-parallel", str(ranks), "--prompt-ids",
            ",".join(map(str, ids)), "--max-tokens", str(args.max_tokens), "--ignore-eos", "--temperature", "0")
        texts.add(tuple(answer["token_ids"]))
        return len(ids) / answer["timings"]["prefill_ms"] * 1e3, answer["timings"]["decode_tokens_per_second"]

    forms = {"one process": lambda turn: run(1), "ranks": lambda turn: run(args.ranks)}
    lib.alternate(1, forms)  # packs weights and reads files
    found = lib.alternate(args.repeat, forms)
    if len(texts) != 1:
        lib.fail("the forms gave different tokens")
    figures = {}
    for i, name in enumerate(("prompt", "decode")):
        one, ranks = ([run[i] for run in found[form]] for form in forms)
        middle, least, greatest = lib.ratio_of_pairs(ranks, one)
        figures[name] = {"one_process": lib.median(one), "ranks": lib.median(ranks), "ratio": middle, "least": least, "greatest": greatest}
        print(f"{pathlib.Path(args.target).name} {name}: one process {lib.median(one):.1f}, {args.ranks} ranks {lib.median(ranks):.1f} "
              f"tokens/s, ratio {middle:.3f} ({least:.3f} to {greatest:.3f})")
    lib.write_json(args, **figures)


if __name__ == "__main__":
    main()
