"""Samples texts from the grammars of schemas and validates them with Python's `jsonschema`.

    schema_differential_test.py --sampler build/release/tests/constraint_sampler --schemas 500 --seed 1

The sampler is a program that draws random bytes among those that a grammar allows. It gets each constraint of
schema_cases.py and `--schemas` random ones (schema_generator.py). Every text must be valid, and so must every changed
text that the grammar still accepts. A refusal must name a keyword of the schema. With `--planted` the sampler gets
schemas that lack a keyword, and the test must find each loss. The exit status is 1 if anything differs, and 77 if
`jsonschema` or the grammar engine is missing.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # Do not write into the repository.
try:
    import jsonschema  # noqa: F401, schema_oracle.py uses it
except ImportError:
    print("skipped: Python's jsonschema is not installed (Debian: python3-jsonschema)")
    sys.exit(77)

from schema_cases import CASES, INTEGER, STRING, Case, Raw, raws
from schema_generator import SchemaGenerator, texts_near
from schema_oracle import FORMATS, SchemaOracle, TextOracle, keywords_of, map_schemas, python_pattern

SUPPORTED = ("$anchor", "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "definitions", "enum",
             "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems", "maxLength", "maxProperties",
             "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "oneOf", "pattern",
             "patternProperties", "prefixItems", "properties", "propertyNames", "required", "type")
NUM_TEXTS = 5
LONG = 100  # characters or elements: a text with more of them can reach the sampler's limit
MAX_SHRUNK = 30  # disagreements for which a minimal schema is searched
SHRINKS_FOR_S = 20  # seconds per disagreement
HANGS_AFTER_S = 300  # far longer than the ten seconds that compilation can take


# ---- The sampler ----
def write_byte_tokenizer(folder):
    """Writes a tokenizer whose tokens are the 256 bytes and an end token."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    vocabulary = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    end = {
        "id": 256, "content": "<|endoftext|>", "special": True, "normalized": False, "single_word": False,
        "lstrip": False, "rstrip": False
    }
    tokenizer = {
        "version": "1.0", "added_tokens": [end], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": False}, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary | {end["content"]: 256}, "merges": []}
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


class Sampler:
    def __init__(self, program):
        self.program = program
        self.folder = tempfile.TemporaryDirectory()
        write_byte_tokenizer(pathlib.Path(self.folder.name))
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.program, self.folder.name],
                                        text=True,
                                        encoding="utf-8",
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def ask(self, case, **more):
        """The sampler's answer, or `{"died": ...}` if it ends or hangs. It is then restarted."""
        line = {"kind": case.kind, "strict": case.strict, **more}
        if case.kind == "choice":
            line["choices"] = case.schema
        else:
            line["text"] = case.schema if isinstance(case.schema, str) else json.dumps(case.schema)
        watchdog = threading.Timer(HANGS_AFTER_S, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        watchdog.cancel()
        if answer:
            return json.loads(answer)
        status = self.process.wait()
        self.start()
        return {"died": f"the sampler ends with {status}"}


# ---- The expected answers ----
def oracle_of(case):
    if case.kind == "choice":
        return TextOracle(lambda text: text in case.schema)
    if case.kind == "regex":
        return TextOracle(lambda text: re.fullmatch(python_pattern(case.schema), text))
    return SchemaOracle({"type": "object"} if case.kind == "object" else case.schema, case.strict)


def named_keywords(error, keywords):
    """The keywords that an error names, in its text or as the last step of its path."""
    path, _, words = error.partition(": ")
    said = path.rpartition(".")[2] + " " + re.sub(r"(?<=\S) not\b", "", words)  # "not" is both a keyword and a word.
    return {keyword for keyword in keywords if re.search(rf"(?<![\w$]){re.escape(keyword)}(?!\w)", said)}


def may_go_on(schema):
    """Whether random bytes can exceed the sampler's limit before a text of this schema ends."""
    bounds = re.findall(r'"(?:minLength|minItems)": (\d+)', json.dumps(schema))
    has_patterns = keywords_of(schema) & {"pattern", "patternProperties"}
    return bool(has_patterns) or any(int(bound) >= LONG for bound in bounds)


@dataclasses.dataclass(frozen=True)
class Disagreement:
    kind: str
    reason: str
    text: str = ""


def refusal_faults(case, error):
    if error.startswith("nothing is allowed after "):
        return [Disagreement("dead end", error)]
    keywords = case.refused or (keywords_of(case.schema) if case.kind == "schema" else ())
    if case.kind != "schema" or "schema" not in error or not named_keywords(error, keywords):
        return [Disagreement("refused without a name", f"{error} (expected: one of {sorted(keywords)})")]
    if not case.refused and not case.may_be_refused:
        return [Disagreement("refused", error)]
    return []


def text_of(value):
    return str(value) if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)


def expected_texts(case):
    return [(text_of(value), True) for value in case.takes] + [(text_of(value), False) for value in case.refuses]


def table_faults(case, oracle):
    """The texts of a case for which its expectation and the validator disagree."""
    return [
        Disagreement("the table is wrong", f"taken: {is_right}; the validator: {oracle.fault_of(text)}", text)
        for text, is_right in expected_texts(case)
        if (oracle.fault_of(text) is None) != is_right
    ]


def expectation_faults(case, taken):
    return [
        Disagreement("takes what it must not" if is_taken else "does not take", "expected by the table", text)
        for (text, is_right), is_taken in zip(expected_texts(case), taken)
        if is_taken != is_right
    ]


@dataclasses.dataclass
class Outcome:
    faults: list
    is_refused: bool = False
    num_texts: int = 0


def check_near(sampler, case, oracle, texts, seed):
    """Tries variants of `texts`. Returns how many the grammar accepts, and disagreements for those that are not valid."""
    chance = random.Random(seed)
    near = [other for text in texts for other in texts_near(text, case.schema, chance)]
    answer = sampler.ask(case, samples=0, takes=near)
    if "takes" not in answer:
        return 0, [Disagreement("died", f"at {near}: {answer}")]
    taken = [text for text, is_taken in zip(near, answer["takes"]) if is_taken]
    found = [(text, oracle.fault_of(text)) for text in taken]
    faults = [Disagreement("takes what it must not", fault, text) for text, fault in found if fault is not None]
    return len(taken), faults


def check(sampler, case, seed, num_texts=NUM_TEXTS):
    """Lists every fault in the sampler's answer to a constraint."""
    oracle = oracle_of(case)
    wrong = table_faults(case, oracle)
    if wrong:
        return Outcome(wrong)
    answer = sampler.ask(case, samples=num_texts, seed=seed, takes=[text for text, _ in expected_texts(case)])
    if "died" in answer:
        return Outcome([Disagreement("died", answer["died"])])
    if "error" in answer:
        return Outcome(refusal_faults(case, answer["error"]), is_refused=True)
    if case.refused:
        return Outcome([Disagreement("not refused", f"expected: one of {case.refused}", str(answer["texts"][:1]))])
    faults = expectation_faults(case, answer["takes"])
    if not answer["texts"] and not may_go_on(case.schema):
        faults.append(Disagreement("never ends", f"{answer['unfinished']} texts go on beyond the limit"))
    found = [(text, oracle.fault_of(text)) for text in answer["texts"]]
    faults += [Disagreement("invalid", fault, text) for text, fault in found if fault is not None]
    num_near = 0
    if case.kind == "schema" and not expected_texts(case):
        right = [text for text, fault in found if fault is None]
        num_near, near_faults = check_near(sampler, case, oracle, right, seed)
        faults += near_faults
    return Outcome(faults, num_texts=len(answer["texts"]) + len(answer["takes"]) + num_near)


# ---- The report ----
def smaller(value):
    """Copies of `value` without one of its entries, at any depth."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield {other: kept for other, kept in value.items() if other != key}
        yield from ({**value, key: less} for less in smaller(inner))
    for place, inner in enumerate(value) if isinstance(value, list) else ():
        yield value[:place] + value[place + 1:]
        yield from ([*value[:place], less, *value[place + 1:]] for less in smaller(inner))


def smaller_schemas(schema):
    """The schemas directly within `schema`, then copies of `schema` without one entry."""
    definitions = {keyword: schema[keyword] for keyword in ("$defs", "definitions") if keyword in schema}
    within = []
    map_schemas({keyword: value for keyword, value in schema.items() if keyword not in definitions}, within.append)
    yield from ({**definitions, **inner} for inner in within if isinstance(inner, dict))
    yield from smaller(schema)


def shrunk(sampler, case, seed, kind, end):
    """The smallest case found until `end` that still differs in this way."""
    for schema in smaller_schemas(case.schema):
        if time.monotonic() > end:
            break
        candidate = dataclasses.replace(case, schema=schema)
        try:
            faults = check(sampler, candidate, seed).faults
        except Exception:  # the smaller value is not a valid schema
            continue
        if any(fault.kind == kind for fault in faults):
            return shrunk(sampler, candidate, seed, kind, end)
    return case


class Report:
    def __init__(self):
        self.num_constraints = self.num_texts = self.num_refused = self.num_shrunk = 0
        self.kept = collections.Counter()
        self.refused = collections.Counter()
        self.faults = collections.Counter()

    def add(self, case, outcome):
        self.num_constraints += 1
        self.num_texts += outcome.num_texts
        self.num_refused += outcome.is_refused
        if case.kind == "schema":
            (self.refused if outcome.is_refused else self.kept).update(keywords_of(case.schema))

    def print_fault(self, sampler, case, seed, fault, where):
        self.faults[fault.kind] += 1
        print(f"DIFFERS {where} {fault.kind}: {fault.reason[:400]}")
        print(f"  schema {json.dumps(case.schema, ensure_ascii=False)[:1500]} strict={case.strict}")
        print(f"  text {fault.text[:300]!r} of {len(fault.text)} characters")
        self.num_shrunk += where.startswith("random")
        if where.startswith("random") and self.num_shrunk <= MAX_SHRUNK:
            small = shrunk(sampler, case, seed, fault.kind, time.monotonic() + SHRINKS_FOR_S)
            print(f"  smallest {json.dumps(small.schema, ensure_ascii=False)[:1500]}")

    def print_counts(self):
        print(f"{self.num_constraints} constraints, {self.num_texts} texts, {self.num_refused} constraints refused")
        for keyword in SUPPORTED:
            print(f"  {keyword}: kept in {self.kept[keyword]} schemas, refused in {self.refused[keyword]}")
        others = sorted((set(self.kept) | set(self.refused)) - set(SUPPORTED))
        print("  others: " + ", ".join(f"{word} {self.kept[word]}/{self.refused[word]}" for word in others))
        print(f"{sum(self.faults.values())} disagreements {dict(self.faults)}")


def run_cases(sampler, report, seed):
    for index, case in enumerate(CASES):
        outcome = check(sampler, case, seed)
        report.add(case, outcome)
        for fault in outcome.faults:
            report.print_fault(sampler, case, seed, fault, f"schema_cases.py, case {index}:")


def run_random(sampler, report, seed, indices, end=None):
    for index in indices:
        if end is not None and time.monotonic() > end:
            return
        generator = SchemaGenerator(f"{seed}/{index}")
        case = Case(generator.root(), strict=generator.maybe(0.5), may_be_refused=True)
        outcome = check(sampler, case, index + 1)
        report.add(case, outcome)
        for fault in outcome.faults[:1]:
            report.print_fault(sampler, case, index + 1, fault, f"random {seed}/{index}:")


# ---- Planted faults ----
def planted_losses():
    """Pairs of a keyword and a schema. The sampler gets the schema without the keyword."""
    pairs = [("type", INTEGER), ("enum", {**STRING, "enum": ["a", "b"]}), ("const", {**INTEGER, "const": 7}),
             ("properties", {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}),
             ("required", {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}),
             ("additionalProperties", {"type": "object", "additionalProperties": INTEGER}),
             ("patternProperties", {"type": "object", "patternProperties": {"": INTEGER}}),
             ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a+$"}}),
             ("minProperties", {"type": "object", "minProperties": 2}),
             ("maxProperties", {"type": "object", "maxProperties": 1}), ("items", {"type": "array", "items": INTEGER}),
             ("prefixItems", {"type": "array", "prefixItems": [INTEGER]}),
             ("minItems", {"type": "array", "minItems": 3}), ("maxItems", {"type": "array", "maxItems": 1}),
             ("minLength", {**STRING, "minLength": 5}), ("maxLength", {**STRING, "maxLength": 3}),
             ("pattern", {**STRING, "pattern": "^[a-f]*$"}), ("minimum", {**INTEGER, "minimum": 1000}),
             ("maximum", {**INTEGER, "maximum": -1000}), ("exclusiveMinimum", {**INTEGER, "exclusiveMinimum": 0}),
             ("exclusiveMaximum", {**INTEGER, "exclusiveMaximum": 0}), ("multipleOf", {**INTEGER, "multipleOf": 7}),
             ("anyOf", {"anyOf": [INTEGER, {"type": "null"}]}), ("oneOf", {"oneOf": [INTEGER, {"type": "null"}]}),
             ("allOf", {"allOf": [INTEGER]}), ("not", {"not": STRING}),
             ("contains", {"type": "array", "contains": {"const": 5}}),
             ("uniqueItems", {"type": "array", "items": {"const": 1}, "uniqueItems": True}),
             ("$ref", {"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}),
             ("$ref", {"$ref": "#/definitions/a", "definitions": {"a": INTEGER}}),
             ("$ref", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", **INTEGER}}})]
    return pairs + [("format", {**STRING, "format": name}) for name in sorted(FORMATS)]


class LosingSampler:
    """A sampler that drops a keyword of every schema before it is compiled."""

    def __init__(self, sampler, keyword):
        self.sampler = sampler
        self.keyword = keyword

    def ask(self, case, **more):
        kept = {name: value for name, value in case.schema.items() if name != self.keyword}
        return self.sampler.ask(dataclasses.replace(case, schema=kept), **more)


class FixedSampler:
    """A sampler that always gives the same answer."""

    def __init__(self, answer):
        self.answer = {"takes": [], "unfinished": 0, **answer}

    def ask(self, _case, **_more):
        return self.answer


def planted_answers():
    """Cases with a wrong answer and the expected kind of disagreement."""
    for text in (r'"\ud800"', '"a\nb"', "-0", "NaN", "1 2", '{"a": 1, "a": 2}', ""):
        yield Case({"minProperties": 2} if "{" in text else {}), {"texts": [text]}, "invalid"
    yield Case(STRING), {"texts": [], "unfinished": 5}, "never ends"
    yield Case(STRING), {"died": "the sampler ends with -6"}, "died"
    yield Case(STRING), {"error": "nothing is allowed after \""}, "dead end"
    yield Case(STRING), {"error": "schema.type: is not supported"}, "refused"
    named = {"type": "object", "properties": {"a": {"minLength": 1}}}
    for error in ("cannot be compiled", "schema.properties.a: it is wrong", "schema.maxLength: is not supported"):
        yield Case(named, may_be_refused=True), {"error": error}, "refused without a name"
    yield Case({"not": {}}, refused=("not",)), {"texts": ["1"]}, "not refused"
    yield Case({"not": {}}, refused=("not",)), {"error": "schema.minLength: is not supported"}, "refused without a name"
    yield Case(STRING, takes=("a",)), {"texts": ['""'], "takes": [False]}, "does not take"
    yield Case(STRING, refuses=raws("1")), {"texts": ['""'], "takes": [True]}, "takes what it must not"
    yield Case(STRING, takes=raws("1")), {"texts": ['""'], "takes": [True]}, "the table is wrong"
    yield Case({**STRING, "maxLength": 1}), {"texts": ['"a"'], "takes": [True] * 5}, "takes what it must not"
    yield Case("a.c", kind="regex"), {"texts": ["a\nc"]}, "invalid"
    yield Case(["👍"], kind="choice"), {"texts": ["\\ud83d\\udc4d"]}, "invalid"


def run_planted(sampler, seed):
    missed = sorted(set(SUPPORTED) - {keyword for keyword, _ in planted_losses()} - {"$anchor", "$defs", "definitions"})
    missed = [f"no loss of {keyword} is planted" for keyword in missed]
    for keyword, schema in planted_losses():
        outcome = check(LosingSampler(sampler, keyword), Case(schema, strict=False), seed, num_texts=60)
        if not any(fault.kind == "invalid" for fault in outcome.faults):
            missed.append(f"the loss of {keyword} in {json.dumps(schema)} is not found: {outcome.faults[:2]}")
    for case, answer, kind in planted_answers():
        if kind not in {fault.kind for fault in check(FixedSampler(answer), case, seed).faults}:
            missed.append(f"{answer} to {json.dumps(case.schema)} is not seen as: {kind}")
    print("\n".join(missed) or f"{len(planted_losses())} losses and {len([*planted_answers()])} answers: all are found")
    return len(missed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", required=True, help="the program constraint_sampler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=500, help="random schemas per seed")
    parser.add_argument("--seconds", type=float, help="continues with further seeds for this long")
    parser.add_argument("--planted", action="store_true", help="tests this test")
    parser.add_argument("--only", metavar="SEED/INDEX", help="runs only this random schema of a report")
    options = parser.parse_args()
    sampler = Sampler(options.sampler)
    try:
        return run(sampler, options)
    finally:
        sampler.stop()


def run(sampler, options):
    refusal = sampler.ask(Case(STRING), samples=1).get("error", "")
    if "no grammar engine" in refusal:
        print(f"skipped: {refusal}")
        return 77
    if options.planted:
        return int(run_planted(sampler, options.seed) > 0)
    report = Report()
    if options.only:
        seed, index = map(int, options.only.split("/"))
        run_random(sampler, report, seed, [index])
        return int(bool(report.faults))
    end = options.seconds and time.monotonic() + options.seconds
    run_cases(sampler, report, options.seed)
    run_random(sampler, report, options.seed, range(options.schemas))
    seed = options.seed
    while end and options.schemas and time.monotonic() < end:
        seed += 1
        run_random(sampler, report, seed, range(options.schemas), end)
    report.print_counts()
    unused = [keyword for keyword in SUPPORTED if report.kept[keyword] == 0]
    if unused:
        print(f"no schema with {', '.join(unused)} was kept, so they are not tested")
    return int(bool(report.faults or unused))


if __name__ == "__main__":
    sys.exit(main())
