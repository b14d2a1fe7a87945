"""The HTTP side of assisted_server.py and openvino_server.py: /v1/completions with vLLM's fields, /tokenize, /v1/models, /version.

A field that the engine does not take is refused with 400 unless it has its neutral value. One answer is generated at a time.
Streams are sent after the last token, in the pieces that the engine gave to its streamer; the text goes with the last piece.
"""
import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BASE = {"model", "prompt", "max_tokens", "temperature", "seed", "n", "stop", "stream", "return_token_ids", "add_special_tokens"}
DEFAULTS = {"max_tokens": 16, "temperature": 1, "n": 1, "stop": [], "seed": None}
NEUTRAL = {"top_k": 0, "top_p": 1, "min_p": 0, "min_tokens": 0, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {},
           "repetition_penalty": 1, "logprobs": 0, "prompt_logprobs": 0, "return_tokens_as_token_ids": True}


def complete(engine, body):
    """Returns the whole answer, and the sizes of the pieces of each choice."""
    body = {key: value for key, value in body.items() if value is not None}
    for key, value in body.items():
        if key not in BASE | engine.fields and NEUTRAL.get(key) != value:
            raise ValueError(f"not offered: {key} = {json.dumps(value)}")
    body = {**DEFAULTS, **NEUTRAL, **body}
    body["stop"] = [body["stop"]] if isinstance(body["stop"], str) else body["stop"]
    ids = engine.tokenize(body["prompt"]) if isinstance(body["prompt"], str) else body["prompt"]
    choices, pieces = [], []
    for index in range(body["n"]):
        tokens, sizes, extra = engine.answer(body, ids, index)
        tokens = tokens[:tokens.index(engine.eos)] if engine.eos in tokens else tokens
        text = engine.tokenizer.decode(tokens) if tokens else ""
        ends = [text.find(stop) for stop in body["stop"] if stop in text]
        finish = "stop" if ends or len(tokens) < body["max_tokens"] else "length"
        text = text[:min([len(text), *ends])]
        choices.append({"index": index, "text": text, "finish_reason": finish, "token_ids": tokens, **extra})
        pieces.append(sizes)
    usage = {"prompt_tokens": len(ids), "completion_tokens": sum(len(choice["token_ids"]) for choice in choices)}
    return {"object": "text_completion", "choices": choices, "usage": usage}, pieces


def events(whole, pieces):
    for choice, sizes in zip(whole["choices"], pieces):
        begin = 0
        for size in [*sizes, 0]:
            part = {**choice, "text": "", "finish_reason": None} if size else dict(choice)
            part["token_ids"] = choice["token_ids"][begin:begin + size]
            part["logprobs"] = {key: values[begin:begin + size] for key, values in choice.get("logprobs", {}).items()}
            yield json.dumps({**whole, "choices": [part]})
            begin += size
    yield "[DONE]"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    log_message = lambda *args: None

    def send(self, status, data, kind="application/json"):
        data = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        known = {"/v1/models": {"data": [{"id": self.name, "owned_by": self.name}]}, "/version": {"version": self.version}}
        self.send(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            with self.lock:
                if self.path == "/tokenize":
                    return self.send(200, {"tokens": self.engine.tokenize(body["prompt"])})
                whole, pieces = complete(self.engine, body)
        except Exception as error:
            return self.send(400 if isinstance(error, ValueError) else 500, {"error": {"message": str(error)}})
        if not body.get("stream"):
            return self.send(200, whole)
        self.send(200, "".join(f"data: {event}\n\n" for event in events(whole, pieces)), "text/event-stream")


def serve(make_engine, name, version):
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    Handler.engine, Handler.name, Handler.version = make_engine(args), name, version
    ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
