"""Attacks on every port of workers and linked ranks: wire_attacks_test.py TANDEM [unittest's arguments]

Strangers send bytes that once ended a worker or changed its memory, and damaged, replayed and incomplete handshakes, while the
server is idle and while it answers requests. After each round the process must live, give the same answers, have as
many descriptors as before and almost the same memory, and transfer pages. A relay and a recorder between two workers get and change nothing.
"""

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import resource
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from concurrent import futures

sys.dont_write_bytecode = True  # Do not write into the repository.
SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SOURCE / "benchmarks"), str(SOURCE / "tests")]
import kv_transfer_test as transfer  # noqa: E402
import serving  # noqa: E402
import wire_attackers  # noqa: E402
from wire_attackers import HERE, MEGABYTE, Listener, Relay, Victim, listening_ports, records, send  # noqa: E402

TANDEM = ""
NUM_SILENT = 2000
SITES = [f"127.0.0.{number}" for number in range(2, 18)]  # where attacks come from; workers have 127.0.0.1
# A stranger that sends the hello of another gets the answer to it, 225 bytes.
MOST_ANSWER = 400
# Small caches, so that the first rounds touch all of their memory.
MEMORY = ["--kv-memory", "12M", "--kv-transfer-memory", "4M"]
GREEDY = {"prompt": transfer.prompt(0, 40), "max_tokens": 16, "temperature": 0, "ignore_eos": True, "logprobs": 2}


def post(server, body):
    """Posts a request. A server with too many connections closes one whose request it has not read yet, and clients try again."""
    for attempt in range(5):
        connection = http.client.HTTPConnection(server.host, server.port)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", "Connection": "close"})
            return json.loads(connection.getresponse().read())
        except (ConnectionResetError, http.client.RemoteDisconnected):
            if attempt == 4 or server.process.poll() is not None:
                raise
        finally:
            connection.close()


def answer_of(server):
    return lambda: transfer.said(post(server, GREEDY))


class Attacked(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem_attacks_")
        self.addCleanup(self.folder.cleanup)
        self.secret = self.secret_file("secret")
        self.numbers = iter(range(1000, 10**6))

    def secret_file(self, name):
        path = pathlib.Path(self.folder.name, name)
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")
        return path

    def worker(self, secret=None):
        server = serving.Server(TANDEM, [*transfer.PAIR, *MEMORY, "--kv-transfer", f"{HERE}:0", "--kv-transfer-secret-file",
                                         str(secret or self.secret)])
        self.addCleanup(server.__exit__)
        return server

    def listener(self, made):
        self.addCleanup(made.close)
        return made

    def lease_of(self, prefill, number):
        return post(prefill, transfer.prefill_of(transfer.body_of(number)))["kv_transfer_params"]

    def travel(self, prefill, decode, **changed):
        """A new prompt that the one worker reads and the other answers. Returns the number of transferred tokens. The answer must be the
        right one. `changed` replaces fields of the transfer's parameters."""
        number = next(self.numbers)
        body = transfer.body_of(number)
        params = {**self.lease_of(prefill, number), "tokens_per_second": transfer.SLOW, **changed}
        answer = post(decode, {**body, "kv_transfer_params": params})
        self.assertIn("choices", answer, answer)
        self.assertEqual(transfer.said(answer), transfer.said(post(prefill, body)))
        return transfer.transferred(answer)

    def expect_transfer(self, prefill, decode, **changed):
        """Pages come, though under load they may be late for a prompt."""
        if not any(self.travel(prefill, decode, **changed) == 144 for _ in range(20)):
            self.fail(decode.log()[-2000:])

    def expect_unharmed(self, victims, attack):
        """Runs attack(). Memory that connections keep may grow once, so a round that only made memory grow is repeated, twice at most:
        a leak grows each time."""
        for _ in range(3):
            for victim in victims.values():
                victim.settle()
            attack()
            found = {name: faults for name, victim in victims.items() if (faults := victim.faults())}
            if not all(fault.startswith("its memory") for faults in found.values() for fault in faults):
                break
            if not found:
                return
        self.assertEqual(found, {})

    def expect_whole(self, *servers):
        for server in servers:
            self.assertEqual(server.stop(), 0, server.log()[-2000:])
            self.assertNotIn("[critical]", server.log())

    @contextlib.contextmanager
    def load(self, victims):
        """Each victim answers requests all the time, and each answer is the expected one."""
        is_over, wrong, counts = threading.Event(), [], dict.fromkeys(victims, 0)

        def ask(name):
            while not is_over.is_set():
                try:
                    if victims[name].answer() != victims[name].expected:
                        wrong.append(f"{name}: another answer")
                except (OSError, http.client.HTTPException, ValueError) as error:
                    wrong.append(f"{name}: {error!r}")
                    return
                counts[name] += 1

        threads = [threading.Thread(target=ask, args=(name,)) for name in victims]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertNotIn(0, counts.values())

    def attack(self, port, hello, step, is_wire):
        """Sends every attack to a port. A port of the wire ends all connections, and strangers get no more than the answer to a hello."""
        sent = {**wire_attackers.attacks(), **dict(wire_attackers.damaged(hello, step)), "replayed hello": hello,
                "hello and noise": hello + secrets.token_bytes(9999)}
        with futures.ThreadPoolExecutor(len(SITES)) as pool:
            answers = dict(zip(sent, pool.map(send, itertools.repeat(port), sent.values(), itertools.cycle(SITES))))
        if is_wire:
            wrong = {name: answer for name, answer in answers.items() if answer is None or len(answer) > MOST_ANSWER}
            self.assertEqual(wrong, {})
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                self.assertNotEqual(wire_attackers.shake(port, version), "")

    def keep_silent(self, port, hello, waits):
        """Thousands of connections that send nothing, or stop in the middle of a hello. With `waits` the port must end them by itself."""
        with contextlib.ExitStack() as held:
            connections = []
            for i in range(NUM_SILENT):
                connections.append(held.enter_context(socket.create_connection((HERE, port), source_address=(SITES[i % len(SITES)], 0))))
                if i % 8 == 0:
                    with contextlib.suppress(OSError):  # it may have been closed for a newer one
                        connections[-1].sendall(hello[:i % len(hello)])
            if waits:
                self.assertEqual(wire_attackers.still_open(connections), 0)

    @contextlib.contextmanager
    def assault(self, wire, http, hello, step, waits):
        """Attacks both ports of a process. Yields a function that says whether the attacks go on."""
        def run(port):
            self.attack(port, hello, step, port == wire)
            self.keep_silent(port, hello, port == wire and waits)

        with futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(run, port) for port in (wire, http)]
            yield lambda: not all(attack.done() for attack in running)
            for attack in running:
                attack.result()


class Workers(Attacked):
    def test_strangers_change_nothing(self):
        """Row 190 of the bug catalogue."""
        prefill, decode = self.worker(), self.worker()
        params = self.lease_of(prefill, 1)
        wire = params["remote_port"]
        # One port of each, and nothing else.
        self.assertEqual(listening_ports(prefill.process.pid), {prefill.port, wire})
        self.assertEqual(len(listening_ports(decode.process.pid)), 2)
        # The hello of one worker to the other, which is right but not the stranger's own.
        hellos = []
        recorder = self.listener(Listener(lambda connection: hellos.append(next(records(connection)))))
        self.travel(prefill, decode, remote_port=recorder.port)
        self.assertIn(params["remote_engine_id"].encode(), hellos[0])
        for _ in range(12):
            self.travel(prefill, decode)
        victims = {"prefill": Victim(prefill.process, answer_of(prefill)), "decode": Victim(decode.process, answer_of(decode))}
        for is_loaded, step in ((False, 1), (True, 3)):
            def attack(step=step, is_loaded=is_loaded):
                with (self.load(victims) if is_loaded else contextlib.nullcontext(),
                      self.assault(wire, prefill.port, hellos[0], step, waits=not is_loaded) as goes_on):
                    while goes_on():  # each of these needs a new connection
                        with contextlib.closing(Relay(wire)) as relay:
                            self.expect_transfer(prefill, decode, remote_port=relay.port)

            self.expect_unharmed(victims, attack)
            self.expect_transfer(prefill, decode)
        self.expect_whole(prefill, decode)

    def test_a_relay_changes_no_answer(self):
        prefill, decode = self.worker(), self.worker()
        wire = self.lease_of(prefill, 1)["remote_port"]
        relay = self.listener(Relay(wire))
        self.expect_transfer(prefill, decode, remote_port=relay.port)
        self.assertGreater(len(relay.recorded["there"]), 4)
        self.assertGreater(sum(map(len, relay.recorded["back"])), MEGABYTE / 4)
        self.assertNotIn(b"tandem pages", b"".join(relay.recorded["back"]))
        for what in Relay.FAULTS:
            for way, number in [("there", i) for i in range(3)] + [("back", i) for i in range(5)]:
                with self.subTest(what=what, way=way, number=number):
                    faulty = self.listener(Relay(wire, (what, way, number)))
                    # What stalls is waited for as long as computing half of the prompt takes at this speed.
                    self.assertLess(self.travel(prefill, decode, remote_port=faulty.port, tokens_per_second=100), 144)
                    self.assertGreater(faulty.num_faults, 0)
        self.expect_transfer(prefill, decode, remote_port=relay.port)
        self.expect_whole(prefill, decode)

    def test_a_relay_leads_to_no_other_worker(self):
        prefill, decode = self.worker(), self.worker()
        for other in (decode, self.worker(), self.worker(self.secret_file("another secret"))):
            relay = self.listener(Relay(self.lease_of(other, 1)["remote_port"]))
            self.assertEqual(self.travel(prefill, decode, remote_port=relay.port), 0)
            self.assertGreater(len(relay.recorded["there"]), 0)
        reflector = self.listener(Listener(lambda connection: [connection.sendall(part) for part in records(connection)]))
        self.assertEqual(self.travel(prefill, decode, remote_port=reflector.port), 0)
        self.assertGreater(decode.metrics()["tandem_kv_transfer_peers_refused_total"], 0)
        self.expect_whole(prefill, decode)

    def test_another_secret_gets_no_page(self):
        prefill, stranger = self.worker(), self.worker(self.secret_file("another secret"))
        self.assertEqual(self.travel(prefill, stranger), 0)
        self.assertEqual(prefill.metrics()["tandem_kv_transfer_pages_sent_total"], 0)
        self.assertGreater(prefill.metrics()["tandem_kv_transfer_peers_refused_total"], 0)
        self.expect_whole(prefill, stranger)

    def test_a_recorder_gets_nothing(self):
        prefill, decode = self.worker(), self.worker()
        wire = self.lease_of(prefill, 1)["remote_port"]
        relay = self.listener(Relay(wire))
        self.expect_transfer(prefill, decode, remote_port=relay.port)
        there, back = (b"".join(relay.recorded[way]) for way in ("there", "back"))
        sent = prefill.metrics()["tandem_kv_transfer_pages_sent_total"]
        self.assertGreater(sent, 0)
        for _ in range(2):
            answer = send(wire, there)
            self.assertLess(len(answer), MOST_ANSWER)
            # The server's random number and key are new. A reset may have come before they were read.
            self.assertFalse(answer and answer[16:200] in back)
        self.assertEqual(prefill.metrics()["tandem_kv_transfer_pages_sent_total"], sent)

        def replay(connection):
            next(records(connection))
            connection.sendall(back)

        player = self.listener(Listener(replay))
        self.assertEqual(self.travel(prefill, decode, remote_port=player.port), 0)
        self.expect_whole(prefill, decode)

    def test_a_worker_stops_in_the_middle_of_handshakes(self):
        prefill, decode = self.worker(), self.worker()
        wire = self.lease_of(prefill, 1)["remote_port"]
        hellos = []
        silent = self.listener(Listener(lambda connection: hellos.extend(records(connection))))
        # The decode worker connects, and gets no answer to its hello.
        self.assertEqual(self.travel(prefill, decode, remote_port=silent.port, tokens_per_second=1000), 0)
        relay = self.listener(Relay(wire, ("drop", "there", 0)))
        self.travel(prefill, decode, remote_port=relay.port, tokens_per_second=1000)
        hello = relay.recorded["there"][0]
        with contextlib.ExitStack() as held:
            for data in (b"", hello[:5], hello[:-1], hello):
                held.enter_context(socket.create_connection((HERE, wire))).sendall(data)
            self.travel(prefill, decode)
            self.expect_whole(prefill, decode)


class LinkedRanks(Attacked):
    def rank(self, number, rendezvous):
        return [*transfer.PAIR, *MEMORY[:2], "--rendezvous", f"{HERE}:{rendezvous}", "--rendezvous-secret-file", str(self.secret), "--world", "2",
                "--rank", str(number)]

    def test_strangers_change_nothing(self):
        hellos, came = [], threading.Event()

        def record(connection):
            hellos.append(next(records(connection)))
            came.set()

        stand_in = Listener(record)  # for rank 0, which starts later
        log = tempfile.NamedTemporaryFile(mode="w+")
        self.addCleanup(log.close)
        one = subprocess.Popen([TANDEM, "serve", *self.rank(1, stand_in.port)], stderr=log)
        self.addCleanup(one.wait)
        self.addCleanup(one.kill)
        while not came.wait(0.1):
            self.assertIsNone(one.poll(), pathlib.Path(log.name).read_text())
        stand_in.close()
        zero = serving.Server(TANDEM, self.rank(0, stand_in.port))
        self.addCleanup(zero.__exit__)
        self.assertEqual(listening_ports(zero.process.pid), {zero.port, stand_in.port})
        self.assertEqual(listening_ports(one.pid), set())
        self.assertIn(b"tandem/1 ranks 1 ", hellos[0])
        victims = {"rank 0": Victim(zero.process, answer_of(zero)), "rank 1": Victim(one, answer_of(zero))}
        for is_loaded, step in ((False, 1), (True, 3)):
            def attack(step=step, is_loaded=is_loaded):
                with (self.load({"rank 0": victims["rank 0"]}) if is_loaded else contextlib.nullcontext(),
                      self.assault(stand_in.port, zero.port, hellos[0], step, waits=not is_loaded) as goes_on):
                    while goes_on():
                        self.assertEqual(victims["rank 0"].answer(), victims["rank 0"].expected)

            self.expect_unharmed(victims, attack)
            self.assertEqual(listening_ports(one.pid), set())
        with socket.create_connection((HERE, stand_in.port)) as stranger:
            stranger.sendall(hellos[0][:-1])
            self.assertEqual(victims["rank 0"].answer(), victims["rank 0"].expected)
            self.expect_whole(zero)
        self.assertEqual(one.wait(), 0, pathlib.Path(log.name).read_text())


# Answers each connection with its first bytes, until one says how it goes wrong.
STAND_IN = """
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
held, answer = [], b"same"
while True:
    connection = listener.accept()[0]
    word = connection.recv(99)
    if word == b"dies": os.abort()
    if word == b"leaks": held.append(connection.dup())
    if word == b"grows": held.append(bytearray(os.urandom(16)) * (1 << 20))
    if word == b"changes": answer = b"other"
    connection.sendall(answer)
    connection.close()
"""


class Checks(unittest.TestCase):
    """The checks of this file see faults."""

    def test_the_ports_of_a_process_are_found(self):
        before = listening_ports(os.getpid())
        with socket.create_server((HERE, 0)) as one, socket.create_server(("", 0), family=socket.AF_INET6) as other:
            ports = {one.getsockname()[1], other.getsockname()[1]}
            self.assertEqual(listening_ports(os.getpid()) - before, ports)
            self.assertEqual(listening_ports(os.getppid()) & ports, set())
        self.assertEqual(listening_ports(os.getpid()), before)

    def test_each_fault_of_a_victim_is_reported(self):
        for word, report in (("works", None), ("dies", "-6"), ("leaks", "descriptors"), ("grows", "its memory grew by 16"),
                             ("changes", "another answer")):
            process = subprocess.Popen([sys.executable, "-c", STAND_IN], stdout=subprocess.PIPE)
            try:
                port = int(process.stdout.readline())
                victim = Victim(process, lambda port=port: send(port, b"hello"))
                with unittest.mock.patch("wire_attackers.PATIENCE", 0.2):
                    send(port, word.encode())
                    found = victim.faults()
                self.assertEqual(len(found), 0 if report is None else 1, found)
                self.assertIn(report or "", "".join(found))
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    def test_memory_that_grows_each_time_is_reported(self):
        class Grower:
            num_settled = num_rounds = 0

            def __init__(self, most_rounds):
                self.most_rounds = most_rounds

            def settle(self):
                self.num_settled += 1

            def attack(self):
                self.num_rounds += 1

            def faults(self):
                return ["its memory grew by 16.0 MB"] if self.num_rounds <= self.most_rounds else []

        for most_rounds, num_rounds in ((0, 1), (1, 2), (2, 3)):
            grower = Grower(most_rounds)
            Attacked().expect_unharmed({"grower": grower}, grower.attack)
            self.assertEqual((grower.num_rounds, grower.num_settled), (num_rounds, num_rounds))
        grower = Grower(3)
        with self.assertRaisesRegex(AssertionError, "grew by 16.0"):
            Attacked().expect_unharmed({"grower": grower}, grower.attack)
        self.assertEqual(grower.num_rounds, 3)

    def test_a_port_that_does_not_end_connections_is_reported(self):
        with socket.create_server((HERE, 0)) as silent, unittest.mock.patch("wire_attackers.PATIENCE", 0.2):
            port = silent.getsockname()[1]
            self.assertIsNone(send(port, b"x"))
            with socket.create_connection((HERE, port)) as connection:
                self.assertEqual(wire_attackers.still_open([connection]), 1)

    def test_a_relay_changes_records(self):
        one = b"\x17\x03\x03\x00\x14" + b"1" * 20  # of TLS; the others are sealed
        two, three = (b"\x14\0\0\0" + bytes([number]) * 36 for number in (2, 3))
        flipped = Relay._changed("flip", two)[0]
        self.assertEqual(sum(a != b for a, b in zip(two, flipped)), 1)
        for what, expected in (("flip", [one, flipped, three]), ("drop", [one, three]),
                               ("repeat", [one, two, two, three]), ("swap", [one, three, two])):
            received = []
            sink = Listener(lambda connection, received=received: received.extend(records(connection)))
            relay = Relay(sink.port, (what, "there", 1))
            send(relay.port, one + two + three)
            self.assertEqual((received, relay.num_faults), (expected, 1), what)
            relay.close()
            sink.close()


if __name__ == "__main__":
    TANDEM = transfer.TANDEM = sys.argv.pop(1)
    # Each connection of an attack is a descriptor of this process.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    unittest.main()
