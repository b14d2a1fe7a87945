"""Constraints written by hand, each with texts that it must accept or reject, or with the keyword that a refusal must name."""

import dataclasses
import functools


class Raw(str):
    """A literal text. Every other value in `takes` and `refuses` is converted to JSON first."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A constraint with the texts that it `takes` and `refuses`, or with `refused`: keywords, one of which its refusal must name. If it
    `may_be_refused`, a refusal that names any keyword of the schema is also correct."""
    schema: object
    takes: tuple = ()
    refuses: tuple = ()
    refused: tuple = ()
    strict: bool = True
    may_be_refused: bool = False
    kind: str = "schema"


def case(schema, takes=(), refuses=(), **rest):
    return Case(schema, tuple(takes), tuple(refuses), **rest)


def refused(schema, *keywords):
    return Case(schema, refused=keywords)


kept_or_refused = functools.partial(case, may_be_refused=True)


def string(**keywords):
    return {"type": "string", **keywords}


def record(properties, **keywords):
    return {"type": "object", "properties": properties, **keywords}


def array(**keywords):
    return {"type": "array", **keywords}


def raws(*texts):
    return tuple(map(Raw, texts))


SPECIAL = 'print("a\\n")\n\t\\ é 😀 \u2028 \x7f /'
LONE = raws(r'"\ud800"', r'"\udc00"', r'"\ud800a"', r'"\uDFFF\uD800"', r'"\ud83d\ud83d\ude00"')
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}

# ---- Items 1 and 3: bounds of any size ----
BOUNDS = [
    case(record({"c": string(maxLength=200)}, required=["c"]), [{"c": ""}, {"c": "a" * 200}, {"c": SPECIAL}],
         [{"c": "a" * 201}, *raws('{"c": "a\nb"}', '{"c": "a"b"}', '{"c": "\t"}')]),
    case(record({"c": string(minLength=129)}, required=["c"]), [{"c": "a" * 129}, {"c": '"' * 129}, {"c": "a" * 1000}],
         [{"c": "a" * 128}, Raw(r'{"c": "%s"}' % (r"\n" * 128))]),
    case(string(pattern="^.{1,256}$"), ["a", "é" * 256, '"' * 256, "\\" * 256],
         ["", "a" * 257, "\n", Raw(r'"\u000a"'), Raw('"a\nb"')]),
    case(string(pattern=r"\S{0,200}"), ["", "a" * 200, '"\\' * 100], raws('"a\nb"', '"a" "')),
    case(string(pattern=r"^\S{0,200}$"), ["", "a" * 200, '"\\' * 100],
         ["a" * 201, "a b", "\n", *raws(r'"\u0020"', r'"\t"', r'"\u2028"', r'"\ufeff"', r'"\u00a0"')]),
    case(string(pattern="^[^x]{0,200}$"), ["", "a" * 200, SPECIAL], ["a" * 201, "x", Raw(r'"\u0078"')]),
    case({"type": "object", "propertyNames": {"maxLength": 200}}, [{}, {"a" * 200: 1}, {'"': [], "\\": 2}],
         [{"a" * 201: 1}, Raw('{"a\nb": 1}')],
         strict=False),
    case(string(minLength=127, maxLength=130), ["a" * 127, "\n" * 130], ["a" * 126, "a" * 131]),
    case(string(maxLength=0), [""], ["a", "\n"]),
    case(string(minLength=0), ["", SPECIAL], LONE),
    case(string(maxLength=1), ["", "\n", '"', "\\", "é", "😀", "\x7f", *raws(r'"\u00e9"', r'"\/"')],
         ["ab", "\n\n", "😀😀", "e\u0301", Raw(r'"\u0061\u0062"')]),
    case(string(minLength=2, maxLength=2), ["ab", "\n\n", '\\"', "😀😀"],
         ["a", "\n", "😀", Raw(r'"\ud83d\ude00"'), *LONE]),
    case(string(minLength=3, maxLength=2), refused=("minLength", "maxLength")),
    *[
        case(string(maxLength=length), ["", "a" * length, "\n" * length], ["a" * (length + 1), *LONE])
        for length in (128, 129, 1000, 3000, 4000, 5000, 9999, 10000, 20000)
    ],
    case(string(minLength=20000), ["a" * 20000], ["a" * 19999]),
    case(string(minLength=5000, maxLength=5000), ["é" * 5000], ["é" * 4999, "é" * 5001]),
    case(string(maxLength=2.0), ["ab"], ["abc"], may_be_refused=True),
    case(array(items=string(maxLength=150), maxItems=200), [["a"] * 200, ["a" * 150]], [["a"] * 201, ["a" * 151]]),
]

# ---- Item 2: every character can be written ----
ESCAPES = [
    case(record({"code": string(minLength=1)}, required=["code"]), [{"code": SPECIAL}], [{"code": ""}]),
    case(STRING, ["", SPECIAL, "\x00\x1f", Raw(r'"\u00e9"')], LONE),
    case({}, [SPECIAL, {SPECIAL: [SPECIAL]}], LONE),
    case({"type": "object"}, [{SPECIAL: SPECIAL}], raws(r'{"\ud800": 1}', r'{"a": "\udc00"}'), strict=False),
    case(string(pattern="^.*$"), ["", '"', "\\", "\t", "é"], ["\n", "\r", Raw(r'"\u000A"')]),
    case(string(pattern="^.*$", maxLength=5), ['"\\"\t/'], ["a" * 6, "\n"]),
    case(string(pattern="^[^x]+$", minLength=2), ['"\n', "\\\\"], ["a", "ax", Raw(r'"a\u0078"')]),
    case(string(pattern=r"^[\s\S]*$"), ["", SPECIAL], LONE),
    case(string(pattern=r'^a"b\\c\n$'), ['a"b\\c\n'], ["a", 'a"b\\c']),
    case(string(pattern=r"^\w+\n\w+$"), ["ab\ncd"], ["ab cd", "é\né"]),
    case(string(pattern=r"^\W$"), ['"', "—", "\n", " "], ["a", "_", Raw(r'"\u0061"')]),
    case(string(pattern=r"^\D\S$"), ['""', "é\\"], ["1a", "a ", "a\n", Raw(r'"\u0031a"')]),
    case(string(pattern="^a"), ["a", "abc", 'a"\n'], ["ba", ""]),
    case(string(pattern="a$"), ["a", "bca", '"\na'], ["ab", ""]),
    case(string(pattern="abc"), ["abc"], ["ab", ""]),
    case(string(pattern="^a|b$"), [], ["c", "ca", "bc"]),
    case(string(pattern="^(a|b)$"), ["a", "b"], ["ab", "a\n", ""]),
    case(string(pattern="^[a-z]{2}-[0-9]+$", maxLength=4), ["ab-1"], ["ab-12", "ab-"], may_be_refused=True),
    case(string(pattern="^[a\\-\\]]$"), ["a", "-", "]"], ["b", "\\"]),
    case(string(pattern="^\\/\\$\\.$"), ["/$."], ["/$a"]),
    refused(string(pattern="["), "pattern"),
    refused(string(pattern="(a"), "pattern"),
    refused(string(pattern="a{2,1}"), "pattern"),
    refused(string(pattern=5), "pattern"),
    refused(string(format="uri-template"), "format"),
    refused(string(format="regex"), "format"),
    kept_or_refused(string(pattern="^(?=ab)a"), [], ["a", "ac"]),
    kept_or_refused(string(pattern="^(?!ab)a"), [], ["ab", "b"]),
    kept_or_refused(string(pattern=r"^\bab\b$"), [], ["a", "b"]),
    kept_or_refused(string(pattern=r"^(a)\1$"), [], ["a", "ab"]),
    kept_or_refused(string(pattern="a^b"), [], ["ab", "a^b"]),
    kept_or_refused(string(pattern="a$b"), [], ["ab", "a$b"]),
]

# ---- Item 4: no keyword is dropped ----
KEPT = [
    case(record({"a": {}}), [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 2}]),
    case(record({"a": {}}), [{"b": 1}, {"a": 1, "b": 2}], strict=False),
    case(record({"a": {}}, additionalProperties=INTEGER), [{"a": "x", "b": 2}], [{"b": "x"}]),
    case(record({"a": INTEGER}, additionalProperties=STRING), [{"a": 1, "b": "x"}],
         raws('{"a": 1, "a": "x"}', r'{"\u0061": "x"}', r'{"a": 1, "\u0061": "x"}')),
    case({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}], strict=False),
    case({"type": "object", "required": ["a"]}, [{"a": 1}], [{}, {"b": 1}], strict=False),
    case(record({"a": INTEGER}, required=["b"]), [{"b": 1}, {"a": 1, "b": "x"}], [{}, {"a": 1}], strict=False),
    case(record({"a": INTEGER}, required=["b"]), [{"b": 1}, {"a": 1, "b": "x"}], [{}, {"a": 1}]),
    refused(record({"a": {}}, required=["b"], additionalProperties=False), "required"),
    case({"maxLength": 2}, ["ab"], ["abc"]),
    case({"minLength": 2}, ["ab"], ["a"]),
    case({"pattern": "^a$"}, ["a"], ["b"]),
    case({"format": "date"}, ["2024-02-29"], ["2023-02-29"]),
    case({"minimum": 3}, [3, 4.5], [2]),
    case({"exclusiveMaximum": 3}, [2, -1], [3]),
    case({"multipleOf": 3}, [3], [2], may_be_refused=True),
    case({"required": ["a"]}, [{"a": 1}], [{}]),
    case({"properties": {"a": INTEGER}}, [{"a": 1}], [{"a": "x"}]),
    case({"minProperties": 1}, [{"a": 1}], [{}], strict=False),
    case({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
    case({"items": INTEGER}, [[1]], [["a"]]),
    case({"minItems": 2}, [[1, 2]], [[1]]),
    case({"prefixItems": [INTEGER]}, [[1]], [["a"]]),
    case({"additionalProperties": INTEGER}, [{"a": 1}], [{"a": "x"}]),
    case({"type": "string", "enum": ["a", 1]}, ["a"], [1]),
    case({"type": "integer", "enum": [1, 2.5, "x"]}, [1], [2.5, "x"]),
    case({"enum": ["a", "abc"], "maxLength": 2}, ["a"], ["abc"]),
    case({"enum": ["a", "bc"], "pattern": "^b"}, ["bc"], ["a"]),
    case({"enum": [1, 5], "minimum": 2}, [5], [1]),
    case({"enum": [4, 6, 9], "multipleOf": 3}, [6, 9], [4]),
    case({"enum": ["2024-02-30", "2024-02-29"], "format": "date"}, ["2024-02-29"], ["2024-02-30"]),
    case({"enum": [{"a": 1}, {"b": 1}], "required": ["a"]}, [{"a": 1}], [{"b": 1}]),
    case({"enum": [[1], [1, 2]], "minItems": 2}, [[1, 2]], [[1]]),
    case({"enum": [1, 2], "const": 2}, [2], [1]),
    refused({"const": 3, "enum": [1, 2]}, "const", "enum"),
    refused({"const": "abc", "maxLength": 2}, "const", "maxLength"),
    refused({"type": "string", "const": 1}, "const", "type"),
    refused({"type": "string", "enum": [1]}, "enum", "type"),
    refused({"enum": []}, "enum"),
    case({"const": None}, [None], [0]),
    case({"const": {"a": [1, "é\n😀"]}}, [{"a": [1, "é\n😀"]}], [{"a": [1]}]),
    case({"enum": ["é", 'a"b', "\n", "😀", True, None, 1.5]}, ["é", 'a"b', "\n", "😀", True, None, 1.5], ["a", False, 1]),
    case({"const": 0}, [0], [False, *raws("-0")]),
    case({"const": False}, [False], [0]),
    case({"const": []}, [[]], [{}]),
    case({"type": ["string", "null"], "maxLength": 2}, ["ab", None], ["abc", 1]),
    case({"type": ["integer", "string"], "enum": [1, "a", None]}, [1, "a"], [None]),
    case({"type": ["array", "object"], "minItems": 1, "required": ["a"]}, [[1], {"a": 1}], [[], {}]),
    kept_or_refused(record({"ab": INTEGER}, patternProperties={"^a": STRING}), [{}, {"ac": "x"}],
                    [{"ab": 1}, {"ab": "x"}, {"ac": 1}, Raw(r'{"\u0061c": 1}')],
                    strict=False),
    kept_or_refused({"type": "object", "patternProperties": {"^a": INTEGER, "b$": {"minimum": 5}}},
                    [{"ab": 7}], [{"ab": 1}, {"a": "x"}],
                    strict=False),
    case({"type": "object", "patternProperties": {"^x-": STRING}, "additionalProperties": False}, [{"x-a": "b"}, {}],
         [{"a": 1}, {"x-a": 1}],
         may_be_refused=True),
    case({"type": "object", "minProperties": 2}, [{"a": 1, "b": 2}],
         [{}, {"a": 1}, *raws('{"a": 1, "a": 2}', r'{"a": 1, "\u0061": 2}')],
         may_be_refused=True),
    case(record({"a": {}, "b": {}, "c": {}}, minProperties=2), [{"a": 1, "c": 2}], [{}, {"b": 1}]),
    case(record({"a": {}, "b": {}, "c": {}}, maxProperties=2), [{}, {"a": 1, "c": 2}], [{"a": 1, "b": 2, "c": 3}]),
    case({"type": "object", "maxProperties": 0}, [{}], [{"a": 1}]),
    refused(record({"a": {}}, minProperties=2), "minProperties"),
    refused({"type": "object", "minProperties": 3, "maxProperties": 2}, "minProperties", "maxProperties"),
    case({"type": "object", "propertyNames": {"pattern": "^[ab]$"}}, [{"a": 1}],
         [{"c": 1}, Raw(r'{"\u0063": 1}')]),
    case({"type": "object", "propertyNames": {"enum": ["a", 'b"']}}, [{"a": 1}, {'b"': 1}], [{"c": 1}]),
    kept_or_refused(record({"a": {}, "abc": {}}, propertyNames={"maxLength": 2}), [{"a": 1}], [{"abc": 1}]),
    case(record({"a": False}), [{}], [{"a": 1}], may_be_refused=True),
    case(array(items=False), [[]], [[1]], may_be_refused=True),
    case(array(maxItems=0), [[]], [[1]]),
    case(array(prefixItems=[INTEGER, STRING]), [[1, "a"]], [["a"], [1, 2]]),
    case(array(prefixItems=[INTEGER], items=STRING, minItems=3), [[1, "a", "b"]], [[1, "a"], [1, 2, 3]]),
    case(array(prefixItems=[INTEGER, INTEGER], maxItems=1), [[1]], [[1, 2]]),
    refused(array(prefixItems=[INTEGER], items=False, minItems=2), "minItems", "items", "prefixItems"),
    refused(array(minItems=2, maxItems=1), "minItems", "maxItems"),
    case({"anyOf": [STRING, INTEGER], "maxLength": 1}, ["a"], ["ab"], may_be_refused=True),
    case({"anyOf": [STRING, INTEGER], "type": "string"}, ["a"], [1], may_be_refused=True),
    kept_or_refused(record({"a": INTEGER, "b": INTEGER}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
                    [{"a": 1}, {"b": 1}], [{}]),
    kept_or_refused({"oneOf": [INTEGER, {"type": "number"}]}, [1.5], [1]),
    kept_or_refused({"oneOf": [{"maximum": 5}, {"minimum": 3}]}, [1, 9], [4]),
    kept_or_refused({"oneOf": [record({"a": INTEGER}), record({"b": INTEGER})]}, [], [{}, {"a": 1}]),
    case({"oneOf": [STRING, INTEGER]}, ["a", 1], [None]),
    case({"allOf": [string(maxLength=2)]}, ["ab"], ["abc"]),
    kept_or_refused({"allOf": [STRING, {"maxLength": 2}]}, ["ab"], ["abc"]),
    kept_or_refused({"allOf": [record({"a": INTEGER}, required=["a"]),
                               record({"b": INTEGER}, required=["b"])]}, [], [{"a": 1}]),
    refused({"anyOf": []}, "anyOf"),
    refused({"allOf": [INTEGER, STRING]}, "allOf", "type"),
    case(
        {
            "title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "x-any": {"type": "none"},
            "readOnly": True, "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a",
            "uniqueItems": False, **INTEGER
        }, [1], ["a"]),
    *[
        refused({keyword: value, **kind}, keyword) for keyword, value, kind in
        [("not", NULL, STRING), ("if", {"minLength": 2}, STRING), ("contains", INTEGER, array()),
         ("uniqueItems", True, array()), ("dependentRequired", {"a": ["b"]},
                                          record({})), ("dependentSchemas", {"a": {"required": ["b"]}}, record({})),
         ("$dynamicRef", "#a", {}), ("type", "strin", {}), ("type", [], {}), ("type", 5, {}), ("minLength", -1, STRING),
         ("maxLength", "5", STRING), ("maxLength", 1.5, STRING), ("required", "a", record({})), ("properties", [], {}),
         ("items", 5, array()), ("minItems", -1, array()), ("prefixItems", {}, array()), ("enum", "a", {}),
         ("anyOf", {}, {}), ("oneOf", [], {}), ("minimum", "1", INTEGER), ("exclusiveMinimum", True, INTEGER),
         ("multipleOf", 0, INTEGER), ("multipleOf", -2, INTEGER), ("patternProperties", {"[": {}}, {}),
         ("patternProperties", [], {}), ("additionalProperties", 1, record({})), (
             "minProperties", "1", record({})), ("$ref", 5, {}), ("$defs", 5, INTEGER)]
    ],
]

# ---- Item 4: references ----
NODE = record({"v": INTEGER, "next": {"$ref": "#/$defs/node"}}, required=["v"])
LOOP = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
REFERENCES = [
    *[
        case({"$ref": f"#/{keyword}/{path}", keyword: {name: INTEGER}}, [1], ["a"])
        for keyword in ("$defs", "definitions")
        for name, path in [("a", "a"), ("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("a b", "a%20b"), (
            "é", "é"), ("é", "%C3%A9"), ("a/%b", "a~1%25b")]
    ],
    case({"$ref": "#/$defs/t/prefixItems/1", "$defs": {"t": array(prefixItems=[STRING, INTEGER])}}, [1], ["a"]),
    case({"$ref": "#/$defs/t/anyOf/0", "$defs": {"t": {"anyOf": [INTEGER, STRING]}}}, [1], ["a"]),
    case({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **INTEGER}}}, [1], ["a"]),
    case(record({"a": INTEGER, "b": {"$ref": "#/properties/a"}}), [{"a": 1, "b": 2}], [{"b": "x"}]),
    case(record({"v": INTEGER, "next": {"$ref": "#"}}), [{}, {"v": 1, "next": {"v": 2, "next": {}}}],
         [{"next": {"v": "x"}}]),
    case({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{"v": 1, "next": {"v": 2}}], [{}, {"v": 1, "next": {}}]),
    kept_or_refused({"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": STRING}}, ["ab"], ["abc"]),
    case({"$ref": "#/$defs/a", "description": "d", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": INTEGER}}, [1], ["a"]),
    refused({"$ref": "#/$defs/a", "$defs": LOOP}, "$ref"),
    refused({"$ref": "#"}, "$ref"),
    refused({"$ref": "#/$defs/no"}, "$ref"),
    refused(record({"x": {"$ref": "#/$defs/a"}}, **{"$defs": LOOP}), "$ref"),
    refused({"$ref": "#no"}, "$ref"),
    refused({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "$ref", "anyOf"),
    refused({"$ref": "https://example.com/schema"}, "$ref"),
    refused({"$ref": "#/$defs/t/prefixItems/7", "$defs": {"t": array(prefixItems=[STRING])}}, "$ref"),
    refused(record({"a": {"$ref": "#"}}, required=["a"]), "$ref", "required"),
]

# ---- Formats and numbers ----
FORMAT_TEXTS = {
    "date": (["2024-02-29", "2882-11-30", "2000-02-29"],
             ["2882-11-31", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "24-1-1"]),
    "time": (["12:34:56Z", "23:59:59.123+01:00"], ["24:00:00Z", "12:60:00Z", "12:34:56", "12:34Z", "12:00:60Z"]),
    "date-time": (["2024-02-29T12:34:56Z",
                   "2024-01-31T00:00:00.5-08:00"], ["2882-11-31T00:00:00Z", "2024-01-01", "2024-01-01T25:00:00Z"]),
    "duration": (["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"], ["P", "PT", "1D", "P1S", "P1D1Y", "P1YT", "P1W2D"]),
    "email": (["a@example.com", "a.b+c@example.org"], ["a", "@b.c", "a@", "a..b@c.d", ".a@b.c", "a b@c.d", "a@-b.c"]),
    "hostname": (["example.com", "a-1.b"], ["", "-a", "a-", "a..b", "a_b", ".", "a" * 64, ".".join(["a" * 60] * 5)]),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["127.0.0.01", "256.0.0.1", "1.2.3", "1.2.3.4.5", "00.0.0.0"]),
    "ipv6": (["::1", "2001:db8::1", "1:2:3:4:5:6:7:8"],
             ["", ":", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7", "::12345", "::1.2.3.04"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"],
             ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g", ""]),
    "uri": (["https://example.com/a?b=c#d", "mailto:a@b.c",
             "urn:x:y"], ["/a", "a", "http://[::1", "http://a b", "http://a/%zz", "1a:b", ""]),
    "uri-reference": (["/a?b#c", "https://example.com"], ["\\a", "a b", "%g0"]),
    "json-pointer": (["", "/a/0", "/a~1b/~0", "/é"], ["a", "/~", "/~2"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["/a", "01", "-1", "1#a"]),
}
FORMATS = [case(string(format=name), takes, refuses) for name, (takes, refuses) in FORMAT_TEXTS.items()] + [
    case(string(format="unknown"), [SPECIAL]),
    kept_or_refused(string(format="date", maxLength=5), [], ["2024-02-29"]),
    kept_or_refused(string(format="email", maxLength=8), ["a@b.cd"], ["abcd@efgh.com"]),
    kept_or_refused(string(format="date", pattern="^2024"), ["2024-02-29"], ["2023-01-01", "2024"])
]


def number(kind="integer", **bounds):
    return {"type": kind, **bounds}


NUMBERS = [
    case(INTEGER, [0, -5, 10**30], [*raws("-0", "01", "+1", "1.5", "--1", "-"), True]),
    case(number("number"), [0, -1.5, 1e30, 3], raws("-0", "01", ".5", "1.", "NaN", "1e")),
    case(number(minimum=-5, maximum=7), [-5, 0, 7], [-6, 8, 70, -50, Raw("-0")]),
    case(number(exclusiveMinimum=-1, exclusiveMaximum=2), [0, 1], [-1, 2]),
    case(number(minimum=1.5, maximum=3.5), [2, 3], [1, 4]),
    case(number(minimum=-3.5, maximum=-1.5), [-3, -2], [-4, -1]),
    case(number(minimum=1e2), [100, 12345], [99, 0, -100]),
    case(number(minimum=5, maximum=5), [5], [4, 6]),
    case(number(minimum=10**18), [10**18], [10**18 - 1]),
    case(number(minimum=2**63), [2**63, 2**64], [2**63 - 1], may_be_refused=True),
    case(number(minimum=1, exclusiveMinimum=3), [4], [3, 2, 1]),
    case(number(multipleOf=5), [0, 5, -10, 1005], [3, 51, -1]),
    case(number(multipleOf=3), [0, 3, 12, -9], [1, 13]),
    case(number(multipleOf=1), [1, 0], []),
    kept_or_refused(number(multipleOf=7, minimum=10), [14, 70], [7, 11]),
    kept_or_refused(number("number", multipleOf=0.01), [0.01, 1], [0.001]),
    kept_or_refused(number(multipleOf=2.5), [0, 5], [2, 1]),
    refused(number(minimum=3, maximum=2), "minimum", "maximum"),
    refused(number(exclusiveMinimum=2, exclusiveMaximum=3), "exclusiveMinimum", "exclusiveMaximum"),
    refused(number(minimum=1.2, maximum=1.8), "minimum", "maximum"),
    case(number("number", minimum=0.5), [0.5, 1, 10.25], [0.4, 0.49, 0, -1, *raws("1e-1", "5e-2", "-0.0")]),
    case(number("number", exclusiveMinimum=0), [0.1, 3], [0, -0.5, *raws("0.0", "0e5", "-0.0", "-0", "-1e-5")]),
    case(number("number", maximum=-1.5), [-1.5, -2, -10.25], [-1, -1.49, 0, 1, *raws("-1e-3")]),
    case(number("number", exclusiveMaximum=1), [0.5, 0, -3], [1, *raws("1.0", "1e0", "1e5")]),
    case(number("number", minimum=0, maximum=1), [0, 1, 0.5], [-0.1, 1.1, *raws("1e1", "2e0", "1.01")]),
    refused(number("number", minimum=1, exclusiveMaximum=1), "minimum", "exclusiveMaximum"),
    case(NULL, [None], [0, "null"]),
    case({"type": "boolean"}, [True, False], [0, "true"]),
    case({"type": ["integer", "null"], "minimum": 5}, [5, None], [4]),
]

# ---- Items 5 and 6: other constraints; the texts are not JSON here ----
OTHERS = [
    case(["yes 👍", "no 👎"], raws("yes 👍", "no 👎"), raws("yes", "yes \\ud83d\\udc4d", ""), kind="choice"),
    case(['a"b\\c\nd', "é", "𐍈"], raws('a"b\\c\nd', "é", "𐍈"), raws("a", "n"), kind="choice"),
    case("a.c", raws("abc", 'a"c', "a😀c"), raws("a\nc", "a\rc", "ac"), kind="regex"),
    case(".*", raws("", "a b"), raws("\n"), kind="regex"),
    case(r"(a|b)+[^x]{2}\S", raws('ab"\n.'), raws("abxa.", "ab", "abcc "), kind="regex"),
    case("[a-c]{0,300}", raws("a" * 300, ""), raws("a" * 301, "d"), kind="regex"),
    case(None, [{}, {"a": [1]}], [[1], 1, Raw(r'{"a": "\ud800"}')], kind="object"),
]

CASES = BOUNDS + ESCAPES + KEPT + REFERENCES + FORMATS + NUMBERS + OTHERS
