"""`tandem serve --tensor-parallel` when its ranks end: tensor_parallel_test.py TANDEM [unittest's arguments]"""
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse
import urllib.request

TANDEM = sys.argv.pop(1)
MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"
NUM_KILLS = int(os.environ.get("TANDEM_RANK_KILLS", "5"))


def children(process):
    """Process ids by rank, which is the last word of their command lines."""
    found = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"rank" in words:
                found[int(words[-2])] = int(child)
    return found


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Server:
    """Reads its log until it ends."""

    def __init__(self, *options, ranks=3):
        self.process = subprocess.Popen(
            [TANDEM, "serve", "--target", MODELS / "storyteller-7m", "--draft", MODELS / "storyteller-1m", "--port", "0",
             "--threads", "1", "--tensor-parallel", str(ranks), *options],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "TANDEM_MODEL_CACHE": "none"})
        self.lines, self.news = [], threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.lines.append("")
            self.news.notify_all()

    def address(self, number=1):
        """The address that the server logs when it starts serving for the `number`th time."""
        def found():
            return [match[1] for line in self.lines if (match := re.search(r"serving address=(\S+)", line))]
        with self.news:
            self.news.wait_for(lambda: len(found()) >= number or self.lines[-1:] == [""])
            return found()[number - 1]

    def end(self):
        status = self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        return status, "".join(self.lines)


def complete(address, tokens=24):
    body = {"model": "storyteller-7m", "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["text"]


class Client(threading.Thread):
    """Sends requests until the server refuses a connection. `answers` has (id, status, what) of each request, where
    what is "whole", "error event" or, if the answer is not complete, "closed"."""

    def __init__(self, address, name, body, keeps):
        super().__init__()
        self.host, self.client, self.keeps = urllib.parse.urlsplit(address).netloc, name, keeps
        self.body = json.dumps({"prompt": "Once upon a time", "ignore_eos": True, **body})
        self.connection, self.answers = None, []
        self.start()

    def run(self):
        while True:
            identifier = f"{self.client}-{len(self.answers)}"
            try:
                answer = self.ask(identifier)
            except ConnectionRefusedError:
                return
            self.answers.append((identifier, *answer))

    def leave(self):
        self.connection.close()
        self.connection = None

    def ask(self, identifier):
        is_kept = self.connection is not None
        if not is_kept:
            self.connection = http.client.HTTPConnection(self.host)
            self.connection.connect()
        try:
            self.connection.request("POST", "/v1/completions", self.body,
                                    {"Content-Type": "application/json", "X-Request-Id": identifier})
            answer = self.connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.leave()
            # A server may close a connection between requests. Clients then send the request again.
            return self.ask(identifier) if is_kept else (0, "closed")
        try:
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            self.leave()
            return answer.status, "closed"
        if not self.keeps or answer.will_close:
            self.leave()
        if answer.status == 200 and '"stream": true' in self.body:
            if not text.endswith("data: [DONE]\n\n"):
                return 200, "closed"
            return 200, "error event" if '"error"' in text else "whole"
        return answer.status, "whole" if json.loads(text) else "closed"


def load(address):
    """Eight clients, of which two run at a time and six wait: streams and whole answers, on new and on kept
    connections."""
    return [Client(address, f"client{i}", {"stream": i % 2 == 0, "max_tokens": 40 * (i + 1)}, keeps=i % 4 < 2)
            for i in range(8)]


class TensorParallel(unittest.TestCase):
    def setUp(self):
        self.shared = set(os.listdir("/dev/shm"))

    def nothing_is_left(self, processes):
        self.assertEqual([process for process in processes if is_alive(process)], [])
        self.assertLessEqual(set(os.listdir("/dev/shm")), self.shared)

    def test_a_signal_ends_all_ranks_after_the_last_answer(self):
        server = Server()
        text = complete(server.address())
        self.assertTrue(text)
        ranks = children(server.process.pid)
        self.assertEqual(sorted(ranks), [1, 2])
        # A terminal's Ctrl-C reaches all processes. The other ranks must not end before the first.
        for process in [*ranks.values(), server.process.pid]:
            os.kill(process, signal.SIGINT)
        status, log = server.end()
        self.assertEqual(status, 0, log)
        self.nothing_is_left(ranks.values())

    def every_request_is_answered_and_logged(self, clients, log):
        """Returns how many requests ended in which way."""
        counts = {}
        for client in clients:
            client.join()
            for identifier, status, what in client.answers:
                counts[status, what] = counts.get((status, what), 0) + 1
                lines = re.findall(rf" id={identifier} .* status=(\d+) ", log)
                if lines != [str(status)]:
                    counts["not logged"] = counts.get("not logged", 0) + 1
        self.assertLessEqual(set(counts), {(200, "whole"), (200, "error event"), (503, "whole")}, log)
        return counts

    def test_every_request_is_answered_when_a_rank_is_killed(self):
        """Row 204 of the bug catalogue."""
        counts = {}
        for kill in range(NUM_KILLS):
            server = Server("--max-batch", "2", ranks=2)
            clients = load(server.address())
            ranks = children(server.process.pid)
            time.sleep(random.uniform(0.05, 1.5))
            os.kill(ranks[1], signal.SIGKILL)
            start = time.monotonic()
            status, log = server.end()
            self.assertLess(time.monotonic() - start, 30)
            self.assertEqual(status, 1, log)
            self.nothing_is_left(ranks.values())
            for way, count in self.every_request_is_answered_and_logged(clients, log).items():
                counts[way] = counts.get(way, 0) + count
        self.assertGreaterEqual(counts[503, "whole"] + counts.get((200, "error event"), 0), NUM_KILLS)
        print(counts)

    def test_a_rank_that_is_killed_ends_the_server(self):
        server = Server()
        complete(server.address())
        ranks = children(server.process.pid)
        os.kill(ranks[2], signal.SIGKILL)
        status, log = server.end()
        self.assertEqual(status, 1, log)
        self.assertIn("tandem: error: --tensor-parallel: rank 2 was terminated by signal 9 (Killed)", log)
        self.nothing_is_left(ranks.values())

    def test_a_rank_that_hangs_ends_the_server(self):
        server = Server("--max-batch", "2")
        clients = load(server.address())
        ranks = children(server.process.pid)
        time.sleep(0.5)
        os.kill(ranks[1], signal.SIGSTOP)
        start = time.monotonic()
        status, log = server.end()
        took = time.monotonic() - start
        self.assertEqual(status, 1, log)
        self.assertIn("tandem: error: --tensor-parallel: rank 1 has been silent for 10s", log)
        self.every_request_is_answered_and_logged(clients, log)
        self.assertGreater(took, 5)
        self.assertLess(took, 10 + 5 + 3)  # the process that is stopped is waited for, then killed
        self.nothing_is_left(ranks.values())

    def test_the_server_restarts_if_configured(self):
        server = Server("--on-rank-failure", "restart")
        text = complete(server.address())
        first = children(server.process.pid)
        os.kill(first[1], signal.SIGKILL)
        self.assertEqual(complete(server.address(2)), text)
        second = children(server.process.pid)
        self.nothing_is_left(first.values())
        os.kill(server.process.pid, signal.SIGTERM)
        status, log = server.end()
        self.assertEqual(status, 0, log)
        self.nothing_is_left(second.values())

    def test_ranks_end_with_a_server_that_is_killed(self):
        server = Server()
        complete(server.address())
        ranks = children(server.process.pid)
        server.process.kill()
        server.end()
        for process in ranks.values():
            while is_alive(process):
                pass
        self.nothing_is_left(ranks.values())

    def test_the_rank_command_refuses_to_run_by_hand(self):
        done = subprocess.run([TANDEM, "rank", "1"], capture_output=True, text=True, close_fds=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not the memory of a group", done.stderr)


if __name__ == "__main__":
    unittest.main()
