"""Decides what a schema allows with Python's `jsonschema`, an independent validator. Numbers are exact, regular
expressions are those of ECMA-262, and formats are checked with Python's own parsers.
"""

import datetime
import decimal
import fractions
import ipaddress
import json
import re
import urllib.parse
import uuid

import jsonschema

# ---- Keywords whose values are schemas ----
SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE_SCHEMAS = ("items", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "not",
                  "if", "then", "else", "contains")


def map_schemas(schema, change):
    """A copy of `schema` with `change` applied to each schema directly within it."""
    copy = dict(schema)
    for keyword, value in schema.items():
        if keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
            copy[keyword] = {name: change(inner) for name, inner in value.items()}
        elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
            copy[keyword] = [change(inner) for inner in value]
        elif keyword in SINGLE_SCHEMAS:
            copy[keyword] = change(value)
    return copy


def keywords_of(schema):
    """The keywords of a schema and of all schemas within it. Names of properties are not keywords."""
    found = set()

    def visit(inner):
        if isinstance(inner, dict):
            found.update(inner)
            map_schemas(inner, visit)

    visit(schema)
    return found


# ---- Regular expressions ----
SPACE = r" \t-\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
NOT_SPACE = (r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
             r"\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff")


def python_pattern(pattern):
    """The Python expression that matches the same texts as the ECMA-262 expression `pattern`."""
    pieces = []
    is_class = False
    for piece in re.findall(r"\\.|.", pattern, re.DOTALL):
        if piece in (r"\s", r"\S"):
            body = SPACE if piece == r"\s" else NOT_SPACE
            piece = body if is_class else f"[{body}]"
        elif is_class:
            is_class = piece != "]"
            piece = "\\" + piece if piece in "[&~|" else piece  # Python warns about these.
        elif piece == "[":
            is_class = True
        else:
            piece = {".": r"[^\n\r\u2028\u2029]", "$": r"\Z"}.get(piece, piece)
        pieces.append(piece)
    return f"(?a:{''.join(pieces)})"


def with_python_patterns(schema):
    if not isinstance(schema, dict):
        return schema
    copy = map_schemas(schema, with_python_patterns)
    if isinstance(copy.get("pattern"), str):
        copy["pattern"] = python_pattern(copy["pattern"])
    if isinstance(copy.get("patternProperties"), dict):
        copy["patternProperties"] = {python_pattern(key): value for key, value in copy["patternProperties"].items()}
    return copy


# ---- Formats ----
TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(\.\d+)?([zZ]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII)
DURATION = re.compile(
    r"P(\d+W|T{0}|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(T{0})?)".replace("{0}",
                                                                         r"(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)"),
    re.ASCII)
LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
LOCAL_PART = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*|\"([ !#-\[\]-~]|\\[ -~])*\"", re.ASCII)
POINTER = re.compile(r"(/([^~/]|~[01])*)*")
URI_CHARACTERS = re.compile(r"([\w.~!$&'()*+,;=:@/?#\[\]-]|%[0-9A-Fa-f]{2})*", re.ASCII)
URI_TEMPLATE = re.compile(
    r"([^\x00- \"'%<>\\^`{|}\x7f-\x9f]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?NAME(,NAME)*\})*".replace(
        "NAME", r"(\w|%[0-9A-Fa-f]{2})(\.?(\w|%[0-9A-Fa-f]{2}))*(:[1-9]\d{0,3}|\*)?"), re.ASCII)


def is_date(text):
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) and datetime.date.fromisoformat(text)


def is_time(text):
    match = TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second, _, _, sign, offset_hour, offset_minute = match.groups()
    offset = int(f"{sign}1") * (60 * int(offset_hour) + int(offset_minute)) if sign else 0
    is_last_minute = (60 * int(hour) + int(minute) - offset) % 1440 == 1439
    return second != "60" or is_last_minute


def is_hostname(text):
    return len(text) <= 253 and re.fullmatch(rf"{LABEL}(\.{LABEL})*", text)


def is_email(text):
    local, _, domain = text.rpartition("@")
    if domain[:1] + domain[-1:] == "[]":
        address = domain[1:-1]
        is_version6 = address[:5].lower() == "ipv6:"
        return LOCAL_PART.fullmatch(local) and (is_ipv6(address[5:]) if is_version6 else is_ipv4(address))
    return LOCAL_PART.fullmatch(local) and is_hostname(domain)


def is_ipv4(text):
    return ipaddress.IPv4Address(text)


def is_ipv6(text):
    return "%" not in text and ipaddress.IPv6Address(text)


def is_uri_reference(text):
    parts = urllib.parse.urlsplit(text)
    if not URI_CHARACTERS.fullmatch(text) or text.count("#") > 1 or re.search(
            r"[\[\]]", parts.path + parts.query + parts.fragment):
        return False
    host = parts.netloc.rpartition("@")[2]
    if not parts.scheme and ":" in text.split("/")[0].split("?")[0].split("#")[0]:
        return False
    return re.fullmatch(r"(\[[^\[\]]+\]|[^\[\]:@]*)(:\d*)?", host,
                        re.ASCII) and not re.search(r"[\[\]@]",
                                                    parts.netloc.rpartition("@")[0])


def is_uri(text):
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) and is_uri_reference(text)


def is_relative_pointer(text):
    match = re.match(r"(0|[1-9][0-9]*)([+-][1-9][0-9]*)?", text)
    return match and (text[match.end():] == "#" or POINTER.fullmatch(text, match.end()))


FORMATS = {
    "date": is_date,
    "time": is_time,
    "date-time": lambda text: text[10:11] in ("T", "t") and is_date(text[:10]) and is_time(text[11:]),
    "duration": DURATION.fullmatch,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "uuid": lambda text: len(text) == 36 and str(uuid.UUID(text)) == text.lower(),
    "uri": is_uri,
    "uri-reference": is_uri_reference,
    "uri-template": URI_TEMPLATE.fullmatch,
    "json-pointer": POINTER.fullmatch,
    "relative-json-pointer": is_relative_pointer,
}


def check_format(_validator, name, instance, _schema):
    if not isinstance(instance, str) or name not in FORMATS:
        return
    try:
        is_right = FORMATS[name](instance)
    except ValueError:
        is_right = False
    if not is_right:
        yield jsonschema.ValidationError(f"{instance!r} is not of the format {name}")


# ---- Numbers, exact at any exponent ----
def exact(text):
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of more than 18 digits
        return decimal.Decimal(float(text))


def is_integer(_checker, instance):
    if isinstance(instance, decimal.Decimal):
        return instance.is_finite() and instance == instance.to_integral_value()
    return isinstance(instance, int) and not isinstance(instance, bool)


def is_multiple(number, divisor):
    if not number:
        return True
    sign, digits, exponent = decimal.Decimal(number).as_tuple()
    if exponent == "F":  # exponent out of range
        return False
    divisor = fractions.Fraction(divisor)
    scaled = int("".join(map(str, digits))) * divisor.denominator
    if exponent >= 0:
        return scaled * pow(10, exponent, divisor.numerator) % divisor.numerator == 0
    return -exponent <= len(str(scaled)) and scaled % (divisor.numerator * 10**-exponent) == 0


def check_multiple(_validator, divisor, instance, _schema):
    if isinstance(instance, (int, decimal.Decimal)) and not isinstance(instance, bool):
        if not is_multiple(instance, divisor):
            yield jsonschema.ValidationError(f"{instance} is not a multiple of {divisor}")


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator,
                                         {"format": check_format, "multipleOf": check_multiple},
                                         type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
                                             "integer", is_integer))


# ---- JSON ----
def whole_number(text):
    if text == "-0":
        raise ValueError("-0")
    return int(text) if len(text) < 4000 else exact(text)


def refuse_constant(text):
    raise ValueError(f"{text} is not JSON")


def closed(schema):
    """`schema` as `strict` interprets it, in unambiguous cases: an object that names its properties has no others."""
    if not isinstance(schema, dict) or keywords_of(schema) & {"anyOf", "oneOf", "allOf", "$ref"}:
        return schema
    copy = map_schemas(schema, closed)
    opens = {"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"}
    if isinstance(copy.get("properties"), dict) and not (opens | {"enum", "const"}) & copy.keys():
        required = copy["required"] if isinstance(copy.get("required"), list) else []
        copy["properties"] = {**{name: True for name in required}, **copy["properties"]}
        copy["additionalProperties"] = False
    return copy


def is_right_schema(schema):
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


class SchemaOracle:
    def __init__(self, schema, is_strict):
        self.is_right_schema = is_right_schema(schema)
        schema = json.loads(json.dumps(schema), parse_float=exact)
        self.validator = Validator(with_python_patterns(closed(schema) if is_strict else schema))

    @staticmethod
    def parse(text):
        return json.loads(text,
                          parse_int=whole_number,
                          parse_float=exact,
                          parse_constant=refuse_constant)

    def fault_of(self, text):
        """The reason why the schema does not allow `text`, or None."""
        try:
            instance = self.parse(text)
        except ValueError as error:
            return f"not valid JSON: {error}"
        if re.search("[\ud800-\udfff]", repr_of_strings(instance)):
            return "a lone surrogate"
        if not self.is_right_schema:
            return "the schema itself is invalid"
        try:
            error = next(self.validator.iter_errors(instance), None)
        except Exception as failure:  # Invalid schemas and loops of references fail in many ways.
            return f"the validator fails: {type(failure).__name__}: {str(failure)[:200]}"
        return error and f"{error.validator or ''}: {error.message[:300]}"


def repr_of_strings(instance):
    """All strings of an instance, including names."""
    return json.dumps(instance, ensure_ascii=False, default=str)


class TextOracle:
    """For constraints that are not schemas: `allows` decides which texts are allowed."""

    def __init__(self, allows):
        self.allows = allows

    def fault_of(self, text):
        return None if self.allows(text) else "not allowed by the constraint"
