"""Streams that go on where another replica takes over. Nothing of Ray's."""

import json

PREFIX_CHARACTERS = 256  # that choose the replica


class LostServer(Exception):
    """The replica's server ended while it answered, or did not answer at all."""


def prefix_of(body):
    """What chooses the replica: the beginning of the prompt, or of the conversation."""
    asked = body.get("prompt", body.get("messages", body.get("input", "")))
    return (asked if isinstance(asked, str) else json.dumps(asked))[:PREFIX_CHARACTERS]


def is_repeatable(body):
    """Whether another attempt has the same text, as far as a reader of it can tell."""
    if body.get("temperature") == 0:
        return True
    speculation = body.get("speculation")
    verifier = speculation.get("verifier") if isinstance(speculation, dict) else None
    return body.get("seed") is not None and verifier in (None, "auto", "exact_match")


class TextSoFar:
    """What a stream has carried of each choice, so that another attempt leaves that out: characters of its texts,
    and tokens."""

    def __init__(self):
        self._sent = {}  # by choice and member
        self._skip = {}
        self.began = False

    def restart(self):
        self._skip = dict(self._sent)

    def _cut(self, choice, holder, name):
        """Leaves out of a member what was sent before; whether anything is left."""
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
        """An event of server-sent events, less what was sent before; empty if nothing is left of it."""
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
    """Server-sent events, of bytes as they come. LostServer if they end without [DONE]."""
    rest, done = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for event in whole:
            done = done or event == b"data: [DONE]"
            yield event
    if not done:
        raise LostServer("the stream ended early")
