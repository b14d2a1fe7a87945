"""Random schemas with every keyword, and texts just outside what a schema allows."""

import json
import random

from schema_oracle import FORMATS, SchemaOracle, map_schemas

LENGTHS = (0, 1, 2, 3, 5, 10, 127, 128, 129, 130, 200, 1000, 5000, 20000)
NAMES = ("a", "b", "ab", "c d", "é", "x/y", 'q"q', "a~b", "n\n", "back\\slash", "😀", "")
PATTERN_ATOMS = ("a", "b", "é", "😀", "[a-f]", "[^x]", '[^\\s"]', r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", r"\.",
                 r"\\", r"\/", '"', r"\n", r"[\n-]", r"[\w.-]", r"[^\\]", "[一-龥]", r"\u0041", "(ab|cd|e)", "(?:x|yz)",
                 "(?:(?:a{0,2}b){0,3})")
QUANTIFIERS = ("", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,130}", "{0,200}", "{129}")
VALUES = (0, 1, -1, 7, 12, 1.5, -0.25, 1e3, 10**20, "", "a", "ab", "abc", "é", 'a"b', "line\nbreak", "😀", "\\", "/",
          "2024-02-29", None, True, False, [], [1, "a"], [[]], {}, {"a": 1}, {"a": {"b": [None]}}, "x" * 150)
ANNOTATIONS = {
    "title": "A title", "description": "of \"it\"", "default": 3, "examples": ["a", 1], "$comment": "none",
    "readOnly": True, "deprecated": False, "x-unknown": {"type": "no type"}, "uniqueItems": False
}
UNSUPPORTED = {
    "not": {"type": "null"}, "if": {"type": "string"}, "contains": {"type": "integer"}, "uniqueItems": True,
    "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": ["b"]}}, "unevaluatedProperties": False,
    "unevaluatedItems": False
}
DEFINITION_NAMES = {
    "plain": "plain", "a/b": "a~1b", "a~b": "a~0b", "a b": "a%20b", "é": "é", "100%": "100%25", "~1": "~01",
    "q\"q": "q%22q"
}


class SchemaGenerator:
    """Random schemas. The same seed gives the same schemas."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.references = []

    def maybe(self, share):
        return self.random.random() < share

    def choose(self, values):
        return self.random.choice(values)

    def root(self):
        definitions = self.definitions() if self.maybe(0.35) else {}
        schema = self.schema(3)
        while not isinstance(schema, dict):
            schema = self.schema(3)
        for keyword, named in definitions.items():
            schema.setdefault(keyword, {}).update(named)
        return schema

    def definitions(self):
        keyword = self.choose(["$defs", "definitions"])
        named = {}
        for name in self.random.sample(sorted(DEFINITION_NAMES), 3):
            named[name] = self.schema(1)
            self.references.append(f"#/{keyword}/{DEFINITION_NAMES[name]}")
        named["tuple"] = {"type": "array", "prefixItems": [self.schema(0), self.schema(0)]}
        named["anchored"] = {"$anchor": "here", **self.string()}
        named["node"] = {
            "type": "object", "properties": {"value": self.schema(0), "next": {"$ref": f"#/{keyword}/node"}}
        }
        self.references += [f"#/{keyword}/tuple/prefixItems/1", "#here", f"#/{keyword}/node"]
        return {keyword: named}

    def schema(self, depth):
        leaves = [
            self.string, self.string, self.number, self.integer, self.enumeration, self.constant, self.simple,
            self.several_types
        ]
        nodes = [
            lambda: self.object(depth), lambda: self.object(depth), lambda: self.object(depth),
            lambda: self.array(depth), lambda: self.choice(depth), lambda: self.all_of(depth)
        ]
        if self.references and self.maybe(0.3):
            return self.decorated({"$ref": self.choose(self.references)}, depth)
        made = self.choose(leaves + 2 * nodes if depth > 0 else leaves)()
        return self.decorated(made, depth) if isinstance(made, dict) else made

    def decorated(self, schema, depth):
        """Adds combinations of keywords that are rarely used together."""
        if self.maybe(0.15):
            schema.pop("type", None)
        if self.maybe(0.1):
            oracle = SchemaOracle(schema, is_strict=False)  # At least one value of the enum must be valid.
            right = [value for value in VALUES if oracle.fault_of(json.dumps(value)) is None] or [None]
            schema["enum"] = [*self.random.sample(right, min(3, len(right))), *self.random.sample(VALUES, 2)]
            if self.maybe(0.3):
                schema["const"] = schema["enum"][0]
        if self.maybe(0.06):
            schema.update(self.choose([self.string, self.integer, lambda: self.choice(depth - 1), self.string])())
        if self.maybe(0.1):
            name = self.choose(sorted(ANNOTATIONS))
            schema[name] = ANNOTATIONS[name]
        if self.maybe(0.02):
            name = self.choose(sorted(UNSUPPORTED))
            schema[name] = UNSUPPORTED[name]
        return schema

    def bounds(self, least, most, values, share):
        """At most two bounds, nearly always in the right order."""
        pair = sorted([self.choose(values), self.choose(values)], reverse=self.maybe(0.03))
        return {name: bound for name, bound in zip((least, most), pair) if self.maybe(share)}

    def pattern(self):
        one = lambda: "".join(
            self.choose(PATTERN_ATOMS) + self.choose(QUANTIFIERS) for _ in range(self.random.randint(1, 3)))
        body = one() if self.maybe(0.85) else f"{one()}|{one()}"
        before, after = self.choose([("^", "$"), ("^", "$"), ("^(", ")$"), ("^", ""), ("", "$"), ("", "")])
        return before + body + after

    def string(self):
        schema = {"type": "string"}
        if self.maybe(0.5):
            schema.update(self.bounds("minLength", "maxLength", LENGTHS if self.maybe(0.5) else LENGTHS[:6], 0.6))
        if self.maybe(0.3):
            schema["pattern"] = self.pattern()
        if self.maybe(0.2):
            schema["format"] = self.choose(sorted(FORMATS) + ["unknown"])
        return schema

    def integer(self):
        numbers = (-1000, -5, -1, 0, 1, 2, 9, 10, 99, 12345, 2**53, 10**18, 2.5)
        schema = {"type": "integer", **self.bounds("minimum", "maximum", numbers, 0.4)}
        if self.maybe(0.2):
            schema.update(self.bounds("exclusiveMinimum", "exclusiveMaximum", numbers, 0.6))
        if self.maybe(0.15):
            schema["multipleOf"] = self.choose([1, 2, 3, 5, 10, 7, 64, 100, 2.5])
        return schema

    def number(self):
        numbers = (-1000, -1.5, -0.001, 0, 0.1, 0.25, 1, 1.999, 10, 1e3, 1e-7)
        schema = {"type": "number", **self.bounds("minimum", "maximum", numbers, 0.4)}
        if self.maybe(0.2):
            schema.update(self.bounds("exclusiveMinimum", "exclusiveMaximum", numbers, 0.6))
        if self.maybe(0.05):
            schema["multipleOf"] = self.choose([0.01, 0.5, 1, 3])
        return schema

    def enumeration(self):
        return {"enum": self.random.sample(VALUES, self.random.randint(1, 6))}

    def constant(self):
        return {"const": self.choose(VALUES)}

    def simple(self):
        return self.choose([{}, True, {"type": "null"}, {"type": "boolean"}, {"type": "string"}, {"type": "object"}])

    def several_types(self):
        parts = [self.string(), self.integer(), self.number(), {"type": "null"}, {"type": "boolean"}]
        chosen = self.random.sample(parts, 2)
        merged = {**chosen[0], **chosen[1]}
        merged["type"] = [part["type"] for part in chosen]
        return merged

    def array(self, depth):
        schema = {"type": "array"}
        if self.maybe(0.4):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
        if self.maybe(0.6):
            schema["items"] = self.schema(depth - 1) if self.maybe(0.85) else self.choose([False, True])
        if self.maybe(0.5):
            schema.update(self.bounds("minItems", "maxItems", (0, 1, 2, 3, 5, 130), 0.6))
        return schema

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randint(0, 4))
        schema = {"type": "object"}
        if names or self.maybe(0.3):
            schema["properties"] = {name: self.schema(depth - 1) for name in names}
        if names and self.maybe(0.05):
            schema["properties"]["itself"] = {"$ref": "#"}
        if self.maybe(0.6):
            schema["required"] = [name for name in names if self.maybe(0.6)]
        if self.maybe(0.1):
            schema.setdefault("required", []).append(self.choose(["outside", "a b", "é!"]))
        if self.maybe(0.4):
            schema["additionalProperties"] = self.choose([False, True, self.schema(depth - 1)])
        if self.maybe(0.2):
            schema["patternProperties"] = {
                self.choose(["^a", "b$", "^[0-9]+$", "^x-", ".", self.pattern()]): self.schema(depth - 1)
                for _ in range(self.random.randint(1, 2))
            }
        if self.maybe(0.12):
            schema["propertyNames"] = self.choose([{"pattern": "^[a-f]*$"}, {"maxLength": 200}, {"minLength": 2},
                                                   {"enum": ["a", "b", "zz"]},
                                                   self.string()])
        if self.maybe(0.2):
            schema.update(self.bounds("minProperties", "maxProperties", (0, 1, 2, 3), 0.6))
        return schema

    def choice(self, depth):
        return {
            self.choose(["anyOf", "anyOf", "oneOf"]): [
                self.schema(depth - 1) for _ in range(self.random.randint(1, 3))
            ]
        }

    def all_of(self, depth):
        part = self.choose([lambda: self.object(depth - 1), self.string, self.integer, lambda: self.schema(depth - 1)])
        return {"allOf": [part() for _ in range(self.random.randint(1, 2))]}


# ---- Texts near the limits ----
def bounds_of(schema):
    """The integers of a schema that can be bounds of lengths."""
    found = set()

    def visit(inner):
        if isinstance(inner, dict):
            found.update(
                value for key, value in inner.items() if key in ("minLength", "maxLength") and type(value) is int)
            map_schemas(inner, visit)

    visit(schema)
    return sorted(found) or [1]


def change_value(value, bounds, chance):
    """A copy of `value` that is changed slightly at one place."""
    if isinstance(value, dict) and value and chance.random() < 0.7:
        name = chance.choice(list(value))
        return {**value, name: change_value(value[name], bounds, chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        return value[:place] + [change_value(value[place], bounds, chance)] + value[place + 1:]
    if isinstance(value, dict):
        fewer = dict(list(value.items())[1:])
        return chance.choice([fewer, {**value, "zz": 1}, {**value, "a": None}, {"a": "x", **value}])
    if isinstance(value, list):
        return chance.choice([value[:-1], value[1:], value + value[-1:], value + [None]])
    if isinstance(value, str):
        length = max(0, chance.choice(bounds) + chance.choice([-1, 0, 1]))
        longer = (value or "a") * (length // max(1, len(value)) + 1)
        return chance.choice(
            [longer[:length], value + "\n", "\t" + value, value[:-1] + "x", value + "é",
             value.upper()])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return chance.choice([value + 1, value - 1, -value, value * 10, value + 0.5, value // 1, 0, str(value)])
    return chance.choice([0, "", None, True, [], {}])


def texts_near(text, schema, chance):
    """Variants of `text` that the schema may not allow: changed at one place, or with a character escaped."""
    bounds = bounds_of(schema)
    value = json.loads(text)
    texts = [json.dumps(change_value(value, bounds, chance), ensure_ascii=False) for _ in range(4)]
    letters = [place for place, letter in enumerate(text) if letter.isalnum() and text[place - 1:place] != "\\"]
    if letters:
        place = chance.choice(letters)
        texts.append(f"{text[:place]}\\u{ord(text[place]):04x}{text[place + 1:]}" if text[place] < "\ud800" else text)
    return texts
