#!/usr/bin/env python3
"""Predicted outputs on an edit-this-file task: what `prediction` gains over plain decoding and over the server's drafter.

  predicted_outputs.py [--target F.gguf] [--max-tokens 400] [--repeat 5]

Small programs are to be written again with a name changed, and each request predicts the file as it was. Greedy; the ways take
turns. A measurement, never a test: a small model edits badly, so that what it accepts of the prediction is a lower bound.
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
from constraints import Server  # noqa: E402

FILES = [("total", "amount", """def add_prices(prices, tax):
    total = 0
    for price in prices:
        total = total + price
    total = total * (1 + tax)
    if total < 0:
        raise ValueError("total is negative")
    return total


def print_bill(prices, tax):
    total = add_prices(prices, tax)
    print("Items:", len(prices))
    print("Total:", total)
    return total
"""), ("Counter", "Tally", """class Counter:
    def __init__(self):
        self.counts = {}

    def add(self, word):
        self.counts[word] = self.counts.get(word, 0) + 1

    def most_common(self):
        best = None
        for word, count in self.counts.items():
            if best is None or count > self.counts[best]:
                best = word
        return best


def count_words(text):
    counter = Counter()
    for word in text.split():
        counter.add(word)
    return counter
"""), ("path", "file_name", """import json


def load_settings(path):
    with open(path) as file:
        return json.load(file)


def save_settings(path, settings):
    with open(path, "w") as file:
        json.dump(settings, file, indent=2)


def update_setting(path, name, value):
    settings = load_settings(path)
    settings[name] = value
    save_settings(path, settings)
""")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--target", help="[the server's own choice]")
    parser.add_argument("--draft")
    parser.add_argument("--drafter", default="model+ngram")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    server = Server(args)

    def run(drafter, predicts):
        tokens, ms, accepted, rejected, texts = 0, 0.0, 0, 0, []
        for old, new, text in FILES:
            body = {"messages": [{"role": "user", "content": f"Write this Python file again with `{old}` renamed to `{new}`.\n\n```python\n{text}```"}],
                    "temperature": 0, "max_tokens": args.max_tokens, "speculation": {"drafter": drafter} if drafter else {}}
            if predicts:
                del body["speculation"]
                body["prediction"] = {"type": "content", "content": text}
            answer = server.ask(body)
            tokens += answer["usage"]["completion_tokens"]
            ms += answer["timings"]["e2e_ms"]
            details = answer["usage"]["completion_tokens_details"]
            accepted, rejected = accepted + details["accepted_prediction_tokens"], rejected + details["rejected_prediction_tokens"]
            texts.append(answer["choices"][0]["message"]["content"])
        return {"speed": tokens / ms * 1e3, "accepted": accepted, "rejected": rejected, "tokens": tokens, "texts": texts}

    ways = {"plain": ("none", False), args.drafter: (args.drafter, False), f"prediction, {args.drafter}": (args.drafter, True)}
    for way in ways.values():
        run(*way)  # prompts are in the prefix cache from here on
    results = dict(zip(ways, lib.alternate(args.repeat, *[lambda way=way: run(*way) for way in ways.values()])))
    server.close()
    plain = results["plain"]
    rows = []
    for name, turns in results.items():
        ratio, low, high = lib.ratio_of_pairs([r["speed"] for r in turns], [r["speed"] for r in plain])
        rows.append([name, lib.number(lib.median([r["speed"] for r in turns]), "%.0f"), f"{ratio:.2f} ({low:.2f}-{high:.2f})",
                     f"{turns[-1]['accepted']} / {turns[-1]['rejected']}", str(all(r["texts"] == plain[0]["texts"] for r in turns)).lower()])
    about = lib.machine(args.threads)
    print(f"{about['cpu']} {' '.join(about['instructions'])}, {args.threads} threads, {about['date']}; {plain[0]['tokens']} tokens\n")
    print(lib.table(["", "tokens/s", "beside plain", "predicted tokens accepted / rejected", "same text"], rows))


if __name__ == "__main__":
    main()
