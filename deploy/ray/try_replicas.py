#!/usr/bin/env python3
"""Kills replicas under load and checks every request: try_replicas.py --program build/release/tandem

Needs ray[serve]. Starts Ray on this machine, two replicas with one thread each, and clients that request completions of
the shipped pair, with and without a seed, whole and streamed. During this time it kills servers and replicas alternately
(SIGKILL), --kills in total. Reports the results, and exits with 1 if a request with a seed failed or had another text
than before.
"""
import argparse
import itertools
import json
import os
import pathlib
import signal
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # Nothing is written into the repository.
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = str(HERE)  # for the replicas' processes
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
# Set before Ray is imported. By default its processes have niceness 15, and if other programs use the cores the proxy
# takes longer to start than its limit of 5 s.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
import ray  # noqa: E402
import tandem_ray  # noqa: E402
from ray import serve  # noqa: E402

ROOT = HERE.parent.parent
PROMPTS = [f"Once upon a time there lived {hero} who had three sons, and the eldest went into the wide world, and came to "
           f"a wood in which an old woman sat by a fire. Good evening, said {hero}'s son, may I sit down? The old woman "
           "looked at him for a long time, and said" for hero in (
    "an old king", "a poor miller", "a young fox", "a wolf", "a tailor", "a fisherman", "a giant", "a mouse")]


def ask(url, prompt, seed, stream, tokens):
    """Returns the text of a completion and its usage. Raises an exception if the request failed."""
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    if seed is not None:
        body["seed"] = seed
    if stream:
        body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        if not stream:
            data = json.load(answer)
            return data["choices"][0]["text"], data["usage"]
        text, usage, done = "", None, False
        for line in answer:
            if line.strip() == b"data: [DONE]":
                done = True
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
                if "error" in data:
                    raise RuntimeError(data["error"]["code"])
                text += "".join(choice["text"] for choice in data["choices"])
                usage = data.get("usage") or usage
        if not done:
            raise RuntimeError("no [DONE]")
        return text, usage


def who(handle, num_replicas):
    """Returns the processes of every replica, which it finds by requests with many prefixes."""
    found = {}
    for number in range(200):
        try:
            entry = handle.options(method_name="who").remote(str(number), 0).result()
        except ray.exceptions.RayActorError:
            continue
        found[entry["replica"]] = entry
        if len(found) == num_replicas:
            break
        time.sleep(0.05 if number < 100 else 0.2)
    return list(found.values())


def client(url, number, until, tokens, outcomes):
    """Sends requests until the time `until`, and adds their outcomes."""
    for turn in itertools.count(number, 5):
        start = time.monotonic()
        if start >= until:
            return
        outcome = {"prompt": PROMPTS[turn % len(PROMPTS)], "seed": 7 if turn % 4 else None, "stream": turn % 3 != 0, "text": None, "error": None}
        try:
            outcome["text"], _ = ask(url, outcome["prompt"], outcome["seed"], outcome["stream"], tokens)
        except (OSError, RuntimeError, ValueError) as failure:
            outcome["error"] = f"{type(failure).__name__}: {failure}"
        outcomes.append({**outcome, "seconds": time.monotonic() - start})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=400)
    given = parser.parse_args()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    serve.start(http_options={"host": "127.0.0.1", "port": 8765})
    application = tandem_ray.build({
        "program": str(pathlib.Path(given.program).resolve()), "threads": "1", "min_replicas": "2",
        "max_replicas": "2", "target": str(ROOT / "models/storyteller-7m"),
        "draft": str(ROOT / "models/storyteller-1m")})
    serve.run(application, name="tandem")
    handle = serve.get_deployment_handle("TandemReplica", "tandem")
    url = "http://127.0.0.1:8765"
    first = {prompt: ask(url, prompt, 7, False, given.tokens)[0] for prompt in PROMPTS}
    again = [ask(url, prompt, 7, True, given.tokens) for prompt in PROMPTS]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for _, usage in again]
    asked = [usage["prompt_tokens"] for _, usage in again]
    print(f"before: {len(PROMPTS)} prompts again: {sum(cached)} of {sum(asked)} prompt tokens were cached")

    outcomes, start = [], time.monotonic()
    clients = [threading.Thread(target=client, args=(url, number, start + given.seconds, given.tokens, outcomes))
               for number in range(given.clients)]
    for thread in clients:
        thread.start()
    for number in range(given.kills):
        time.sleep(max(0, start + (number + 0.5) / given.kills * given.seconds - time.monotonic()))
        kind = ("server", "replica")[number % 2]
        victims = [entry for entry in who(handle, 2) if entry[kind]]
        os.kill(victims[number // 2 % len(victims)][kind], signal.SIGKILL)
        print(f"killed: a {kind} after {time.monotonic() - start:.1f} s")
    for thread in clients:
        thread.join()
    with urllib.request.urlopen(url + "/retries", timeout=30) as answer:
        counts = json.load(answer)
    left = who(handle, 2)
    serve.shutdown()
    ray.shutdown()

    seeded = [entry for entry in outcomes if entry["seed"] is not None]
    other = [entry for entry in outcomes if entry["seed"] is None]
    wrong = [entry for entry in seeded if entry["error"] is None and entry["text"] != first[entry["prompt"]]]
    failed = [entry for entry in seeded if entry["error"] is not None]
    times = sorted(entry["seconds"] for entry in outcomes)
    print(f"requests: {len(outcomes)}, of which {len(seeded)} have a seed; the gateway retried "
          f"{counts['retried']} times, {counts['continued']} of them in the middle of a stream")
    print(f"with a seed: {len(seeded) - len(wrong) - len(failed)} same text, {len(wrong)} other text, {len(failed)} failed")
    print(f"without a seed: {sum(entry['error'] is None for entry in other)} answered, "
          f"{sum(entry['error'] is not None for entry in other)} reported as lost")
    print(f"time: median {statistics.median(times):.2f} s, longest {times[-1]:.2f} s; replicas at the end: {len(left)}")
    for entry in failed + [entry for entry in other if entry["error"]]:
        print(f"  {'seeded' if entry['seed'] else 'unseeded'} stream={entry['stream']}: {entry['error']}")
    sys.exit(1 if wrong or failed or len(left) != 2 or not counts["retried"] else 0)


if __name__ == "__main__":
    main()
