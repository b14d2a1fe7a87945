#!/usr/bin/env python3
"""Reads results of kernel_lab and prints what they decide: kernel_lab_report.py RESULTS.jsonl [--commit NAME]

For each shape the fastest variant, its time, and the floor: the bytes that it must read divided by the bandwidth that
the same run measured. Then the variants of each operation, and the goals of whole passes. Of a line that was measured
more than once, the last result counts. Exits with 1 if a line failed or has other bits.
"""

import argparse
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The fields that a measurement of a group must have, besides those of every line.
NEEDED = {"bandwidth": ("gb_per_s",), "bits": ("compared", "mismatches"), "probe": (),
          "product": ("model", "dtype", "outputs", "inputs", "rows", "bytes", "median_us", "mismatches"),
          "pack": ("model", "dtype", "rows", "median_us"),
          "attention": ("model", "kv", "rows", "batch", "context", "bytes", "median_us", "mismatches"),
          "sampling": ("rows", "median_us", "mismatches"),
          "pass": ("model", "dtype", "rows", "batch", "context", "bytes", "median_us", "mismatches"),
          "fault": ()}
# The types of fields, and their names in messages; the others are numbers.
TYPES = {"never_run": (bool, "true or false"), "quick": (bool, "true or false"), "end": (bool, "true or false"),
         "skipped": (list, "a list"),
         **dict.fromkeys(("line", "group", "op", "model", "dtype", "kv", "error", "machine", "capability", "driver"),
                         (str, "a text"))}
PROBED = ("cycles", "bytes_per_cycle", "gb_per_s", "node_us", "graph_us")

# Goals on an H200, in us, each after the time of 2026-11-26, by the names that case_of gives.
GOALS = {"pass llama-8b bf16 1 rows": (6490, 3700), "pass llama-8b bf16 5 rows": (7650, 3800),
         "pass llama-8b bf16 16 rows": (5880, 3900), "pass llama-8b bf16 64 rows": (11000, 5000),
         "pass llama-8b q8_0 1 rows": (None, 2100), "pass llama-8b q4_k 1 rows": (None, 1500),
         "pass llama-1b bf16 1 rows": (1510, 710),
         "attention after 4096": (17, 5), "attention after 32768": (None, 34), "top_p of a row": (380, 30)}
PROMPT_GOAL_TFLOPS = 420


class BadInput(Exception):
    pass


def check(line):
    """Checks a line of results; a fault names the field."""
    if not isinstance(line, dict):
        raise BadInput("line: must be an object")
    for field, value in line.items():
        *kinds, words = TYPES.get(field, (int, float, "a number of at least 0"))
        if type(value) not in kinds or field not in TYPES and value < 0:
            raise BadInput(f"{field}: must be {words}, got {json.dumps(value)}")
    needed = ("line", "group", "op")
    if "kernel_lab" in line or "end" in line:
        needed = ("machine", "capability", "driver") if "kernel_lab" in line else ("skipped",)
    elif (group := line.get("group")) is not None:
        if group not in NEEDED:
            raise BadInput(f"group: must be one of {', '.join(NEEDED)}, got {group}")
        needed += NEEDED[group] if "error" not in line else ()
    for field in needed:
        if field not in line:
            raise BadInput(f"{field}: is missing")
        if field in ("median_us", "gb_per_s") and line[field] == 0:
            raise BadInput(f"{field}: must not be 0")


class Results:
    """The last result of each line, in the order of the first."""

    def __init__(self, path):
        self.facts, self.lines, self.skipped = None, {}, []
        self.date = datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                self._add(json.loads(text))
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}: line {number}: not JSON: {error}") from None
            except BadInput as fault:
                raise BadInput(f"{path}: line {number}: {fault}") from None
        if self.facts is None:
            raise BadInput(f"{path}: line 1: kernel_lab: is missing, because the file is empty")
        self.skipped = [name for name in self.skipped if name not in self.lines]
        read = self.lines.get("bandwidth/read", {})
        self.bandwidth = read.get("gb_per_s")  # None if that line failed

    def _add(self, line):
        check(line)
        if "kernel_lab" in line:
            if self.facts and any(self.facts[f] != line[f] for f in ("machine", "driver")):
                raise BadInput("machine: differs from that of an earlier run")
            self.facts = line
        elif self.facts is None:
            raise BadInput("kernel_lab: the line of the machine must come first")
        elif "end" in line:
            self.skipped = line["skipped"]
        else:
            self.lines[line["line"]] = line

    def floor_of(self, line):
        """The time in us to read a line's bytes; None if the bandwidth or the bytes are not known."""
        return line["bytes"] / self.bandwidth * 1e-3 if self.bandwidth and "bytes" in line else None

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
    shapes = {}
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
        floor = results.floor_of(best)
        rows.append([*shape, best["variant"], best["median_us"], first, floor,
                     floor / best["median_us"] if floor else None])
    return rows


def class_of(rows):
    return next((f"{low}-{high}" for low, high in ((1, 8), (9, 16), (17, 32), (33, 64)) if low <= rows <= high), "65-")


def variant_table(results, group, fields):
    """Rows: operation, type, class of rows, variant, how often it is chosen, and how much longer than the chosen one it
    takes: the mean and the largest ratio."""
    found = {}
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


def case_of(line):
    """The name of a measurement among the goals."""
    if line["group"] == "pass" and (line["context"], line["batch"]) == (0, 1):
        return f"pass {line['model']} {line['dtype']} {line['rows']} rows"
    if line["group"] == "attention" and line["kv"] == "bf16" and line["rows"] == line["batch"] == 1:
        return f"attention after {line['context']}"
    return f"{line['op']} of a row" if line["group"] == "sampling" and line["rows"] == 1 else None


def goal_rows(results):
    rows = []
    for case, (before, goal) in GOALS.items():
        lines = [line for line in results.lines.values() if "error" not in line and case_of(line) == case]
        if case.endswith("of a row"):
            lines = filter(None, [best_of(lines)])
        rows += [[case, before, line["median_us"], goal, results.floor_of(line), line["median_us"] / goal]
                 for line in lines]
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
