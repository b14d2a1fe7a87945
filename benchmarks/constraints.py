#!/usr/bin/env python3
"""Measures structured output: its validity, the cost of masks, and the speed-up of speculation with them.

  constraints.py                               the fetched model with its shipped draft, 100 schemas
  constraints.py --target F.gguf --drafter ngram --schemas 20 --json out.json

Makes 100 random JSON schemas from a seed: objects of two to six properties, nested up to three levels deep, with bounded
and unbounded strings, enumerations, integers, numbers, booleans, nulls, arrays, optional properties, references and
choices. One server answers a question for each schema in four ways, alternating: plainly and with drafts, with and without
the schema; greedily, up to --max-tokens. An answer counts as valid if it ended by itself and Python's `jsonschema` accepts it. This is a
measurement, not a test.
"""
import json
import os
import random
import sys

import jsonschema

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


def is_valid(schema, value):
    """Whether `value` satisfies `schema`, by an independent validator."""
    return jsonschema.Draft202012Validator(schema).is_valid(value)


class ChatServer(serving.Server):
    """`tandem serve` with the given arguments, for one answer at a time."""

    def __init__(self, args):
        models = [word for name in ("target", "draft") if getattr(args, name) for word in ("--" + name, getattr(args, name))]
        super().__init__(args.bin, ["--threads", str(args.threads), "--drafter", args.drafter, *models])

    def ask(self, question, args, drafter, **more):
        """Returns the greedy answer to a question."""
        return self.call("/v1/chat/completions", {"messages": [{"role": "user", "content": question}], "temperature": 0,
                                                  "max_tokens": args.max_tokens, "speculation": {"drafter": drafter}, **more})


def chat_parser(doc, **numbers):
    """Returns a parser with the options of scripts that start a ChatServer, and one for each of `numbers`."""
    parser = lib.parser(doc, os.cpu_count(), **numbers)
    parser.add_argument("--target", help="[the server's own choice]")
    parser.add_argument("--draft")
    parser.add_argument("--drafter", default="model+ngram")
    return parser


def main():
    args = chat_parser(__doc__, max_tokens=256, schemas=100, seed=1).parse_args()
    maker = SchemaMaker(args.seed)
    ways = [(True, False), (True, True), (False, False), (False, True)]  # constrained, drafts
    runs = {way: [] for way in ways}
    counts = {"valid": 0, "ended": 0, "same": 0}
    with ChatServer(args) as server:
        for i in range(args.schemas):
            schema, thing = maker.schema(), maker.random.choice(THINGS)
            form = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}}
            question = f"Describe {thing} as JSON with the properties {', '.join(schema['properties'])}."
            for way in ways if i % 2 == 0 else ways[::-1]:
                constrained, drafts = way
                runs[way].append(server.ask(question, args, args.drafter if drafts else "none", **(form if constrained else {})))
            plain, drafted = (runs[True, drafts][-1]["choices"][0] for drafts in (False, True))
            text, ended = drafted["message"]["content"], drafted["finish_reason"] == "stop"
            counts["same"] += plain["message"]["content"] == text
            counts["ended"] += ended
            try:
                counts["valid"] += ended and is_valid(schema, json.loads(text))
            except ValueError:
                lib.say(f"schema {i}: not JSON: {text!r}")

    def times(*chosen):
        """Returns, for each of these ways, the milliseconds per token after the first, of the answers of at least four tokens in all of them."""
        rows = zip(*(runs[way] for way in chosen))
        whole = [row for row in rows if min(answer["usage"]["completion_tokens"] for answer in row) >= 4]
        return zip(*([answer["timings"]["tpot_ms"] for answer in row] for row in whole))

    def per_token(way):
        return lib.median(next(times(way)))

    def acceptance(way):
        proposed = sum(answer["speculation"]["proposed"] for answer in runs[way])
        return sum(answer["speculation"]["accepted"] for answer in runs[way]) / proposed if proposed else None

    print(lib.machine_line(args, f"{args.schemas} schemas, seed {args.seed}, drafter {args.drafter}"))
    print(lib.table(["", "ms a token, plain", "with drafts", "drafts gain", "accepted"],
                    [[name, *(lib.number(value) for value in (
                        per_token((c, False)), per_token((c, True)), lib.ratio_of_pairs(*times((c, False), (c, True)))[0], acceptance((c, True))))]
                     for c, name in ((True, "constrained"), (False, "unconstrained"))]))
    print(f"\nvalid {counts['valid']} of {counts['ended']} answers that ended by themselves, of {args.schemas} in total; "
          f"the same with and without drafts: {counts['same']} of {args.schemas}")
    print(f"masks: {per_token((True, False)) - per_token((False, False)):.3f} ms a token (medians, plain decoding)")
    lib.write_json(args, counts=counts, runs={f"{c},{d}": r for (c, d), r in runs.items()})


if __name__ == "__main__":
    main()
