"""The files in deploy/ agree with the program: deploy_test.py TANDEM [unittest's arguments]

Every file is parsed; each command line is run with the shipped pair; probes, ports and times are compared with the server;
every metric and label of the dashboard is one that the server exports. Each check also sees a planted fault.
"""

import asyncio
import configparser
import contextlib
import importlib.util
import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # Do not write into the repository.
ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PAIR = {"--target": ROOT / "models/storyteller-7m", "--draft": ROOT / "models/storyteller-1m"}
PROGRAM = pathlib.Path()
KEY = "a-key-of-the-test"


def yaml_files():
    return sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])


def load_yaml(path):
    import yaml
    return list(yaml.safe_load_all(path.read_text()))


def unit():
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read_string((DEPLOY / "tandem.service").read_text())
    return parser


def objects(kind):
    return [entry for entry in load_yaml(DEPLOY / "kubernetes/tandem.yaml") if entry["kind"] == kind]


def container():
    (deployment,) = objects("Deployment")
    (one,) = deployment["spec"]["template"]["spec"]["containers"]
    return one


def docker_lists(name):
    """The list arguments of all Dockerfile instructions of one name."""
    text = (DEPLOY / "Dockerfile").read_text()
    return [json.loads(found) for found in re.findall(rf"^(?:.* )?{name} (\[.*\])$", text, re.MULTILINE)]


# The values that a cluster substitutes for $(NAME), by the fields that they come from.
FIELDS = {"metadata.namespace": "default", "status.podIP": "10.1.2.3"}


def with_fields(arguments):
    """The container's arguments, as Kubernetes gives them to the program."""
    values = {f"$({entry['name']})": FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]] for entry in container()["env"]}
    for name, value in values.items():
        arguments = [argument.replace(name, value) for argument in arguments]
    assert "$(" not in " ".join(arguments), arguments
    return arguments


def command_lines():
    """The program's arguments, by the file that contains them."""
    start = unit()["Service"]["ExecStart"].removesuffix(" $TANDEM_OPTIONS").split()
    assert start[0] == "/usr/bin/tandem"
    start = [word.replace("/etc/tandem", str(DEPLOY / "debian")) for word in start]
    compose = load_yaml(DEPLOY / "compose.yaml")[0]["services"]["tandem"]
    return {"systemd": start[1:], "compose": compose["command"], "kubernetes": with_fields(container()["args"]),
            "Dockerfile": docker_lists("CMD")[-1]}


def unknown_options(arguments, known):
    return [word for word in arguments if word.startswith("-") and word not in known]


def seconds(text):
    found = re.fullmatch(r"(\d+)s?", str(text))
    assert found, f"{text} is not a number of seconds"
    return int(found[1])


def drain_of(arguments):
    return seconds(arguments[arguments.index("--drain-seconds") + 1])


class Exported:
    """The names of an exposition's samples, and the labels of each."""

    def __init__(self, text):
        self.labels = {}
        for line in text.splitlines():
            found = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line)
            if found:
                names = re.findall(r'(\w+)="', found[2] or "")
                self.labels.setdefault(found[1], set()).update(names)

    def faults(self, expression):
        """The metrics and labels of a PromQL expression that are not exported. Prometheus itself adds `instance` and `job`."""
        faults = []
        metrics = re.findall(r"\b(?:tandem_|vllm:)\w+", expression)
        if not metrics:
            faults.append(f"no metric in {expression}")
        faults += [f"{name} is not exported" for name in metrics if name not in self.labels]
        known = {"instance", "job"}.union(*(self.labels.get(name, set()) for name in metrics))
        asked = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression)
        for listed in re.findall(r"\b(?:by|ignoring|on)\s*\(([^)]*)\)", expression):
            asked += re.findall(r"\w+", listed)
        return faults + [f"no label {label} in {expression}" for label in asked if label not in known]


def expressions(board):
    found = []
    for panel in board["panels"]:
        for target in panel["targets"]:
            found.append(target["expr"])
            names = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            # A legend's label must be one that the expression keeps.
            found += [f"by ({name}) {target['expr']}" for name in names]
    found += [variable["query"]["query"].replace("label_values(", "").rsplit(",", 1)[0]
              for variable in board["templating"]["list"] if variable["type"] == "query"]
    return found


@contextlib.contextmanager
def server(arguments):
    """Runs the program with these arguments, but with the test's models and port. Yields its port and process."""
    arguments = list(map(str, arguments))
    for option, value in {**PAIR, "--port": 0}.items():
        if option in arguments:
            arguments[arguments.index(option) + 1] = str(value)
        else:
            arguments += [option, str(value)]
    if "--threads" in arguments:
        arguments[arguments.index("--threads") + 1] = "1"
    with tempfile.TemporaryFile(mode="w+") as log, tempfile.NamedTemporaryFile(mode="w") as key:
        key.write(KEY + "\n")
        key.flush()
        if "--api-key-file" in arguments:
            arguments[arguments.index("--api-key-file") + 1] = key.name
        process = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=log)
        try:
            while True:
                log.seek(0)
                text = log.read()
                found = re.search(r"address=http://[\d.]+:(\d+)", text)
                if found:
                    break
                if process.poll() is not None:
                    raise AssertionError(f"{shlex.join(arguments)} ended: {text}")
                time.sleep(0.01)
            yield int(found[1]), process
        finally:
            process.kill()
            process.wait()


def get(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def probe_paths():
    one = container()
    return {name: one[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}


class Deploy(unittest.TestCase):
    def test_every_file_is_parsed(self):
        self.assertGreater(len(yaml_files()), 4)
        for path in yaml_files():
            with self.subTest(path.name):
                self.assertTrue(all(load_yaml(path)))
        self.assertEqual(set(unit().sections()), {"Unit", "Service", "Install"})

    def test_options_exist_in_the_program(self):
        helped = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helped))
        for where, arguments in command_lines().items():
            with self.subTest(where):
                self.assertEqual(arguments[0], "serve")
                self.assertEqual(unknown_options(arguments, known), [])
        self.assertEqual(unknown_options(["serve", "--port", "1", "--prot"], known), ["--prot"])

    def test_options_of_the_debian_package_exist_in_the_program(self):
        text = (DEPLOY / "debian/config.toml").read_text()
        every = re.sub(r"^#(?=[a-z-]+ = )", "", text, flags=re.MULTILINE)
        self.assertGreater(every.count("\n#"), 5)
        for options, status in ((text, 0), (every, 0), (every.replace("port =", "prot ="), 2)):
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(options)
                file.flush()
                helped = subprocess.run([PROGRAM, "help", "--config", file.name], capture_output=True, check=False)
                self.assertEqual(helped.returncode, status, helped.stderr)

    def test_every_command_line_serves_and_drains(self):
        for where, arguments in command_lines().items():
            with self.subTest(where), server(arguments) as (port, process):
                for path in {*probe_paths().values(), "/metrics"}:
                    self.assertEqual(get(port, path)[0], 200, path)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(), 0)
        with self.assertRaisesRegex(AssertionError, "ended"), server(["serve", "--prot", "1"]):
            pass

    def test_pages_of_other_sites_cannot_reach_the_server(self):
        """Clients without a key do not reach it either, if other machines can connect."""
        self.assertIn("--api-key-file", command_lines()["compose"])
        self.assertIn("--api-key-file", command_lines()["kubernetes"])
        known_by = {"compose": "tandem:8080", "kubernetes": f"{FIELDS['status.podIP']}:8080"}
        for where, arguments in command_lines().items():
            with self.subTest(where), server(arguments) as (port, _):
                authorization = {"Authorization": f"Bearer {KEY}"}
                # An attacker's host name that now resolves to this address (DNS rebinding).
                for path in ("/", "/metrics", "/v1/models"):
                    self.assertEqual(get(port, path, Host=f"elsewhere.example:{port}", **authorization)[0], 403, path)
                self.assertEqual(get(port, "/v1/models", **authorization)[0], 200)
                self.assertEqual(get(port, "/v1/models")[0], 401 if where in known_by else 200)
                for path in {*probe_paths().values(), "/metrics"}:
                    self.assertEqual(get(port, path, Host=known_by.get(where, "localhost"))[0], 200, path)

    def test_keys_are_secrets_and_not_in_files(self):
        compose = load_yaml(DEPLOY / "compose.yaml")[0]
        ((name, secret),) = compose["secrets"].items()
        self.assertRegex(secret["file"], r"^\$\{\w+:\?")  # without the file the server does not start
        command = compose["services"]["tandem"]["command"]
        self.assertEqual(command[command.index("--api-key-file") + 1], f"/run/secrets/{name}")
        self.assertEqual(compose["services"]["tandem"]["secrets"], [name])
        grafana = compose["services"]["grafana"]["environment"]
        self.assertEqual((grafana["GF_SERVER_DOMAIN"], grafana["GF_SERVER_ENFORCE_DOMAIN"]), ("localhost", "true"))
        (deployment,) = objects("Deployment")
        (volume,) = [entry for entry in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in entry]
        (mount,) = [entry for entry in container()["volumeMounts"] if entry["name"] == volume["name"]]
        arguments = container()["args"]
        self.assertEqual(arguments[arguments.index("--api-key-file") + 1], f"{mount['mountPath']}/key")
        self.assertEqual(objects("Secret"), [])
        for path in yaml_files():
            self.assertNotRegex(path.read_text(), r"--api-key\b(?!-file)|TANDEM_API_KEY\s*[:=]", path.name)
        (target,) = load_yaml(DEPLOY / "prometheus.yml")[0]["scrape_configs"][0]["static_configs"][0]["targets"]
        self.assertIn(target.split(":")[0], command[command.index("--allowed-hosts") + 1].split(","))

    def test_ports_and_times_agree(self):
        lines = command_lines()
        for where, arguments in lines.items():
            if where != "systemd":  # which leaves the port to its file of options
                self.assertEqual(arguments[arguments.index("--port") + 1], "8080", where)
        (deployment,), (service,) = objects("Deployment"), objects("Service")
        pod = deployment["spec"]["template"]
        (port,) = container()["ports"]
        self.assertEqual(port["containerPort"], 8080)
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], port["name"])
        for probe in probe_paths():
            self.assertEqual(container()[probe]["httpGet"]["port"], port["name"])
        for selector in (service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"],
                         objects("PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"]):
            self.assertEqual(selector, pod["metadata"]["labels"])
        self.assertEqual(pod["metadata"]["annotations"]["prometheus.io/port"], "8080")
        # The service managers' stop timeouts are longer than the server's own drain time.
        pause = seconds(container()["lifecycle"]["preStop"]["exec"]["command"][1])
        self.assertLess(drain_of(lines["kubernetes"]) + pause, pod["spec"]["terminationGracePeriodSeconds"])
        self.assertLess(drain_of(lines["systemd"]), seconds(unit()["Service"]["TimeoutStopSec"]))
        compose = load_yaml(DEPLOY / "compose.yaml")[0]["services"]["tandem"]
        self.assertLess(drain_of(lines["compose"]), seconds(compose["stop_grace_period"]))
        threads = lines["kubernetes"][lines["kubernetes"].index("--threads") + 1]
        self.assertEqual(threads, container()["resources"]["limits"]["cpu"])

    def test_container_health_checks_report_readiness(self):
        compose = load_yaml(DEPLOY / "compose.yaml")[0]["services"]["tandem"]["healthcheck"]["test"]
        for check in (compose[1:], docker_lists("CMD")[0]):
            self.assertEqual(check, ["/opt/tandem/bin/ready.sh", "8080"])
        script = DEPLOY / "ready.sh"
        with server(["serve"]) as (port, _):
            self.assertEqual(subprocess.run([script, str(port)], check=False).returncode, 0)
        gone = subprocess.run([script, str(port)], capture_output=True, check=False)
        self.assertNotEqual(gone.returncode, 0)

    def test_the_image_copies_existing_files(self):
        copied = re.findall(r"^COPY (?!--from)(\S+) ", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
        self.assertIn("deploy/ready.sh", copied)
        for path in copied:
            self.assertTrue((ROOT / path).exists(), path)
        mounted = load_yaml(DEPLOY / "compose.yaml")[0]["services"]
        for entry in ("prometheus", "grafana"):
            for volume in mounted[entry]["volumes"]:
                self.assertTrue((DEPLOY / volume.split(":")[0]).exists(), volume)

    def test_the_dashboard_uses_exported_metrics(self):
        board = json.loads((DEPLOY / "grafana/tandem.json").read_text())
        with server(["serve", "--draft-tokens", "2"]) as (port, _):
            body = json.dumps({"prompt": "Once upon a time", "max_tokens": 32}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", body):
                pass
            # Answers are counted after they are sent.
            for _ in range(100):
                text = get(port, "/metrics")[1]
                if "tandem_http_responses_total{" in text:
                    break
            exported = Exported(text)
        self.assertGreater(len(expressions(board)), 20)
        for expression in expressions(board):
            self.assertEqual(exported.faults(expression), [])
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))

    def test_the_dashboard_shows_where_time_is_spent(self):
        asked = " ".join(expressions(json.loads((DEPLOY / "grafana/tandem.json").read_text())))
        for name in ("request_queue_time_seconds_sum", "request_prompt_time_seconds_sum", "request_decode_part_seconds_total"):
            self.assertIn("tandem_" + name, asked)

    def test_the_check_of_the_dashboard_sees_faults(self):
        exported = Exported('# TYPE tandem_a counter\ntandem_a{kind="x"} 1\ntandem_b_bucket{le="1"} 2\n')
        self.assertEqual(exported.faults('sum by (kind) (rate(tandem_a{instance=~"$instance"}[1m]))'), [])
        self.assertEqual(exported.faults("tandem_c"), ["tandem_c is not exported"])
        self.assertEqual(len(exported.faults("sum by (sort) (tandem_a)")), 1)
        self.assertEqual(len(exported.faults('tandem_a{sort="x"}')), 1)
        self.assertEqual(len(exported.faults("up")), 1)


class Continuation(unittest.TestCase):
    """deploy/ray/continuation.py: the rest that a stream must send when another replica starts it again."""

    def setUp(self):
        sys.path.insert(0, str(DEPLOY / "ray"))
        self.module = __import__("continuation")

    def tearDown(self):
        sys.path.pop(0)

    @staticmethod
    def event(text, index=0, finish=None):
        return b"data: " + json.dumps({"id": "x", "choices": [
            {"index": index, "text": text, "token_ids": list(map(ord, text)), "finish_reason": finish}]}).encode()

    def text_of(self, carried):
        texts = {}
        for line in carried:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    text = choice.get("text") or choice.get("delta", {}).get("content") or ""
                    texts[choice["index"]] = texts.get(choice["index"], "") + text
                    self.assertEqual(choice.get("token_ids", list(map(ord, text))), list(map(ord, text)))
        return texts

    def test_every_cut_is_continued_by_every_other_division(self):
        text = "A\u00e9 fox!"
        divisions = [[text[i:i + size] for i in range(0, len(text), size)] for size in (1, 2, 3, len(text))]
        for first in divisions:
            for second in divisions:
                for cut in range(len(first) + 1):
                    so_far = self.module.TextSoFar()
                    carried = [so_far.rest_of(self.event(part)) for part in first[:cut]]
                    so_far.restart()
                    carried += [so_far.rest_of(self.event(part)) for part in second]
                    carried.append(so_far.rest_of(self.event("", finish="stop")))
                    self.assertEqual(self.text_of(carried), {0: text}, (first, second, cut))
                    self.assertIn(b"stop", carried[-1])

    def test_two_losses_and_two_choices(self):
        so_far = self.module.TextSoFar()
        carried = [so_far.rest_of(self.event("ab")), so_far.rest_of(self.event("x", 1))]
        so_far.restart()
        carried += [so_far.rest_of(self.event("a")), so_far.rest_of(self.event("xy", 1))]
        so_far.restart()
        carried += [so_far.rest_of(self.event("abc")), so_far.rest_of(self.event("xyz", 1))]
        self.assertEqual(self.text_of(carried), {0: "abc", 1: "xyz"})

    def test_chats_and_other_events(self):
        so_far = self.module.TextSoFar()
        role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
        said = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}'
        usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'
        carried = [so_far.rest_of(role), so_far.rest_of(said)]
        so_far.restart()
        again = [so_far.rest_of(event) for event in (role, said, usage, b"data: [DONE]")]
        self.assertEqual(again[:2], [b"", b""])  # they were sent before
        self.assertIn(b"usage", again[2])
        self.assertEqual(again[3], b"data: [DONE]")
        self.assertEqual(self.text_of(carried + again[:2]), {0: "Hi"})

    def test_a_stream_that_ends_early_is_lost(self):
        async def read(chunks):
            async def source():
                for chunk in chunks:
                    yield chunk
            return [event async for event in self.module.events(source())]

        self.assertEqual(asyncio.run(read([b"data: 1\n", b"\ndata: [DO", b"NE]\n\n"])),
                         [b"data: 1", b"data: [DONE]"])
        with self.assertRaises(self.module.LostServer):
            asyncio.run(read([b"data: 1\n\n"]))

    def test_a_server_log_is_bounded(self):
        """It is bounded however much a server writes, and however long its lines are."""
        script = "import os\nfor i in range(400): os.write(2, b'line %d\\n' % i + b'x' * 30000 + b'\\n')"
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
        lines = []
        log = self.module.LogTail(process.stderr, lambda line: lines.append(len(line)))
        self.assertEqual(process.wait(), 0)
        log.join()
        process.stderr.close()
        text = log.text()
        self.assertLessEqual(len(text), self.module.KEPT_LINES * self.module.LONGEST_LINE)
        self.assertIn("line 399\n", text)
        self.assertNotIn("line 100\n", text)
        self.assertEqual(sum(lines), sum(len(f"line {i}") + 30000 for i in range(400)))
        self.assertLessEqual(max(lines), self.module.LONGEST_LINE)

    def test_the_server_gets_the_origin_and_host_of_a_page(self):
        headers = {"host": "a.example", "origin": "https://b.example", "sec-fetch-site": "cross-site", "cookie": "c",
                   "authorization": "Bearer d", "content-length": "5"}
        self.assertEqual(self.module.forwarded(headers), {
            name: headers[name] for name in ("host", "origin", "sec-fetch-site", "authorization")})

    def test_repeatable_requests_and_prefix_routing(self):
        self.assertTrue(self.module.is_repeatable({"seed": 0}))
        self.assertTrue(self.module.is_repeatable({"temperature": 0}))
        self.assertFalse(self.module.is_repeatable({"temperature": 0.5}))
        self.assertFalse(self.module.is_repeatable({"seed": 0, "speculation": {"verifier": "block"}}))
        prefix = self.module.prefix_of
        self.assertEqual(prefix({"prompt": "a" * 256 + "b"}), prefix({"prompt": "a" * 256 + "c"}))
        self.assertNotEqual(prefix({"messages": [{"role": "user", "content": "a"}]}),
                            prefix({"messages": [{"role": "user", "content": "b"}]}))


if __name__ == "__main__":
    if importlib.util.find_spec("yaml") is None:
        print("skipped: yaml is not installed for", sys.executable)
        sys.exit(77)
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
