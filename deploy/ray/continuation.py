"""Streams that continue on another replica, and the headers between gateway and server. Does not use Ray."""

import collections
import json
import threading

PREFIX_CHARACTERS = 256  # the part of a prompt that chooses the replica
# The headers by which the server decides about a request. Without the browser's headers a web page of any origin would look like a program.
FORWARDED = ("host", "origin", "sec-fetch-site", "content-type", "authorization", "x-request-id")
KEPT_LINES = 256  # of a server's log
LONGEST_LINE = 4 << 10  # a longer line is split


class LostServer(Exception):
    """The replica's server ended during its answer, or did not answer."""


def forwarded(headers):
    """Returns the headers of a client's request that are passed on to the server."""
    return {name: headers[name] for name in FORWARDED if name in headers}


class LogTail(threading.Thread):
    """Reads a process's output line by line until it ends, and keeps the last lines. Thread-safe."""

    def __init__(self, stream, on_line=lambda line: None):
        super().__init__(daemon=True)
        self._stream, self._on_line, self._lines = stream, on_line, collections.deque(maxlen=KEPT_LINES)
        self.start()

    def run(self):
        while line := self._stream.readline(LONGEST_LINE):
            self._lines.append(line)
            self._on_line(line.decode(errors="replace").rstrip("\n"))

    def text(self):
        return b"".join(self._lines).decode(errors="replace")


def prefix_of(body):
    """Returns the beginning of the prompt or of the conversation, which determines the replica."""
    asked = body.get("prompt", body.get("messages", body.get("input", "")))
    return (asked if isinstance(asked, str) else json.dumps(asked))[:PREFIX_CHARACTERS]


def is_repeatable(body):
    """Whether another attempt gives the same text."""
    if body.get("temperature") == 0:
        return True
    speculation = body.get("speculation")
    verifier = speculation.get("verifier") if isinstance(speculation, dict) else None
    return body.get("seed") is not None and verifier in (None, "auto", "exact_match")


class TextSoFar:
    """Counts the characters and tokens of each choice that a stream has sent, so that another attempt can leave
    them out."""

    def __init__(self):
        self._sent = {}  # by choice and member
        self._skip = {}
        self.began = False

    def restart(self):
        self._skip = dict(self._sent)

    def _cut(self, choice, holder, name):
        """Removes the part of a member that was already sent. Returns whether a part remains."""
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
        """Returns a server-sent event without the part that was already sent; empty if no part remains."""
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
    """Yields the server-sent events in chunks of bytes. Raises LostServer if they end without [DONE]."""
    rest, done = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for event in whole:
            done = done or event == b"data: [DONE]"
            yield event
    if not done:
        raise LostServer("the stream ended early")
