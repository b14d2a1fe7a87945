#!/usr/bin/env python3
"""Measures separate workers for prompts and answers: the effect of long prompts on streams, and the time of a transfer.

  disaggregation.py streams    time to the first token of prompts of --tokens tokens that arrive every --every seconds, and time
                               between the tokens of --streams streams during that time. Compares one server with all threads, two
                               servers with half of the threads each (replicas, which get prompts alternately), and a prefill worker
                               and a decode worker with half of the threads each
  disaggregation.py transfer   time to the first token of such a prompt, computed and fetched, alternating; and the rate of the
                               transfer, compared with one TCP connection on the loopback interface

Starts build/release/tandem and passes options after -- to the servers. The forms alternate. This is a measurement, not a test.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import secrets
import socket
import statistics
import sys
import threading
import time

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import kv_store  # noqa: E402
import serving  # noqa: E402

FORMS = ("one server", "replicas", "disaggregated")


def stream(server, body, times, stop):
    """Reads one answer after another until `stop`; records for each answer the times of its events with tokens."""
    while not stop.is_set():
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        times.append([])
        while not stop.is_set() and (line := answer.readline()):
            if line.startswith(b"data: {") and b'"token_ids":[]' not in line:
                times[-1].append(time.perf_counter())
        connection.close()


def gaps(times, began, ended):
    """Returns the seconds between consecutive events of an answer, for events within [began, ended]."""
    return [b - a for series in times for a, b in zip(series, series[1:]) if began <= b <= ended]


def start(form, args, options):
    """Starts the servers; returns those that read prompts, and those that write answers."""
    num_servers = 1 if form == "one server" else 2
    transfer = ["--kv-transfer", "127.0.0.1:0"] if form == "disaggregated" else []
    threads = ["--threads", str(max(args.threads // num_servers, 1))]
    servers = [serving.Server(args.bin, [*options, *threads, *transfer]) for _ in range(num_servers)]
    return (servers[:1], servers[1:]) if transfer else (servers, servers)


def hand_over(prefill, decode, body):
    """Returns the answers of the server that reads the prompt, and of the one that goes on with its pages."""
    read = prefill.call("/v1/completions", {**body, "kv_transfer_params": {"do_remote_decode": True}})
    return read, decode.call("/v1/completions", {**body, "kv_transfer_params": read["kv_transfer_params"]})


def first_token(form, readers, writers, prompt, number):
    """Returns the seconds to the first token of the answer, and the number of transferred tokens."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    began = time.perf_counter()
    if form != "disaggregated":
        readers[number % len(readers)].call("/v1/completions", body)
        return time.perf_counter() - began, 0
    _, answer = hand_over(readers[0], writers[0], body)
    return time.perf_counter() - began, answer["usage"]["prompt_tokens_details"]["transfer_tokens"]


def run_streams(form, args, options, turn):
    readers, writers = start(form, args, options)
    servers = {*readers, *writers}
    firsts, times, stop = [], [[] for _ in range(args.streams)], threading.Event()

    def read_stream(i):
        server = writers[i % len(writers)]
        stream(server, {"prompt": kv_store.prompt_of(server, 100, 10 + i), "max_tokens": args.max_tokens, "temperature": 0.7, "seed": i,
                        "ignore_eos": True}, times[i], stop)

    def ask(number):
        prompt = kv_store.prompt_of(readers[0], args.tokens, 50 + 10 * turn + number)
        return first_token(form, readers, writers, prompt, number)

    with concurrent.futures.ThreadPoolExecutor(args.streams + args.prompts) as pool, contextlib.ExitStack() as stack:
        stack.callback(lambda: [server.stop() for server in servers])
        stack.callback(stop.set)
        for server in servers:
            kv_store.complete(server, kv_store.prompt_of(server, 300, 7), 32)  # warm up: the first passes are slower
        streams = [pool.submit(read_stream, i) for i in range(args.streams)]
        while not all(one and one[0] for one in times):
            time.sleep(0.01)
        calm = time.perf_counter()
        time.sleep(args.calm)
        began = time.perf_counter()
        asking = []
        for number in range(args.prompts):
            asking.append(pool.submit(ask, number))
            time.sleep(max(0.0, began + (number + 1) * args.every - time.perf_counter()))
        concurrent.futures.wait(asking)
        firsts += [one.result() for one in asking]
        ended = time.perf_counter()
        stop.set()
        concurrent.futures.wait(streams)
    series = [one for own in times for one in own]
    among = gaps(series, began, ended)
    return {"ttft_s": [seconds for seconds, _ in firsts], "itl_s": among, "calm_itl_s": gaps(series, calm, began),
            "fetched_tokens": [tokens for _, tokens in firsts], "events_per_second": len(among) / (ended - began)}


def streams(args, options):
    results = lib.alternate(args.turns, {form: lambda turn, form=form: run_streams(form, args, options, turn) for form in FORMS})
    rows, told = [], {}
    for form, runs in results.items():
        ttft, itl, calm, fetched = ([value for run in runs for value in run[key]] for key in ("ttft_s", "itl_s", "calm_itl_s", "fetched_tokens"))
        told[form] = {"ttft_ms": [1e3 * v for v in ttft], "itl_ms": {p: 1e3 * serving.percentile(itl, p / 100) for p in (50, 95, 99, 100)},
                      "events_per_second": lib.median([run["events_per_second"] for run in runs]), "calm_itl_ms": 1e3 * lib.median(calm),
                      "fetched_tokens": fetched}
        rows.append([form, f"{1e3 * lib.median(ttft):.0f} ({1e3 * min(ttft):.0f} to {1e3 * max(ttft):.0f})", f"{1e3 * lib.median(calm):.1f}",
                     *[f"{ms:.1f}" for ms in told[form]["itl_ms"].values()], f"{told[form]['events_per_second']:.1f}"])
    print(lib.table(["form", "TTFT ms, median (least to greatest)", "ITL ms before them", "p50", "p95", "p99", "greatest", "events/s"], rows))
    return told


def loopback_rate(num_bytes):
    """Returns the bytes per second of one TCP connection between two threads, which release Python's lock while they copy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        part = bytes(4 << 20)
        into = bytearray(len(part))

        def send():
            for _ in range(num_bytes // len(part)):
                sender.sendall(part)
            sender.close()

        thread = threading.Thread(target=send)
        began = time.perf_counter()
        thread.start()
        done = 0
        while count := receiver.recv_into(into):
            done += count
        thread.join()
        receiver.close()
        return done / (time.perf_counter() - began)


def transfer(args, options):
    options = [*options, "--threads", str(args.threads), "--kv-transfer", "127.0.0.1:0"]
    told = {"computed_ms": [], "fetched_ms": [], "bytes_per_second": [], "loopback_bytes_per_second": [], "bytes": 0}
    with serving.Server(args.bin, options) as prefill, serving.Server(args.bin, options) as decode:
        for server in (prefill, decode):
            kv_store.complete(server, kv_store.prompt_of(server, 300, 7))
        for turn in range(args.turns):
            prompt = kv_store.prompt_of(prefill, args.tokens, 20 + turn)
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
            before = decode.metrics()
            read, answer = hand_over(prefill, decode, body)
            after = decode.metrics()
            if answer["usage"]["prompt_tokens_details"]["transfer_tokens"] < 0.9 * args.tokens:
                lib.fail(f"too few tokens were transferred: {answer['usage']}")
            took = {name: after[name] - before[name] for name in ("tandem_kv_transfer_bytes_received_total",
                                                                  "tandem_kv_transfer_receiving_seconds_total")}
            told["bytes"] = took["tandem_kv_transfer_bytes_received_total"]
            told["bytes_per_second"].append(told["bytes"] / took["tandem_kv_transfer_receiving_seconds_total"])
            told["loopback_bytes_per_second"].append(loopback_rate(1 << 30))
            told["computed_ms"].append(read["timings"]["ttft_ms"])
            told["fetched_ms"].append(answer["timings"]["ttft_ms"])
    rows = [[name, *(f"{f(values):.4g}" for f in (statistics.median, min, max))] for name, values in told.items() if name != "bytes"]
    print(lib.table(["", "median", "least", "greatest"], rows))
    return told


def main():
    parser = lib.parser(__doc__, os.cpu_count(), tokens=4000, turns=2)
    parser.add_argument("what", choices=["streams", "transfer"])
    parser.add_argument("--prompts", type=int, default=3, help="number of long prompts in a run")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two long prompts")
    parser.add_argument("--calm", type=float, default=4.0, help="seconds with only streams, before the first long prompt")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=1000, help="length of a stream's answers, which follow one another")
    args, options = lib.parse_with_rest(parser)
    os.environ["TANDEM_KV_TRANSFER_SECRET"] = secrets.token_hex(32)
    lib.write_json(args, **(streams if args.what == "streams" else transfer)(args, options))


if __name__ == "__main__":
    main()
