"""The files of deploy/ for separate prefill and decode workers: deploy_disaggregated_test.py TANDEM [unittest's arguments]

Checks options, probes, ports, secrets, names and the router's arguments, like deploy_test.py does for the other files.
Each check sees a planted fault.
"""
import importlib.util
import ipaddress
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import deploy_test as deploy  # noqa: E402

COMPOSE = deploy.DEPLOY / "compose.disaggregated.yaml"
MANIFESTS = deploy.DEPLOY / "kubernetes/disaggregated.yaml"
POOLS = ("prefill", "decode")
# The options used here that `vllm-router --help` 0.1.17 lists.
ROUTER_OPTIONS = {"--host", "--port", "--prometheus-host", "--prometheus-port", "--vllm-pd-disaggregation", "--prefill",
                  "--decode", "--prefill-policy", "--decode-policy", "--health-check-endpoint",
                  "--health-check-interval-secs", "--health-failure-threshold", "--worker-startup-check-interval"}
WORKER_PORT, TRANSFER_PORT = "8080", "7777"


def services():
    return deploy.load_yaml(COMPOSE)[0]["services"]


def objects(kind):
    return {entry["metadata"]["name"]: entry for entry in deploy.load_yaml(MANIFESTS) if entry["kind"] == kind}


def pod_of(entry):
    return entry["spec"]["template"]


def container_of(entry):
    (one,) = pod_of(entry)["spec"]["containers"]
    return one


def with_fields(name, arguments):
    """The container's arguments, as Kubernetes gives them to the first pod of a StatefulSet."""
    fields = {"metadata.name": f"{name}-0", "status.podIP": "10.1.2.3"}
    text = "\0".join(arguments)
    for entry in container_of(objects("StatefulSet")[name])["env"]:
        text = text.replace(f"$({entry['name']})", fields[entry["valueFrom"]["fieldRef"]["fieldPath"]])
    assert "$(" not in text, text
    return text.split("\0")


def workers():
    """The arguments of each kind of worker and the name that the router has for it, by their source."""
    found = {}
    for name, entry in services().items():
        if name.startswith(POOLS):
            found[f"compose {name}"] = (entry["command"], name)
    for name, entry in objects("StatefulSet").items():
        found[f"kubernetes {name}"] = (with_fields(name, container_of(entry)["args"]), f"{name}-0.{name}")
    return found


def routers():
    return {"compose": services()["router"]["command"],
            "kubernetes": container_of(objects("Deployment")["tandem-router"])["args"]}


def value(arguments, option):
    return arguments[arguments.index(option) + 1]


def values(arguments, option):
    return [after for word, after in zip(arguments, arguments[1:]) if word == option]


def unreached(arguments, names):
    """Workers that the router with these arguments does not use, and names in its arguments that no worker has."""
    asked = values(arguments, "--prefill") + values(arguments, "--decode")
    return sorted(set(asked) ^ {f"http://{name}:{WORKER_PORT}" for name in names})


def helped():
    return subprocess.run([deploy.PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout


def secret_file():
    file = tempfile.NamedTemporaryFile(mode="w")  # with mode 0600
    file.write(f"{secrets.token_hex(32)}\n")
    file.flush()
    return file


def for_this_machine(arguments, secret):
    """The arguments with an address and a secret of this machine."""
    found = list(arguments)
    for option, given in (("--kv-transfer", "127.0.0.1:0"), ("--kv-transfer-secret-file", secret)):
        found[found.index(option) + 1] = given
    return found


class Disaggregated(unittest.TestCase):
    def test_has_both_pools_and_a_router(self):
        for pool in POOLS:
            self.assertEqual(sum(name.startswith(f"compose {pool}") for name in workers()), 2)
            self.assertEqual(objects("StatefulSet")[f"tandem-{pool}"]["spec"]["replicas"], 2)
        self.assertEqual(set(routers()), {"compose", "kubernetes"})

    def test_options_exist_in_the_program(self):
        known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helped()))
        for where, (arguments, _) in workers().items():
            self.assertEqual(deploy.unknown_options(arguments, known), [], where)
        for where, arguments in routers().items():
            self.assertEqual(deploy.unknown_options(arguments, ROUTER_OPTIONS), [], where)
        self.assertEqual(deploy.unknown_options(["--prefil", "x"], ROUTER_OPTIONS), ["--prefil"])

    def test_every_worker_serves_only_the_router_and_drains(self):
        with secret_file() as secret:
            for where, (arguments, name) in workers().items():
                with self.subTest(where), deploy.server(for_this_machine(arguments, secret.name)) as (port, process):
                    host = {"Host": f"{name}:{WORKER_PORT}"}
                    for path in ("/health", "/ready", "/metrics"):  # the router requests these without a key
                        self.assertEqual(deploy.get(port, path, **host)[0], 200, path)
                    self.assertEqual(deploy.get(port, "/v1/models", **host)[0], 401)
                    key = {"Authorization": f"Bearer {deploy.KEY}"}
                    self.assertEqual(deploy.get(port, "/v1/models", **host, **key)[0], 200)
                    self.assertEqual(deploy.get(port, "/v1/models", Host="elsewhere.example", **key)[0], 403)
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(process.wait(), 0)

    def test_the_router_uses_every_worker(self):
        compose = [name for name in services() if name.startswith(POOLS)]
        kubernetes = [f"{name}-{i}.{entry['spec']['serviceName']}" for name, entry in objects("StatefulSet").items()
                      for i in range(entry["spec"]["replicas"])]
        for where, names in (("compose", compose), ("kubernetes", kubernetes)):
            arguments = routers()[where]
            self.assertEqual(unreached(arguments, names), [], where)
            self.assertEqual(len(unreached(arguments, names[1:])), 1)
            for option in ("prefill", "decode"):
                self.assertTrue(all(option in url for url in values(arguments, f"--{option}")), where)
            # A worker that drains or has ended gets requests until the next health check, and they
            # are not retried.
            self.assertEqual(value(arguments, "--health-check-endpoint"), "/ready")
            self.assertLessEqual(int(value(arguments, "--health-check-interval-secs")), 5)
            self.assertEqual(value(arguments, "--health-failure-threshold"), "1")

    def test_workers_are_of_one_kind(self):
        """Pages have the same bits only if these values are the same."""
        for where in ("compose", "kubernetes"):
            own = [arguments for name, (arguments, _) in workers().items() if name.startswith(where)]
            for option in ("--target", "--draft"):
                self.assertEqual(len({value(arguments, option) for arguments in own}), 1, (where, option))
        self.assertEqual(len({container_of(entry)["image"] for entry in objects("StatefulSet").values()}), 1)

    def test_pages_are_served_at_reachable_addresses(self):
        for where, (arguments, name) in workers().items():
            host, port = value(arguments, "--kv-transfer").split(":")
            self.assertEqual(port, TRANSFER_PORT, where)
            self.assertEqual(host, name if where.startswith("compose") else "10.1.2.3", where)
            self.assertIn("--kv-transfer-secret-file", arguments)
            for peers in value(arguments, "--kv-transfer-peers").split(","):
                network, _, port = peers.rpartition(":")
                self.assertTrue(ipaddress.ip_network(network).is_private, where)
                self.assertEqual(port, TRANSFER_PORT, where)
        for entry in objects("StatefulSet").values():
            ports = {port["name"]: str(port["containerPort"]) for port in container_of(entry)["ports"]}
            self.assertEqual(ports, {"http": WORKER_PORT, "kv-transfer": TRANSFER_PORT})

    def test_keys_and_secrets_are_mounted_and_not_in_files(self):
        compose = deploy.load_yaml(COMPOSE)[0]
        for secret in compose["secrets"].values():
            self.assertRegex(secret["file"], r"^\$\{\w+:\?")  # without the file the server does not start
        for name, entry in services().items():
            if not name.startswith(POOLS):
                continue
            mounted = [f"/run/secrets/{secret}" for secret in entry["secrets"]]
            for option in ("--api-key-file", "--kv-transfer-secret-file"):
                self.assertIn(value(entry["command"], option), mounted, name)
        for entry in [*objects("StatefulSet").values(), *objects("Deployment").values()]:
            spec, one = pod_of(entry)["spec"], container_of(entry)
            secrets = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
            paths = [mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] in secrets]
            named = [one["args"][i + 1] for i, word in enumerate(one["args"]) if word.endswith("-file")]
            named += [variable["value"] for variable in one["env"] if variable["name"] == "KEY_FILE"]
            for path in named:
                self.assertIn(str(pathlib.Path(path).parent), paths)
            self.assertEqual(len(named), len(secrets))
        self.assertEqual(objects("Secret"), {})
        # The router does not require a key from its clients.
        self.assertEqual(services()["router"]["ports"], ["127.0.0.1:8000:8000"])
        self.assertNotIn("type", objects("Service")["tandem-router"]["spec"])

    def test_the_network_lets_only_workers_fetch_pages(self):
        (policy,) = objects("NetworkPolicy").values()
        allowed = [(rule["from"][0]["podSelector"]["matchLabels"]["app"], [entry["port"] for entry in rule["ports"]])
                   for rule in policy["spec"]["ingress"]]
        self.assertEqual(allowed, [("tandem-router", ["http"]), ("tandem-worker", ["kv-transfer"])])
        labels = {pod_of(entry)["metadata"]["labels"]["app"] for entry in objects("StatefulSet").values()}
        self.assertEqual(labels, {policy["spec"]["podSelector"]["matchLabels"]["app"]})
        # The service of plain replicas does not select these pods either.
        self.assertNotIn(deploy.objects("Service")[0]["spec"]["selector"]["app"], labels)

    def test_selectors_ports_and_times_agree(self):
        everything = {**objects("StatefulSet"), **objects("Deployment")}
        for name, entry in everything.items():
            labels, one = pod_of(entry)["metadata"]["labels"], container_of(entry)
            selectors = [entry["spec"]["selector"]["matchLabels"], objects("Service")[name]["spec"]["selector"]]
            if name in objects("PodDisruptionBudget"):
                selectors.append(objects("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"])
            for selector in selectors:
                self.assertEqual(selector, labels)
            ports = {port["name"]: port["containerPort"] for port in one["ports"]}
            self.assertIn(objects("Service")[name]["spec"]["ports"][0]["targetPort"], ports)
            self.assertEqual(int(value(one["args"], "--port")), ports["http"])
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertIn(one[probe]["httpGet"]["port"], ports)
        for name, entry in objects("StatefulSet").items():
            one = container_of(entry)
            self.assertEqual([one[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")],
                             ["/ready", "/ready", "/health"])
            self.assertLess(deploy.drain_of(one["args"]), pod_of(entry)["spec"]["terminationGracePeriodSeconds"])
            self.assertEqual(value(one["args"], "--threads"), one["resources"]["limits"]["cpu"])
            self.assertEqual(objects("Service")[name]["spec"]["clusterIP"], "None")
        for name, entry in services().items():
            if name.startswith(POOLS):
                self.assertLess(deploy.drain_of(entry["command"]), deploy.seconds(entry["stop_grace_period"]))
                self.assertEqual(entry["healthcheck"]["test"][1:], ["/opt/tandem/bin/ready.sh", WORKER_PORT])

    def test_prometheus_scrapes_every_worker_and_the_router(self):
        jobs = deploy.load_yaml(deploy.DEPLOY / "prometheus.disaggregated.yml")[0]["scrape_configs"]
        asked = [target for job in jobs for entry in job["static_configs"] for target in entry["targets"]]
        router = f"router:{value(routers()['compose'], '--prometheus-port')}"
        self.assertEqual(sorted(asked), sorted([router, *(f"{name}:{WORKER_PORT}" for name in services()
                                                          if name.startswith(POOLS))]))
        for job in jobs[0]["static_configs"]:
            self.assertTrue(all(target.startswith(job["labels"]["pool"]) for target in job["targets"]))

    def test_the_router_image_installs_only_files_of_known_hashes(self):
        installs = re.findall(r"pip install (.*?) &&", (deploy.DEPLOY / "Dockerfile.router").read_text())
        self.assertEqual(installs, ["--no-cache-dir --no-deps --require-hashes -r router_requirements.txt"])
        lines = (deploy.DEPLOY / "router_requirements.txt").read_text().splitlines()[1:]
        for line in lines:
            self.assertRegex(line, r"^[a-z0-9-]+==[0-9a-z.]+( --hash=sha256:[0-9a-f]{64})+$")
        self.assertTrue(any(line.startswith("vllm-router==0.1.17 ") for line in lines))

    def test_the_router_image_passes_the_key(self):
        text = (deploy.DEPLOY / "Dockerfile.router").read_text()
        (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
        command = deploy.json.loads(entry)
        with tempfile.TemporaryDirectory() as folder:
            stand_in = pathlib.Path(folder) / "vllm-router"
            stand_in.write_text('#!/bin/sh\necho "$OPENAI_API_KEY" "$@"\n')
            stand_in.chmod(0o755)
            key = pathlib.Path(folder) / "key"
            key.write_text("the key\n")
            run = {"PATH": f"{folder}:/usr/bin:/bin", "KEY_FILE": str(key)}
            said = subprocess.run([*command, "--port", "8000"], env=run, capture_output=True, text=True, check=True)
            self.assertEqual(said.stdout, "the key --port 8000\n")
            key.unlink()  # without the key the router does not start
            self.assertNotEqual(subprocess.run(command, env=run, capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    if importlib.util.find_spec("yaml") is None:
        print("skipped: yaml is not installed for", sys.executable)
        sys.exit(77)
    deploy.PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
