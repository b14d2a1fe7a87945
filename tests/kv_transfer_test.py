"""Prompts that one server reads for another: kv_transfer_test.py TANDEM [--seconds N] [unittest's arguments]

Real servers exchange the pages of both models. Whatever happens to a worker or to the link, the answers equal those of a single server, every
request is answered, and every server that is stopped finds all its pages. The tests with slow and cut links need network namespaces,
and are skipped with a message if these cannot be created. With --seconds a further test kills workers and stops them at random under
load for that long, and prints its counts.
"""

import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True  # Do not write into the repository.
SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "benchmarks"))
import serving  # noqa: E402

TANDEM = ""
SECONDS = 0
# Fixed drafts, so that acceptance does not depend on the time of rounds or on a learned head.
PAIR = [*serving.PAIR, "--threads", "1", "-k", "3", "--drafter", "model", "--draft-head-tokens", "0", "--draft-quantize", "none"]
SEED = 11
# The speed that the prefill worker reports. A decode worker that has not read a prompt yet derives
# its waiting time from it.
SLOW = 20.0

ASK = """
import json, sys, urllib.error, urllib.request
url, body, name = sys.argv[1:]
head = {"Content-Type": "application/json", "x-request-id": name}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, body.encode(), head))
except urllib.error.HTTPError as error:
    answer = error
print(answer.read().decode())
"""


def post(server, body, path="/v1/completions", name="test"):
    """The answer, or the error, as JSON."""
    command = [*getattr(server, "wrapper", ()), sys.executable, "-c", ASK, server.url() + path, json.dumps(body), name]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise AssertionError(f"{command[-3]}: {run.stderr}")
    return json.loads(run.stdout)


def said(answer):
    """The part of an answer that must not depend on where it was computed."""
    choice = answer["choices"][0]
    speculation = {key: answer["speculation"][key] for key in ("proposed", "accepted", "rounds")}
    return {key: choice.get(key) for key in ("text", "message", "token_ids", "logprobs", "finish_reason")}, speculation


def prompt(number, length=150):
    return [number % 250 + 3, *random.Random(number).choices(range(5, 250), k=length - 1)]


def body_of(number, **more):
    kinds = ({"temperature": 0}, {"temperature": 0.8, "seed": number})
    return {"prompt": prompt(number), "max_tokens": 24, "ignore_eos": True, "logprobs": 2, **kinds[number % 2], **more}


def prefill_of(body):
    return {**body, "max_tokens": 1, "min_tokens": 1,
            "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                                   "remote_block_ids": None, "remote_host": None, "remote_port": None}}


def decode_of(body, answer):
    return {**body, "kv_transfer_params": {**answer["kv_transfer_params"], "tokens_per_second": SLOW}}


def transferred(answer):
    return answer["usage"]["prompt_tokens_details"]["transfer_tokens"]


class KvTransfer(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem_transfer_")
        self.addCleanup(self.folder.cleanup)
        self.secret = pathlib.Path(self.folder.name, "secret")
        self.secret.touch(mode=0o600)
        self.secret.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")

    def worker(self, *options, host="127.0.0.1", wrapper=()):
        server = serving.Server(TANDEM, [*PAIR, "--kv-transfer", f"{host}:0", "--kv-transfer-secret-file", str(self.secret), *options],
                                wrapper=wrapper)
        server.wrapper = wrapper
        self.addCleanup(server.__exit__)
        return server

    def alone(self):
        server = serving.Server(TANDEM, PAIR)
        self.addCleanup(server.__exit__)
        return server

    def expect_whole(self, *servers):
        """Stops the servers. A server counts its pages at the end, and fails if one is lost."""
        for server in servers:
            self.assertEqual(server.stop(), 0, server.log())

    def travel(self, prefill, decode, body, path="/v1/completions", name="test"):
        read = post(prefill, prefill_of(body), path, name)
        self.assertIn("kv_transfer_params", read, read)
        return post(decode, decode_of(body, read), path, name)

    def test_answers_equal_those_of_one_server(self):
        alone, prefill, decode = self.alone(), self.worker(), self.worker()
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
        for number, more in ((2, {}), (3, {}), (4, {"guided_json": schema, "ignore_eos": False}), (5, {"cache_salt": "tenant"})):
            body = body_of(number, **more)
            answer = self.travel(prefill, decode, body, name=f"way-{number}")
            self.assertEqual(said(answer), said(post(alone, body)))
            self.assertEqual(transferred(answer), 144)
            plain = post(alone, {**body, "speculation": {"draft_tokens": 0}})
            self.assertEqual(said(answer)[0], said(plain)[0])
        # The same id names the request in every log line about it.
        for server in (prefill, decode):
            self.assertGreaterEqual(sum("way-3" in line for line in server.log().splitlines()), 2, server.log())
        sent, fetched = prefill.metrics(), decode.metrics()
        for unit in ("pages", "bytes"):
            self.assertEqual(sent[f"tandem_kv_transfer_{unit}_sent_total"], fetched[f"tandem_kv_transfer_{unit}_received_total"])
        self.assertEqual(fetched["tandem_kv_transfers_total"], 4)
        self.assertEqual(fetched["tandem_kv_transfers_failed_total"], 0)
        self.expect_whole(alone, prefill, decode)

    def test_every_worker_does_both(self):
        alone, one, other = self.alone(), self.worker(), self.worker()
        for number, (prefill, decode) in enumerate(((one, other), (other, one), (one, one))):
            body = body_of(number)
            answer = self.travel(prefill, decode, body)
            self.assertEqual(said(answer), said(post(alone, body)))
            details = answer["usage"]["prompt_tokens_details"]
            self.assertEqual(details["cached_tokens"], 144)
            self.assertEqual(details["transfer_tokens"], 0 if prefill is decode else 144)
        self.expect_whole(one, other)

    def test_a_killed_prefill_worker_costs_only_time(self):
        alone, decode = self.alone(), self.worker()
        for number, delay in enumerate((0, 0.002, 0.01, 0.05)):
            prefill = self.worker()
            body = body_of(number)
            read = post(prefill, prefill_of(body))
            timer = threading.Timer(delay, prefill.process.kill)
            timer.start()
            answer = post(decode, decode_of(body, read))
            timer.join()
            self.assertEqual(said(answer), said(post(alone, body)))
        # The worker is killed while it still reads the prompt that the decode worker waits for.
        prefill = self.worker()
        params = post(prefill, prefill_of(body_of(100)))["kv_transfer_params"]
        body = body_of(101)
        params = {**params, "remote_request_id": "never opened", "tokens_per_second": SLOW}
        prefill.process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(0.3, prefill.process.kill)
        timer.start()
        answer = post(decode, {**body, "kv_transfer_params": params})
        timer.join()
        self.assertEqual(transferred(answer), 0)
        self.assertEqual(said(answer), said(post(alone, body)))
        self.assertGreater(decode.metrics()["tandem_kv_transfers_failed_total"], 0)
        self.expect_whole(decode)

    def test_a_killed_decode_worker_costs_only_a_lease(self):
        prefill, decode = self.worker("--kv-transfer-lease", "1"), self.worker()
        body = body_of(1)
        read = post(prefill, prefill_of(body))
        self.assertEqual(prefill.metrics()["tandem_kv_transfer_leases"], 1)
        decode.process.kill()
        while prefill.metrics()["tandem_kv_transfer_leases"] > 0:
            time.sleep(0.05)
        self.assertEqual(prefill.metrics()["tandem_kv_transfer_leased_bytes"], 0)
        # Another worker computes the expired pages.
        other, alone = self.worker(), self.alone()
        answer = post(other, decode_of(body, read))
        self.assertEqual(transferred(answer), 0)
        self.assertEqual(said(answer), said(post(alone, body)))
        self.expect_whole(prefill, other)

    def test_strangers_are_refused(self):
        alone, prefill = self.alone(), self.worker()
        body = body_of(6)
        read = post(prefill, prefill_of(body))
        self.secret.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")
        decode = self.worker()
        answer = post(decode, decode_of(body, read))
        self.assertEqual(transferred(answer), 0)
        self.assertEqual(said(answer), said(post(alone, body)))
        self.assertGreater(decode.metrics()["tandem_kv_transfer_peers_refused_total"] +
                           prefill.metrics()["tandem_kv_transfer_peers_refused_total"], 0)
        self.expect_whole(prefill, decode)

    def test_invalid_requests_are_refused(self):
        worker, alone = self.worker(), self.alone()
        there = {"do_remote_prefill": True, "remote_engine_id": "0123456789abcdef" * 2, "remote_request_id": "b",
                 "remote_host": "127.0.0.1", "remote_port": 1}
        for params, field in (({"do_remote_prefill": True}, "kv_transfer_params.remote_engine_id"),
                              ({"do_remote_decode": 1}, "kv_transfer_params.do_remote_decode"),
                              ({**there, "do_remote_decode": True}, "kv_transfer_params: "),
                              ({**there, "remote_port": 0}, "kv_transfer_params.remote_port"),
                              ({**there, "remote_engine_id": "PING\r\n"}, "kv_transfer_params.remote_engine_id"),
                              ({"do_remote_decode": True, "remote_request_id": f"w-{there['remote_engine_id']}"},
                               "kv_transfer_params.remote_request_id"),
                              ({**there, "remote_host": "10.9.9.9", "remote_port": 7777},
                               "kv_transfer_params.remote_host: 10.9.9.9:7777 is not a peer of this worker (--kv-transfer-peers)")):
            error = post(worker, body_of(1, kv_transfer_params=params))["error"]
            self.assertEqual((error["type"], error["code"]), ("invalid_request_error", "invalid_value"))
            self.assertTrue(error["message"].startswith(field), error)
        error = post(worker, {**prefill_of(body_of(1)), "prompt": [prompt(1), prompt(2)]})["error"]
        self.assertTrue(error["message"].startswith("kv_transfer_params"), error)
        error = post(alone, prefill_of(body_of(1)))["error"]
        self.assertTrue(error["message"].startswith("kv_transfer_params"), error)
        # Parameters that do not request a transfer, as vLLM's clients send them.
        answer = post(alone, body_of(1, kv_transfer_params={"do_remote_decode": False, "do_remote_prefill": False}))
        self.assertIn("choices", answer, answer)

    # ---- Links ----

    def link(self):
        """Two ends of a link, as (command that runs a program there, address). The first is in its own namespace."""
        name = f"tdm{os.getpid() % 10000}"
        tools = shutil.which("ip") and shutil.which("tc")
        made = tools and os.getuid() == 0 and subprocess.run(["ip", "netns", "add", name], check=False,
                                                             stderr=subprocess.DEVNULL).returncode == 0
        if not made:
            self.skipTest("no network namespaces: needs root, iproute2 and a kernel that allows them")
        self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=False)
        self.device = name + "a"
        number = random.randrange(1, 250)
        there, here = f"10.213.{number}.1", f"10.213.{number}.2"
        for words in (f"link add {self.device} type veth peer name {name}b", f"link set {name}b netns {name}",
                      f"addr add {here}/24 dev {self.device}", f"link set {self.device} up",
                      f"-n {name} addr add {there}/24 dev {name}b", f"-n {name} link set {name}b up", f"-n {name} link set lo up"):
            subprocess.run(["ip", *words.split()], check=True)
        self.addCleanup(subprocess.run, ["ip", "link", "del", self.device], check=False, stderr=subprocess.DEVNULL)
        return (("ip", "netns", "exec", name), there), ((), here)

    def shape(self, *discipline):
        done = subprocess.run(["tc", "qdisc", "replace", "dev", self.device, "root", *discipline], check=False,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self.skipTest(f"tc {discipline[0]}: {done.stderr.strip()}")

    def pair_over_a_link(self):
        (wrapper, there), (_, here) = self.link()
        return self.alone(), self.worker(host=there, wrapper=wrapper), self.worker(host=here)

    def test_a_slow_link(self):
        alone, prefill, decode = self.pair_over_a_link()
        came = []
        for number, rate in enumerate(("100mbit", "5mbit", "64kbit")):
            self.shape("tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
            body = body_of(number)
            answer = self.travel(prefill, decode, body)
            self.assertEqual(said(answer), said(post(alone, body)))
            came.append(transferred(answer))
        self.assertEqual(came[0], 144)
        self.expect_whole(prefill, decode)

    def test_a_link_that_delays_and_loses(self):
        alone, prefill, decode = self.pair_over_a_link()
        self.shape("netem", "delay", "20ms", "10ms", "loss", "5%")
        for number in range(4):
            body = body_of(number)
            self.assertEqual(said(self.travel(prefill, decode, body)), said(post(alone, body)))
        self.expect_whole(prefill, decode)

    def test_a_link_that_is_cut(self):
        alone, prefill, decode = self.pair_over_a_link()
        body = body_of(0)
        self.assertEqual(transferred(self.travel(prefill, decode, body)), 144)
        body = body_of(1)
        read = post(prefill, prefill_of(body))
        subprocess.run(["ip", "link", "set", self.device, "down"], check=True)
        answer = post(decode, decode_of(body, read))
        self.assertEqual(transferred(answer), 0)
        self.assertEqual(said(answer), said(post(alone, body)))
        # After the link is restored, pages are transferred again.
        subprocess.run(["ip", "link", "set", self.device, "up"], check=True)
        body = body_of(2)
        read = post(prefill, prefill_of(body))
        self.assertEqual(said(post(decode, decode_of(body, read))), said(post(alone, body)))
        self.expect_whole(prefill, decode)

    # ---- Random faults ----

    def test_random_faults_under_load(self):
        if SECONDS <= 0:
            self.skipTest("only with --seconds")
        chance = random.Random(SEED)
        alone = self.alone()
        workers = [self.worker("--kv-transfer-lease", "5") for _ in range(3)]
        gate = threading.Lock()
        counts = {"answers": 0, "fetched": 0, "computed": 0, "refused": 0, "kills": 0, "stops": 0}
        expected, failures, end = {}, [], time.monotonic() + SECONDS
        for number in range(40):
            expected[number] = said(post(alone, body_of(number)))

        def ask(seed):
            own = random.Random(seed)
            while time.monotonic() < end and not failures:
                number = own.randrange(40)
                body = body_of(number, cache_salt=str(own.randrange(10**9)))
                with gate:
                    prefill, decode = own.sample(workers, 2)
                try:
                    answer = self.travel(prefill, decode, body)
                except (AssertionError, subprocess.CalledProcessError, json.JSONDecodeError):
                    counts["refused"] += 1  # the router would retry with another worker
                    continue
                if "choices" not in answer:
                    counts["refused"] += 1
                    continue
                counts["answers"] += 1
                counts["fetched" if transferred(answer) > 0 else "computed"] += 1
                if said(answer) != expected[number]:
                    failures.append((number, answer))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end and not failures:
            time.sleep(chance.uniform(0.5, 4))
            place = chance.randrange(3)
            if chance.random() < 0.5:
                counts["stops"] += 1  # like a link that is cut for a while
                workers[place].process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.1, 7))
                workers[place].process.send_signal(signal.SIGCONT)
                continue
            counts["kills"] += 1
            workers[place].process.kill()
            workers[place].process.wait()
            new = self.worker("--kv-transfer-lease", "5")
            with gate:
                workers[place] = new
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        time.sleep(6)
        leases = [worker.metrics()["tandem_kv_transfer_leases"] for worker in workers]
        self.expect_whole(alone, *workers)
        print(f"{SECONDS} s: {counts}, leases left {leases}")
        self.assertEqual(leases, [0, 0, 0])


if __name__ == "__main__":
    TANDEM = sys.argv.pop(1)
    if "--seconds" in sys.argv:
        at = sys.argv.index("--seconds")
        SECONDS = float(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    unittest.main()
