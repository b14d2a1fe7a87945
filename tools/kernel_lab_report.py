#!/usr/bin/env python3
"""Reads results of kernel_lab and prints what they decide: kernel_lab_report.py RESULTS.jsonl [--commit NAME]

For each shape the fastest variant, its time, and the floor: the bytes that it must read divided by the bandwidth that
the same run measured. Then the variants of each operation, and the goals of whole passes. Of a line that was measured
more than once, the last result counts. Exits with 1 if a line failed or has other bits.
"""

import argparse
import collections
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROUPS = ("bandwidth", "bits", "probe", "product", "pack", "attention", "sampling", "pass", "fault")
# The fields that a measurement of a group must have, besides those of every line.
NEEDED = {"bandwidth": ("gb_per_s",), "bits": ("compared", "mismatches"), "probe": (),
          "product": ("model", "dtype", "outputs", "inputs", "rows", "bytes", "median_us", "mismatches"),
          "pack": ("model", "dtype", "rows", "median_us"),
          "attention": ("model", "kv", "rows", "batch", "context", "bytes", "median_us", "mismatches"),
          "sampling": ("rows", "median_us", "mismatches"),
          "pass": ("model", "dtype", "rows", "batch", "context", "bytes", "median_us", "mismatches"),
          "fault": ()}
TEXTS = {"line", "group", "op", "model", "dtype", "kv", "error"}
PROBED = ("cycles", "bytes_per_cycle", "gb_per_s", "node_us", "graph_us")

# Goals on an H200, in us, each after the time of 2026-11-26. Passes of context 0 by model, type of
# weights and rows; attention of a layer of one row, by context; cuts, by operation.
PASS_GOALS = {("llama-8b", "bf16", 1): (6490, 3700), ("llama-8b", "bf16", 5): (7650, 3800),
              ("llama-8b", "bf16", 16): (5880, 3900), ("llama-8b", "bf16", 64): (11000, 5000),
              ("llama-8b", "q8_0", 1): (None, 2100), ("llama-8b", "q4_k", 1): (None, 1500),
              ("llama-1b", "bf16", 1): (1510, 710)}
ATTENTION_GOALS = {4096: (17, 5), 32768: (None, 34)}
PROMPT_GOAL_TFLOPS = 420
SAMPLING_GOALS = {"top_p": (380, 30)}


class BadInput(Exception):
    pass


def check(path, number, line):
    """Checks a line of results; a fault names file, line and field."""
    def fail(field, why):
        raise BadInput(f"{path}: line {number}: {field}: {why}")

    if not isinstance(line, dict):
        fail("line", "must be an object")
    if "kernel_lab" in line:
        for field in ("machine", "capability", "driver"):
            if not isinstance(line.get(field), str):
                fail(field, "must be a text")
        return
    if "end" in line:
        if not isinstance(line.get("skipped"), list):
            fail("skipped", "must be a list")
        return
    for field in ("line", "group", "op"):
        if field not in line:
            fail(field, "is missing")
    for field, value in line.items():
        if field in TEXTS:
            if not isinstance(value, str):
                fail(field, f"must be a text, got {json.dumps(value)}")
        elif field == "never_run":
            if not isinstance(value, bool):
                fail(field, f"must be true or false, got {json.dumps(value)}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            fail(field, f"must be a number of at least 0, got {json.dumps(value)}")
    if line["group"] not in GROUPS:
        fail("group", f"must be one of {', '.join(GROUPS)}, got {line['group']}")
    if "error" in line:
        return
    for field in NEEDED[line["group"]]:
        if field not in line:
            fail(field, "is missing")
        if field in ("median_us", "gb_per_s") and line[field] == 0:
            fail(field, "must not be 0")


class Results:
    """The last result of each line, in the order of the first."""

    def __init__(self, path):
        self.facts, self.lines, self.skipped = None, {}, []
        self.date = datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                line = json.loads(text)
            except ValueError as error:
                raise BadInput(f"{path}: line {number}: not JSON: {error}") from None
            check(path, number, line)
            if "kernel_lab" in line:
                if self.facts and any(self.facts[f] != line[f] for f in ("machine", "driver")):
                    raise BadInput(f"{path}: line {number}: machine: differs from that of an earlier run")
                self.facts = line
            elif self.facts is None:
                raise BadInput(f"{path}: line {number}: kernel_lab: the line of the machine must come first")
            elif "end" in line:
                self.skipped = line["skipped"]
            else:
                self.lines[line["line"]] = line
        if self.facts is None:
            raise BadInput(f"{path}: line 1: kernel_lab: is missing, because the file is empty")
        self.skipped = [name for name in self.skipped if name not in self.lines]
        read = self.lines.get("bandwidth/read", {})
        self.bandwidth = read.get("gb_per_s")  # None if that line failed

    def measured(self, group):
        return [line for line in self.lines.values() if line["group"] == group and "error" not in line]

    def wrong(self):
        return [line for line in self.lines.values() if "error" in line or line.get("mismatches", 0) > 0]


def cell(value):
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(title, keys, rows):
    if not rows:
        return ""
    cells = [keys] + [[cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(keys))]
    return f"\n{title}\n" + "".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() + "\n" for row in cells)


def by_shape(lines, fields):
    """Groups the variants of each shape."""
    shapes = collections.OrderedDict()
    for line in lines:
        shapes.setdefault(tuple(line.get(field) for field in fields), []).append(line)
    return shapes


def best_of(variants):
    """The fastest variant with the right bits. Variant 0 stays if another is not faster by 1 %."""
    right = [line for line in variants if line.get("mismatches", 0) == 0]
    if not right:
        return None
    fastest = min(right, key=lambda line: line["median_us"])
    first = next((line for line in right if line["variant"] == 0), fastest)
    return first if first["median_us"] <= 1.01 * fastest["median_us"] else fastest


def choices(results, group, fields):
    """Rows: the shape, the chosen variant, its time, variant 0's, the floor and the share of it."""
    rows = []
    for shape, variants in by_shape(results.measured(group), fields).items():
        best = best_of(variants)
        if best is None:
            rows.append([*shape, "none", None, None, None, None])
            continue
        first = next((line["median_us"] for line in variants if line["variant"] == 0), None)
        floor = None
        if results.bandwidth and "bytes" in best:
            floor = best["bytes"] / results.bandwidth * 1e-3
        rows.append([*shape, best["variant"], best["median_us"], first, floor,
                     floor / best["median_us"] if floor else None])
    return rows


def class_of(rows):
    return next((f"{low}-{high}" for low, high in ((1, 8), (9, 16), (17, 32), (33, 64)) if low <= rows <= high), "65-")


def variant_table(results, group, fields):
    """Rows: operation, type, class of rows, variant, how often it is chosen, and how much longer than the chosen one it
    takes: the mean and the largest ratio."""
    found = collections.OrderedDict()
    for shape, variants in by_shape(results.measured(group), fields).items():
        best = best_of(variants)
        if best is None or len(variants) == 1:
            continue
        for line in variants:
            kind = (line["op"] if group == "sampling" else group, line.get("dtype"), class_of(line["rows"]),
                    line["variant"])
            counts = found.setdefault(kind, [0, []])
            counts[0] += line is best
            counts[1].append(line["median_us"] / best["median_us"])
    return [[*kind, chosen, sum(ratios) / len(ratios), max(ratios)] for kind, (chosen, ratios) in sorted(
        found.items(), key=lambda item: tuple(str(part) for part in item[0]))]


def goal_rows(results):
    rows = []

    def add(what, line, goals):
        floor = line["bytes"] / results.bandwidth * 1e-3 if results.bandwidth and "bytes" in line else None
        rows.append([what, goals[0], line["median_us"], goals[1], floor, line["median_us"] / goals[1]])

    for line in results.measured("pass"):
        goals = PASS_GOALS.get((line["model"], line["dtype"], line["rows"]))
        if goals and line["context"] == 0 and line["batch"] == 1:
            add(f"pass {line['model']} {line['dtype']} {line['rows']} rows", line, goals)
    for line in results.measured("attention"):
        goals = ATTENTION_GOALS.get(line["context"])
        if goals and line["kv"] == "bf16" and line["rows"] == line["batch"] == 1:
            add(f"attention after {line['context']}", line, goals)
    for op, goals in SAMPLING_GOALS.items():
        of_op = [line for line in results.measured("sampling") if line["op"] == op and line["rows"] == 1]
        best = best_of(of_op)
        if best:
            add(f"{op} of a row", best, goals)
    return rows


def report(results):
    facts = results.facts
    text = f"{facts['machine']}, {facts['driver']}, {results.date}; "
    text += f"reading: {results.bandwidth:.4g} GB/s\n" if results.bandwidth else "the bandwidth was not measured\n"
    wrong = results.wrong()
    text += f"{len(results.lines)} lines, {len(wrong)} wrong, {len(results.skipped)} skipped\n"
    text += table("Wrong", ["line", "why"],
                  [[line["line"], line.get("error") or f"{line['mismatches']} mismatches of {line.get('compared', '?')}"]
                   for line in wrong])
    text += table("Skipped", ["line"], [[name] for name in results.skipped])
    text += table("Bit tests", ["test", "compared", "mismatches"],
                  [[line["line"], line["compared"], line["mismatches"]] for line in results.measured("bits")])
    text += table("Probes", ["probe", *PROBED], [[line["line"], *[line.get(field) for field in PROBED]]
                                                 for line in results.measured("probe")])
    text += table("Goals, us", ["case", "before", "measured", "goal", "floor", "of the goal"], goal_rows(results))
    chosen = ["choice", "us", "variant 0", "floor", "share"]
    product = ["model", "op", "dtype", "rows"]
    attention = ["model", "op", "kv", "rows", "batch", "context"]
    text += table("Products", product + chosen, choices(results, "product", product))
    text += table("Attention", attention + chosen, choices(results, "attention", attention))
    prompts = [line for line in results.measured("attention") if line["op"] == "prompt" and "tflop_per_s" in line]
    text += table(f"Attention of prompts (goal with bf16: {PROMPT_GOAL_TFLOPS} TFLOP/s)",
                  ["kv", "rows", "context", "TFLOP/s"],
                  [[line["kv"], line["rows"], line["context"], line["tflop_per_s"]] for line in prompts])
    text += table("Sampling", ["op", "rows"] + chosen, choices(results, "sampling", ["op", "rows"]))
    text += table("Rows of products", product + chosen, choices(results, "pack", product))
    whole = ["model", "dtype", "rows", "batch", "context"]
    text += table("Passes", whole + chosen, choices(results, "pass", whole))
    text += table("Variants", ["operation", "dtype", "rows", "variant", "chosen", "mean ratio", "largest ratio"],
                  variant_table(results, "product", product) + variant_table(results, "sampling", ["op", "rows"]))
    return text


def commit(results, name, folder):
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
        raise BadInput(f"--commit: must consist of a to z, 0 to 9, '_', '.' and '-', got {name}")
    if results.facts.get("quick"):
        raise BadInput("--commit: results of --quick are not kept")
    path = folder / f"{name}.json"
    kept = {key: results.facts.get(key) for key in ("machine", "capability", "sms", "memory_bytes", "driver")}
    head = json.dumps({**kept, "date": results.date, "skipped": results.skipped})
    lines = ",\n  ".join(json.dumps(line) for line in results.lines.values())
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(head[:-1] + ', "lines": [\n  ' + lines + "\n]}\n", encoding="utf-8")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--commit", metavar="NAME", help="also write tests/data/gpu/NAME.json")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "tests/data/gpu", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        results = Results(arguments.results)
        sys.stdout.write(report(results))
        if arguments.commit is not None:
            print(f"\nwrote {commit(results, arguments.commit, arguments.folder)}")
    except (BadInput, OSError, UnicodeDecodeError) as error:
        sys.exit(f"kernel_lab_report: error: {error}")
    sys.exit(1 if results.wrong() else 0)


if __name__ == "__main__":
    main()
