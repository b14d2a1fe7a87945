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


def main():
    parser = chat_parser(__doc__, max_tokens=300)
    parser.add_argument("--every", type=int, default=25, help="distance between replaced words")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    server = ChatServer(args)

    def ask(question, drafter, prediction=None):
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": args.max_tokens}
        if drafter != "none" or prediction is None:
            body["speculation"] = {"drafter": drafter}
        if prediction is not None:
            body["prediction"] = {"type": "content", "content": prediction}
        return server.ask(body)

    originals = [ask(question, "none")["choices"][0]["message"]["content"] for question in QUESTIONS]

    def run(drafter, predicts):
        tokens, ms, accepted, rejected, texts = 0, 0.0, 0, 0, []
        for question, original in zip(QUESTIONS, originals):
            answer = ask(question, drafter, edited(original, args.every) if predicts else None)
            tokens += answer["usage"]["completion_tokens"]
            ms += answer["timings"]["e2e_ms"]
            details = answer["usage"]["completion_tokens_details"]
            accepted, rejected = accepted + details["accepted_prediction_tokens"], rejected + details["rejected_prediction_tokens"]
            texts.append(answer["choices"][0]["message"]["content"])
        return {"speed": tokens / ms * 1e3, "accepted": accepted, "rejected": rejected, "tokens": tokens, "texts": texts}

    ways = {"plain": ("none", False), args.drafter: (args.drafter, False), f"prediction and {args.drafter}": (args.drafter, True)}
    for way in ways.values():
        run(*way)  # puts the prompts into the prefix cache
    results = dict(zip(ways, lib.alternate(args.repeat, *[lambda way=way: run(*way) for way in ways.values()])))
    server.stop()
    plain = results["plain"]
    rows = []
    for name, turns in results.items():
        ratio, low, high = lib.ratio_of_pairs([r["speed"] for r in turns], [r["speed"] for r in plain])
        rows.append([name, lib.number(lib.median([r["speed"] for r in turns]), "%.0f"), f"{ratio:.2f} ({low:.2f}-{high:.2f})",
                     f"{turns[-1]['accepted']} / {turns[-1]['rejected']}", str(all(r["texts"] == plain[0]["texts"] for r in turns)).lower()])
    about = lib.machine(args.threads)
    print(f"{about['cpu']} {' '.join(about['instructions'])}, {args.threads} threads, {about['date']}; {plain[0]['tokens']} tokens\n")
    print(lib.table(["", "tokens/s", "times plain", "predicted tokens accepted / rejected", "same text"], rows))


if __name__ == "__main__":
    main()
