#!/usr/bin/env python3
"""Measures structured output: its validity, the cost of masks, and the speed-up of speculation with them.

  constraints.py                               the fetched model with its shipped draft, 100 schemas
  constraints.py --target F.gguf --drafter ngram --schemas 20 --json out.json

Makes 100 random JSON schemas from a seed: objects of two to six properties, nested up to three levels deep, with bounded
and unbounded strings, enumerations, integers, numbers, booleans, nulls, arrays, optional properties, references and
choices. One server answers a question for each schema in four ways, alternating: plainly and with drafts, with and without
the schema; greedily, up to --max-tokens. An answer counts as valid if it ended by itself and this script's own validator
accepts it. This is a measurement, not a test.
"""
import argparse
import json
import os
import random
import re
import sys
import urllib.request

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import comparison as lib  # noqa: E402
import serving  # noqa: E402

WORDS = ("name title city colour animal price weight year author genre rating status owner country height summary note category "
         "amount currency priority language distance speed temperature material shape mood season effort").split()
THINGS = ("a wizard", "a small town", "a dinner recipe", "a used car", "a library book", "a weather report", "a job offer", "a football match",
          "a garden plant", "a bank transfer", "a train journey", "a pet", "a software bug", "a holiday", "a film")


class SchemaMaker:
    """Makes random schemas of common kinds."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.references = 0

    def string(self):
        kind = self.random.randrange(4)
        if kind == 0:
            return {"type": "string", "maxLength": self.random.choice([8, 20, 40])}
        if kind == 1:
            return {"enum": self.random.sample(WORDS, self.random.randint(2, 5))}
        if kind == 2:
            return {"type": "string", "pattern": self.random.choice(["^[A-Z][a-z]{2,9}$", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "^[a-z]+(-[a-z]+)?$"])}
        return {"type": "string", "maxLength": 60, "description": "in a few words"}

    def value(self, depth):
        kind = self.random.randrange(9 if depth > 0 else 6)
        if kind <= 1:
            return self.string()
        if kind == 2:
            return {"type": "integer", "minimum": 0, "maximum": self.random.choice([10, 150, 5000])}
        if kind == 3:
            return {"type": "number"} if self.random.random() < .3 else {"type": "integer"}
        if kind == 4:
            return {"type": "boolean"}
        if kind == 5:
            return {"anyOf": [self.string(), {"type": "null"}]}
        if kind == 6:
            return {"type": "array", "items": self.value(depth - 1), "minItems": 1, "maxItems": self.random.randint(2, 4)}
        if kind == 7:
            return self.object(depth - 1)
        self.references += 1
        return {"$ref": "#/$defs/part"}

    def object(self, depth):
        names = self.random.sample(WORDS, self.random.randint(2, 6 if depth > 1 else 3))
        required = [name for name in names if self.random.random() < .8] or names[:1]
        return {"type": "object", "properties": {name: self.value(depth) for name in names}, "required": required,
                "additionalProperties": False}

    def schema(self):
        self.references = 0
        made = self.object(2)
        if self.references:
            made["$defs"] = {"part": self.object(0)}
        return made


def is_valid(schema, value, root):
    """Whether `value` satisfies `schema`, for the keywords that SchemaMaker uses."""
    if "$ref" in schema:
        return is_valid(root["$defs"]["part"], value, root)
    if "anyOf" in schema:
        return any(is_valid(one, value, root) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        return (isinstance(value, dict) and set(schema["required"]) <= set(value) <= set(schema["properties"])
                and all(is_valid(schema["properties"][name], member, root) for name, member in value.items()))
    if kind == "array":
        return (isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
                and all(is_valid(schema["items"], item, root) for item in value))
    if kind == "string":
        return (isinstance(value, str) and len(value) <= schema.get("maxLength", 10 ** 9)
                and re.search(schema.get("pattern", ""), value) is not None)
    if kind == "integer":
        return (isinstance(value, int) and not isinstance(value, bool) and schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return {"number": isinstance(value, (int, float)) and not isinstance(value, bool), "boolean": isinstance(value, bool),
            "null": value is None}[kind]


class ChatServer(serving.Server):
    """`tandem serve` with the given arguments, for one answer at a time."""

    def __init__(self, args):
        options = ["--threads", str(args.threads), "--drafter", args.drafter]
        options += ["--target", args.target] if args.target else []
        options += ["--draft", args.draft] if args.draft else []
        super().__init__(args.bin, options)

    def ask(self, body):
        request = urllib.request.Request(self.url() + "/v1/chat/completions", data=json.dumps(body).encode(),
                                         headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)


def chat_parser(doc, max_tokens):
    """Returns a parser with the options of scripts that start a ChatServer."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build", "release", "tandem"))
    parser.add_argument("--target", help="[the server's own choice]")
    parser.add_argument("--draft")
    parser.add_argument("--drafter", default="model+ngram")
    parser.add_argument("--max-tokens", type=int, default=max_tokens)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser


def body_of(schema, thing, args, constrained, drafts):
    body = {"messages": [{"role": "user", "content": f"Describe {thing} as JSON with the properties "
                                                     f"{', '.join(schema['properties'])}."}],
            "temperature": 0, "max_tokens": args.max_tokens, "speculation": {"drafter": args.drafter} if drafts else {"drafter": "none"}}
    if constrained:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    return body


def main():
    parser = chat_parser(__doc__, max_tokens=256)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="F", help="also write the figures to this file")
    args = parser.parse_args()

    maker, server = SchemaMaker(args.seed), ChatServer(args)
    ways = [(True, False), (True, True), (False, False), (False, True)]  # constrained, drafts
    runs = {way: [] for way in ways}
    counts = {"valid": 0, "ended": 0, "same": 0, "compiled_ms": []}
    for i in range(args.schemas):
        schema, thing = maker.schema(), maker.random.choice(THINGS)
        answers = {}
        for way in ways if i % 2 == 0 else ways[::-1]:
            answers[way] = server.ask(body_of(schema, thing, args, *way))
            runs[way].append(answers[way])
        texts = [answers[(True, drafts)]["choices"][0] for drafts in (False, True)]
        counts["same"] += texts[0]["message"]["content"] == texts[1]["message"]["content"]
        ended = texts[1]["finish_reason"] == "stop"
        counts["ended"] += ended
        try:
            counts["valid"] += ended and is_valid(schema, json.loads(texts[1]["message"]["content"]), schema)
        except ValueError:
            lib.say(f"schema {i}: not JSON: {texts[1]['message']['content']!r}")
    server.stop()

    def per_token(way):
        """Returns the milliseconds per token after the first, the median over answers of at least four tokens."""
        return lib.median([a["timings"]["tpot_ms"] for a in runs[way] if a["usage"]["completion_tokens"] >= 4])

    def ratio(a, b):
        pairs = [(x["timings"]["tpot_ms"], y["timings"]["tpot_ms"]) for x, y in zip(runs[a], runs[b])
                 if min(x["usage"]["completion_tokens"], y["usage"]["completion_tokens"]) >= 4]
        return lib.median([x / y for x, y in pairs])

    def acceptance(way):
        proposed = sum(a["speculation"]["proposed"] for a in runs[way])
        return sum(a["speculation"]["accepted"] for a in runs[way]) / proposed if proposed else None

    about = lib.machine(args.threads)
    print(f"{about['cpu']} {' '.join(about['instructions'])}, {args.threads} threads, {about['date']}; {args.schemas} schemas, seed {args.seed}, drafter {args.drafter}\n")
    print(lib.table(["", "ms a token, plain", "with drafts", "drafts gain", "accepted"],
                    [[name, lib.number(per_token((c, False))), lib.number(per_token((c, True))), lib.number(ratio((c, False), (c, True))),
                      lib.number(acceptance((c, True)))] for c, name in ((True, "constrained"), (False, "unconstrained"))]))
    print(f"\nvalid {counts['valid']} of {counts['ended']} answers that ended by themselves, of {args.schemas} in total; "
          f"the same with and without drafts: {counts['same']} of {args.schemas}")
    print(f"masks: {per_token((True, False)) - per_token((False, False)):.3f} ms a token (medians, plain decoding)")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "counts": counts, "runs": {f"{c},{d}": r for (c, d), r in runs.items()}}, file, indent=1)


if __name__ == "__main__":
    main()
