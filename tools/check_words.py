#!/usr/bin/env python3
"""Finds wording that readers stumble over: check_words.py [--list FILE_OR_FOLDER ...]

Reads the comments, messages and test names of code, and the text of documents, in the checkout that
holds this file. Exits with 1 after printing every hit that tools/allowed_words.txt does not list, and
every entry of that file that matches nothing. With --list it prints all hits below the given paths and
exits with 0.

The rules see only common mistakes. A text without a hit may still be hard to read.
"""
import argparse
import pathlib
import re
import subprocess
import sys
from typing import Iterator, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = "tools/allowed_words.txt"
# Files that hold the patterns themselves.
OWN_FILES = {ALLOWED, "tools/check_words.py", "tests/check_words_test.py"}
CODE = {".cc", ".h", ".cu", ".cuh", ".inl"}
SCRIPTS = {".py", ".sh", ".cmake"}
SCRIPT_NAMES = {"CMakeLists.txt", "dev", "run"}


class Rule(NamedTuple):
    name: str
    advice: str
    pattern: re.Pattern


RULES = [
    Rule("genitive first", "put the subject first", re.compile(r"(?:^|[.:;]\s+)Of (?!course\b)[a-z]")),
    Rule("who", "things are which, that or it; name the thing",
         re.compile(r"\b(?:who|whoever|whom|nobody|somebody)\b", re.IGNORECASE)),
    Rule("is no", "write 'is not a'",
         re.compile(r"(?<![Tt]here )\b(?:is|are|was|were|be|been) no (?!(?:longer|more|less|such|different|need|way)\b)[a-z]+")),
    Rule("what", "name the thing",
         re.compile(r"(?:^|[.:;,(]\s*|\b(?:of|for|from|than|to|with|by|in|on|all|and|or) )[Ww]hat "
                    r"(?:is|was|are|were|has|had|can|cannot|does|did|comes|came|only|it|they|others|no|one|a|the|ends|else)\b")),
    Rule("behind", "write after, next to, against or the same",
         re.compile(r"\b(?:behind|beside|likewise)\b", re.IGNORECASE)),
    Rule("idiom", "use a common word",
         re.compile(r"\b(?:for want of|as ever|by right|in turns|let in|said of|speaks of|tells of|knows of|heed|"
                    r"whereof|thereof|one's own)\b")),
]


class Hit(NamedTuple):
    path: str
    line: int
    rule: Rule
    text: str


def words_of(name: str) -> str:
    """A test's name as text: RunRound -> "Run round"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return words[:1] + words[1:].lower()


def prose_of(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) for the parts of a file that people read."""
    suffix, name = pathlib.PurePosixPath(path).suffix, pathlib.PurePosixPath(path).name
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if suffix in CODE:
            comment = re.search(r"//+ ?(.*)", line)
            code = line[: comment.start()] if comment else line
            if comment:
                yield number, comment.group(1)
            if not code.startswith("#include"):
                yield from ((number, string) for string in re.findall(r'"((?:[^"\\]|\\.)*)"', code) if " " in string)
            test = re.match(r"\s*TEST(?:_[FP])?\(\w+, *(\w+)", code)
            if test:
                yield number, words_of(test.group(1))
        elif suffix in SCRIPTS or name in SCRIPT_NAMES:
            found = re.search(r'#+ ?(.*)|"""(.*)|"((?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)"', line)
            if found:
                yield number, next(group for group in found.groups() if group is not None)
        elif suffix == ".md":
            if line.startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith("> "):  # a quotation is output
                yield number, line


def hits_in(path: str, text: str) -> Iterator[Hit]:
    for number, sentence in prose_of(path, text):
        for rule in RULES:
            for _ in rule.pattern.finditer(sentence):
                yield Hit(path, number, rule, sentence.strip())


def listed_files(root: pathlib.Path) -> list[str]:
    """Paths of all files in a checkout, or in an unpacked archive of one."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")]
    return sorted(name for name in names if not name.startswith(("build/", ".git/")) and (root / name).is_file())


def is_read(name: str) -> bool:
    """Whether the check reads a file of this path."""
    path = pathlib.PurePosixPath(name)
    is_text = path.suffix in CODE | SCRIPTS | {".md"} or path.name in SCRIPT_NAMES
    return is_text and "/data/" not in name and name not in OWN_FILES


def all_hits(root: pathlib.Path) -> list[Hit]:
    return [hit for path in filter(is_read, listed_files(root))
            for hit in hits_in(path, (root / path).read_text(encoding="utf-8"))]


def allowed_in(text: str) -> list[tuple[str, str]]:
    """(path, part of the line) for each entry "path: part of the line  # reason"."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\S+): (.+?)  # (.+)", line)
        if not match:
            raise ValueError(f"{ALLOWED}:{number}: must be 'path: part of the line  # reason', got '{line}'")
        entries.append((match.group(1), match.group(2)))
    return entries


def problems(hits: list[Hit], allowed: list[tuple[str, str]]) -> list[str]:
    """One line for each hit that is not allowed, and for each entry that no hit needs."""
    used, lines = set(), []
    for hit in hits:
        matching = {(path, part) for path, part in allowed if path == hit.path and part in hit.text}
        used |= matching
        if not matching:
            lines.append(f"{hit.path}:{hit.line}: {hit.rule.name} ({hit.rule.advice}): {hit.text[:160]}")
    lines += [f"{ALLOWED}: matches no hit: {path}: {part}" for path, part in allowed if (path, part) not in used]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="+", metavar="PATH", help="print all hits below these paths")
    args = parser.parse_args()
    hits = all_hits(ROOT)
    if args.list:
        for hit in hits:
            if any(pathlib.PurePosixPath(hit.path).is_relative_to(path) for path in args.list):
                print(f"{hit.path}:{hit.line}: {hit.rule.name}: {hit.text[:160]}")
        return 0
    try:
        found = problems(hits, allowed_in((ROOT / ALLOWED).read_text(encoding="utf-8")))
    except ValueError as error:
        found = [str(error)]
    print("\n".join(found) if found else f"check_words: {len(hits)} hits, all of them allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
