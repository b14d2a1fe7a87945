#!/usr/bin/env python3
"""Measures the store of pages on disk: a long prompt computed, from memory, and from the store after a restart.

  kv_store.py first     time to the first token of a prompt of --tokens tokens in these three ways, alternating; and the rate
                        of bytes read, relative to reading the store's file sequentially
  kv_store.py busy      tokens per second of --streams streams with a new prompt each, on a server with a store and on one
                        without, alternating (ABBA)

Starts build/release/tandem with the store in a new folder, and passes options after -- to the server. Drops the store's file
from the page cache before its turn, unless --warm is given. This is a measurement, not a test.
"""
import concurrent.futures
import glob
import json
import os
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

FILE = "pages-2.sqlite"
WAYS = ("computed", "memory", "store")


def long_text():
    """Returns the text of the repository's documents."""
    text = []
    for path in sorted(glob.glob(os.path.join(lib.ROOT, "docs", "*.md"))):
        with open(path, encoding="utf-8") as file:
            text.append(file.read())
    return "\n".join(text)


def prompt_of(server, num_tokens, first):
    """Returns this many tokens. The first token, and so the key of every page, differs from turn to turn."""
    tokens = server.call("/tokenize", {"prompt": long_text()[:16 * num_tokens]})["tokens"]
    if len(tokens) < num_tokens:
        lib.fail(f"the documents have {len(tokens)} tokens, --tokens is {num_tokens}")
    return [tokens[first], *tokens[1:num_tokens]]


def complete(server, prompt, max_tokens=1):
    answer = server.call("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True})
    details = answer["usage"]["prompt_tokens_details"]
    return answer["timings"]["ttft_ms"], details, answer["choices"][0]["token_ids"]


def await_written(server):
    """Waits until the server has not written for a second."""
    names = ("tandem_kv_store_pages_written_total", "tandem_kv_store_pages_dropped_total")
    before = None
    while before != (now := [server.metrics()[name] for name in names]):
        before = now
        time.sleep(1)
    if now[1] > 0:
        print(f"{now[1]:.0f} pages were dropped", file=sys.stderr)


def drop(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sequential_rate(path, num_bytes):
    """Returns the bytes per second of reading the beginning of the file."""
    drop(path)
    with open(path, "rb", buffering=0) as file:
        began = time.perf_counter()
        done = 0
        while done < num_bytes and (part := file.read(4 << 20)):
            done += len(part)
        return done / (time.perf_counter() - began)


def summary(values):
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def first(args, options):
    times = {way: [] for way in WAYS}
    rates, shares, num_bytes = [], [], 0
    for turn in range(args.turns):
        with tempfile.TemporaryDirectory(prefix="kv_store_", dir=args.folder) as folder:
            stored = [*options, "--kv-store", folder]
            path = os.path.join(folder, FILE)
            with serving.Server(args.bin, stored) as server:
                prompt = prompt_of(server, args.tokens, turn + 1)
                complete(server, prompt[::-1])  # warm up: the first passes are slower
                for way in WAYS[:2]:
                    time_ms, details, tokens = complete(server, prompt)
                    times[way].append(time_ms)
                await_written(server)
                server.stop()
            if not args.warm:
                drop(path)
            with serving.Server(args.bin, stored) as server:
                if not args.warm:
                    drop(path)
                time_ms, details, again = complete(server, prompt)
                num_bytes = server.metrics()["tandem_kv_store_bytes_read_total"]
                server.stop()
            if again != tokens:
                lib.fail(f"the tokens after the restart differ: found {again}, expected {tokens}")
            if details["store_tokens"] == 0:
                lib.fail(f"no tokens were read from the store: {details}")
            times["store"].append(time_ms)
            rates.append(sequential_rate(path, num_bytes))
            shares.append(num_bytes / (time_ms / 1000) / rates[-1])
    result = {"prompt_tokens": args.tokens, "ttft_ms": {way: summary(times[way]) for way in WAYS},
              "bytes_per_token": num_bytes / args.tokens, "disk_bytes_per_second": summary(rates),
              "of_disk": summary(shares)}
    for way in WAYS:
        value = result["ttft_ms"][way]
        print(f"{way:9} {value['median']:9.1f} ms ({value['least']:.1f} to {value['greatest']:.1f})", file=sys.stderr)
    return result


def tokens_per_second(server, args, seed):
    prompts = [prompt_of(server, args.prompt_tokens, seed * args.streams + i + 1) for i in range(args.streams)]
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(args.streams) as pool:
        list(pool.map(lambda prompt: complete(server, prompt, args.max_tokens), prompts))
    return args.streams * args.max_tokens / (time.perf_counter() - began)


def busy(args, options):
    with tempfile.TemporaryDirectory(prefix="kv_store_", dir=args.folder) as folder:
        with serving.Server(args.bin, options) as without, \
             serving.Server(args.bin, [*options, "--kv-store", folder]) as stored:
            servers = {"without": without, "stored": stored}
            for server in servers.values():
                tokens_per_second(server, args, 0)
            rates = lib.alternate(args.turns, {name: lambda turn, server=server: tokens_per_second(server, args, turn + 1)
                                               for name, server in servers.items()})
            counts = stored.metrics()
    return {"tokens_per_second": {name: summary(values) for name, values in rates.items()},
            "ratio": dict(zip(("median", "least", "greatest"), lib.ratio_of_pairs(rates["stored"], rates["without"]))),
            "pages_dropped": counts["tandem_kv_store_pages_dropped_total"], "bytes_written": counts["tandem_kv_store_bytes_written_total"]}


def main():
    parser = lib.parser(__doc__, os.cpu_count(), tokens=4000, turns=5, streams=4, prompt_tokens=200, max_tokens=200)
    parser.add_argument("what", choices=["first", "busy"])
    parser.add_argument("--folder", help="where to create the store's folder [the temporary folder]")
    parser.add_argument("--warm", action="store_true", help="leave the store's file in the page cache")
    args, options = lib.parse_with_rest(parser)
    result = (first if args.what == "first" else busy)(args, ["--threads", str(args.threads), *options])
    print(json.dumps(result))
    lib.write_json(args, **result)


if __name__ == "__main__":
    main()
