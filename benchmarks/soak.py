#!/usr/bin/env python3
"""Everything that clients do to a server, at once and for long: `soak.py --seconds 600`.

Starts `tandem serve` with a key, a small queue and a small cache, and lets threads complete, stream and chat, hang up
within heads, bodies and streams, send garbage, too much and too early, read slowly, and forget the key. It fails if

  - a request that was sent whole gets no answer, another status than it should, or an answer that is not whole;
  - something still runs, waits or holds a page when all have left;
  - the server ends by itself, does not end with 0 on SIGTERM (it then checks the books of both caches), or logs an error;
  - memory grows: the means of the second and the last quarter of the time differ by more than --growth MB
    (of a minute or more: before, a server still takes memory for the first time).

Prints what was done and memory over time. The same seed makes the same requests, in another order in time.
"""
import argparse
import json
import os
import random
import re
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

KEY = "soak"
AUTHORIZATION = f"Authorization: Bearer {KEY}\r\n"
MAX_BODY = 1 << 20
TEXTS = ["Once upon a time", "The king", "Tom and Lily went to the park. They", "A", "über 木 \U0001f600 "]
# A client waits no longer than this for anything.
PATIENCE_SECONDS = 120
SHORTEST_JUDGED_SECONDS = 60


class Broken(Exception):
    """The server did what it must not."""


class Reader:
    """Answers on one connection, one after the other."""

    def __init__(self, connection):
        self.connection = connection
        self.data = b""

    def until(self, mark):
        while mark not in self.data:
            part = self.connection.recv(1 << 16)
            if not part:
                raise Broken(f"the connection ended before {mark!r}; it had said {self.data[-300:]!r}")
            self.data += part
        found, self.data = self.data.split(mark, 1)
        return found

    def exactly(self, size):
        while len(self.data) < size:
            part = self.connection.recv(1 << 16)
            if not part:
                raise Broken(f"the connection ended {size - len(self.data)} bytes before the answer did")
            self.data += part
        found, self.data = self.data[:size], self.data[size:]
        return found

    def answer(self):
        """Status and body of the next answer."""
        head = self.until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if re.search(r"(?i)transfer-encoding: chunked", head):
            body = b""
            while True:
                size = int(self.until(b"\r\n"), 16)
                body += self.exactly(size)
                if self.exactly(2) != b"\r\n":
                    raise Broken("a chunk is longer than it says")
                if size == 0:
                    return status, body
        length = re.search(r"(?i)content-length: (\d+)", head)
        if length is None:
            raise Broken(f"an answer without a length: {head}")
        return status, self.exactly(int(length.group(1)))


class Client(threading.Thread):
    """Does one thing after another until the time is over."""

    def __init__(self, server, seed, until, tokens):
        super().__init__(daemon=True)
        self.server, self.until, self.tokens = server, until, tokens
        self.random = random.Random(seed)
        self.done = {}
        self.doing = ""
        self.error = ""

    def run(self):
        # Those that must be refused are cheap, and those that are hung up on leave something to clean up.
        kinds = [(self.whole, 4), (self.streamed, 4), (self.chat, 2), (self.pipelined, 2), (self.leaves_stream, 4),
                 (self.leaves_whole, 3), (self.leaves_head, 2), (self.leaves_body, 2), (self.malformed, 4), (self.oversized, 2),
                 (self.garbage, 2), (self.wrong_key, 1), (self.slow, 1), (self.looks, 2), (self.cut_chunks, 1)]
        calls, weights = zip(*kinds)
        while time.monotonic() < self.until and not self.error:
            call = self.random.choices(calls, weights)[0]
            self.doing = call.__name__
            try:
                with self.server.connect() as connection:
                    connection.settimeout(PATIENCE_SECONDS)
                    call(connection)
            except (Broken, OSError, ValueError, KeyError, IndexError) as error:
                # A server that refuses a connection it cannot hold is well; one that is not there is not.
                self.error = f"{call.__name__}: {type(error).__name__}: {error}"
                return
            self.count(call.__name__)

    def count(self, what):
        self.done[what] = self.done.get(what, 0) + 1

    # ---- Requests ----

    def body(self, **more):
        r = self.random
        body = {"prompt": r.choice(TEXTS) * r.choice([1, 1, 1, 20]), "max_tokens": r.choice([1, 8, self.tokens // 10, self.tokens // 2]),
                "temperature": r.choice([0, 0.7, 1.3])}
        if r.random() < 0.3:
            body["seed"] = r.randrange(100)
        if r.random() < 0.3:
            body["n"] = 2
        if r.random() < 0.3:
            body["logprobs"] = 2
        if r.random() < 0.3:
            body["stop"] = ["the", "\n"]
        if r.random() < 0.5:
            body["speculation"] = {"draft_tokens": r.choice([0, 1, 4, 8, "auto"])}
        return {**body, **more}

    def request(self, body, path="/v1/completions", headers=AUTHORIZATION):
        return serving.request_bytes(path, body, headers)

    def expect(self, reader, *wanted):
        status, body = reader.answer()
        if status not in wanted:
            raise Broken(f"answered {status} where {wanted} is right: {body[:400]!r}")
        if status >= 400 and "message" not in json.loads(body)["error"]:
            raise Broken(f"an error without a message: {body[:400]!r}")
        self.count(f"status {status}")
        return status, body

    # ---- Those that want their answer ----

    def check_whole(self, reader):
        status, body = self.expect(reader, 200, 429)
        if status == 200:
            answer = json.loads(body)
            if any(choice["finish_reason"] not in ("stop", "length") for choice in answer["choices"]):
                raise Broken(f"not finished: {body[:400]!r}")

    def check_stream(self, reader):
        status, body = self.expect(reader, 200, 429)
        if status == 200 and (not body.endswith(b"data: [DONE]\n\n") or b'"error"' in body):
            raise Broken(f"a stream that is not whole: {body[-400:]!r}")

    def whole(self, connection):
        connection.sendall(self.request(self.body()))
        self.check_whole(Reader(connection))

    def streamed(self, connection):
        connection.sendall(self.request(self.body(stream=True)))
        self.check_stream(Reader(connection))

    def chat(self, connection):
        body = {"messages": [{"role": "user", "content": self.random.choice(TEXTS)}], "max_tokens": min(24, self.tokens),
                "stream": self.random.random() < 0.5}
        connection.sendall(self.request(body, "/v1/chat/completions"))
        (self.check_stream if body["stream"] else self.check_whole)(Reader(connection))

    def pipelined(self, connection):
        """Three at once are answered in turn."""
        looks = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}\r\n".encode()
        connection.sendall(self.request(self.body()) + looks + self.request(self.body(stream=True)))
        reader = Reader(connection)
        self.check_whole(reader)
        self.expect(reader, 200)
        self.check_stream(reader)

    def looks(self, connection):
        path = self.random.choice(["/metrics", "/health", "/ready", "/openapi.json", "/", "/v1/models"])
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}\r\n".encode())
        self.expect(Reader(connection), 200)

    def slow(self, connection):
        """Takes a long stream in sips, and then drinks up or has enough."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(self.request(self.body(stream=True, n=2, max_tokens=self.tokens, logprobs=3, ignore_eos=True)))
        if not connection.recv(12).endswith(b"200"):  # refused: full, or too slow before the first event
            return
        sips, patient, last = self.random.randrange(5, 30), self.random.random() < 0.5, b""
        # Whole, or cancelled with an event that says so.
        while not last.endswith(b"\r\n0\r\n\r\n") and (sips > 0 or patient):
            part = connection.recv(512 if sips > 0 else 1 << 16)
            if not part:
                raise Broken(f"a slow reader's connection ended before its stream: {last!r}")
            last = last[-16:] + part
            sips -= 1
            if sips > 0:
                time.sleep(0.05)
            else:  # Through the small buffer the rest would come at 40 kB/s.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    # ---- Those that go away ----

    def leave(self, connection):
        if self.random.random() < 0.5:  # with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def leaves_head(self, connection):
        request = self.request(self.body())
        connection.sendall(request[:self.random.randrange(1, request.find(b"\r\n\r\n"))])
        self.leave(connection)

    def leaves_body(self, connection):
        request = self.request(self.body())
        connection.sendall(request[:self.random.randrange(request.find(b"\r\n\r\n") + 4, len(request))])
        self.leave(connection)

    def leaves_whole(self, connection):
        connection.sendall(self.request(self.body(max_tokens=self.tokens, ignore_eos=True)))
        time.sleep(self.random.random() * 0.1)
        self.leave(connection)

    def leaves_stream(self, connection):
        connection.sendall(self.request(self.body(stream=True, max_tokens=self.tokens, ignore_eos=True, n=self.random.randrange(1, 4))))
        connection.recv(self.random.randrange(1, 20000))
        self.leave(connection)

    # ---- Those that must be refused ----

    def malformed(self, connection):
        bad = self.random.choice([
            b"{", b"[]", b"null", b"\xff\xfe{}", b'{"prompt": "\xc3\x28"}', b"[" * 50000, b'{"a":' * 50000, b'{"prompt": "A", "n": 1e999}',
            b'{"prompt": "A", "temperature": NaN}', b'{"prompt": "A", "n": 2147483648}', b'{"prompt": "A", "max_tokens": -1}',
            b'{"prompt": "A", "top_p": 2}', b'{"prompt": "A", "nonsense": 1}', b'{"prompt": {}}', b'{"prompt": [99999999]}',
            b'{"prompt": "A", "logit_bias": {"x": 1}}', json.dumps({"prompt": "long " * 5000}).encode(),
            b'{"prompt": "A", "speculation": {"draft_tokens": 1000}}', b'{"prompt": "A", "prompt": "B", "n": "2"}'])
        path = self.random.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
        if b"long" in bad and path == "/tokenize":
            path = "/v1/completions"
        connection.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}"
                            f"Content-Length: {len(bad)}\r\n\r\n").encode() + bad)
        reader = Reader(connection)
        self.expect(reader, 400, 429)  # some faults are found behind the queue
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # the connection goes on
        self.expect(reader, 200)

    def oversized(self, connection):
        kind = self.random.randrange(3)
        post = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}"
        if kind == 0:  # announced and never sent
            connection.sendall(f"{post}Content-Length: {MAX_BODY + 1}\r\n\r\n".encode())
            self.expect(Reader(connection), 413)
        elif kind == 1:  # not announced; what the system takes at once, since the server closes 2 s after its answer
            connection.sendall(f"{post}Transfer-Encoding: chunked\r\n\r\n{MAX_BODY + 1:x}\r\n".encode() + b" " * (1 << 15))
            self.expect(Reader(connection), 413)
        else:
            connection.sendall(f"{post}X: {'x' * 17000}\r\n\r\n".encode())
            self.expect(Reader(connection), 431)

    def garbage(self, connection):
        connection.sendall(b"\x16\x03\x01" + self.random.randbytes(self.random.randrange(1, 300)) + b"\r\n\r\n")
        self.expect(Reader(connection), 400)

    def wrong_key(self, connection):
        wrong = self.random.choice(["", "Authorization: Bearer other\r\n", "Authorization: Basic c29hazo=\r\n"])
        connection.sendall(self.request(self.body(), headers=wrong))
        self.expect(Reader(connection), 401)

    def cut_chunks(self, connection):
        """A body in chunks, whole or with a size that is none."""
        body = json.dumps(self.body()).encode()
        half = len(body) // 2
        good = self.random.random() < 0.5
        sizes = [f"{half:x}", f"{len(body) - half:x}" if good else "nonsense"]
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}Transfer-Encoding: chunked\r\n\r\n".encode() +
                           b"%s\r\n%s\r\n" % (sizes[0].encode(), body[:half]) +
                           b"%s\r\n%s\r\n0\r\n\r\n" % (sizes[1].encode(), body[half:]))
        if good:
            self.check_whole(Reader(connection))
        else:
            self.expect(Reader(connection), 400)


def watch(server, clients, seconds):
    """Samples of (seconds, resident bytes) until all clients have ended."""
    start = time.monotonic()
    samples = []
    step = max(0.1, seconds / 400)
    while any(client.is_alive() for client in clients):
        samples.append((time.monotonic() - start, server.resident_bytes()))
        if server.process.poll() is not None:
            return samples
        if time.monotonic() - start > seconds + 2 * PATIENCE_SECONDS:
            waiting = ", ".join(client.doing for client in clients if client.is_alive())
            lib.fail(f"clients still wait for answers long after the end: {waiting}; the server's log: {server.log()[-3000:]}")
        time.sleep(step)
    return samples


def growth(samples):
    """Megabytes between the means of the second and of the last quarter, and the slope of that in MB per minute."""
    seconds = samples[-1][0]

    def mean(begin, end):
        return lib.statistics.mean(size for when, size in samples if begin * seconds <= when < end * seconds) / 1e6

    grown = mean(0.75, 1) - mean(0.25, 0.5)
    return grown, grown / (0.5 * seconds / 60)


def judge(server, clients, samples, args):
    """What is wrong, as lines."""
    wrong = [f"client {i}: {client.error}" for i, client in enumerate(clients) if client.error]
    if server.process.poll() is not None:
        return wrong + [f"the server ended by itself with {server.process.returncode}: {server.log()[-3000:]}"]
    if not server.await_idle(60):
        wrong.append("something still runs or waits 60 s after everybody left")
    for name, value in server.metrics().items():
        if name.startswith(("tandem_num_requests_", "tandem_kv_cache_usage_ratio")) and value != 0:
            wrong.append(f"{name} is {value} after everybody left")
    status = server.stop(120)
    if status != 0:
        wrong.append(f"the server ended with {status}: {server.log()[-6000:]}")
    wrong += [f"the server said: {line}" for line in server.log().splitlines() if "[error]" in line or "[critical]" in line][:5]
    if any(client.error for client in clients):
        return wrong  # Those who stopped early left the server with less to do.
    grown, slope = growth(samples)
    print(f"memory: {samples[len(samples) // 4][1] / 1e6:.1f} MB after a quarter, {max(size for _, size in samples) / 1e6:.1f} MB at most, "
          f"{grown:+.2f} MB from the second quarter to the last ({slope:+.2f} MB per minute)")
    if grown > args.growth and args.seconds >= SHORTEST_JUDGED_SECONDS:
        wrong.append(f"memory grew by {grown:.1f} MB, more than {args.growth}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=400, help="of the longest answers; fewer for a server that is slow")
    parser.add_argument("--threads", type=int, default=1, help="of the server's engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth", type=float, default=8, help="megabytes that memory may grow by; more for a sanitizer")
    parser.add_argument("--wrapper", default="", help="put before the server's command")
    args = parser.parse_args()
    # Six sequences run, few wait, and 9 MB of cache hold about five of them: refusals and preemptions are part of it.
    options = ["--threads", str(args.threads), "--max-batch", "6", "--max-waiting", "10", "--kv-memory", "9M", "--max-body",
               str(MAX_BODY), "--api-key", KEY, "--model-name", "soak", "--max-unread", "64K"]
    with serving.Server(args.bin, options, wrapper=args.wrapper.split()) as server:
        until = time.monotonic() + args.seconds
        clients = [Client(server, args.seed * 1000 + i, until, args.tokens) for i in range(args.clients)]
        for client in clients:
            client.start()
        samples = watch(server, clients, args.seconds)
        done = {}
        for client in clients:
            for what, count in client.done.items():
                done[what] = done.get(what, 0) + count
        if server.process.poll() is None:
            samples_of = server.metrics()
            done["preemptions"] = int(samples_of["tandem_num_preemptions_total"])
            done["tokens"] = int(samples_of["tandem_generation_tokens_total"])
        print(", ".join(f"{what} {count}" for what, count in sorted(done.items())))
        print(f"{args.seconds:g} s; the last answer came {samples[-1][0] - args.seconds:.1f} s later", flush=True)
        wrong = judge(server, clients, samples, args)
    for line in wrong:
        print(f"soak.py: {line}", file=sys.stderr)
    print("soak: " + ("FAILED" if wrong else "passed"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
