#!/usr/bin/env python3
"""Measures the speed-up of texts that are given to draft from.

  draft_texts.py [--target F.gguf] [--every 25] [--max-tokens 300] [--repeat 3]

Two tasks, greedily, one answer at a time. "edit": a file of this repository is in the prompt, and a change of it is asked for; the file is
the text to draft from. "again": questions whose answers are known from before; these answers with every 25th word replaced are the texts. The
runs alternate: without a drafter, with the server's drafter, and with the drafter and the texts, which are added before the run and removed
after it. The answers must stay the same. This is a measurement, not a test.
"""
import os
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
from constraints import ChatServer, chat_parser  # noqa: E402
from predicted_outputs import QUESTIONS, cells, compare, edited, text_of  # noqa: E402

# Files of up to 60 lines, and a change of each.
EDITS = [("base/hash_map.h", "Add a comment to each line with `using`."), ("server/web/copy.js", "Rename the function `copy` to `copyText`."),
         ("server/web/kept.js", "Add a comment that says what the file is for."), ("python/tandem/errors.py", "Add a docstring to every class."),
         ("engine/generation_config.h", "Remove the comments."), ("base/philox.cc", "Rename `place` to `address`.")]


def kept(answers):
    sources = [one for answer in answers for one in answer["speculation"]["by_source"] if one["source"] == "text"]
    return " of ".join(str(sum(one[what] for one in sources)) for what in ("accepted", "proposed"))


def main():
    args = chat_parser(__doc__, max_tokens=300, every=25, repeat=3).parse_args()
    files, figures = [], []
    for path, _ in EDITS:
        with open(os.path.join(lib.ROOT, path), encoding="utf-8") as file:
            files.append(file.read())
    edits = [f"```\n{text}```\n{change} Answer with the whole file." for text, (_, change) in zip(files, EDITS)]
    with ChatServer(args) as server:
        known = [edited(text_of(server.ask(question, args, "none")), args.every) for question in QUESTIONS]
        for task, questions, texts in (("edit", edits, files), ("again", QUESTIONS, known)):
            def answers(drafter):
                return [server.ask(question, args, drafter) for question in questions]

            def with_texts(turn):
                added = server.call("/v1/draft_texts", {"texts": texts})["id"]
                found = answers(args.drafter)
                server.call(f"/v1/draft_texts/{added}", method="DELETE")
                return found

            figures += [{"task": task, **one} for one in compare(args, {
                "plain": lambda turn: answers("none"), args.drafter: lambda turn: answers(args.drafter),
                f"{args.drafter} with the texts": with_texts}, "decode_ms", kept)]
    print(lib.machine_line(args))
    print(lib.table(["task", "", "tokens/s", "times plain", "tokens of the texts kept", "same text"],
                    [[one["task"], *cells(one)] for one in figures]))
    lib.write_json(args, figures=figures)


if __name__ == "__main__":
    main()
