#!/usr/bin/env python3
"""Measures the speed-up of `prediction` if the answer repeats most of it.

  predicted_outputs.py [--target F.gguf] [--every 25] [--max-tokens 300] [--repeat 3]

First generates the answers to a few questions, greedily and plainly. Then asks each question again with a prediction: this answer
with every 25th word replaced, like a file before an edit. The runs alternate: without a drafter, with the server's drafter, and with
the prediction and the drafter. The answers must stay the same. This is a measurement, not a test.
"""
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
from constraints import ChatServer, chat_parser  # noqa: E402

QUESTIONS = ["Write a Python class for a bank account with methods to deposit, withdraw and transfer money.",
             "Explain how a bicycle works, part by part.", "Write a letter to a landlord about a broken heater.",
             "List the planets of the solar system with two facts about each."]


def edited(text, every):
    """Returns `text` with every nth word replaced."""
    words = text.split(" ")
    return " ".join("other" if i % every == every - 1 else word for i, word in enumerate(words))


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def compare(args, ways, time, kept):
    """Runs `ways`, functions that return answers, the first of them plain: once to put the prompts into the prefix cache, then alternating.
    `time`: the timing to count. Returns figures; `kept(answers)` is that of tokens that drafts took from a text."""
    def speeds(turns):
        return [sum(a["usage"]["completion_tokens"] for a in turn) / sum(a["timings"][time] for a in turn) * 1e3 for turn in turns]

    lib.alternate(1, ways)
    results = lib.alternate(args.repeat, ways)
    plain = next(iter(results.values()))
    texts = list(map(text_of, plain[0]))
    return [{"way": name, "tokens_per_second": lib.median(speeds(turns)), "times_plain": lib.ratio_of_pairs(speeds(turns), speeds(plain)),
             "kept": kept(turns[-1]), "same": all(list(map(text_of, turn)) == texts for turn in turns)} for name, turns in results.items()]


def cells(figures):
    return [figures["way"], f"{figures['tokens_per_second']:.0f}", lib.spread(figures["times_plain"]), figures["kept"],
            str(figures["same"]).lower()]


def main():
    args = chat_parser(__doc__, max_tokens=300, every=25, repeat=3).parse_args()
    with ChatServer(args) as server:
        originals = [server.ask(question, args, "none") for question in QUESTIONS]
        predictions = [{"prediction": {"type": "content", "content": edited(text_of(answer), args.every)}} for answer in originals]

        def way(drafter, more):
            return lambda turn: [server.ask(question, args, drafter, **one) for question, one in zip(QUESTIONS, more)]

        def kept(answers):
            details = [answer["usage"]["completion_tokens_details"] for answer in answers]
            return " / ".join(str(sum(one[f"{what}_prediction_tokens"] for one in details)) for what in ("accepted", "rejected"))

        nothing = [{}] * len(QUESTIONS)
        figures = compare(args, {"plain": way("none", nothing), args.drafter: way(args.drafter, nothing),
                                 f"prediction and {args.drafter}": way(args.drafter, predictions)}, "e2e_ms", kept)
    print(lib.machine_line(args, f"{sum(answer['usage']['completion_tokens'] for answer in originals)} tokens"))
    print(lib.table(["", "tokens/s", "times plain", "predicted tokens accepted / rejected", "same text"], map(cells, figures)))
    lib.write_json(args, figures=figures)


if __name__ == "__main__":
    main()
