"""Streams that continue on another replica, and the headers between gateway and server. Does not use Ray."""

import collections
import json
import threading

PREFIX_CHARACTERS = 256  # the part of a prompt that chooses the replica
# The headers by which the server judges a request: without the browser's own headers a page of any origin would look like a program.
FORWARDED = ("host", "origin", "sec-fetch-site", "content-type", "authorization", "x-request-id")
KEPT_BYTES = 64 << 10  # of a server's log
LONGEST_LINE = 4 << 10  # a longer line is split


class LostServer(Exception):
    """The replica's server ended while it answered, or did not answer at all."""


def forwarded(headers):
    """The headers of a client's request that the server gets."""
    return {name: headers[name] for name in FORWARDED if name in headers}


class LogTail:
    """Reads a process's output, a line at a time, until it ends, and keeps the last part. Thread-safe."""

    def __init__(self, stream, on_line=lambda line: None):
        self._stream, self._on_line = stream, on_line
        self._lines, self._size, self._lock = collections.deque(), 0, threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        while line := self._stream.readline(LONGEST_LINE):
            with self._lock:
                self._lines.append(line)
                self._size += len(line)
                while self._size > KEPT_BYTES:
                    self._size -= len(self._lines.popleft())
            self._on_line(line.decode(errors="replace").rstrip("\n"))

    def text(self):
        with self._lock:
            return b"".join(self._lines).decode(errors="replace")

    def await_end(self):
        self._thread.join()


def prefix_of(body):
    """The beginning of the prompt, or of the conversation, which chooses the replica."""
    asked = body.get("prompt", body.get("messages", body.get("input", "")))
    return (asked if isinstance(asked, str) else json.dumps(asked))[:PREFIX_CHARACTERS]


def is_repeatable(body):
    """Whether another attempt gives the same text to a reader."""
    if body.get("temperature") == 0:
        return True
    speculation = body.get("speculation")
    verifier = speculation.get("verifier") if isinstance(speculation, dict) else None
    return body.get("seed") is not None and verifier in (None, "auto", "exact_match")


class TextSoFar:
    """Counts the characters and tokens that a stream has sent of each choice, so that another attempt leaves
    them out."""

    def __init__(self):
        self._sent = {}  # by choice and member
        self._skip = {}
        self.began = False

    def restart(self):
        self._skip = dict(self._sent)

    def _cut(self, choice, holder, name):
        """Removes the part of a member that was sent before; returns whether anything is left."""
        value, key = holder.get(name), (choice.get("index", 0), name)
        if not isinstance(value, (str, list)):
            return False
        skipped = min(self._skip.get(key, 0), len(value))
        if skipped:
            self._skip[key] -= skipped
            holder[name] = value[skipped:]
        self._sent[key] = self._sent.get(key, 0) + len(value) - skipped
        return len(value) > skipped

    def rest_of(self, event):
        """A server-sent event without the part that was sent before; empty if nothing is left."""
        if not event.startswith(b"data: {"):
            return event
        data = json.loads(event[6:])
        is_news = not data.get("choices") or not self.began
        for choice in data.get("choices", ()):
            delta = choice.get("delta", {})
            left = [self._cut(choice, holder, name) for holder, name in (
                (choice, "text"), (delta, "content"), (delta, "reasoning_content"), (choice, "token_ids"),
                (choice, "provenance"))]
            is_news = is_news or any(left) or bool(choice.get("finish_reason"))
        self.began = True
        return b"data: " + json.dumps(data, separators=(",", ":")).encode() if is_news else b""


async def events(chunks):
    """Server-sent events from chunks of bytes. LostServer if they end without [DONE]."""
    rest, done = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for event in whole:
            done = done or event == b"data: [DONE]"
            yield event
    if not done:
        raise LostServer("the stream ended early")
