#!/usr/bin/env python3
"""Compares the two laws by which one of some texts is chosen: token by token under a mask, and by probabilities of whole texts.

  choice_law.py --target F.gguf                200 messages to a bank, eight labels, one example of each in the prompt
  choice_law.py --target F.gguf --json out.json

benchmarks/choices/messages.tsv has the messages with their labels. Both laws are computed exactly, from the same rows: the
conditional law is that of `choice_logprobs`, and the masked law is the product over a label's tokens of each token's share
among the tokens that may come next, from the log-probabilities of every label's tokens. Accuracy is that of the choice at
temperature 0, and the expectation at temperature 1; the expected calibration error has ten bins of the likeliest label's
probability. The time of an answer is that of a request at temperature 0, one at a time, the laws alternating, with the
prompt in the cache. This is a measurement, not a test.
"""
import collections
import math
import os
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

MESSAGES = os.path.join(lib.BENCHMARKS, "choices", "messages.tsv")
NUM_BINS = 10


def chat_of(labels, examples, message):
    """Returns the messages that ask for the label of `message`."""
    chat = [{"role": "system", "content": "You label messages from customers of a bank. The labels are: " + ", ".join(labels) + "."}]
    for label, text in examples:
        chat += [{"role": "user", "content": text}, {"role": "assistant", "content": label}]
    return chat + [{"role": "user", "content": message}]


def masked_law(sequences, logprobs):
    """Returns the probability that masked decoding writes each of `sequences`, from the log-probabilities of their tokens."""
    children = collections.defaultdict(dict)
    for tokens, values in zip(sequences, logprobs):
        for i, (token, value) in enumerate(zip(tokens, values)):
            children[tuple(tokens[:i])][token] = math.exp(value)
    law = []
    for tokens in sequences:
        shares = [children[tuple(tokens[:i])][token] / sum(children[tuple(tokens[:i])].values()) for i, token in enumerate(tokens)]
        law.append(math.prod(shares))
    return law


def tokens_of(server, chat, label):
    """Returns the tokens of a label as the answer, with its end, and their log-probabilities."""
    answer = server.call("/v1/chat/completions", {"messages": chat, "guided_choice": [label], "choice_law": "conditional", "logprobs": True})
    choice = answer["choices"][0]
    return choice["token_ids"], [token["logprob"] for token in choice["logprobs"]["content"]]


def calibration_error(laws, truths):
    """Returns the expected calibration error of the likeliest label."""
    bins = [[] for _ in range(NUM_BINS)]
    for law, truth in zip(laws, truths):
        confidence = max(law)
        bins[min(int(confidence * NUM_BINS), NUM_BINS - 1)].append((confidence, law.index(confidence) == truth))
    return sum(abs(sum(c for c, _ in one) - sum(right for _, right in one)) for one in bins) / len(laws)


def figures_of(laws, greedy, truths, times):
    return {"accuracy": sum(chosen == truth for chosen, truth in zip(greedy, truths)) / len(truths),
            "expected_accuracy_at_1": sum(law[truth] for law, truth in zip(laws, truths)) / len(truths),
            "calibration_error": calibration_error(laws, truths),
            "mean_confidence": sum(max(law) for law in laws) / len(laws),
            "log_loss": -sum(math.log(max(law[truth], 1e-300)) for law, truth in zip(laws, truths)) / len(truths),
            "milliseconds": lib.median(times), "milliseconds_spread": [min(times), max(times)]}


def main():
    parser = lib.parser(__doc__, os.cpu_count(), turns=1)
    parser.add_argument("--target", required=True)
    parser.add_argument("--examples", type=int, default=1, help="of each label in the prompt; they are not asked for [1]")
    args = parser.parse_args()
    with open(MESSAGES, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    labels = sorted({label for label, _ in rows})
    of_label = {label: [row for row in rows if row[0] == label] for label in labels}
    examples = [of_label[label][i] for i in range(args.examples) for label in labels]
    asked = [row for label in labels for row in of_label[label][args.examples:]]
    truths = [labels.index(label) for label, _ in asked]
    laws, greedy, times = ({"masked": [], "conditional": []} for _ in range(3))
    with serving.Server(args.bin, ["--target", args.target, "--threads", str(args.threads)]) as server:
        for i, (_, message) in enumerate(asked):
            chat = chat_of(labels, examples, message)
            sequences, logprobs = zip(*(tokens_of(server, chat, label) for label in labels))
            laws["masked"].append(masked_law(sequences, logprobs))
            body = {"messages": chat, "guided_choice": labels, "temperature": 0}
            for turn in range(args.turns):
                for law in ("masked", "conditional") if (i + turn) % 2 == 0 else ("conditional", "masked"):
                    answer = server.call("/v1/chat/completions", {**body, "choice_law": law})
                    times[law].append(answer["timings"]["e2e_ms"])
                    if turn == 0:
                        greedy[law].append(labels.index(answer["choices"][0]["message"]["content"]))
                    if turn == 0 and law == "conditional":
                        laws[law].append([math.exp(one["normalized_logprob"]) for one in answer["choices"][0]["choice_logprobs"]])

    distances = [sum(abs(a - b) for a, b in zip(x, y)) / 2 for x, y in zip(laws["masked"], laws["conditional"])]
    variation = {"mean": sum(distances) / len(distances), "max": max(distances)}
    result = {law: figures_of(laws[law], greedy[law], truths, times[law]) for law in laws}
    print(lib.machine_line(args, f"{len(asked)} messages, {len(labels)} labels of {min(map(len, sequences))} to {max(map(len, sequences))} tokens "
                                 f"with the end, {len(examples)} examples"))
    print(lib.table(["law", "right at T = 0", "expected at T = 1", "calibration error", "mean confidence", "log loss", "ms an answer"],
                    [[law, *(lib.number(figures[key]) for key in ("accuracy", "expected_accuracy_at_1", "calibration_error", "mean_confidence",
                                                                   "log_loss", "milliseconds"))] for law, figures in result.items()]))
    print(f"\ntotal variation between the laws: mean {variation['mean']:.2f}, at most {variation['max']:.2f}; "
          f"different choices at T = 0: {sum(a != b for a, b in zip(greedy['masked'], greedy['conditional']))}")
    lib.write_json(args, labels=labels, examples=args.examples, figures=result, total_variation=variation)


if __name__ == "__main__":
    main()
