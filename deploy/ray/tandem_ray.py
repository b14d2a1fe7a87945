"""Replicas of Tandem with one OpenAI endpoint, by Ray Serve (docs/deploy.md):

    pip install "ray[serve]==2.60.0"
    PYTHONPATH=deploy/ray serve run tandem_ray:build target=/models/target draft=/models/draft threads=4

A replica owns a `tandem serve` process. The gateway chooses the replica by the beginning of the prompt, so that
conversations hit the prefix cache. If a replica is lost, the gateway asks another if that gives the same output.
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import time

import aiohttp
import ray
from continuation import LogTail, LostServer, TextSoFar, events, forwarded, is_repeatable, prefix_of
from ray import serve
from ray.serve.request_router import RequestRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

log = logging.getLogger("ray.serve")

RETRIES_WITHIN = 60  # seconds to retry a request whose replica was lost: another one may have to start first
STARTS_WITHIN = 600  # seconds for the start of a server, which packs large models
TELLS_ITS_ADDRESS = re.compile(r"address=http://127\.0\.0\.1:(\d+)")
# A shell script that starts the server. It stops the server when its standard input, a pipe from the replica, is closed, so
# that the server also ends if the replica is killed. It ends with its server.
GUARD = 'exec 3<&0; "$@" 3<&- & child=$!; { cat <&3 > /dev/null; kill $child; } & exec 3<&-; wait $child'


class PrefixRouter(RequestRouter):
    """Prefers always the same replica for a prefix (the one with the highest hash), then the next. When a replica is
    added or removed, only its share of prefixes moves. If a replica is busy, the next is asked."""

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        key, attempt = "", 0
        if pending_request is not None and len(pending_request.args) >= 2:
            key, attempt = pending_request.args[:2]

        def weight(replica):
            return hashlib.blake2b(f"{key}|{replica.replica_id.unique_id}".encode(), digest_size=8).digest()

        ranked = sorted(candidate_replicas, key=weight, reverse=True)
        # Another attempt begins with another replica: the first may have died before Ray noticed.
        attempt %= max(len(ranked), 1)
        return [[replica] for replica in ranked[attempt:] + ranked[:attempt]]


@serve.deployment(health_check_period_s=1, health_check_timeout_s=10, graceful_shutdown_timeout_s=40)
class TandemReplica:
    """A `tandem serve` process and its HTTP client."""

    def __init__(self, program, options):
        command = ["bash", "-c", GUARD, "guard", program, "serve", "--host", "127.0.0.1", "--port", "0", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE)
        # The whole log goes to Ray's log, which Ray rotates.
        self._log = LogTail(self._process.stderr, lambda line: log.info("server: %s", line))
        self._url = f"http://127.0.0.1:{self._await_port()}"
        self._session = None

    def _await_port(self):
        for _ in range(STARTS_WITHIN * 20):
            text = self._log.text()
            found = TELLS_ITS_ADDRESS.search(text)
            if found:
                return int(found[1])
            if "error" in text and "tandem: error:" in text:
                break
            time.sleep(0.05)
        self._process.stdin.close()
        raise RuntimeError(f"tandem serve did not start: {text.strip()[-2000:]}")

    def _client(self):
        if self._session is None:  # needs a running loop
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                                                  connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        return self._session

    async def check_health(self):
        self._end_with_server()
        async with self._client().get(self._url + "/health") as answer:
            if answer.status != 200:
                raise RuntimeError(f"/health: {answer.status}")

    async def answer(self, key, attempt, method, path, headers, body):
        """Yields the status and headers of the server's answer, then the parts of its body. `key` and `attempt` are
        for the router."""
        del key, attempt
        try:
            async with self._client().request(method, self._url + path, data=body, headers=headers) as answer:
                kept = {name: value for name, value in answer.headers.items()
                        if name.lower() in ("content-type", "retry-after", "www-authenticate")
                        or name.lower().startswith("x-")}
                yield answer.status, kept
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            self._end_with_server()
            raise LostServer(str(error)) from error

    def _end_with_server(self):
        """Ends this process if its server has ended, so that Ray starts another replica."""
        if self._process.poll() is not None:
            os._exit(1)

    def who(self, key, attempt):
        """Returns the process ids of the replica and of its server, for try_replicas.py, which kills one of them."""
        del key, attempt
        children = subprocess.run(["pgrep", "-P", str(self._process.pid), "tandem"], capture_output=True, text=True,
                                  check=False).stdout.split()
        return {"replica": os.getpid(), "server": int(children[0]) if children else None}

    def __del__(self):
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.stdin.close()  # the guard asks the server to drain
            process.wait()


def is_lost(error):
    if isinstance(error, (ray.exceptions.RayActorError, LostServer)):
        return True
    return isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, LostServer)


@serve.deployment
class Gateway:
    """OpenAI's API in front of the replicas."""

    def __init__(self, replicas):
        self._replicas = replicas
        self._retried = 0
        self._continued = 0  # retries in the middle of a stream

    async def __call__(self, request: Request) -> Response:
        path, raw = request.url.path, await request.body()
        if path == "/health":
            return Response()
        if path == "/retries":
            return JSONResponse({"retried": self._retried, "continued": self._continued})
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}  # the server reports the error
        if not isinstance(body, dict):
            body = {}
        call = (request.method, path, forwarded(request.headers), raw)
        key = prefix_of(body)
        attempt, until = 0, time.monotonic() + RETRIES_WITHIN
        while time.monotonic() < until:
            answer = self._ask(key, attempt, call)
            try:
                status, headers = await anext(answer)
                if body.get("stream") and status == 200:
                    return StreamingResponse(self._stream(answer, key, attempt, call, body), status, headers)
                return Response(b"".join([chunk async for chunk in answer]), status, headers)
            except Exception as error:  # noqa: BLE001: is_lost selects the relevant ones of Ray's many exceptions
                if not is_lost(error):
                    raise
                self._note(attempt, error)
                await asyncio.sleep(pause(attempt))
                attempt += 1
        return JSONResponse(lost_error(), 503)

    def _ask(self, key, attempt, call):
        return self._replicas.options(stream=True).answer.remote(key, attempt, *call)

    def _note(self, attempt, error):
        self._retried += 1
        log.warning("a replica was lost attempt=%d error=%r", attempt, error)

    async def _stream(self, answer, key, attempt, call, body):
        """Yields events as they arrive. If a replica is lost, the rest comes from another one if its text is the same."""
        so_far = TextSoFar()
        # Log-probabilities and calls cannot be cut together with their text.
        can_go_on = is_repeatable(body) and not body.get("logprobs") and not body.get("tools")
        until = time.monotonic() + RETRIES_WITHIN
        while True:
            try:
                async for event in events(answer):
                    rest = so_far.rest_of(event) if can_go_on else event
                    so_far.began = True
                    until = time.monotonic() + RETRIES_WITHIN
                    if rest:
                        yield rest + b"\n\n"
                return
            except Exception as error:  # noqa: BLE001: as above
                if not is_lost(error):
                    raise
                self._note(attempt, error)
                attempt += 1
                if time.monotonic() >= until or (so_far.began and not can_go_on):
                    yield b"data: " + json.dumps(lost_error()).encode() + b"\n\n"
                    return
            await asyncio.sleep(pause(attempt))
            self._continued += so_far.began
            so_far.restart()
            answer = self._ask(key, attempt, call)
            try:
                await anext(answer)
            except Exception as error:  # noqa: BLE001: handled in the next iteration
                answer = failing(error)


def pause(attempt):
    """Returns the seconds to wait before another attempt."""
    return min(0.1 * 2**attempt, 1.0)


def lost_error():
    return {"error": {"message": "the replica that was answering was lost; send the request again", "type": "server_error",
                      "param": None, "code": "replica_lost"}}


async def failing(error):
    raise error
    yield b""  # makes this function a generator


def build(args):
    """Returns the application. `args`: target, draft, threads, min_replicas, max_replicas, max_batch, and `program`
    and `options` (one string) for the server."""
    known = {"target", "draft", "threads", "min_replicas", "max_replicas", "max_batch", "program", "options"}
    if unknown := set(args) - known:
        raise ValueError(f"{sorted(unknown)}: allowed: {sorted(known)}")
    threads, max_batch = int(args.get("threads", 1)), int(args.get("max_batch", 8))
    program = args.get("program") or shutil.which("tandem")
    if program is None:
        import tandem.__main__  # the program in the Python package (docs/python.md)
        program = str(tandem.__main__.program())
    options = ["--threads", str(threads), "--max-batch", str(max_batch), "--max-waiting", str(max_batch)]
    for name in ("target", "draft"):
        if name in args:
            options += [f"--{name}", args[name]]
    options += args.get("options", "").split()
    smallest = int(args.get("min_replicas", 1))
    replicas = TandemReplica.options(
        ray_actor_options={"num_cpus": threads},
        max_ongoing_requests=2 * max_batch,
        autoscaling_config={"min_replicas": smallest, "max_replicas": max(int(args.get("max_replicas", 4)), smallest),
                            "target_ongoing_requests": max_batch / 2, "upscale_delay_s": 5, "downscale_delay_s": 120},
        request_router_config={"request_router_class": PrefixRouter},
    ).bind(program, options)
    return Gateway.options(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1024).bind(replicas)
