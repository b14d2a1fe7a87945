#!/usr/bin/env python3
"""Compares Tandem's server with llama.cpp's over HTTP, on the same pair of files.

  http_pair.py --llama-server BIN/llama-server --target T.gguf --draft D.gguf     eight task sets, greedy, one request at a time
  http_pair.py ... --count 3 --max-tokens 64 --turns 2

For each turn a server is started anew. It answers one uncounted prompt, then --count prompts of each task of real_pair.py, as messages of
/v1/chat/completions. Tokens per second are completion tokens over the time of the requests, prompts included; the servers alternate.
llama.cpp runs plainly and with each variant of --llama-options (options separated by commas instead of blanks). Needs the prompt sets next
to the checkout (../shared/prompts). This is a measurement, not a test.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import kv_store  # noqa: E402
import real_pair  # noqa: E402
import serving  # noqa: E402

LLAMA_VARIANTS = ["--spec-type,draft-simple", "--spec-type,draft-simple,--spec-draft-n-max,2",
                  "--spec-type,draft-simple,--spec-draft-n-max,6,--spec-draft-p-min,0.7"]


class LlamaServer:
    def __init__(self, args, options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder = os.path.dirname(os.path.abspath(args.llama_server))
        command = [args.llama_server, "-m", args.target, "-t", str(args.threads), "-c", "4096", "-np", "1", "--host", "127.0.0.1",
                   "--port", str(self.port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "LD_LIBRARY_PATH": folder})
        while True:
            if self.process.poll() is not None:
                lib.fail(f"{' '.join(command)} ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.url() + "/health") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


def answer(server, prompt, max_tokens):
    """Returns the number of completion tokens, and the seconds of the request."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0}
    began = time.perf_counter()
    told = kv_store.post(server, "/v1/chat/completions", body)
    return told["usage"]["completion_tokens"], time.perf_counter() - began


def run(server, args, prompts):
    """Returns the tokens per second by task and of all tasks."""
    try:
        answer(server, "Say hello.", 32)
        rates, all_tokens, all_seconds = {}, 0, 0.0
        for task, texts in prompts.items():
            done = [answer(server, text, args.max_tokens) for text in texts]
            tokens, seconds = (sum(values) for values in zip(*done))
            rates[task] = tokens / seconds
            all_tokens += tokens
            all_seconds += seconds
        return {**rates, "all": all_tokens / all_seconds}
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--llama-options", action="append", metavar="A,B,...", help="a variant with the draft")
    parser.add_argument("--count", type=int, default=3, help="prompts per task")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", metavar="F", help="also write the figures to this file")
    args = parser.parse_args()
    prompts = real_pair.tasks(args.count)
    tandem = ["--target", args.target, "--threads", str(args.threads)]
    starts = {"Tandem, plain": lambda: serving.Server(args.bin, [*tandem, "--drafter", "none"]),
              "Tandem, draft": lambda: serving.Server(args.bin, [*tandem, "--draft", args.draft]),
              "llama.cpp, plain": lambda: LlamaServer(args, [])}
    for variant in args.llama_options or LLAMA_VARIANTS:
        options = ["-md", args.draft, *variant.split(",")]
        starts[f"llama.cpp, {' '.join(options[2:])}"] = lambda options=options: LlamaServer(args, options)
    rates = {name: [] for name in starts}
    for turn in range(args.turns):
        for name in list(starts) if turn % 2 == 0 else list(starts)[::-1]:
            rates[name].append(run(starts[name](), args, prompts))
            lib.say(f"{name}: {rates[name][-1]['all']:.1f} tokens/s")
    medians = {name: {task: statistics.median(one[task] for one in runs) for task in [*prompts, "all"]} for name, runs in rates.items()}
    rows = [[name, *(f"{medians[name][task]:.1f}" for task in [*prompts, "all"])] for name in starts]
    about = lib.machine(args.threads)
    print(f"{about['cpu']}, {args.threads} threads, {about['date']}; {args.count} prompts of a task, up to {args.max_tokens} tokens, "
          f"{args.turns} turns; tokens per second, prompts included\n")
    print(lib.table(["", *prompts, "all"], rows))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "rates": rates}, file, indent=1)


if __name__ == "__main__":
    main()
