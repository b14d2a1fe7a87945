"""Helpers for the scripts that put load on `tandem serve`: the server process, requests as bytes, and streams.

Uses only the standard library. One thread creates the load and waits with epoll. During a measurement it only records the
times and numbers of received bytes; streams are parsed afterwards.
"""
import json
import math
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import comparison as lib

TARGET, DRAFT = lib.TARGET, lib.DRAFT
# Given explicitly, because another pair is the default if a real model was fetched.
PAIR = ["--target", TARGET, "--draft", DRAFT]
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """`tandem serve` on a free port, with its log in a file."""

    def __init__(self, program, options=(), wrapper=()):
        if not os.path.exists(program):
            lib.fail(f"{program} is missing; build it with ./dev build or choose another with --bin")
        self.log_file = tempfile.NamedTemporaryFile(mode="w+", prefix="tandem_serve_", suffix=".log")
        # No text memory: runs repeat their requests, and drafts would be taken from earlier answers.
        command = [*wrapper, program, "serve", "--port", "0", "--draft-memory", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log_file)
        self.host = "127.0.0.1"
        self.port = self._await_port(" ".join(command))

    def _await_port(self, command):
        while True:
            found = re.search(r"address=http://127\.0\.0\.1:(\d+)", self.log())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                lib.fail(f"{command} ended with {self.process.returncode}: {self.log().strip()}")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log_file.close()

    def url(self):
        return f"http://{self.host}:{self.port}"

    def log(self):
        with open(self.log_file.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, seconds=None):
        """Asks the server to end; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def get(self, path):
        with urllib.request.urlopen(self.url() + path) as answer:
            return answer.read().decode()

    def call(self, path, body=None, method="POST"):
        """Returns the JSON that a request with a JSON body gets."""
        request = urllib.request.Request(self.url() + path, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def metrics(self):
        """Returns every sample of /metrics by its name and labels, as they are written there."""
        samples = re.findall(r"^([^#\n].*) (.+)$", self.get("/metrics"), re.MULTILINE)
        return {name: float(value) for name, value in samples}

    def await_idle(self, seconds=math.inf):
        """Waits until no request is running or waiting. Returns False if `seconds` have passed before that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            samples = self.metrics()
            if samples["tandem_num_requests_running"] + samples["tandem_num_requests_waiting"] == 0:
                return True
            time.sleep(0.01)
        return False

    def cpu_seconds(self):
        """Returns the processor time of all threads so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / TICK

    def resident_bytes(self):
        return lib.status_bytes(f"/proc/{self.process.pid}/status", "VmRSS")

    def holds(self):
        """Returns the numbers of descriptors and threads of the process."""
        return {"descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")),
                "threads": len(os.listdir(f"/proc/{self.process.pid}/task"))}

    def connect(self):
        connection = socket.create_connection((self.host, self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def request_bytes(path, body, headers=""):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class Stream:
    """One streamed request and its answer: the bytes, and how many had been received at which time."""

    def __init__(self, label, sent):
        self.label = label
        self.sent = sent          # when the request was sent
        self.data = bytearray()
        self.arrivals = []        # (seconds, bytes received until then)
        self.ended = None         # None while the stream is running

    def tokens(self):
        """Returns [(seconds, tokens of one event)]; for a stream that was cut off, its complete events."""
        found, arrival = [], 0
        for event in re.finditer(rb"data: \{.*?\n\n", self.data, re.DOTALL):
            while self.arrivals[arrival][1] < event.end():
                arrival += 1
            ids = re.search(rb'"token_ids":\[([^\]]+)\]', event[0])
            if ids:
                found.append((self.arrivals[arrival][0], ids[1].count(b",") + 1))
        return found

    def status(self):
        return int(self.data[9:12]) if len(self.data) >= 12 else 0

    def failed(self):
        return self.status() != 200 or b'data: {"error"' in self.data


class Load:
    """Streams over sockets that are kept open, all in one thread."""

    def __init__(self, server):
        self.server = server
        self.selector = selectors.DefaultSelector()
        self.running = {}
        self.idle = []

    def start(self, label, request):
        connection = self.idle.pop() if self.idle else self.server.connect()
        stream = Stream(label, time.perf_counter())
        connection.sendall(request)
        connection.setblocking(False)
        self.running[connection] = stream
        self.selector.register(connection, selectors.EVENT_READ)
        return stream

    def receive(self, until):
        """Receives until a stream ends, or until the time `until`. Returns the streams that have ended."""
        over = []
        while not over:
            left = until - time.perf_counter()
            if left <= 0:
                break
            for key, _ in self.selector.select(left):
                if self._take(key.fileobj):
                    over.append(self._end(key.fileobj))
        return over

    def _take(self, connection):
        stream = self.running[connection]
        try:
            part = connection.recv(1 << 18)
        except BlockingIOError:
            return False
        except ConnectionError:
            part = b""
        stream.data += part
        stream.arrivals.append((time.perf_counter(), len(stream.data)))
        return not part or part.endswith(b"\r\n0\r\n\r\n") or self._is_whole(stream)

    @staticmethod
    def _is_whole(stream):
        """Whether an answer that is not a stream, an error, has been received completely."""
        head, found, body = stream.data.partition(b"\r\n\r\n") if stream.status() != 200 else (b"", b"", b"")
        length = re.search(rb"Content-Length: (\d+)", head) if found else None
        return length is not None and len(body) >= int(length.group(1))

    def _end(self, connection):
        self.selector.unregister(connection)
        stream = self.running.pop(connection)
        stream.ended = stream.arrivals[-1][0]
        connection.setblocking(True)
        if stream.status() == 200 and stream.data.endswith(b"\r\n0\r\n\r\n"):
            self.idle.append(connection)
        else:
            connection.close()
        return stream

    def finish(self, seconds):
        """Receives running streams for at most `seconds`. Returns those that ended."""
        over, until = [], time.perf_counter() + seconds
        while self.running and time.perf_counter() < until:
            over += self.receive(until)
        return over

    def abandon(self):
        """Closes running streams. Returns them with the data received so far."""
        streams = list(self.running.values())
        for connection in list(self.running):
            self.selector.unregister(connection)
            connection.close()
        self.running.clear()
        return streams

    def close(self):
        self.abandon()
        for connection in self.idle:
            connection.close()
        self.selector.close()


def percentile(values, share):
    """Returns the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)] if ordered else None


def stop_or_say(server):
    """Stops a server, and reports a failure."""
    status = server.stop()
    if status != 0:
        print(server.log()[-4000:], file=sys.stderr)
        lib.fail(f"the server ended with {status}")
