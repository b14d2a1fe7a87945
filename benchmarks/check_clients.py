#!/usr/bin/env python3
"""Unmodified clients against `tandem serve`: the `openai` package, prometheus_client's parser, curl and schemathesis.

The packages are installed from PyPI into --venv, made if missing and never inside the repository; without a network the
check of a client that is not there is skipped, and said to be. Starts build/release/tandem, with the shipped pair. Prints a
line per check and exits with 1 if one failed.
"""
import argparse
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

KEY = "check"
FULL = ["--max-batch", "1", "--max-waiting", "0"]


def client_python(folder, probe):
    """The Python of the environment if it has, or can be given, the package `probe`; else None."""
    try:
        return lib.environment(folder, [probe], probe)
    except subprocess.CalledProcessError:
        lib.say(f"skipped {probe}: it cannot be installed here")
        return None


class Checks:
    def __init__(self):
        self.failed = 0

    def report(self, name, passed, detail=""):
        self.failed += not passed
        print(f"{'ok    ' if passed else 'FAILED'} {name}{': ' + detail if detail and not passed else ''}", flush=True)

    def run(self, name, command, variables=None, seconds=300, cwd=None):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=cwd,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})})
        if done.stdout.startswith(("ok ", "FAILED ")):  # a worker that reports by itself
            print(done.stdout, end="", flush=True)
            self.report(name, done.returncode == 0, done.stderr[-3000:])
        else:
            self.report(name, done.returncode == 0, (done.stdout + done.stderr)[-3000:])
        return done.stdout


def check_curl(checks, server):
    """`curl -N` sees a stream piece by piece, and errors by their status."""
    curl = shutil.which("curl")
    if curl is None:
        lib.say("skipped curl: it is not here")
        return
    body = '{"prompt": "Once", "max_tokens": 24, "stream": true, "ignore_eos": true, "temperature": 0}'
    shown = checks.run("curl -N", [curl, "-sSfN", "-H", f"Authorization: Bearer {KEY}", "-d", body,
                                   server.url() + "/v1/completions"])
    events = [line for line in shown.splitlines() if line]
    checks.report("curl: every line is an event, the last [DONE]",
                  len(events) > 3 and all(line.startswith("data: ") for line in events) and events[-1] == "data: [DONE]", shown[-500:])
    status = subprocess.run([curl, "-sS", "-o", os.devnull, "-w", "%{http_code}", "-d", body, server.url() + "/v1/completions"],
                            capture_output=True, text=True, timeout=60).stdout
    checks.report("curl: 401 without a key", status == "401", status)
    # Larger than curl sends without asking: "Expect: 100-continue", answered before the body is sent.
    with serving.tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(b'{"prompt": "' + b"a" * (5 << 20) + b'"}')
        file.flush()
        status = subprocess.run([curl, "-sS", "-o", os.devnull, "-w", "%{http_code} %{size_upload}", "-d", f"@{file.name}", "-H",
                                 f"Authorization: Bearer {KEY}", server.url() + "/v1/completions"],
                                capture_output=True, text=True, timeout=60).stdout
    checks.report("curl: 413 before the body is sent", status == "413 0", status)


def check_schema(checks, server, venv, examples):
    program = os.path.join(venv, "bin", "schemathesis")
    if client_python(venv, "schemathesis") is None:
        return
    with serving.tempfile.TemporaryDirectory(prefix="tandem_schema_") as folder:
        checks.run("schemathesis: no server error, answers as the document says",
                   [program, "run", server.url() + "/openapi.json", "-H", f"Authorization: Bearer {KEY}", "--seed", "1", "--checks",
                    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
                    "unsupported_method", "--max-examples", str(examples), "--max-failures", "5", "--no-color"], seconds=1800, cwd=folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--venv", default=lib.default_folder("tandem_clients"), help="environment of the clients, made if missing")
    parser.add_argument("--only", default="openai,metrics,curl,schema", help="some of openai,metrics,curl,schema")
    parser.add_argument("--examples", type=int, default=50, help="of schemathesis, for each path")
    args = parser.parse_args()
    checks, wanted = Checks(), args.only.split(",")
    options = ["--threads", "2", "--kv-memory", "64M", "--api-key", KEY, "--model-name", "story"]
    worker = os.path.join(lib.BENCHMARKS, "clients_worker.py")
    with serving.Server(args.bin, options) as server, serving.Server(args.bin, [*options, *FULL]) as full:
        variables = {"TANDEM_URL": server.url(), "TANDEM_FULL_URL": full.url(), "TANDEM_KEY": KEY}
        for name, probe in (("openai", "openai"), ("metrics", "prometheus_client")):
            python = client_python(args.venv, probe) if name in wanted else None
            if python is not None:
                checks.run(f"{probe}", [python, worker, name], variables)
        if "curl" in wanted:
            check_curl(checks, server)
        if "schema" in wanted:
            check_schema(checks, server, args.venv, args.examples)
        for one in (server, full):
            status = one.stop()
            checks.report("the server ends with 0 and without an error", status == 0 and "[error]" not in one.log(), one.log()[-2000:])
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
