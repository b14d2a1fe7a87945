#!/usr/bin/env python3
"""Measures the speed-up of texts that are given to draft from.

  draft_texts.py [--target F.gguf] [--every 25] [--max-tokens 300] [--repeat 3]

Two tasks, greedily, one answer at a time. "edit": a file of this repository is in the prompt, and a change of it is asked for; the file is
the text to draft from. "again": questions whose answers are known from before; these answers with every 25th word replaced are the texts. The
runs alternate: without a drafter, with the server's drafter, and with the drafter and the texts, which are added before the run and removed
after it. The answers must stay the same. This is a measurement, not a test.
"""
import json
import os
import sys
import urllib.request

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
from constraints import ChatServer, chat_parser  # noqa: E402
from predicted_outputs import QUESTIONS, edited  # noqa: E402

# Files of up to 60 lines, and a change of each.
EDITS = [("base/hash_map.h", "Add a comment to each line with `using`."), ("server/web/copy.js", "Rename the function `copy` to `copyText`."),
         ("server/web/kept.js", "Add a comment that says what the file is for."), ("python/tandem/errors.py", "Add a docstring to every class."),
         ("engine/generation_config.h", "Remove the comments."), ("base/philox.cc", "Rename `place` to `address`.")]


class TextServer(ChatServer):
    """A server with texts to draft from."""

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url() + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)


def main():
    parser = chat_parser(__doc__, max_tokens=300)
    parser.add_argument("--every", type=int, default=25, help="distance between replaced words")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", metavar="F", help="also write the figures to this file")
    args = parser.parse_args()
    server = TextServer(args)

    def ask(question, drafter):
        return server.ask({"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": args.max_tokens,
                           "speculation": {"drafter": drafter}})

    edits, files = [], []
    for path, change in EDITS:
        with open(os.path.join(lib.ROOT, path), encoding="utf-8") as file:
            files.append(file.read())
        edits.append(f"```\n{files[-1]}```\n{change} Answer with the whole file.")
    known = [edited(ask(question, "none")["choices"][0]["message"]["content"], args.every) for question in QUESTIONS]
    tasks = {"edit": (edits, files), "again": (QUESTIONS, known)}

    def run(task, drafter, gives):
        questions, texts = tasks[task]
        added = server.call("POST", "/v1/draft_texts", {"texts": texts})["id"] if gives else None
        tokens, ms, counts, answers = 0, 0.0, {"proposed": 0, "accepted": 0}, []
        for question in questions:
            answer = ask(question, drafter)
            tokens += answer["usage"]["completion_tokens"]
            ms += answer["timings"]["decode_ms"]
            for one in answer["speculation"]["by_source"]:
                if one["source"] == "text":
                    counts = {key: counts[key] + one[key] for key in counts}
            answers.append(answer["choices"][0]["message"]["content"])
        if gives:
            server.call("DELETE", f"/v1/draft_texts/{added}")
        return {"speed": tokens / ms * 1e3, **counts, "tokens": tokens, "answers": answers}

    rows, figures = [], []
    for task in tasks:
        ways = {"plain": ("none", False), args.drafter: (args.drafter, False), f"{args.drafter} with the texts": (args.drafter, True)}
        for way in ways.values():
            run(task, *way)  # puts the prompts into the prefix cache
        results = dict(zip(ways, lib.alternate(args.repeat, *[lambda way=way: run(task, *way) for way in ways.values()])))
        plain = results["plain"]
        for name, measured in results.items():
            ratio, low, high = lib.ratio_of_pairs([r["speed"] for r in measured], [r["speed"] for r in plain])
            speed = lib.median([r["speed"] for r in measured])
            is_same = all(r["answers"] == plain[0]["answers"] for r in measured)
            rows.append([task, name, lib.number(speed, "%.0f"), f"{ratio:.2f} ({low:.2f}-{high:.2f})",
                         f"{measured[-1]['accepted']} of {measured[-1]['proposed']}", str(is_same).lower()])
            figures.append({"task": task, "way": name, "tokens_per_second": speed, "times_plain": [ratio, low, high],
                            "accepted": measured[-1]["accepted"], "proposed": measured[-1]["proposed"], "tokens": measured[-1]["tokens"], "same": is_same})
    server.stop()
    about = lib.machine(args.threads)
    print(f"{about['cpu']} {' '.join(about['instructions'])}, {args.threads} threads, {about['date']}\n")
    print(lib.table(["task", "", "tokens/s", "times plain", "tokens of the texts kept", "same text"], rows))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "figures": figures}, file, indent=1)


if __name__ == "__main__":
    main()
