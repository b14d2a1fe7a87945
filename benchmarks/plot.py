#!/usr/bin/env python3
"""Draws the JSON of `tandem bench ... --json` as PNG images.

    tandem bench kernels --json > kernels.json
    tandem bench phases --json > phases.json
    tandem bench speculation --json > speculation.json
    benchmarks/plot.py kernels.json phases.json speculation.json --out pictures

Draws these images, depending on the benchmark of a file:
    roofline.png      attained operations per second against operations per byte, under the machine's limits: products
                      and whole passes of `bench kernels`, prompts and tokens of `bench phases`
    prefill.png       time to the first token against the prompt's length (`bench phases`)
    token_time.png    time per output token against its position (`bench phases`)
    speedup.png       speed-up against the draft length, with the predicted curve (`bench speculation`)
Each file gets its own roofline. The other images show all files of a kind together, with the files' names in the legend.
Needs matplotlib.
"""
import argparse
import json
import os
import sys

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]


def load_matplotlib():
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: matplotlib is missing; install it with python3 -m pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    return matplotlib.pyplot


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"plot.py: {path}: {error}")
    if not isinstance(report, dict) or not any(key in report for key in ("kernels", "passes", "prefill", "runs")):
        sys.exit(f"plot.py: {path}: must be the JSON of a benchmark, with kernels, passes, prefill or runs")
    return report


def name_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def roofline_points(report):
    """Returns (series, operations per byte, operations per second) for each measurement of a report."""
    points = []
    for kernel in report.get("kernels", []):
        if kernel["flops"] > 0 and kernel["op"] in ("matmul", "attention"):
            points.append((f"{kernel['op']} {kernel['dtype']}", kernel["flops"] / kernel["bytes_per_second"],
                           kernel["flops"]))
    for each in report.get("passes", []):
        points.append((f"{each['what']} pass", each["flops"] / each["bytes_per_second"], each["flops"]))
    for phase, label in (("prefill", "prompt"), ("decode", "token")):
        for point in report.get(phase, []):
            points.append((label, point["intensity"], point["flops"]))
    return points


def draw_roofs(axes, limits, least, most):
    """Draws sloped lines for the read bandwidths, and horizontal ones for the arithmetic peaks."""
    read_limits = {place: value for place, value in limits["read_bytes_per_second"].items() if value}
    peaks = {kind: value for kind, value in limits["flops"].items() if value}
    highest = max(peaks.values())
    for style, (place, bandwidth) in zip(("-", ":"), read_limits.items()):
        xs = [least, max(least, highest / bandwidth)]
        axes.plot(xs, [x * bandwidth for x in xs], style, color="#555555", linewidth=1.2,
                  label=f"reading: {place}, {bandwidth * 1e-9:.1f} GB/s")
    fastest = max(read_limits.values())
    for kind, peak in peaks.items():
        axes.plot([peak / fastest, most], [peak, peak], "-", color="#555555", linewidth=1.2)
        axes.text(most, peak, f"{kind} {peak * 1e-9:.0f} G ", fontsize=8, ha="right", va="bottom", color="#555555")


def draw_roofline(pyplot, path, report, out):
    points = roofline_points(report)
    figure, axes = pyplot.subplots(figsize=(9, 6))
    intensities = [x for _, x, _ in points]
    draw_roofs(axes, report["limits"], min(intensities) / 2, max(intensities) * 3)
    for i, series in enumerate(dict.fromkeys(name for name, _, _ in points)):
        mine = [(x, y) for name, x, y in points if name == series]
        axes.scatter([x for x, _ in mine], [y for _, y in mine], s=26, alpha=0.75, label=series,
                     color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations per byte read (a multiply-add is two)")
    axes.set_ylabel("operations per second")
    axes.set_title(f"{name_of(path)}: {report['machine']['cpu']}, {report['machine']['threads']} threads", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    save(pyplot, figure, out)


def draw_phase(pyplot, reports, phase, x_key, labels, out):
    """Draws one curve per report, and a dashed one for the minimum time that the machine's limits allow."""
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for i, (path, report) in enumerate(reports):
        points = sorted(report[phase], key=lambda point: point[x_key])
        xs = [point[x_key] for point in points]
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(xs, [point["ms"] for point in points], "o-", color=colour, label=name_of(path))
        axes.plot(xs, [point["ms"] * point["of_limit"] for point in points], "--", color=colour, alpha=0.6,
                  label=f"{name_of(path)}: minimum by the limits")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    save(pyplot, figure, out)


def draw_speedup(pyplot, reports, out):
    """Draws the measured speed-up with the spread of the pairs, and dashed the prediction from acceptance and cost."""
    figure, axes = pyplot.subplots(figsize=(8, 5))
    colour = 0
    for path, report in reports:
        for batch in sorted({run["batch"] for run in report["runs"]}):
            runs = [run for run in report["runs"] if run["batch"] == batch]
            fixed = sorted((run for run in runs if run["draft_tokens"] != "auto"), key=lambda run: run["draft_tokens"])
            label = f"{name_of(path)}, batch {batch}"
            ink = COLOURS[colour % len(COLOURS)]
            colour += 1
            xs = [run["draft_tokens"] for run in fixed]
            ys = [run["decode_ratio"] for run in fixed]
            spread = [[y - run["decode_ratio_spread"][0] for y, run in zip(ys, fixed)],
                      [run["decode_ratio_spread"][1] - y for y, run in zip(ys, fixed)]]
            if fixed:
                axes.errorbar(xs, ys, yerr=spread, fmt="o-", capsize=3, color=ink, label=label)
                axes.plot(xs, [run["predicted_ratio"] if run["draft_tokens"] else 1.0 for run in fixed], "--",
                          color=ink, alpha=0.6, label=f"{label}: predicted, E / (1 + k c)")
            for run in runs:
                if run["draft_tokens"] == "auto":
                    axes.axhline(run["decode_ratio"], color=ink, linestyle=":", label=f"{label}: auto")
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    lengths = {run["draft_tokens"] for _, report in reports for run in report["runs"]} - {"auto"}
    axes.set_xticks(sorted(lengths))
    axes.set_xlabel("draft tokens per round, k")
    axes.set_ylabel("decoding speed after the first round, plain = 1")
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    save(pyplot, figure, out)


def save(pyplot, figure, path):
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", metavar="F.json", help="output of `tandem bench ... --json`")
    parser.add_argument("--out", default=".", help="folder for the images [.]")
    args = parser.parse_args()
    reports = [(path, read(path)) for path in args.reports]
    pyplot = load_matplotlib()
    os.makedirs(args.out, exist_ok=True)
    with_points = [(path, report) for path, report in reports if roofline_points(report)]
    for path, report in with_points:
        name = "roofline.png" if len(with_points) == 1 else f"roofline_{name_of(path)}.png"
        draw_roofline(pyplot, path, report, os.path.join(args.out, name))
    phases = [(path, report) for path, report in reports if report.get("prefill")]
    if phases:
        draw_phase(pyplot, phases, "prefill", "prompt_tokens", ("tokens of the prompt", "time to the first token, ms"),
                   os.path.join(args.out, "prefill.png"))
        draw_phase(pyplot, phases, "decode", "position", ("position of the token", "time per output token, ms"),
                   os.path.join(args.out, "token_time.png"))
    speculation = [(path, report) for path, report in reports if report.get("runs")]
    if speculation:
        draw_speedup(pyplot, speculation, os.path.join(args.out, "speedup.png"))


if __name__ == "__main__":
    main()
