#!/usr/bin/env python3
"""Measures the latency and throughput of `tandem serve` under load, alternating speculation (`auto`) and plain decoding (`off`).

  serve.py closed       a constant number of streams, with a new request as soon as one ends: `--streams 1,2,4,8,16,32`
  serve.py long-prompt  a prompt of 4,000 tokens arrives during other streams; on a random model with a larger context
  serve.py same-prompt  a prompt of 4,000 tokens is sent twice: the time to its first token with and without a prefix hit

Starts build/release/tandem on a free port. TTFT is the time from when a request was sent to its first token. TPOT of a request
is the time from its first tokens to its last, divided by the tokens after the first ones. ITL is the time between two events of
a stream, E2E the time to the last token. Tokens per second are those received in the window; goodput is the number of requests
per second within both limits. Throughput ratios are medians over turns of the ratio within a turn, ABBA. This is a measurement,
not a test. The client is one thread. Its share of a core is printed, and affects the figures if the server uses all cores.
"""
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

PROMPTS = ["Once upon a time there was a little girl who", "One day a small dog found", "Tom and Lily went to the park and",
           "The old king had three sons. The first", "In the forest there lived a bear who", "Mia had a red ball. She",
           "A bird sat in a tall tree and", "Ben wanted to bake a cake with his mother, but"]
SPECULATION = {"off": {"draft_tokens": 0}, "auto": {"draft_tokens": "auto"}, "4": {"draft_tokens": 4}}
# Tokens are counted from this long after a turn's first request.
WARM_UP_SECONDS = 0.25
LONG_SHAPE = "hidden=512,layers=8,heads=8,kv_heads=4,head_dim=64,ffn=1408,vocab=4096,context=8192"


class Requests:
    """Makes the requests, as bytes. Prompts alternate, and lengths vary. Otherwise streams without drafts would begin and end
    together and read their prompts in one pass, which does not happen under a real load."""

    def __init__(self, args):
        self.args = args
        self.count = 0

    def length(self):
        """Returns half to one and a half times --max-tokens, the same for every mode."""
        return max(1, round(self.args.max_tokens * (0.5 + random.Random(self.count).random())))

    def next(self, mode):
        self.count += 1
        return serving.request_bytes("/v1/completions", {
            "prompt": PROMPTS[self.count % len(PROMPTS)], "max_tokens": self.length(), "stream": True,
            "ignore_eos": True, "temperature": self.args.temperature, "speculation": SPECULATION[mode]})


class Usage:
    """Measures how many cores the client and the server use from now on."""

    def __init__(self, server):
        self.server = server
        self.start = (time.perf_counter(), time.process_time(), server.cpu_seconds())

    def shares(self):
        wall, client, server = self.start
        wall = time.perf_counter() - wall
        return (time.process_time() - client) / wall, (self.server.cpu_seconds() - server) / wall


def latencies(streams):
    """Returns the milliseconds of each request or gap, by the name of the time."""
    found = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    for stream in streams:
        tokens = stream.tokens()
        if not tokens:
            continue
        times = [when for when, _ in tokens]
        found["ttft"].append((times[0] - stream.sent) * 1e3)
        found["e2e"].append((times[-1] - stream.sent) * 1e3)
        found["itl"] += [(b - a) * 1e3 for a, b in zip(times, times[1:])]
        later = sum(count for _, count in tokens[1:])
        found["tpot"].append((times[-1] - times[0]) * 1e3 / later if later else 0.0)
    return found


def within(streams, args):
    """Returns the number of requests within both limits."""
    each = [latencies([stream]) for stream in streams]
    return sum(1 for one in each if one["ttft"] and one["ttft"][0] <= args.ttft_limit and one["tpot"][0] <= args.tpot_limit)


def summary(turns, args):
    """Returns one row of the report for the turns of a mode."""
    streams = [stream for turn in turns for stream in turn["streams"]]
    seconds = sum(turn["seconds"] for turn in turns)
    found = latencies(streams)
    return {"tokens_per_second": sum(turn["tokens"] for turn in turns) / seconds, "requests": len(streams),
            "requests_per_second": len(streams) / seconds, "goodput": within(streams, args) / seconds,
            "client_cores": lib.median([turn["client"] for turn in turns]),
            "server_cores": lib.median([turn["server"] for turn in turns]),
            "ms": {name: {f"p{share}": serving.percentile(values, share / 100) for share in (50, 95, 99)}
                   for name, values in found.items()}}


def check(streams):
    for stream in streams:
        if stream.failed():
            lib.fail(f"a request failed: {bytes(stream.data[:600]).decode(errors='replace')}")


def closed_turn(server, requests, mode, num_streams, seconds):
    """Keeps `num_streams` streams for a while; returns the events within the window."""
    load = serving.Load(server)
    usage = Usage(server)
    begin = time.perf_counter() + WARM_UP_SECONDS
    end = begin + seconds
    for _ in range(num_streams):
        load.start(mode, requests.next(mode))
    over = []
    while time.perf_counter() < end:
        for stream in load.receive(end):
            over.append(stream)
            load.start(mode, requests.next(mode))
    client, used = usage.shares()
    cut = load.abandon()
    load.close()
    check(over)
    tokens = sum(count for stream in over + cut for when, count in stream.tokens() if begin <= when < end)
    if not server.await_idle():
        lib.fail("the server still runs requests whose connections were closed")
    return {"streams": [stream for stream in over if stream.ended >= begin], "tokens": tokens, "seconds": seconds,
            "client": client, "server": used}


def compare(server, level, args):
    """Compares both modes with this number of streams, ABBA, after a turn of each in which the server learns whether drafts pay."""
    requests = Requests(args)
    for mode in ("off", "auto"):
        closed_turn(server, requests, mode, level, 1)
    runs = lib.alternate(args.turns, {mode: lambda turn, mode=mode: closed_turn(server, requests, mode, level, args.seconds)
                                      for mode in ("off", "auto")})
    off, auto = ([turn["tokens"] / turn["seconds"] for turn in runs[mode]] for mode in ("off", "auto"))
    return {"level": level, **{mode: summary(run, args) for mode, run in runs.items()}, "auto_to_off": lib.ratio_of_pairs(auto, off)}


def closed(args):
    levels = lib.whole_numbers(args.streams or "1,2,4,8,16,32")
    options = ["--threads", str(args.threads), "--kv-memory", "256M", "--max-batch", str(max(levels))]
    with serving.Server(args.bin, options) as server:
        for mode in ("off", "auto"):
            closed_turn(server, Requests(args), mode, 2, 0.5)
        results = [compare(server, level, args) for level in sorted(levels)]
        serving.stop_or_say(server)
    print_results(results)
    return results


def print_results(results):
    def three(row, what):
        return " / ".join(lib.number(row["ms"][what][share], "%.3g") for share in ("p50", "p95", "p99"))

    rows = []
    for result in results:
        for mode in ("off", "auto"):
            row = result[mode]
            ratio = result["auto_to_off"]
            rows.append([result["level"], mode, f"{row['tokens_per_second']:.0f}",
                         f"{ratio[0]:.3f} ({ratio[1]:.2f}-{ratio[2]:.2f})" if mode == "auto" else "",
                         *(three(row, what) for what in ("ttft", "tpot", "itl", "e2e")), f"{row['goodput']:.1f}",
                         row["requests"], f"{row['client_cores']:.2f}", f"{row['server_cores']:.2f}"])
    print(lib.table(["streams", "mode", "tokens/s", "auto / off", "TTFT ms p50/p95/p99", "TPOT ms", "ITL ms", "E2E ms", "goodput/s",
                     "requests", "client cores", "server cores"], rows), flush=True)


# ---- A long prompt during other streams ----

def long_prompt_turn(server, args, seed, num_streams):
    """Returns the times between events of `num_streams` streams while a prompt is read, and the time to the prompt's first
    token, in ms."""
    numbers = random.Random(seed)
    load = serving.Load(server)

    def request(length, max_tokens):
        ids = [numbers.randrange(4096) for _ in range(length)]
        return serving.request_bytes("/v1/completions", {"prompt": ids, "max_tokens": max_tokens, "stream": True,
                                                         "ignore_eos": True, "temperature": 0})

    streams = [load.start("short", request(16, 4000)) for _ in range(num_streams)]
    settled = time.perf_counter() + 0.3
    while time.perf_counter() < settled:
        load.receive(settled)
    long = load.start("long", request(args.prompt_tokens, 1))
    until = time.perf_counter() + 120
    while long.ended is None and time.perf_counter() < until:
        load.receive(until)
    check([long])
    cut = load.abandon()
    load.close()
    server.await_idle()
    if any(stream.ended is not None and stream.ended < long.ended for stream in streams):
        lib.fail("a stream ended before the long prompt was read; choose a smaller --prompt-tokens")
    first = long.tokens()[0][0]
    gaps = []
    for stream in cut:
        times = [when for when, _ in stream.tokens()]
        gaps += [(b - a) * 1e3 for a, b in zip(times, times[1:]) if b > long.sent and a < first]
    return gaps, (first - long.sent) * 1e3


@contextlib.contextmanager
def random_model(args):
    """A random model with a context that has room for a long prompt; gives its folder."""
    with tempfile.TemporaryDirectory(prefix="tandem_long_") as folder:
        model = os.path.join(folder, "long")
        subprocess.run([args.bin, "make-random", "--shape", LONG_SHAPE, "--seed", "1", "--out", model], check=True, capture_output=True)
        yield model


def long_prompt(args):
    results = []
    num_streams = int(args.streams or 4)
    with random_model(args) as model:
        for chunk in lib.whole_numbers(args.chunk_tokens):
            options = ["--target", model, "--threads", str(args.threads), "--chunk-tokens", str(chunk), "--no-prefix-cache",
                       "--kv-memory", "512M", "--max-batch", "16"]
            with serving.Server(args.bin, options) as server:
                chunks = max(1, -(-args.prompt_tokens // chunk))
                long_prompt_turn(server, args, 1, 0)  # warms up
                alone = lib.median([long_prompt_turn(server, args, 2 + i, 0)[1] for i in range(args.turns)])
                turns = [long_prompt_turn(server, args, 100 + i, num_streams) for i in range(args.turns)]
                serving.stop_or_say(server)
            gaps = [gap for turn, _ in turns for gap in turn]
            results.append({"chunk_tokens": chunk, "streams": num_streams, "prompt_tokens": args.prompt_tokens,
                            "alone_ms": alone, "chunk_pass_ms": alone / chunks, "ttft_ms": lib.median([ms for _, ms in turns]),
                            "gaps": len(gaps), "itl_ms": {f"p{p}": serving.percentile(gaps, p / 100) for p in (50, 99)},
                            "worst_ms": max(gaps), "p99_to_chunk_pass": serving.percentile(gaps, 0.99) * chunks / alone})
    print(lib.table(["chunk tokens", "prompt alone, ms", "one chunk pass, ms", "TTFT during streams, ms", "ITL p50 / p99 / worst, ms",
                     "p99 / chunk pass"],
                    [[r["chunk_tokens"], f"{r['alone_ms']:.0f}", f"{r['chunk_pass_ms']:.1f}", f"{r['ttft_ms']:.0f}",
                      f"{r['itl_ms']['p50']:.1f} / {r['itl_ms']['p99']:.1f} / {r['worst_ms']:.1f}",
                      f"{r['p99_to_chunk_pass']:.2f}"] for r in results]), flush=True)
    return results


# ---- A repeated prompt ----

def same_prompt_turn(server, args, seed, mode):
    """Returns the milliseconds to the first token of a new prompt and of the same prompt again, and the cached tokens of each."""
    numbers = random.Random(seed)
    ids = [numbers.randrange(4096) for _ in range(args.prompt_tokens)]
    request = serving.request_bytes("/v1/completions", {"prompt": ids, "max_tokens": 16, "stream": True, "ignore_eos": True,
                                                        "temperature": 0, "speculation": SPECULATION[mode]})
    load = serving.Load(server)
    times, found = [], []
    for _ in range(2):
        before = server.metrics()["tandem_prefix_cache_hits_total"]
        stream = load.start(mode, request)
        load.finish(120)
        check([stream])
        server.await_idle()
        times.append((stream.tokens()[0][0] - stream.sent) * 1e3)
        found.append(int(server.metrics()["tandem_prefix_cache_hits_total"] - before))
    load.close()
    return times, found


def same_prompt(args):
    results = []
    with contextlib.nullcontext(args.target) if args.target else random_model(args) as model:
        options = ["--target", model, "--threads", str(args.threads), "--kv-memory", args.kv_memory,
                   *(["--draft", args.draft] if args.draft else ["--drafter", "none"])]
        with serving.Server(args.bin, options) as server:
            for mode in args.modes.split(","):
                turns = [same_prompt_turn(server, args, 1000 * len(results) + i, mode) for i in range(args.turns)]
                times, found = (list(zip(*column)) for column in zip(*turns))  # of the new prompt, and again
                results.append({"mode": mode, "prompt_tokens": args.prompt_tokens, "ttft_ms": list(map(lib.median, times)),
                                "found": list(map(lib.median, found)), "ratio": lib.ratio_of_pairs(times[1], times[0])})
            serving.stop_or_say(server)
    print(lib.table(["speculation", "prompt tokens", "TTFT ms, new", "found", "TTFT ms, again", "found", "again / new"],
                    [[r["mode"], r["prompt_tokens"], f"{r['ttft_ms'][0]:.1f}", f"{r['found'][0]:.0f}", f"{r['ttft_ms'][1]:.1f}",
                      f"{r['found'][1]:.0f}", f"{r['ratio'][0]:.3f} ({r['ratio'][1]:.3f}-{r['ratio'][2]:.3f})"] for r in results]),
          flush=True)
    return results


MEASURES = {"closed": closed, "long-prompt": long_prompt, "same-prompt": same_prompt}


def main():
    parser = lib.parser(__doc__, turns=5)
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("--streams", help="closed: numbers of streams [1,2,4,8,16,32]; long-prompt: number of streams [4]")
    parser.add_argument("--seconds", type=float, default=1.2, help="closed: duration of a turn")
    parser.add_argument("--max-tokens", type=int, default=128, help="mean length of an answer; each has half to one and a half times that")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--ttft-limit", type=float, default=200, help="milliseconds, for goodput")
    parser.add_argument("--tpot-limit", type=float, default=10, help="milliseconds, for goodput")
    parser.add_argument("--prompt-tokens", type=int, default=4000, help="length of the long prompt")
    parser.add_argument("--chunk-tokens", default="256,8192", help="long-prompt: chunk sizes of the servers; the last does not chunk")
    parser.add_argument("--target", help="same-prompt: a model folder in place of the random model")
    parser.add_argument("--draft", help="same-prompt: a draft [no draft]")
    parser.add_argument("--kv-memory", default="512M", help="same-prompt: cache memory of the server")
    parser.add_argument("--modes", default="off", help="same-prompt: modes of speculation: off, auto, 4")
    args = parser.parse_args()
    print(lib.machine_line(args))
    lib.write_json(args, what=args.what, results=MEASURES[args.what](args))


if __name__ == "__main__":
    main()
