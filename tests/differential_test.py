"""Compares speculation with plain decoding over HTTP, at random: `differential_test.py --bin TANDEM --worlds 40`.

A world is two servers with the same target. One decodes plainly, one request at a time, in a large cache. The other drafts, batches, shares
prefixes and preempts, as a seed chooses, for several clients at once, some of which disconnect. Each of its answers must be equal to the
first server's, byte for byte: text, tokens, finish reason, usage, log-probabilities, and errors. The stream of a client that disconnected must
be a prefix of the first server's answer. The second server must then end with 0, which it does if no page of its caches is lost.

A difference is printed with its world's seed; `--seed N` runs that world again. The seed determines the servers and requests, but not how
the requests overlap, so it can take several runs to reproduce a difference. `--planted` lets the plain server answer another request than the
one that is compared, and fails unless the comparison notices.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # Do not write into the repository.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import serving  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "data", "models")
# Golden models and the golden models that draft for them.
GOLDEN_DRAFTS = {"mistral-full": "mistral-noisy", "qwen3-norm": "qwen3-shallow"}
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
NUM_REQUESTS = 24
TEXTS = ["Once upon a time there was a little girl. She", "The king said to the queen, \"", "Tom and Lily went to the park. They ran and",
         "A", "One day, one day, one day, one", "über 木 \U0001f600 ", "{\"a\": 1, \"b\": [2, 3]}\n"]
CONSTRAINTS = [
    {"guided_choice": ["yes", "no", "no one", "perhaps"]}, {"guided_regex": "[a-z]{3,9}( [a-z]{1,9}){2,20}"}, {"guided_regex": "(ab|a|b.)*c"},
    {"guided_json": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}},
    {"guided_json": {"type": "array", "items": {"enum": ["red", "green", 7, None]}, "minItems": 2, "maxItems": 9}},
    {"response_format": {"type": "json_object"}},
    {"guided_grammar": 'root ::= word (" " word){1,12} "."\nword ::= [a-z]{1,8}'}]


class Pair:
    """A target and its possible drafts."""

    def __init__(self, target, drafts):
        self.target, self.drafts = target, drafts
        with open(os.path.join(target, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.context = config.get("text_config", config)["max_position_embeddings"]


def make_pairs(program, folder):
    """The shipped pair, models of every family, and a model whose draft has another vocabulary. Models that are not shipped are made in `folder`."""
    story = Pair(serving.TARGET, [serving.DRAFT, "self", "self:q8_0", serving.DRAFT, ""])
    golden = []
    for name in sorted(os.listdir(GOLDEN)):
        path, other = (os.path.join(GOLDEN, one) for one in (name, GOLDEN_DRAFTS.get(name, name)))
        golden.append(Pair(path, [path, other, "self:q8_0", ""]))
    tiny = os.path.join(folder, "tiny")
    subprocess.run([program, "make-random", "--shape", "tiny", "--out", tiny], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return story, [pair for pair in golden if pair.context >= 128], Pair(tiny, [serving.DRAFT, tiny])


class World:
    """The options of two servers and the requests for both, chosen by `seed`."""

    def __init__(self, seed, pairs):
        self.seed = seed
        self.random = r = random.Random(seed)
        story, golden, other_tokens = pairs
        self.pair = r.choices([story, r.choice(golden), other_tokens], [6, 3, 1])[0]
        shared = ["--target", self.pair.target, "--device", "cpu", "--kv-cache", r.choice(["f32", "bf16", "int8"]),
                  "--quantize", r.choice(["none", "none", "q8_0", "q4_k"]), "--compute", r.choice(["auto", "auto", "f32"]),
                  "--packed-weights", "none", "--max-waiting", "1000", "--drain-seconds", "86400"]
        self.plain = [*shared, "--drafter", "none", "--max-batch", "1", "--threads", "1", "--no-prefix-cache", "--kv-memory", "256M"]
        draft = r.choice(self.pair.drafts)
        kinds = ["ngram", "none"] + (["model", "model", "model+ngram"] if draft else [])
        self.drafters = ["ngram", "none"] + (["model", "model+ngram"] if draft else [])
        self.verifier = r.choice(["auto", "auto", "exact_match", "token", "block"])
        page_size = r.choice([1, 2, 5, 8, 16, 16, 32, 64])
        self.clients = r.choice([1, 4, 8])
        self.speculative = [
            *shared, "--drafter", r.choice(kinds), "--verifier", self.verifier, "--draft-tokens", r.choice(["auto", "auto", *"0123456788"]),
            "--max-batch", r.choice("1238"), "--threads", r.choice("12"), "--page-size", str(page_size),
            "--chunk-tokens", r.choice(["1", "3", "16", "64", "256"]), *(["--draft", draft] if draft else []),
            *(["--draft-quantize", r.choice(["q8_0", "q4_0"])] if draft and not draft.startswith("self") and r.random() < 0.2 else []),
            *(["--draft-head-tokens", "200"] if draft and r.random() < 0.2 else []),
            *(["--draft-kv-cache", r.choice(["f32", "bf16", "int8"])] if draft and r.random() < 0.4 else []), *(["--no-prefix-cache"] if r.random() < 0.2 else [])]
        # Pages in addition to those of the longest request: fewer than the running requests need
        # together.
        self.spare_pages = r.randrange(1 + 40 // page_size) if r.random() < 0.6 else None
        self.page_size = page_size
        self.longest = min(400, self.pair.context) - 8  # bytes or ids of a prompt plus the tokens of its output
        # Prefixes of other prompts.
        self.prefixes = [self.prompt(r.randrange(1, self.longest // 3)) for _ in range(3)]
        self.requests = [self.request() for _ in range(NUM_REQUESTS)]

    def speculative_options(self, program, wanted):
        """Limits the memory of the cache, given the answers to the requests."""
        if self.spare_pages is None:
            return [*self.speculative, "--kv-memory", "256M"]
        refused = subprocess.run([program, "serve", "--port", "0", *self.speculative, "--kv-memory", "1"], stderr=subprocess.PIPE, text=True,
                                 check=False).stderr
        page_bytes = int(re.search(r"which takes (\d+)", refused).group(1))
        longest = max((answer["usage"]["prompt_tokens"] + body["max_tokens"] for (_, body, _), (status, answer) in zip(self.requests, wanted)
                       if status == 200), default=1)
        return [*self.speculative, "--kv-memory", str((-(-longest // self.page_size) + self.spare_pages) * page_bytes)]

    def prompt(self, num_tokens):
        """Text or ids of at most this many tokens, and about as many."""
        r = self.random
        if r.random() < 0.3:
            return [r.randrange(3, 256) for _ in range(num_tokens)]
        # Every byte can be a token.
        return (" ".join(r.choice(TEXTS) for _ in range(num_tokens)).encode()[:num_tokens]).decode("utf-8", "ignore") or "A"

    def some_prompt(self):
        r = self.random
        prefix = r.choice(self.prefixes)
        if r.random() < 0.3:
            return prefix
        more = self.prompt(r.randrange(1, self.longest // 3))
        return prefix + more if isinstance(prefix, type(more)) else more

    def request(self):
        """(path, body, number of events after which the client disconnects, or None)"""
        r = self.random
        body = self.sampling()
        way = r.choice(["whole", "streamed", "left"])
        if way != "whole":
            body.update(stream=True, stream_options={"include_usage": True})
        leaves_after = r.randrange(1, 12) if way == "left" else None
        if r.random() < 0.2:
            body["messages"] = [{"role": "user", "content": r.choice(TEXTS)}]
            if r.random() < 0.5:
                body.update(logprobs=True, top_logprobs=r.randrange(4))
            return CHATS, body, leaves_after
        body["prompt"] = self.some_prompt()
        if r.random() < 0.5:
            body["logprobs"] = r.randrange(6)
        if r.random() < 0.1:
            body["prompt"] = [body["prompt"], self.prefixes[0]] if isinstance(body["prompt"], type(self.prefixes[0])) else body["prompt"]
        if r.random() < 0.1:
            body["truncate_prompt_tokens"] = r.choice([1, 7, 30])
        if way == "whole":
            if r.random() < 0.1:
                body["prompt_logprobs"] = r.randrange(3)
            if r.random() < 0.1:
                body["echo"] = True
            if r.random() < 0.1:
                body["best_of"] = body.get("n", 1) + r.randrange(3)
        return COMPLETIONS, body, leaves_after

    def sampling(self):
        """Fields that chats and completions share."""
        r = self.random

        def some(share, name, choose):
            if r.random() < share:
                body[name] = choose()

        body = {"max_tokens": r.choice([1, 9, 30, 60, self.longest // 3]), "temperature": r.choice([0, 0, 0.7, 1, 1.4])}
        speculation = {}
        if body["temperature"] > 0:
            # Only this rule draws the same tokens as plain decoding, if there is a seed.
            body["seed"] = r.randrange(2**40)
            speculation["verifier"] = r.choice(["exact_match", "auto"])
        elif r.random() < 0.5:
            speculation["verifier"] = r.choice(["auto", "exact_match", "token", "block"])
        if r.random() < 0.7:
            speculation["drafter"] = r.choice(self.drafters)
        if r.random() < 0.7 and speculation.get("drafter") != "none":
            speculation["draft_tokens"] = r.choice(["auto", 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 32])
        if self.speculative[self.speculative.index("--drafter") + 1] == "none" and "drafter" not in speculation:
            speculation.pop("draft_tokens", None)
        body["speculation"] = speculation
        some(0.3, "n", lambda: r.randrange(1, 5))
        some(0.2, "top_k", lambda: r.choice([1, 2, 40]))
        some(0.2, "top_p", lambda: r.choice([0.1, 0.5, 0.95]))
        some(0.2, "min_p", lambda: r.choice([0.01, 0.2]))
        some(0.2, "repetition_penalty", lambda: r.choice([0.7, 1.1, 1.5]))
        some(0.2, "frequency_penalty", lambda: r.choice([-0.5, 0.3, 1.5]))
        some(0.2, "presence_penalty", lambda: r.choice([-0.5, 0.3, 1.5]))
        some(0.2, "logit_bias", lambda: {str(r.randrange(3, 256)): r.choice([-100, -3, 2, 6]) for _ in range(r.randrange(1, 5))})
        some(0.2, "min_tokens", lambda: r.randrange(body["max_tokens"] + 1))
        some(0.3, "stop", lambda: r.sample(["e", " the", "\n", ". ", "ly", "qu", "!?", "a b"], r.randrange(1, 4)))
        some(0.1, "include_stop_str_in_output", lambda: True)
        some(0.1, "stop_token_ids", lambda: [r.randrange(3, 256) for _ in range(3)])
        some(0.1, "skip_special_tokens", lambda: False)
        some(0.15, "prediction", lambda: {"type": "content", "content": r.choice(TEXTS) * 3})
        if r.random() < 0.25:
            body.update(r.choice(CONSTRAINTS))
        else:
            some(0.3, "ignore_eos", lambda: True)
        return body


# ---- Sending requests ----

def ask(server, path, body, leaves_after=None):
    """The status and the answer, or a stream's events. Waits as long as necessary."""
    data = json.dumps(body)
    while True:
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status == 200 and body.get("stream"):
            return 200, read_events(connection, response, leaves_after)
        answer = json.loads(response.read())
        connection.close()
        if response.status != 429:  # a constraint waited too long to be compiled
            return response.status, answer


def read_events(connection, response, leaves_after):
    """A stream's events. The last is `None` if the stream was complete."""
    events = []
    for line in response:
        if line.startswith(b"data: [DONE]"):
            events.append(None)
        elif line.startswith(b"data: "):
            events.append(json.loads(line[6:]))
        if len(events) == leaves_after:
            break
    response.close()
    connection.close()
    return events


def joined(events):
    """The whole answer, joined from a stream's events."""
    answer = {"choices": {}, "usage": None, "system_fingerprint": events[0].get("system_fingerprint")}
    for event in events:
        if event is None:
            continue
        if "error" in event:
            return event
        answer["usage"] = event["usage"] or answer["usage"]
        for part in event["choices"]:
            choice = answer["choices"].setdefault(part["index"], {"index": part["index"], "text": "", "token_ids": [], "finish_reason": None,
                                                                  "logprobs": {}})
            choice["text"] += part["delta"].get("content") or "" if "delta" in part else part["text"]
            choice["token_ids"] += part["token_ids"]
            choice["finish_reason"] = part["finish_reason"] or choice["finish_reason"]
            for name, values in (part["logprobs"] or {}).items():
                choice["logprobs"].setdefault(name, []).extend(values or [])
    answer["choices"] = [choice for _, choice in sorted(answer["choices"].items())]
    return answer


def said(status, answer):
    """The part of an answer that must not depend on drafts, other requests and caches. A stream's events are joined."""
    if isinstance(answer, list):
        answer = joined(answer)
    if "error" in answer:
        return {"status": status, "error": answer["error"]}
    choices = []
    for choice in answer["choices"]:
        text = choice["message"]["content"] or "" if "message" in choice else choice["text"]
        logprobs = {name: values for name, values in (choice["logprobs"] or {}).items() if values}
        choices.append({"index": choice["index"], "text": text, "token_ids": choice["token_ids"], "finish_reason": choice["finish_reason"],
                        "logprobs": logprobs, "prompt_logprobs": choice.get("prompt_logprobs")})
    usage = answer["usage"] and {name: answer["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return {"status": status, "system_fingerprint": answer["system_fingerprint"], "choices": choices, "usage": usage,
            "prompt_logprobs": answer.get("prompt_logprobs")}


# ---- Comparing ----

def begins(part, whole):
    """Whether a value that was cut short is a prefix of another."""
    if isinstance(part, dict):
        return all(name in whole and begins(value, whole[name]) for name, value in part.items())
    if isinstance(part, (list, str)):
        return part == whole[:len(part)]
    return part is None or part == whole


def difference(got, wanted, is_cut):
    """A description of the first difference between answers, or None. `is_cut`: the client disconnected."""
    if not is_cut or "error" in got or "error" in wanted:
        return None if got == wanted else first_difference(got, wanted)
    for choice in got["choices"]:
        whole = wanted["choices"][choice["index"]]
        if not begins(choice, whole):
            return first_difference(choice, whole)
    return None


def first_difference(got, wanted, place=""):
    if isinstance(got, dict) and isinstance(wanted, dict):
        for name in sorted({*got, *wanted}):
            if got.get(name) != wanted.get(name):
                return first_difference(got.get(name), wanted.get(name), f"{place}.{name}")
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        for index, (one, other) in enumerate(zip(got, wanted)):
            if one != other:
                return first_difference(one, other, f"{place}[{index}]")
    return f"{place}: found {got!r}, where plain decoding has {wanted!r}"


class Found:
    """Counts and differences of all worlds so far."""

    COUNTS = {"preemptions": "tandem_num_preemptions_total", "prefix hits": "tandem_prefix_cache_hits_total",
              "drafted": "tandem_spec_decode_num_draft_tokens_total", "accepted": "tandem_spec_decode_num_accepted_tokens_total",
              "tokens": "tandem_generation_tokens_total"}

    def __init__(self):
        self.worlds, self.compared, self.refused = 0, 0, 0
        self.wrong = []  # (world's seed, kind of request, description)
        self.counts = dict.fromkeys(self.COUNTS, 0)

    def summary(self):
        counts = ", ".join(f"{what} {count}" for what, count in self.counts.items())
        return f"{self.worlds} worlds, {self.compared} answers compared, {self.refused} of them refusals; {counts}; {len(self.wrong)} differ"


def way_of(path, body, leaves_after):
    how = "left" if leaves_after is not None else "streamed" if body.get("stream") else "whole"
    return f"{how} {'chat' if path == CHATS else 'completion'}"


def plain_body(body):
    """The request for the plain server: not streamed, because a stream must give the same answer."""
    return {name: value for name, value in body.items() if name not in ("speculation", "stream", "stream_options", "prediction")}


def run_world(world, program, found, plant=None):
    """Compares all answers of a world. `plant(body, answer)` changes a plain request, given its answer."""
    with serving.Server(program, world.plain) as server:
        wanted = [ask(server, path, plain_body(body)) for path, body, _ in world.requests]
        if plant is not None:
            wanted = [ask(server, path, plant(plain_body(body), answer[1]))
                      for (path, body, _), answer in zip(world.requests, wanted)]
        server.stop()
    world.options = world.speculative_options(program, wanted)
    with serving.Server(program, world.options) as server:
        with concurrent.futures.ThreadPoolExecutor(world.clients) as clients:
            answers = list(clients.map(lambda request: ask(server, *request), world.requests))
        metrics = server.metrics()
        status = server.stop()
        log = server.log()
    found.worlds += 1
    for what, name in Found.COUNTS.items():
        found.counts[what] += int(metrics[name])
    for (path, body, leaves_after), answer, plain in zip(world.requests, answers, wanted):
        found.compared += 1
        found.refused += answer[0] != 200
        is_cut = isinstance(answer[1], list) and answer[1][-1] is not None
        words = difference(said(*answer), said(*plain), is_cut and leaves_after is not None)
        if words is not None:
            found.wrong.append((world.seed, way_of(path, body, leaves_after), f"{path} {json.dumps(body)}\n  {words[:2000]}"))
    if status != 0 or "[error]" in log or "[critical]" in log:
        found.wrong.append((world.seed, "server", f"the server ended with status {status}: {log[-3000:]}"))


def report(world, wrong):
    for seed, way, words in wrong:
        print(f"world {seed}: {way}: {words}\n  server: tandem serve {' '.join(world.options)}\n"
              f"  plain: tandem serve {' '.join(world.plain)}\n  again: ./dev differential --seed {seed}", flush=True)


# ---- Planted faults ----

def without_first_token(body, answer):
    """Changes the first token of each answer that has one, unless a constraint leaves no choice."""
    ids = [choice["token_ids"][0] for choice in answer.get("choices", []) if choice["token_ids"]]
    return {**body, "logit_bias": {**body.get("logit_bias", {}), **{str(token): -100 for token in ids}}}


def other_seed(body, _):
    return {**body, **({"seed": body["seed"] + 1} if "seed" in body else {})}


def one_token_less(body, _):
    return {**body, "max_tokens": max(1, body["max_tokens"] - 1), "min_tokens": 0}


def other_logprobs(body, _):
    """Changes only how many likely tokens are reported."""
    if "top_logprobs" in body:
        return {**body, "top_logprobs": body["top_logprobs"] + 1}
    return {**body, **({"logprobs": body["logprobs"] + 1} if "logprobs" in body and "messages" not in body else {})}


WAYS = [f"{how} {what}" for how in ("whole", "streamed", "left") for what in ("completion", "chat")]
# The kinds of requests in which each fault must be seen. A client that disconnects early does not
# always see an answer's end.
PLANTS = [(without_first_token, WAYS), (other_seed, WAYS), (one_token_less, WAYS[:4]), (other_logprobs, WAYS)]


def see_planted(program, pairs, seed):
    """Whether each fault is seen in each kind of request, in at most twenty worlds."""
    is_all_seen = True
    for plant, ways in PLANTS:
        found = Found()
        for number in range(20):
            run_world(World(seed + number, pairs), program, found, plant)
            unseen = set(ways) - {way for _, way, _ in found.wrong}
            if not unseen:
                break
        print(f"{plant.__name__}: {found.summary()}", flush=True)
        if unseen:
            print(f"{plant.__name__} was not seen in: {', '.join(sorted(unseen))}")
            is_all_seen = False
    return is_all_seen


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "tandem"))
    parser.add_argument("--seed", type=int, help="seed of the first world; later worlds use the following seeds [a random seed for each world]")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--worlds", type=int, help="number of worlds [1 with --seed]")
    length.add_argument("--seconds", type=float, help="starts new worlds for this long")
    length.add_argument("--planted", action="store_true", help="checks that planted faults are seen")
    return parser.parse_args()


def seeds(args):
    """The seeds of the worlds to run."""
    end = time.monotonic() + (args.seconds or 0)
    number = 0
    while (time.monotonic() < end) if args.seconds else (number < (args.worlds or 1)):
        yield random.SystemRandom().randrange(2**32) if args.seed is None else args.seed + number
        number += 1


def main():
    args = parse_arguments()
    program = os.path.abspath(args.bin)
    with tempfile.TemporaryDirectory(prefix="tandem_differential_") as folder:
        pairs = make_pairs(program, folder)
        if args.planted:
            sys.exit(0 if see_planted(program, pairs, args.seed or 0) else 1)
        found = Found()
        for seed in seeds(args):
            before = len(found.wrong)
            world = World(seed, pairs)
            run_world(world, program, found)
            report(world, found.wrong[before:])
    print(f"differential: {found.summary()}")
    sys.exit(1 if found.wrong or found.compared == 0 else 0)


if __name__ == "__main__":
    main()
