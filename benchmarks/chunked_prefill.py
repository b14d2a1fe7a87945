#!/usr/bin/env python3
"""Measures what a long prompt does to the streams that run beside it, by chunk size.

Starts `tandem serve` once per chunk size, lets a few streams generate, and sends one long prompt. Prints a Markdown table:
the streams' time between tokens before it came, its median, 99th percentile and maximum while it is read, the mean time of
the passes that read it (its time to the first token over their number), the ratio of the 99th percentile to that, and the
time to the first token. Without a model it makes a random one of some 100 M parameters and a context of 8192. A
measurement, never a test: timings depend on the machine and its load. Do not run it with a real-time priority: Linux stops
such processes for 50 ms of every second.
"""
import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Server:
    def __init__(self, args, chunk):
        self.process = subprocess.Popen(
            [args.bin, "serve", "--target", args.target, "--port", "0", "--chunk-tokens", str(chunk), "--max-batch",
             str(args.streams + 1), "--no-prefix-cache", "--threads", str(args.threads)],
            stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"address=http://(\S+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
                break
        else:
            sys.exit("chunked_prefill.py: the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stream(self, prompt, max_tokens, on_token):
        """Calls on_token(time) for every event with tokens, until it returns False."""
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"chunked_prefill.py: {response.read().decode()}")
        for line in response:
            if line.startswith(b"data: {") and b'"round"' in line and not on_token(time.monotonic()):
                break
        connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def share(values, part):
    values = sorted(values)
    return values[min(int(part * len(values)), len(values) - 1)]


def measure(args, chunk):
    server = Server(args, chunk)
    times = [[] for _ in range(args.streams)]
    is_over = threading.Event()

    def listen(mine):
        def on_token(now):
            mine.append(now)
            return not is_over.is_set()
        server.stream("Once upon a time", 4000, on_token)

    threads = [threading.Thread(target=listen, args=(mine,)) for mine in times]
    for thread in threads:
        thread.start()
    while min(len(mine) for mine in times) < 20:
        time.sleep(0.01)
    begin = time.monotonic()
    first = []
    server.stream("x" * args.prompt_tokens, 2, lambda now: first.append(now))
    end = first[0]
    time.sleep(0.2)
    is_over.set()
    for thread in threads:
        thread.join()
    server.stop()
    before, during = [], []
    for mine in times:
        for last, now in zip(mine, mine[1:]):
            if now < begin:
                before.append(1e3 * (now - last))
            elif last < end and now > begin:
                during.append(1e3 * (now - last))
    passes = -(-args.prompt_tokens // max(chunk - args.streams, chunk // 4))
    one_pass = 1e3 * (end - begin) / passes
    p99 = share(during, 0.99)
    print(f"| {chunk} | {share(before[10:], 0.5):.1f} | {share(during, 0.5):.1f} | {p99:.1f} | {max(during):.1f} "
          f"| {one_pass:.1f} | {p99 / one_pass:.2f} | {1e3 * (end - begin):.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "tandem"))
    parser.add_argument("--target", default="", help="model folder; made at random if not given")
    parser.add_argument("--prompt-tokens", type=int, default=4000)
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--chunks", default="128,256,512,4096")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    print(f"{args.streams} streams, a prompt of {args.prompt_tokens} tokens; ms\n")
    print("| chunk | between tokens before | beside the prompt | p99 | longest | a pass of the prompt | p99 / pass "
          "| first token |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        if not args.target:
            args.target = os.path.join(folder, "model")
            subprocess.run([args.bin, "make-random", "--shape", "base=100m,context=8192", "--out", args.target],
                           check=True, stdout=subprocess.DEVNULL)
        for chunk in args.chunks.split(","):
            measure(args, int(chunk))


if __name__ == "__main__":
    main()
