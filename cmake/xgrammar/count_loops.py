"""Makes each loop of the given C++ sources count itself: count_loops.py FILE..."""

import pathlib
import re
import sys

LOOP = re.compile(r"\b(?:for|while) ?\(")


def end_of_head(text, start):
    """The place after the parenthesis that closes the one in front of `start`; literals are not looked into."""
    depth = 1
    for token in re.compile(r"'(?:\\.|[^'\\])'|\"(?:\\.|[^\"\\])*\"|[()]").finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    return len(text)


num_loops = 0
for path in map(pathlib.Path, sys.argv[1:]):
    text = path.read_text(encoding="utf-8")
    parts, done = [], 0
    for loop in LOOP.finditer(text):
        end = end_of_head(text, loop.end())
        if text[end:end + 2] != " {":
            continue
        parts += [text[done:end + 2], " tandem_count_loop();"]
        done = end + 2
        num_loops += 1
    path.write_text("".join(parts) + text[done:], encoding="utf-8")
assert num_loops > 800, num_loops
print(f"{num_loops} loops count themselves")
