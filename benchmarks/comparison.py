"""Helpers of all benchmarks: options, prompts, turns in alternation, ratios, tables and reports; and for comparisons with other
engines their environments and workers.

Uses only the standard library. The drivers run under the system's Python, and another engine under that of its own virtual
environment, which `environment` makes outside the repository.
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCHMARKS = os.path.join(ROOT, "benchmarks")
SHARED = os.path.join(os.path.dirname(ROOT), "shared", "prompts")  # the prompt sets, next to the checkout
TARGET = os.path.join(ROOT, "models", "storyteller-7m")
DRAFT = os.path.join(ROOT, "models", "storyteller-1m")
STORY = "Once upon a time there was a little girl who lived with her grandmother in a small house"
PROGRAM = os.path.basename(sys.argv[0])


def say(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"{PROGRAM}: {text}")


def parser(doc, threads=2, **numbers):
    """Returns a parser with the options of every benchmark, and one for each of `numbers`, with its default."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "tandem"))
    made.add_argument("--threads", type=int, default=threads)
    made.add_argument("--json", metavar="F", help="also write the figures to this file")
    for name, default in numbers.items():
        made.add_argument("--" + name.replace("_", "-"), type=type(default), default=default, help="[%(default)s]")
    return made


def parse_with_rest(made):
    """Returns the arguments, and the words after --, which are options of the servers."""
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    return made.parse_args(words[:place]), words[place + 1:]


def some_of(made, option, text, allowed):
    """Returns the names in `text`, separated by commas. Ends the program if one is not allowed."""
    found = text.split(",")
    unknown = [one for one in found if one not in allowed]
    if unknown:
        made.error(f"{option}: found {', '.join(unknown)}, allowed: {', '.join(allowed)}")
    return found


def whole_numbers(text):
    return [int(one) for one in text.split(",")]


def lines_of(path):
    """Returns the lines of a prompt set or another file, without empty ones."""
    with open(os.path.join(SHARED, path), encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


@contextlib.contextmanager
def prompts_file(prompts):
    """A temporary file of prompts in the form of `--prompts`; gives its path."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        file.flush()
        yield file.name


def outside_repository(path):
    """Returns `path` made absolute. Ends the program if it is in the repository, where scripts may write only below build/."""
    path = os.path.abspath(path)

    def is_below(folder):
        return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)

    if is_below(ROOT) and not is_below(os.path.join(ROOT, "build")):
        fail(f"{path} is inside the repository; choose a folder outside of it")
    return path


def default_folder(name):
    return os.path.join(tempfile.gettempdir(), name)


def environment(folder, packages, probe, pip_options=(), variables=None):
    """Returns the Python of the virtual environment `folder`. Creates it and installs `packages` if it cannot import `probe`."""
    folder = outside_repository(folder)
    python = os.path.join(folder, "bin", "python3")
    if not os.path.exists(python):
        say(f"creating the virtual environment {folder}")
        subprocess.run([sys.executable, "-I", "-m", "venv", folder], check=True)
    if subprocess.run([python, "-I", "-c", f"import {probe}"], capture_output=True).returncode != 0:
        settings = " ".join(f"{key}='{value}'" for key, value in (variables or {}).items())
        say(f"installing into {folder}: {settings} pip install {' '.join([*pip_options, *packages])} (this may take a while)")
        subprocess.run([python, "-I", "-m", "pip", "install", "-q", *pip_options, *packages], check=True, stdout=sys.stderr,
                       env={**os.environ, **(variables or {})})
    return python


class Worker:
    """The other engine in its own process, which answers each JSON line with a JSON line and sleeps in between."""

    def __init__(self, python, script, variables=None, quiet=True):
        self.process = subprocess.Popen([python, os.path.join(BENCHMARKS, script)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})},
                                        stderr=subprocess.DEVNULL if quiet else None)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def ask(self, do, **arguments):
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            fail(f"the worker ended at {do} {arguments}; run with --verbose to see why")
        answer = json.loads(line)
        if "error" in answer:
            fail(f"{do} {arguments}: {answer['error']}")
        return answer


def serve_worker(answer):
    """The worker's side: answers each JSON line of standard input with `answer(do, arguments)`. Only answers go to standard output; what
    libraries print there goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = answer(request.pop("do"), request)
        except Exception as error:  # the driver prints the message and ends
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=output, flush=True)


class Tandem:
    """The program `tandem`, which runs as a new process for each call, for at most `timeout` seconds."""

    def __init__(self, path, threads, timeout=1200):
        self.path, self.timeout = path, timeout
        self.threads = ["--threads", str(threads)]
        if not os.path.exists(path):
            fail(f"{path} is missing; build it with ./dev build or choose another with --bin")

    def run(self, *arguments, **how):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, timeout=self.timeout, **how)

    def version(self):
        return self.run("--version").stdout.strip()

    def try_json(self, *arguments):
        """Runs `tandem ARGUMENTS --json`. Returns the JSON and "", or None and the error."""
        done = self.run(*arguments, *self.threads, "--json")
        return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr.strip())

    def json(self, *arguments):
        answer, error = self.try_json(*arguments)
        if answer is None:
            fail(f"tandem {' '.join(arguments)}: {error}")
        return answer

    def ids(self, model, text):
        """Returns the token ids of `text`, without tokens in front."""
        return json.loads(self.run("tokenize", "--tokenizer", model, "--text", text, check=True).stdout)["ids"]

    def chat_ids(self, model, messages):
        """Returns the token ids of each message, as a conversation of one message in the model's chat format."""
        lines = "".join(json.dumps({"text": message}) + "\n" for message in messages)
        done = self.run("tokenize", "--tokenizer", model, "--chat", "--jsonl", "-", input=lines, check=True)
        return [json.loads(line)["ids"] for line in done.stdout.splitlines()]

    def first_token(self, *arguments):
        """Returns the milliseconds from the start of the process to its first byte of output, and its peak memory in bytes."""
        start = time.perf_counter()
        process = subprocess.Popen([self.path, *arguments, *self.threads, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        memory = PeakMemory(process.pid)
        if not process.stdout.read(1):
            fail(f"tandem {' '.join(arguments)} wrote nothing")
        elapsed = time.perf_counter() - start
        process.stdout.read()
        peak = memory.stop()
        process.wait()
        return elapsed * 1e3, peak


class PeakMemory(threading.Thread):
    """Reads VmHWM of a process every 2 ms: getrusage of a child would include its parent's memory at the fork."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path = f"/proc/{pid}/status"
        self.peak = 0
        self.stopping = threading.Event()
        self.start()

    def run(self):
        while not self.stopping.wait(0.002):
            self.peak = max(self.peak, status_bytes(self.path, "VmHWM"))

    def stop(self):
        self.stopping.set()
        self.join()
        return self.peak


def status_bytes(path, key):
    try:
        with open(path, encoding="ascii") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":")), 0)
    except OSError:
        return 0


def median(values):
    return statistics.median(values) if values else None


def ratio_of_pairs(numerators, denominators):
    """Returns the median over turns of the ratio within a turn, and the smallest and the largest ratio."""
    ratios = [a / b for a, b in zip(numerators, denominators)]
    return (median(ratios), min(ratios), max(ratios)) if ratios else (None, None, None)


def spread(ratio):
    """Formats the result of `ratio_of_pairs`, or any median, least and greatest."""
    return "%.2f (%.2f-%.2f)" % tuple(ratio)


def alternate(turns, sides):
    """Runs each of `sides`, functions of the turn by name, `turns` times, in the order AB BA AB ...; returns the results by name."""
    results = {name: [] for name in sides}
    for turn in range(turns):
        for name in reversed(sides) if turn % 2 else sides:
            results[name].append(sides[name](turn))
    return results


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def number(value, form="%.2f"):
    return "-" if value is None else form % value


def machine_line(args, *more):
    """Returns the line over a table: the machine, then `more`."""
    about = machine(args.threads)
    return "; ".join([f"{about['cpu']} {' '.join(about['instructions'])}, {args.threads} threads, {about['date']}", *more]) + "\n"


def write_json(args, **report):
    """Writes the machine and the report to the file of --json, if it is given."""
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(args.threads), **report}, file, indent=1)


def machine(threads):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        told = dict(re.findall(r"^(\S.*?)\s*: (.*)$", file.read(), re.MULTILINE))
    wanted = ["avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"]
    return {"cpu": told.get("model name", platform.processor()), "cores": os.cpu_count(), "threads": threads,
            "instructions": [flag for flag in wanted if flag in told.get("flags", "").split()],
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
