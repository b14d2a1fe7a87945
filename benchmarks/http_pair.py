#!/usr/bin/env python3
"""Compares Tandem's server with llama.cpp's over HTTP, on the same pair of files.

  http_pair.py --llama-server BIN/llama-server --target T.gguf --draft D.gguf     eight task sets, greedy, one request at a time
  http_pair.py ... --count 3 --max-tokens 64 --turns 2
  http_pair.py ... --streams 1,4,16 --llama-options ""     a constant number of requests at once, without llama.cpp's draft

For each turn a server is started anew. It answers one uncounted prompt, then --count prompts of each task of real_pair.py, as messages of
/v1/chat/completions, each streamed. Tokens per second are completion tokens over the time from the first request to the last answer,
prompts included; the servers alternate. Goodput is the requests per second whose first token came within --ttft-limit, and the others
within --tpot-limit each on average.
llama.cpp runs plainly and with each variant of --llama-options (options separated by commas instead of blanks). Needs the prompt sets next
to the checkout (../shared/prompts). This is a measurement, not a test.
"""
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import real_pair  # noqa: E402
import serving  # noqa: E402

LLAMA_VARIANTS = ["--spec-type,draft-simple", "--spec-type,draft-simple,--spec-draft-n-max,2",
                  "--spec-type,draft-simple,--spec-draft-n-max,6,--spec-draft-p-min,0.7"]


class LlamaServer:
    def __init__(self, args, options, streams):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder = os.path.dirname(os.path.abspath(args.llama_server))
        command = [args.llama_server, "-m", args.target, "-t", str(args.threads), "-c", str(4096 * streams), "-np", str(streams),
                   "--host", "127.0.0.1", "--port", str(self.port), *options]
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
    """Returns the number of completion tokens, the seconds to the first of them, and those of the request."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(server.url() + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    began, first, tokens = time.perf_counter(), None, 0
    with urllib.request.urlopen(request, timeout=600) as stream:
        for line in stream:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[len("data: "):])
            if first is None and any(choice["delta"].get("content") for choice in event["choices"]):
                first = time.perf_counter() - began
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    seconds = time.perf_counter() - began
    return tokens, seconds if first is None else first, seconds


def run(server, args, prompts, streams):
    """Returns the tokens per second of each task, where it ran alone, and of all tasks, and the goodput."""
    try:
        answer(server, "Say hello.", 32)
        order = [(task, texts[i]) for i in range(args.count) for task, texts in prompts.items()]
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            answers = list(pool.map(lambda one: answer(server, one[1], args.max_tokens), order))
        seconds = time.perf_counter() - began
    finally:
        server.stop()
    figures = {}
    for task in prompts if streams == 1 else []:
        own = [told for (name, _), told in zip(order, answers) if name == task]
        figures[task] = sum(tokens for tokens, _, _ in own) / sum(took for _, _, took in own)
    figures["all"] = sum(tokens for tokens, _, _ in answers) / seconds
    figures["goodput"] = sum(first * 1e3 <= args.ttft_limit and (took - first) * 1e3 <= args.tpot_limit * max(1, tokens - 1)
                             for tokens, first, took in answers) / seconds
    return figures


def main():
    parser = lib.parser(__doc__, os.cpu_count(), max_tokens=64, turns=1)
    for name in ("llama-server", "target", "draft"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--llama-options", action="append", metavar="A,B,...", help="a variant with the draft; empty: none")
    parser.add_argument("--streams", type=lib.whole_numbers, default=[1], help="numbers of requests at once")
    parser.add_argument("--count", type=int, default=3, help="prompts per task")
    parser.add_argument("--ttft-limit", type=float, default=2000, help="milliseconds, for goodput")
    parser.add_argument("--tpot-limit", type=float, default=200, help="milliseconds, for goodput")
    args = parser.parse_args()
    prompts = real_pair.tasks(args.count)
    tandem = ["--target", args.target, "--threads", str(args.threads)]
    starts = {"Tandem, plain": lambda _: serving.Server(args.bin, [*tandem, "--drafter", "none"]),
              "Tandem, draft": lambda _: serving.Server(args.bin, [*tandem, "--draft", args.draft]),
              "llama.cpp, plain": lambda streams: LlamaServer(args, [], streams)}
    for variant in filter(None, args.llama_options or LLAMA_VARIANTS):
        options = ["-md", args.draft, *variant.split(",")]
        starts[f"llama.cpp, {' '.join(options[2:])}"] = lambda streams, options=options: LlamaServer(args, options, streams)
    print(lib.machine_line(args, f"{args.count} prompts of a task, up to {args.max_tokens} tokens, {args.turns} turns; tokens per second, "
                                 "prompts included"))
    levels = []
    for streams in args.streams:
        runs = lib.alternate(args.turns, {name: lambda turn, start=start: run(start(streams), args, prompts, streams)
                                          for name, start in starts.items()})
        columns = list(runs["Tandem, plain"][0])
        rows = [[name, *(f"{lib.median([one[column] for one in runs[name]]):.3g}" for column in columns)] for name in starts]
        print(lib.table([f"{streams} streams", *columns], rows), flush=True)
        levels.append({"streams": streams, "runs": runs})
    lib.write_json(args, levels=levels)


if __name__ == "__main__":
    main()
