#!/usr/bin/env python3
"""All kinds of client behaviour at once, for a long time: `soak.py --seconds 600`.

Starts `tandem serve` with a key, a small queue and a small cache. Threads complete, stream and chat, pause and hang up within
heads, bodies and streams, stay silent, connect in crowds, send garbage, too much and too early, ask for more than the limits
allow, read slowly, name other hosts, and omit the key. The test fails if

  - a complete request gets no answer, a wrong status, or an incomplete answer;
  - a seeded or greedy request gets another answer than it got alone before the load, with any drafts;
  - a request still runs or waits, or a page, connection, file or thread is still held after all clients have left;
  - the server ends by itself, does not end with 0 on SIGTERM (when it checks both caches), or logs an error;
  - memory grows: the means of resident memory over the second and the last quarter of the run differ by more than --growth
    MB (only in runs of a minute or more: before that, a server still allocates memory for the first time).

Prints the counts of requests, a summary, and memory over time. The same seed makes the same requests, but their order in time varies.
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

sys.dont_write_bytecode = True  # Do not write into the repository.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import comparison as lib  # noqa: E402
import serving  # noqa: E402

KEY = "soak"
AUTHORIZATION = f"Authorization: Bearer {KEY}\r\n"
POST = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{AUTHORIZATION}"
MAX_BODY = 1 << 20
MAX_BATCH = 6
MAX_WAITING = 10
MAX_CONNECTIONS = 64
# Together with all clients' connections, fewer than the server accepts.
CROWD = 32
TEXTS = ["Once upon a time", "The king", "Tom and Lily went to the park. They", "A", "über 木 \U0001f600 "]
# A client never waits longer than this.
PATIENCE_SECONDS = 600
SHORTEST_JUDGED_SECONDS = 60


class Broken(Exception):
    """The server behaved incorrectly."""


class Reader:
    """Answers on one connection, one after the other."""

    def __init__(self, connection):
        self.connection = connection
        self.data = b""

    def until(self, mark):
        while mark not in self.data:
            part = self.connection.recv(1 << 16)
            if not part:
                raise Broken(f"the connection ended before {mark!r}; it had sent {self.data[-300:]!r}")
            self.data += part
        found, self.data = self.data.split(mark, 1)
        return found

    def exactly(self, size):
        while len(self.data) < size:
            part = self.connection.recv(1 << 16)
            if not part:
                raise Broken(f"the connection ended {size - len(self.data)} bytes before the end of the answer")
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
                    raise Broken("a chunk is longer than its size")
                if size == 0:
                    return status, body
        length = re.search(r"(?i)content-length: (\d+)", head)
        if length is None:
            raise Broken(f"an answer without a length: {head}")
        return status, self.exactly(int(length.group(1)))


class Alone:
    """Requests whose answers do not depend on the server's load, with the answers that they get alone."""

    def __init__(self, server, tokens):
        length = max(8, tokens // 10)
        self.bodies = [{"prompt": text, "max_tokens": length, "temperature": temperature, "seed": seed, "logprobs": 2, "n": 1 + seed % 2,
                        **({"stop": ["the", "\n"]} if seed % 3 == 0 else {})}
                       for seed, (text, temperature) in enumerate((text, t) for text in TEXTS for t in (0, 0.7, 1.3))]
        self.answers = [self.ask(server, body) for body in self.bodies]

    @staticmethod
    def said(answer):
        """The part of an answer that must not depend on other requests or on drafts."""
        return [{key: choice[key] for key in ("index", "text", "token_ids", "finish_reason", "logprobs")} for choice in answer["choices"]]

    @staticmethod
    def ask(server, body):
        with server.connect() as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.sendall(serving.request_bytes("/v1/completions", body, AUTHORIZATION))
            status, answer = Reader(connection).answer()
        if status != 200:
            raise Broken(f"{body} alone is answered {status}: {answer[:400]!r}")
        return Alone.said(json.loads(answer))

    def differ(self, server):
        """The number of requests whose answer has changed."""
        return sum(self.ask(server, body) != answer for body, answer in zip(self.bodies, self.answers))


class Client(threading.Thread):
    """Does one thing after another until the time is over."""

    crowd = threading.Lock()  # one at a time

    def __init__(self, server, seed, until, tokens, alone):
        super().__init__(daemon=True)
        self.server, self.until, self.tokens, self.alone = server, until, tokens, alone
        self.random = random.Random(seed)
        self.done = {}
        self.doing = ""
        self.error = ""

    def run(self):
        # Requests that must be refused are cheap, and after requests that are cut off the server
        # must clean up.
        kinds = [*((call, 4) for call in (self.whole, self.streamed, self.compared, self.leaves_stream, self.malformed)),
                 (self.leaves_whole, 3), *((call, 2) for call in (self.chat, self.pipelined, self.leaves_head, self.leaves_body,
                                                                  self.oversized, self.garbage, self.looks, self.abuses, self.pauses)),
                 *((call, 1) for call in (self.wrong_key, self.other_host, self.slow, self.cut_chunks, self.idles, self.crowds))]
        calls, weights = zip(*kinds)
        while time.monotonic() < self.until and not self.error:
            call = self.random.choices(calls, weights)[0]
            self.doing = call.__name__
            try:
                with self.server.connect() as connection:
                    connection.settimeout(PATIENCE_SECONDS)
                    call(connection)
            except (Broken, OSError, ValueError, KeyError, IndexError) as error:
                # A server may refuse a connection if it has too many, but it must be running.
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
            raise Broken(f"answered {status}, expected {wanted}: {body[:400]!r}")
        if status >= 400 and "message" not in json.loads(body)["error"]:
            raise Broken(f"an error without a message: {body[:400]!r}")
        self.count(f"status {status}")
        return status, body

    # ---- Requests that wait for their answer ----

    def check_whole(self, reader):
        status, body = self.expect(reader, 200, 429)
        if status == 200:
            answer = json.loads(body)
            if any(choice["finish_reason"] not in ("stop", "length") for choice in answer["choices"]):
                raise Broken(f"not finished: {body[:400]!r}")
            self.count("answered")

    def check_stream(self, reader):
        status, body = self.expect(reader, 200, 429)
        if status == 200:
            if not body.endswith(b"data: [DONE]\n\n") or b'"error"' in body:
                raise Broken(f"an incomplete stream: {body[-400:]!r}")
            self.count("answered")

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
        """Three pipelined requests are answered in order."""
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
        """Reads a long stream slowly, and then reads the rest or disconnects."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(self.request(self.body(stream=True, n=2, max_tokens=self.tokens, logprobs=3, ignore_eos=True)))
        if not connection.recv(12).endswith(b"200"):  # refused: full, or too slow before the first event
            return
        sips, patient, last = self.random.randrange(5, 30), self.random.random() < 0.5, b""
        # The stream is complete, or cancelled with an event that says so.
        while not last.endswith(b"\r\n0\r\n\r\n") and (sips > 0 or patient):
            part = connection.recv(512 if sips > 0 else 1 << 16)
            if not part:
                raise Broken(f"a slow reader's connection ended before its stream: {last!r}")
            last = last[-16:] + part
            sips -= 1
            if sips > 0:
                time.sleep(0.05)
            else:  # With the small buffer the rest would arrive at 40 kB/s.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def compared(self, connection):
        """The answer is the same as alone before the load, with any drafts."""
        i = self.random.randrange(len(self.alone.bodies))
        body = {**self.alone.bodies[i], "speculation": {"draft_tokens": self.random.choice([0, 1, 3, 8, "auto"])}}
        connection.sendall(self.request(body))
        status, answer = self.expect(Reader(connection), 200, 429)
        if status == 200:
            if Alone.said(json.loads(answer)) != self.alone.answers[i]:
                raise Broken(f"{body} has another answer than alone: {answer[:1000]!r} in place of {self.alone.answers[i]}")
            self.count("answered")
            self.count("equal to alone")

    def pauses(self, connection):
        """A request that is sent in two parts with a pause between them."""
        request = self.request(self.body())
        middle = self.random.randrange(1, len(request))
        connection.sendall(request[:middle])
        time.sleep(self.random.random())
        connection.sendall(request[middle:])
        self.check_whole(Reader(connection))

    def other_host(self, connection):
        """A client with the key may use another host name. A server that forbids it says so."""
        host = self.random.choice(["evil.example", "localhost.evil.example:80", "[::1]"])
        origin = self.random.choice(["", "Origin: http://evil.example\r\n"])
        request = self.request(self.body(), headers=AUTHORIZATION + origin)
        connection.sendall(request.replace(b"Host: tandem", f"Host: {host}".encode()))
        self.expect(Reader(connection), 200, 400, 403, 421, 429)

    # ---- Silent clients ----

    def idles(self, connection):
        """Silent from the start, or after one answer."""
        if self.random.random() < 0.5:
            connection.sendall(f"GET /health HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}\r\n".encode())
            self.expect(Reader(connection), 200)
        time.sleep(3 * self.random.random())

    def crowds(self, connection):
        """Many silent connections."""
        if not Client.crowd.acquire(blocking=False):
            return
        try:
            crowd = [self.server.connect() for _ in range(CROWD)]
            connection.sendall(self.request(self.body()))
            self.check_whole(Reader(connection))
            for silent in crowd:
                silent.close()
        finally:
            Client.crowd.release()

    # ---- Clients that disconnect ----

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

    # ---- Requests that must be refused ----

    def malformed(self, connection):
        bad = self.random.choice([
            b"{", b"[]", b"null", b"\xff\xfe{}", b'{"prompt": "\xc3\x28"}', b"[" * 50000, b'{"a":' * 50000, b'{"prompt": "A", "n": 1e999}',
            b'{"prompt": "A", "temperature": NaN}', b'{"prompt": "A", "n": 2147483648}', b'{"prompt": "A", "max_tokens": -2}',
            b'{"prompt": "A", "top_p": 2}', b'{"prompt": "A", "nonsense": 1}', b'{"prompt": {}}', b'{"prompt": [99999999]}',
            b'{"prompt": "A", "logit_bias": {"x": 1}}', json.dumps({"prompt": "long " * 5000}).encode(),
            b'{"prompt": "A", "speculation": {"draft_tokens": 1000}}', b'{"prompt": "A", "prompt": "B", "n": "2"}'])
        path = self.random.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
        if path == "/tokenize" and (b"long" in bad or b'"A", ' in bad):  # it reads prompts of any length, and no other field
            path = "/v1/completions"
        connection.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{AUTHORIZATION}"
                            f"Content-Length: {len(bad)}\r\n\r\n").encode() + bad)
        reader = Reader(connection)
        self.expect(reader, 400, 429)  # some faults are found only after queueing
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # the connection goes on
        self.expect(reader, 200)

    def abuses(self, connection):
        """Requests the largest values of fields: answered, refused by name, or refused because the server is full."""
        more = self.random.choice([
            {"n": 1000}, {"n": MAX_BATCH + MAX_WAITING, "max_tokens": 8}, {"max_tokens": 10**9}, {"max_tokens": 2**31 - 1}, {"logprobs": 10**6},
            {"stop": ["x" * 20000]}, {"stop": [f"stop {i}" for i in range(1000)]}, {"stop_token_ids": list(range(1000))},
            {"logit_bias": {str(i): 1 for i in range(1000)}}, {"prompt": ["A"] * 1000}, {"prompt": "a " * 100000}, {"prompt": "\u00e9" * 100000},
            {"min_tokens": 10**6}, {"top_k": 2**31 - 1}, {"seed": 2**64}, {"n": 8, "logprobs": 20, "prompt": "A"}])
        connection.sendall(self.request({**self.body(max_tokens=8), **more}))
        self.expect(Reader(connection), 200, 400, 413, 429)

    def oversized(self, connection):
        kind = self.random.randrange(3)
        if kind == 0:  # announced and never sent
            connection.sendall(f"{POST}Content-Length: {MAX_BODY + 1}\r\n\r\n".encode())
            self.expect(Reader(connection), 413)
        elif kind == 1:  # not announced; sends only as much as the system buffers at once, because the server closes 2 s after its answer
            connection.sendall(f"{POST}Transfer-Encoding: chunked\r\n\r\n{MAX_BODY + 1:x}\r\n".encode() + b" " * (1 << 15))
            self.expect(Reader(connection), 413)
        else:
            connection.sendall(f"{POST}X: {'x' * 17000}\r\n\r\n".encode())
            self.expect(Reader(connection), 431)

    def garbage(self, connection):
        connection.sendall(b"\x16\x03\x01" + self.random.randbytes(self.random.randrange(1, 300)) + b"\r\n\r\n")
        self.expect(Reader(connection), 400)

    def wrong_key(self, connection):
        wrong = self.random.choice(["", "Authorization: Bearer other\r\n", "Authorization: Basic c29hazo=\r\n"])
        connection.sendall(self.request(self.body(), headers=wrong))
        self.expect(Reader(connection), 401)

    def cut_chunks(self, connection):
        """A body in chunks, complete or with an invalid size."""
        body = json.dumps(self.body()).encode()
        half = len(body) // 2
        good = self.random.random() < 0.5
        sizes = [f"{half:x}", f"{len(body) - half:x}" if good else "nonsense"]
        connection.sendall(f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode() +
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
            lib.fail(f"clients are still waiting for answers long after the end: {waiting}; the server's log: {server.log()[-3000:]}")
        time.sleep(step)
    return samples


def growth(samples):
    """The difference in megabytes between the means of the last and the second quarter, and its slope in MB per minute."""
    seconds = samples[-1][0]

    def mean(begin, end):
        return lib.statistics.mean(size for when, size in samples if begin * seconds <= when < end * seconds) / 1e6

    grown = mean(0.75, 1) - mean(0.25, 0.5)
    return grown, grown / (0.5 * seconds / 60)


def leftovers(before, server, seconds=PATIENCE_SECONDS):
    """The resources that the server holds in addition to those before the load, after it had time to free them."""
    end = time.monotonic() + seconds
    while True:
        # One of the descriptors can be the connection that requests metrics.
        more = {what: count - before[what] for what, count in server.holds().items() if count > before[what]}
        if not more or time.monotonic() > end:
            return [f"{count} more {what} than before the load" for what, count in more.items()]
        time.sleep(0.1)


def judge(server, clients, samples, alone, before, args):
    """A list of the faults that were found."""
    wrong = [f"client {i}: {client.error}" for i, client in enumerate(clients) if client.error]
    if server.process.poll() is not None:
        return wrong + [f"the server ended by itself with {server.process.returncode}: {server.log()[-3000:]}"]
    if not server.await_idle(PATIENCE_SECONDS):
        wrong.append(f"a request is still running or waiting {PATIENCE_SECONDS} s after all clients left")
    for name, value in server.metrics().items():
        if name.startswith(("tandem_num_requests_", "tandem_kv_cache_usage_ratio")) and value != 0:
            wrong.append(f"{name} is {value} after all clients left")
    wrong += leftovers(before, server)
    differing = alone.differ(server)
    if differing:
        wrong.append(f"{differing} requests have a different answer after the load than before")
    status = server.stop(PATIENCE_SECONDS)
    if status != 0:
        wrong.append(f"the server ended with {status}: {server.log()[-6000:]}")
    wrong += [f"the server logged: {line}" for line in server.log().splitlines() if "[error]" in line or "[critical]" in line][:5]
    if any(client.error for client in clients):
        return wrong  # Clients that stopped early reduced the load, so memory is not compared.
    grown, slope = growth(samples)
    print(f"memory: {samples[len(samples) // 4][1] / 1e6:.1f} MB after a quarter, {max(size for _, size in samples) / 1e6:.1f} MB at most, "
          f"{grown:+.2f} MB from the second quarter to the last ({slope:+.2f} MB per minute)")
    if grown > args.growth and args.seconds >= SHORTEST_JUDGED_SECONDS:
        wrong.append(f"memory grew by {grown:.1f} MB, more than {args.growth}")
    return wrong


def summary(done):
    """A summary of the counts."""
    def of(*names):
        return sum(done.get(name, 0) for name in names)

    faults = of("leaves_head", "leaves_body", "leaves_whole", "leaves_stream", "pauses", "slow", "idles") + CROWD * of("crowds")
    return (f"{of('answered')} requests answered correctly, {of('equal to alone')} of them compared with the same request alone; {faults} faults of "
            f"clients survived; {of('malformed', 'oversized', 'garbage', 'wrong_key', 'abuses', 'other_host', 'cut_chunks')} bad inputs tried; "
            f"{of('status 429')} refused because the server was full; {of('tokens')} tokens")


def add_up(server, clients):
    """The counts of all clients, and the server's own counts if it is running."""
    done = {}
    for client in clients:
        for what, count in client.done.items():
            done[what] = done.get(what, 0) + count
    if server.process.poll() is None:
        metrics = server.metrics()
        done["preemptions"] = int(metrics["tandem_num_preemptions_total"])
        done["tokens"] = int(metrics["tandem_generation_tokens_total"])
    return done


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=400, help="tokens of the longest answers; use fewer for a slow server")
    parser.add_argument("--threads", type=int, default=1, help="threads of the server's engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth", type=float, default=8, help="megabytes by which memory may grow; use more with a sanitizer")
    parser.add_argument("--wrapper", default="", help="command that runs the server's command")
    return parser.parse_args()


def main():
    args = parse_arguments()
    # Six sequences run, few can wait, and 9 MB of cache hold about five of them, so that there are
    # refusals and preemptions.
    options = ["--threads", str(args.threads), "--max-batch", str(MAX_BATCH), "--max-waiting", str(MAX_WAITING), "--kv-memory", "9M",
               "--max-body", str(MAX_BODY), "--max-connections", str(MAX_CONNECTIONS), "--api-key", KEY, "--model-name", "soak",
               "--max-unread", "64K", "--strict-requests"]
    with serving.Server(args.bin, options, wrapper=args.wrapper.split()) as server:
        alone = Alone(server, args.tokens)
        before = server.holds()
        until = time.monotonic() + args.seconds
        clients = [Client(server, args.seed * 1000 + i, until, args.tokens, alone) for i in range(args.clients)]
        for client in clients:
            client.start()
        samples = watch(server, clients, args.seconds)
        done = add_up(server, clients)
        print(", ".join(f"{what} {count}" for what, count in sorted(done.items())))
        print(f"{args.seconds:g} s; the last answer came {samples[-1][0] - args.seconds:.1f} s later", flush=True)
        wrong = judge(server, clients, samples, alone, before, args)
    print("summary: " + summary(done))
    for line in wrong:
        print(f"soak.py: {line}", file=sys.stderr)
    print("soak: " + ("FAILED" if wrong else "passed"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
