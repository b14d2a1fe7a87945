#!/usr/bin/env python3
"""Runs unmodified clients with `tandem serve`: packages (openai, anthropic, litellm, langchain-openai, instructor), programs (llm, curl, lm-eval,
schemathesis), vllm-router in front of two servers, and prometheus_client's parser.

Each package is installed from PyPI into its own environment below --venvs, which is made if missing and never inside the repository except in its
build/. Without a network, the checks of missing clients are skipped with a message. Starts build/release/tandem with the shipped
pair, and with a variant of it that thinks and calls functions (clients_models.py). Prints a line per check and exits with 1 if one fails.
`./dev clients` runs those that install quickly.
"""
import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # Do not write into the repository.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import clients_models  # noqa: E402
import comparison as lib  # noqa: E402
import serving  # noqa: E402

KEY = "check"
# The name of a check, the package, the modules to import, and a dependency that the package does not install.
PACKAGES = [("openai", "openai", "openai"), ("metrics", "prometheus_client", "prometheus_client"), ("litellm", "litellm", "litellm, mcp", "mcp"),
            ("langchain", "langchain-openai", "langchain_openai"), ("instructor", "instructor", "instructor"),
            ("anthropic", "anthropic", "anthropic")]
CLIENTS = ",".join([*(entry[0] for entry in PACKAGES), "curl", "llm", "lm-eval", "router", "router-kv", "router-pd", "schema"])
FULL = ["--max-batch", "1", "--max-waiting", "0"]


def client_python(venvs, package, probe, *others):
    """The Python of `package`'s environment if the module `probe` is there or can be installed; else None."""
    try:
        return lib.environment(os.path.join(venvs, package.split("[")[0]), [package, *others], probe)
    except subprocess.CalledProcessError:
        lib.say(f"skipped {package}: cannot install it")
        return None


def program_of(venvs, name, *package):
    """The program `name` of a package, or None if it cannot be installed."""
    python = client_python(venvs, *package)
    return python and os.path.join(os.path.dirname(python), name)


def ask(url, body, key=KEY):
    """The status and JSON of a POST."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, {}
    except OSError:
        return 0, {}


class Checks:
    def __init__(self):
        self.failed = 0

    def report(self, name, passed, detail=""):
        self.failed += not passed
        print(f"{'ok    ' if passed else 'FAILED'} {name}{': ' + detail if detail and not passed else ''}", flush=True)

    def run(self, name, command, variables=None, seconds=300, cwd=None):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=cwd,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(variables or {})})
        if done.stdout.startswith(("ok ", "FAILED ")):  # the worker prints its own report
            print(done.stdout, end="", flush=True)
            self.report(name, done.returncode == 0, done.stderr[-3000:])
        else:
            self.report(name, done.returncode == 0, (done.stdout + done.stderr)[-3000:])
        return done.stdout


def check_curl(checks, server):
    """`curl -N` shows a stream piece by piece, and the status of errors."""
    curl = shutil.which("curl")
    if curl is None:
        lib.say("skipped curl: it is not installed")
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
    # For a body of this size curl sends "Expect: 100-continue", which is answered before the body
    # is sent.
    with serving.tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(b'{"prompt": "' + b"a" * (5 << 20) + b'"}')
        file.flush()
        status = subprocess.run([curl, "-sS", "-o", os.devnull, "-w", "%{http_code} %{size_upload}", "-d", f"@{file.name}", "-H",
                                 f"Authorization: Bearer {KEY}", server.url() + "/v1/completions"],
                                capture_output=True, text=True, timeout=60).stdout
    checks.report("curl: 413 before the body is sent", status == "413 0", status)


def check_llm(checks, server, venvs):
    """The program `llm`, which reads the server's address from a file."""
    program = program_of(venvs, "llm", "llm", "llm")
    if program is None:
        return
    with serving.tempfile.TemporaryDirectory(prefix="tandem_llm_") as folder:
        with open(os.path.join(folder, "extra-openai-models.yaml"), "w", encoding="utf-8") as file:
            file.write(f"- model_id: story\n  model_name: story\n  api_base: {server.url()}/v1\n  api_key_name: tandem\n")
        said = checks.run("llm", [program, "-m", "story", "--key", KEY, "-o", "max_tokens", "16", "-o", "temperature", "0", "Once upon a time"],
                          {"LLM_USER_PATH": folder})
        whole = checks.run("llm --no-stream", [program, "-m", "story", "--key", KEY, "--no-stream", "-o", "max_tokens", "16", "-o", "temperature", "0",
                                               "Once upon a time"], {"LLM_USER_PATH": folder})
        checks.report("llm: the stream equals the whole answer", len(said) > 10 and said == whole, f"{said!r} {whole!r}")


TASK = """task: tandem_story
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/items.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
metric_list:
  - metric: acc
"""
# The likely continuation comes first. It is obvious even to a small model.
ITEMS = [{"text": "Once upon a", "choices": ["time", "xylophone"]}, {"text": "The little girl was very", "choices": ["happy", "of"]},
         {"text": "One day, a little girl went to the", "choices": ["park", "and"]}]


def check_lm_eval(checks, server, venvs):
    """lm-eval scores choices by the log-probabilities of echoed prompts. This script writes the items and the task."""
    program = program_of(venvs, "lm_eval", "lm-eval[api]", "transformers", "transformers")
    if program is None:
        return
    with serving.tempfile.TemporaryDirectory(prefix="tandem_lm_eval_") as folder:
        with open(os.path.join(folder, "task.yaml"), "w", encoding="utf-8") as file:
            file.write(TASK.format(folder=folder))
        with open(os.path.join(folder, "items.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in ITEMS)
        tokenizers = {"its own": f"tokenizer={serving.TARGET},tokenizer_backend=huggingface",
                      "the server's": f"tokenizer_backend=remote,auth_token={KEY}"}
        for whose, tokenizer in tokenizers.items():
            arguments = f"model=story,base_url={server.url()}/v1/completions,{tokenizer},max_retries=1"
            shown = checks.run("lm-eval", [program, "--model", "local-completions", "--model_args", arguments, "--tasks", "tandem_story",
                                           "--include_path", folder], {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "HF_HOME": folder}, seconds=600)
            found = re.search(r"\|acc\s*\|[^|]*\|\s*([0-9.]+)", shown)
            checks.report(f"lm-eval with {whose} tokenizer: the likely continuations score higher",
                          found is not None and float(found.group(1)) == 1, shown[-800:])


@contextlib.contextmanager
def running_router(router, *arguments):
    """Runs vllm-router with these arguments and yields its URL. It may not answer yet."""
    port = free_port()
    process = subprocess.Popen([router, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
                                "--worker-startup-check-interval", "1", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def await_answer(url, body):
    """Waits until a router that was just started answers a completion."""
    for _ in range(300):
        if ask(url + "/v1/completions", body)[0] == 200:
            return
        time.sleep(0.2)


def check_router(checks, program, venvs):
    """vllm-router in front of two servers alternates between them, forwards streams, and continues when one is killed."""
    router = program_of(venvs, "vllm-router", "vllm-router", "vllm_router")
    if router is None:
        return
    options = ["--threads", "1", "--kv-memory", "64M", "--model-name", "story", *serving.PAIR]
    with serving.Server(program, options) as first, serving.Server(program, options) as second:
        with running_router(router, "--policy", "round_robin", "--worker-urls", first.url(), second.url()) as url:
            body = {"model": "story", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
            await_answer(url, body)
            answers = [ask(url + "/v1/completions", body) for _ in range(6)]
            texts = {answer["choices"][0]["text"] for status, answer in answers if status == 200}
            checks.report("router: completions", all(status == 200 for status, _ in answers) and len(texts) == 1, answers)
            chat = {"model": "story", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 8, "temperature": 0}
            checks.report("router: chats", ask(url + "/v1/chat/completions", chat)[0] == 200)
            checks.report("router: responses", ask(url + "/v1/responses", {"model": "story", "input": "Once", "max_output_tokens": 8})[0] == 200)
            request = urllib.request.Request(url + "/v1/chat/completions", json.dumps({**chat, "stream": True}).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as stream:
                checks.report("router: streams", stream.read().endswith(b"data: [DONE]\n\n"))
            both = [one.log().count("path=/v1/completions") for one in (first, second)]
            checks.report("router: alternates", min(both) >= 3, both)
            first.process.kill()
            statuses = [ask(url + "/v1/completions", body)[0] for _ in range(6)]
            checks.report("router: continues with one of two", statuses == [200] * 6, statuses)


def check_kv_router(checks, program, venvs):
    """vllm-router sends a prompt to the server whose events say that it has the prompt's pages."""
    router = program_of(venvs, "vllm-router", "vllm-router", "vllm_router")
    if router is None:
        return

    def cached(url, prompt):
        status, answer = ask(url + "/v1/completions", {"model": "story", "prompt": prompt, "max_tokens": 4, "temperature": 0})
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"] if status == 200 else -1

    def story(*words):
        return f"Once upon a time there was a {' '.join(map(str, words))} who lived in a small house at the end of the forest. " * 3

    sources = [[f"tcp://127.0.0.1:{free_port()}" for _ in range(2)] for _ in range(2)]
    options = [["--threads", "1", "--kv-memory", "64M", "--model-name", "story", *serving.PAIR, "--kv-events", live, "--kv-events-replay", again]
               for live, again in sources]
    with serving.Server(program, options[0]) as first, serving.Server(program, options[1]) as second:
        servers = (first, second)
        arguments = ["--policy", "kv_aware", "--kv-event-model", "story", "--worker-urls", first.url(), second.url()]
        for server, (live, again) in zip(servers, sources):
            arguments += ["--kv-event-source", f"{server.url()}={live}", "--kv-event-replay-source", f"{server.url()}={again}"]
        with running_router(router, *arguments) as url:
            # Waits until the router runs and has subscribed to both.
            for server in servers:
                for attempt in range(300):
                    prompt = story("lion", server.port, attempt)
                    cached(server.url(), prompt)
                    time.sleep(0.2)
                    if cached(url, prompt) > 0:
                        break
            prompts = [story("mouse", index) for index in range(10)]
            for index, prompt in enumerate(prompts):
                cached(servers[index % 2].url(), prompt)
            time.sleep(1)
            hits = [cached(url, prompt) for prompt in prompts]
            checks.report("router-kv: prompts go where their pages are", min(hits) >= 64, hits)
            before = [server.metrics()["tandem_num_requests_running"] for server in servers]
            checks.report("router-kv: both are left idle", before == [0, 0], before)


def check_disaggregating_router(checks, program, venvs):
    """The published vllm-router lets one server read prompts and another write the answers, which equal those of a single server."""
    router = program_of(venvs, "vllm-router", "vllm-router", "vllm_router")
    if router is None:
        return
    options = ["--threads", "1", "--kv-memory", "64M", "--model-name", "story", *serving.PAIR]
    workers = [*options, "--kv-transfer", "127.0.0.1:0"]
    os.environ["TANDEM_KV_TRANSFER_SECRET"] = secrets.token_hex(32)
    with serving.Server(program, workers) as prefill, serving.Server(program, workers) as decode, serving.Server(program, options) as alone:
        with running_router(router, "--vllm-pd-disaggregation", "--prefill", prefill.url(), "--decode", decode.url()) as url:
            await_answer(url, {"model": "story", "prompt": "A", "max_tokens": 1})

            def said(where, path, body):
                status, answer = ask(where + path, {"model": "story", "max_tokens": 12, **body})
                return answer["choices"][0].get("text") or answer["choices"][0].get("message") if status == 200 else (where, answer)

            text = "Once upon a time there was a mouse who lived in a small house at the end of the forest. " * 8
            bodies = [("/v1/completions", {"prompt": f"{number} {text}", "temperature": number % 2 * 0.8, "seed": number}) for number in range(8)]
            bodies.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "temperature": 0}))
            differing = [body for path, body in bodies if said(url, path, body) != said(alone.url(), path, body)]
            checks.report("router-pd: answers equal those of one server", not differing, differing)
            streamed = {"model": "story", "prompt": f"stream {text}", "max_tokens": 8, "stream": True}
            request = urllib.request.Request(url + "/v1/completions", json.dumps(streamed).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as stream:
                checks.report("router-pd: streams", stream.read().endswith(b"data: [DONE]\n\n"))
            metrics = decode.metrics()
            checks.report("router-pd: pages are transferred", metrics["tandem_kv_transfers_total"] >= 8 and metrics["tandem_kv_transfer_pages_hit_total"] > 0,
                          {name: value for name, value in metrics.items() if "kv_transfer" in name})


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def check_schema(checks, server, venvs, examples):
    program = program_of(venvs, "schemathesis", "schemathesis", "schemathesis")
    if program is None:
        return
    with serving.tempfile.TemporaryDirectory(prefix="tandem_schema_") as folder:
        checks.run("schemathesis: no server errors, and answers match the document",
                   [program, "run", server.url() + "/openapi.json", "-H", f"Authorization: Bearer {KEY}", "--seed", "1", "--checks",
                    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
                    "unsupported_method", "--max-examples", str(examples), "--max-failures", "5", "--no-color",
                    "--request-timeout", "60"], seconds=1800, cwd=folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--venvs", default=lib.default_folder("tandem_clients"), help="folder of the clients' environments, made if missing")
    parser.add_argument("--only", default=CLIENTS, help=f"some of {CLIENTS}")
    parser.add_argument("--examples", type=int, default=50, help="examples of schemathesis per path")
    args = parser.parse_args()
    checks, wanted = Checks(), args.only.split(",")
    options = ["--threads", "2", "--kv-memory", "64M", "--api-key", KEY, "--model-name", "story"]
    pair = [*options, *serving.PAIR]
    with serving.tempfile.TemporaryDirectory(prefix="tandem_thinking_") as folder, serving.Server(args.bin, pair) as server, \
            serving.Server(args.bin, [*pair, *FULL]) as full:
        clients_models.make_thinking_model(serving.TARGET, folder)
        with serving.Server(args.bin, [*options, "--target", folder, "--drafter", "ngram"]) as calls:
            check_all(checks, wanted, args, server, full, calls)
    sys.exit(1 if checks.failed else 0)


def check_all(checks, wanted, args, server, full, calls):
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients_worker.py")
    variables = {"TANDEM_URL": server.url(), "TANDEM_FULL_URL": full.url(), "TANDEM_CALLS_URL": calls.url(), "TANDEM_KEY": KEY}
    for name, package, probe, *others in PACKAGES:
        python = client_python(args.venvs, package, probe, *others) if name in wanted else None
        if python is not None:
            checks.run(package, [python, worker, name], variables)
    if "curl" in wanted:
        check_curl(checks, server)
    if "llm" in wanted:
        check_llm(checks, server, args.venvs)
    if "lm-eval" in wanted:
        check_lm_eval(checks, server, args.venvs)
    if "router" in wanted:
        check_router(checks, args.bin, args.venvs)
    if "router-kv" in wanted:
        check_kv_router(checks, args.bin, args.venvs)
    if "router-pd" in wanted:
        check_disaggregating_router(checks, args.bin, args.venvs)
    if "schema" in wanted:
        check_schema(checks, server, args.venvs, args.examples)
    for one in (server, full, calls):
        status = one.stop()
        checks.report("the server ends with 0 and without an error", status == 0 and "[error]" not in one.log(), one.log()[-2000:])


if __name__ == "__main__":
    main()
