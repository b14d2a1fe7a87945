#!/usr/bin/env python3
"""Makes jinja_cases.json: small templates and what jinja2, set up as transformers does, makes of them.

    python3 make_jinja_cases.py        needs jinja2 and transformers

Each case has `area`, `template`, `words` (variables, all of whose strings are somebody's), and `text`, or `fails`
where the reference raises an error. The letters of words are Greek and those of templates are not, so that a test knows of every letter of
`text` where it came from.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

WORDS = {
    'a': 'αβγ', 'b': '  Δέλτα  ', 'c': 'αβ,γδ,ε', 'lines': 'αβ\nγδ\n\nε\n', 'n': 7, 'x': 2.5, 'yes': True, 'no': False, 'nothing': None, 'empty': '',
    'quoted': 'α"β\\γ\nδ\tε', 'two': "α'β", 'three': 'α\'β"γ', 'list': ['γ', 'α', 'β', 'α'], 'numbers': [3, 1, 2], 'none_of': [],
    'dict': {'αα': 1, 'ββ': 'γ', 'γγ': [1, 'δ', None, True, 2.0]}, 'mixed': 'Αβγ ΔΕΖ',
    'users': [{'name': 'αα', 'age': 3, 'in': {'x': 'π'}}, {'name': 'Ββ', 'age': 1, 'in': {'x': 'ρ'}}, {'name': 'γγ', 'age': 2}],
    'messages': [{'role': 'α', 'content': 'β'}, {'role': 'γ', 'content': 'δ', 'tool_calls': [{'f': {'items': 1}}]}],
    'floats': [0.1, 1e16, 1.5e-7, 100.0, -0.0, 123456789.125, 1e22, 3e-5, 0.0001],
    'tool': {'type': 'ω', 'function': {'name': 'φ', 'parameters': {'type': 'ο', 'properties': {'ξ': {'type': 'σ', 'default': 1.0}}, 'items': []}}},
}

def each(pattern, *choices):
    """The pattern with every combination of the choices in place of its $."""
    templates = [pattern]
    for choice in choices:
        templates = [template.replace('$', one, 1) for template in templates for one in choice]
    return templates


INTEGERS = '0x1F 0X1f 0o17 0O17 0b101 0B11 0x_1f 0b1_0 00 0_0 0 007 1__0 1_ 0x 0b2 09 0b 0o8 0o18 0x1e3 0b1e1 -0x1F 1_0.5_0 1E+3 1_0e1_0 1.e3 1. .5 1e 0x1.5'.split()
CASED = ['Straße ẞ', 'ŉa', 'ΌΔΟΣ ΟΔΟΣ. Σ ΑΣ\'Β ΑΣ', 'İstanbul ıI', 'ﬁne ﬂ ﬀ', 'ǆ ǅ Ǆ ĳ', 'ΐ ᾳ ᾼ ᾷ ᾲ', 'ⅷ Ⅷ ⓐ Ⓐ ªº', '𐐀 𐐨 ა ᲀ', 'a\u0301Σ\u0301 ͅa', 'x-y_z (foo [bar {baz <q', '']
ORDERED = ['7', '-2.5', 'true', '"a"', '[1]', 'none', 'missing', '(1,)', '{}']
NUMBERS = ['n', '-3', 'x', 'yes', '"ab"', 'none']
SPECS = ['', '5', '<5', '^5', '05', '+', '-', ' ', '=+7', '*^7', 'd', '#x', '#b', 'X', '.1f', '.3', 'E', 'G', '%', ',', '_', '.2s', '<05', 'é<5']
PERCENTS = ['d', '5d', '-5d|', '05d', '+d', ' d', '#x', '#o', 'e', 'E', 'G', '.2f', 's', 'r', '5s', '05s', 'b']
READ = ['3', '0x1F', '0b11', '1_0', '1__0', '1e2', ' 5 ', '-7', '٣', 'inf', 'nan', '0x', '']

CASES = {
    'text': [
        'plain', '', '\n', 'a\n', 'a\n\n', 'a\r\nb\rc', '{', '{ {', '}} %}', '{{ "{{" }}', "{{ '}}' }}", '{{ {"k": {"l": 1}}["k"]["l"] }}',
        '{% raw %}{{ x }}{% endraw %}', '{% raw -%}\n {{ x }} \n{%- endraw %}|', '  {% raw %}\n a {% endraw %}\nb', 'a{# comment #}b', 'a {#- comment -#} b',
        'a\n  {# c #}\nb', '{# {{ x }} {% y %} #}z', 'a {#+ c +#}\nb', '{{ "a" "b" }}',
    ],
    'whitespace': [
        '{% if yes %}\na\n{% endif %}\nb', '  {% if yes %}\n  a\n  {% endif %}\nb', 'x {% if yes %}\na{% endif %}', '{%- if yes %} a {%- endif -%} b',
        'a \n {%- if yes -%} \n b \n {%- endif -%} \n c', '  {%+ if yes %}\n a\n{% endif +%}\nb', 'a  {{- "b" -}}  c', '  {{ "b" }}\n c', '{{ "b" -}}\n\n c',
        '\t{% set y = 1 %}\n\t{{ y }}\n', '{% if yes %} {% endif %} {% if yes %}\n', '{% for i in numbers %}\n  {{ i }}\n{% endfor %}\n!', 'a\n\n  {%- set z = 1 %}\n\n  b',
        '{% set z = 1 %}   {% set z = 2 %}\nb', '{% set z = 1 %}\n   {% set z = 2 %}\nb', 'x\u00a0{%- set z = 1 %}', '{{ 1 }}   {% set z = 2 %}|',
        '{% if yes -%}\n   {% set z = 1 %}a{% endif %}', '{# a #}   {# b #}\nc', '{{ "a" }}\n{{ "b" }}\n\n',
    ],
    'literals': [
        r"{{ 'a\n\t\\\'\"\x41\u0042\U00000043\101' }}", r'{{ "a\qb" }}', '{{ 1 }} {{ 1_000 }} {{ 1.5 }} {{ 1e3 }} {{ 1.5e-3 }}', '{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}',
        '{{ [1, "a", none] }}', '{{ (1, 2) }} {{ (1,) }} {{ () }}', '{{ {"a": 1, "b": [2]} }}', '{{ 1, 2 }}', '{{ [1, 2,] }} {{ {"a": 1,} }}', '{{ -3 }} {{ +3 }} {{ - 3 | abs }} {{ --3 }}',
        *each('{{ $ }}', INTEGERS), '{{ l[0x1] if l is defined else [0x1F, 0b1][0] }}', '{{ "\\x4" }}', '{{ "\\400" }}',
        '{{ 9223372036854775807 }}', "{{ 'it''s' }}", '{{ "a\\\nb" }}',
    ],
    'arithmetic': [
        *each('{{ $ $ $ }}', ['7', '-7.5', '10'], ['//', '%'], ['0.1', '-2.5', '2.5', '-3']),
        '{{ 1 + 2 * 3 - 4 / 2 }}', '{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}', '{{ 7.5 // 2 }} {{ -7.5 % 2 }}', '{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}',
        '{{ 1 / 3 }} {{ 6 / 3 }} {{ 1 + 1.0 }} {{ true + 1 }}', '{{ "a" * 3 }} {{ 3 * "b" }} {{ [1] * 2 }} {{ "a" * -1 }}', '{{ [1] + [2] }} {{ (1,) + (2,) }}', '{{ "a" ~ 1 ~ none ~ 2.0 }}',
        '{{ 1 ~ 2 + 3 }}', '{{ "%s-%d" % ("a", 3) }} {{ "%5.2f|%-4s|%04d|%x" % (x, "b", n, 255) }}', '{{ "%%" % () }}', '{{ 1 / 0 }}', '{{ "a" + 1 }}', '{{ missing + 1 }}', '{{ floats }}',
        '{{ a + "-" + b }}', '{{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }}', '{{ (1 + 2) * 3 }}', '{{ 1 +2 }}{{ 1 -2 }}', '{{ [1] + (2,) }}', '{{ 1e308 * 10 }}', '{{ "%s" % a }}', '{{ "%s %s" % (a,) }}', '{{ "%(k)s" % {"k": a} }}',
    ],
    'comparison': [
        *each('{{ $ $ $ }}', ORDERED, ['<=', '<', 'in'], ORDERED), '{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}',
        '{{ [1, [2, none]] < [1, [2, none], 3] }} {{ [none] < [none, 1] }} {{ [{}] < [{}, 1] }}', '{{ [none, 1] < [1, none] }}', '{{ {1: "a", 1.0: "b", true: "c"} }}',
        '{{ {(1, (2, "x")): 5}[(1.0, (2, "x"))] }} {{ {0: 1}[-0.0] }} {{ {none: 1}[none] }} [{{ {"1": 1}[1] }}]', '{{ {(1, [2]): 3} }}',
        '{{ 1 < 2 }} {{ 1 == 1.0 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ true == 1 }}', '{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }}', '{{ "a" in "abc" }} {{ "d" not in "abc" }} {{ 1 in [1, 2] }} {{ "k" in {"k": 1} }}',
        '{{ not yes }} {{ not not yes }} {{ yes and no }} {{ no or "d" }} {{ "" or 0 or none }} {{ 1 and 2 }}', '{{ not 1 == 2 }}', '{{ 1 if yes else 2 }} {{ 1 if no else 2 }} [{{ 1 if no }}]',
        '{{ "a" if no else "b" if no else "c" }}', '{{ 1 < "a" }}', '{{ none < 1 }}', '{{ missing == missing }} {{ missing == none }} {{ missing in [1] }} {{ 1 in missing }}', '{{ 1 in 5 }}', '{{ 1 in "a" }}', '{{ "α" in a }} {{ a == "αβγ" }} {{ "αα" in dict }}',
        '{{ {"a": 1, "b": 2} == {"b": 2, "a": 1} }} {{ [1] == (1,) }} {{ none == false }}', '{{ missing < 1 }}', '{{ [] and 1 }} {{ {} or "e" }}', '{% if none_of %}a{% elif empty %}b{% elif n %}c{% else %}d{% endif %}', '{{ 1 <= 1 >= 1 }}',
        '{{ a is defined and a or "z" }}',
    ],
    'access': [
        '{{ messages[0].role }} {{ messages[0]["content"] }} {{ messages[-1].content }}', '[{{ messages[5] }}] [{{ messages[0].none }}] [{{ missing }}]', '{{ missing.a }}', '{{ missing["a"] }}', '{{ messages[5].role }}', '{{ messages[0].a.b }}',
        '{{ a[0] }}{{ a[-1] }}[{{ a[9] }}]', '{{ a[1:] }} {{ a[:-1] }} {{ a[::-1] }} {{ a[::2] }} {{ a[5:] }} {{ a[-2:] }}', '{{ list[1:] }} {{ list[::-1] }} {{ list[:2] }} {{ list[1:3:2] }} {{ list[::-2] }} {{ list[-100:100] }} {{ list[2:-5:-1] }}', '{{ a[::0] }}',
        '{{ list.0 }} {{ list.1 }}', '{{ messages[1].tool_calls[0].f["items"] }} {{ messages[1].tool_calls[0]["f"].items is callable }}', '{{ messages[1:][0].role }}', '{{ dict["αα"] }} {{ dict.get("ββ") }} {{ dict.get("x") }} {{ dict.get("x", "y") }}', '{{ dict.items() | list }}', '{{ dict.keys() | list }} {{ dict.values() | list }}',
        '{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}', '{{ (1, 2)[0] }} {{ [[1, 2], [3]][1][0] }}', '{{ {1: "a"}[1] }} {{ {true: "b"}[1] }}', '{{ a.nothing }}', '{{ n.nothing }} {{ none.x }}', '{{ a["upper"]() }}', '{{ dict.items }}' if False else '{{ dict.items is defined }}',
        '{{ list.append(1) }}', '{{ dict.update({"a": 1}) }}', '{{ list.index("β") }} {{ list.count("α") }}', '{{ missing() }}', '{{ a() }}', '{{ {"a": 1}.a }}', '{{ 5[0] }}', '{{ {[1]: 2} }}', '{{ dict.__class__ }}|',
    ],
    'statements': [
        '{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }},{% endfor %}', '{% for i in [1, 1.0, true] %}{{ loop.changed(i, n) }}{{ loop.changed() }},{% endfor %}',
        '{% for i in numbers %}{% for j in [1, 1] %}{{ loop.changed(j) }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.changed(1) }}{% endfor %}', '{% for i in numbers %}{{ loop.changed is callable }}{{ loop["index"] }}[{{ loop.nope }}]{% endfor %}',
        '{% for i in numbers %}{{ loop.cycle() }}{% endfor %}', '{% for k, v in dict.items() %}{{ loop.nextitem }}{% endfor %}',
        '{% for i in numbers %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}', '{% for i in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}',
        '{% for i in numbers %}[{{ loop.previtem }}|{{ loop.nextitem }}]{% endfor %}', '{% for i in numbers %}{{ loop.cycle("a", "b") }}{% endfor %}', '{% for i in none_of %}a{% else %}b{% endfor %}', '{% for i in numbers if i > 1 %}{{ i }}{{ loop.index }}{% else %}z{% endfor %}',
        '{% for i in numbers if i > 9 %}{{ i }}{% else %}z{% endfor %}', '{% for i in numbers %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}', '{% for i in numbers %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}', '{% for c in a %}{{ c }}.{% endfor %}', '{% for k in dict %}{{ k }},{% endfor %}',
        '{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}', '{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}', '{% for a, b in [(1, 2, 3)] %}{% endfor %}', '{% for i in 5 %}{% endfor %}', '{% for i in none %}{% endfor %}', '{% for i in missing %}a{% else %}b{% endfor %}',
        '{% set y = 1 %}{% for i in numbers %}{% set y = i %}{% endfor %}{{ y }}', '{% set y = 0 %}{% for i in numbers %}{{ y }}{% set y = i %}{{ y }}{% endfor %}', '{% set ns = namespace(y=1, z="q") %}{% for i in numbers %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y }}{{ ns.z }}[{{ ns.none }}]',
        '{% set ns = namespace({"k": 1}) %}{{ ns.k }}', '{% set a, b = 1, 2 %}{{ a }}{{ b }}', '{% set a = 1, 2 %}{{ a }}', '{% set (a, b) = [3, 4] %}{{ a }}{{ b }}', '{% set t %}x{{ a }}y{% endset %}[{{ t }}]{{ t | length }}', '{% set t | upper %}x{{ n }}{% endset %}{{ t }}', '{% set t | trim | replace("x", "y") %} xx {% endset %}{{ t }}',
        '{% if yes %}{% set q = 5 %}{% endif %}{{ q }}', '{% set dict.x = 1 %}', '{% set nope.x = 1 %}', '{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}', '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}', '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}',
        '{% set g = 1 %}{% macro m() %}{{ g }}{{ n }}{% endmacro %}{% set g = 2 %}{{ m() }}', '{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}', '{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ a }}{% endcall %}',
        '{% macro m() %}{{ caller(1) }}{{ caller(2) }}{% endmacro %}{% call(z) m() %}({{ z }}){% endcall %}', '{% filter upper %}a{{ n }}b{% endfilter %}', '{% filter replace("a", "b") | trim %} aa {% endfilter %}|', '{% with %}{% set w = 1 %}{{ w }}{% endwith %}[{{ w }}]', '{% with p = 1, q = 2 %}{{ p }}{{ q }}{% endwith %}',
        '{% generation %}a{{ n }}{% endgeneration %}b', '{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}', '{% print 1, "a" %}' if False else '{% if yes: %}a{% endif %}', '{% macro m(t) %}{{ t | upper }}{% endmacro %}{{ m("a") | lower }}{{ m("b") ~ "c" }}', '{% set u = m %}{{ u is defined }}',
        '{% for i in range(2) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}', '{% set v = "x" if no else none %}{{ v }}', '{% for x in [1, 2, 3][1:] %}{{ x }}{% endfor %}', '{% if a is defined and a == "αβγ" %}q{% endif %}', '{{ raise_exception("boo") }}', '{% if no %}{{ raise_exception("boo") }}{% endif %}ok',
        '{% set o = namespace(v=[]) %}{% for i in numbers %}{% set o.v = o.v + [i] %}{% endfor %}{{ o.v }}', '{% for i in range(3) %}{% set x = i %}{% endfor %}{{ x }}', '{% set loop_var = 3 %}{% for loop_var in [1] %}{{ loop_var }}{% endfor %}{{ loop_var }}', '{% macro m(a, b) %}{{ b is defined }}{{ b }}{% endmacro %}{{ m(1) }}', '{{ m }}', '{% endif %}', '{% if yes %}', '{% unknown %}', '{{ 1 + }}', '{{ (1 }}', "{{ 'a }}", '{{ }}', '{% for %}{% endfor %}', '{% set 1 = 2 %}', '{{ 1 2 }}', '{% else %}', '{# a', '{{ a', '{% raw %}x', '{{ a ] }}',
    ],
    'methods': [
        *[' '.join(each("{{ '$'.$() }}", [word.replace("'", "\\'")], ['upper', 'lower', 'title', 'capitalize', 'swapcase', 'casefold', 'istitle', 'isupper', 'islower'])) for word in CASED],
        ' '.join(each('{{ "$".$() }}', ['²', '½', 'Ⅷ', '一', '٣', '①', '፩', '\u200b', '\xad', '\u3000', '', '\ue000', '\u0378', 'ʰ'], ['isdigit', 'isdecimal', 'isnumeric', 'isalpha', 'isalnum', 'isspace', 'isprintable', 'isascii'])),
        ' '.join(each('{{ "$".zfill($) }}', ['5', '-5', '+5', '', '--5', 'é'], ['0', '1', '4', '-3'])), '{{ "5".zfill() }}', '{{ "5".zfill("4") }}', "{{ 'a\\tb\\n\\tcé\\td'.expandtabs() }}|{{ 'a\\tb\\n\\tcé\\td'.expandtabs(3) }}|{{ 'a\\tb'.expandtabs(0) }}",
        *each('{{ "aXbXc".$ }}', ['count("X", 2)', 'count("X", 0, 2)', 'count("", 1)', 'count("", 9)', 'find("", 9)', 'find("", 5)', 'find("X", -2)', 'rfind("X", 0, 2)', 'startswith("", 9)', 'endswith("", 9)', 'endswith("X", 0, 2)', 'find("X", none, 2)']),
        '{{ dict.keys() }} {{ dict.values() }} {{ dict.items() }}',
        '[{{ b.strip() }}] [{{ b.lstrip() }}] [{{ b.rstrip() }}] [{{ a.strip("αγ") }}]', '{{ c.split(",") }} {{ c.split(",", 1) }} {{ c.rsplit(",", 1) }} {{ c.split("z") }} {{ b.split() }} {{ "a b  c ".split() }} {{ "a b  c ".split(none, 1) }} {{ "a b  c ".rsplit(none, 1) }}', '{{ "".split() }} {{ "".split(",") }} {{ ",".split(",") }}',
        '{{ a.startswith("α") }} {{ a.startswith(("x", "α")) }} {{ a.endswith("γ") }} {{ a.endswith("x") }} {{ a.startswith("β", 1) }}', '{{ mixed.upper() }} {{ mixed.lower() }} {{ mixed.title() }} {{ mixed.capitalize() }} {{ mixed.swapcase() }}', '{{ "hello wORLD it\'s".title() }} {{ "hELLO".capitalize() }}',
        '{{ c.replace(",", "-") }} {{ c.replace(",", "-", 1) }} {{ "ab".replace("", "-") }} {{ a.replace("β", "") }}', '{{ ",".join(list) }} {{ a.join(["1", "2"]) }} {{ "".join([]) }}', '{{ a.find("β") }} {{ a.find("x") }} {{ a.rfind("γ") }} {{ a.index("β") }} {{ "aXbX".find("X", 2) }}', '{{ a.index("x") }}', '{{ "aXbX".count("X") }} {{ "abc".count("") }}',
        '{{ "{} {}".format(1, "b") }} {{ "{0}{1}{0}".format("a", n) }} {{ "{k}".format(k=a) }} {{ "{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}".format("a", "b", "c", 42, x, 1234567) }} {{ "{{}}".format() }}', '{{ lines.splitlines() }}', '{{ "a-b".partition("-") }} {{ "a-b-c".rpartition("-") }} {{ "ab".partition("-") }}', '{{ "1".isdigit() }} {{ "a".isalpha() }} {{ " ".isspace() }} {{ "A".isupper() }} {{ "a1".isalnum() }} {{ "".isdigit() }}',
        '{{ "ab".center(6, "*") }} {{ "abc".center(6) }}| {{ "ab".ljust(4, "-") }} {{ "ab".rjust(4) }}', '{{ "prefix-a".removeprefix("prefix-") }} {{ "a.txt".removesuffix(".txt") }}', '{{ "a".join(1) }}', '{{ a.split("") }}', '{{ a.nope() }}', '{{ "x".strip(1) }}', '{{ ("</think>" ~ a).split("</think>")[-1].lstrip("\\n") }}', '{{ "a,b".split(sep=",") }}',
        '{{ lines.split("\\n") }}', '{{ "ÀÉ".lower() }} {{ "àé".upper() }}',
    ],
    'filters': [
        *[' '.join(each("{{ '$' | $ }}", [word.replace("'", "\\'")], ['upper', 'lower', 'title', 'capitalize', 'wordcount'])) for word in CASED],
        *[' '.join(each("{{ '$' | $ }}", [text], ['int(-1)', 'int(-1, 0)', 'int(-1, 16)', 'int(-1, 2)', 'int(-1, 36)', 'float(-1)'])) for text in READ], '{{ "a-b c_d é1" | wordcount }} {{ ["ß", "ss", "SS"] | unique | list }}',
        '[{{ b | trim }}] {{ a | upper }} {{ mixed | lower }} {{ "hello world-foo (bar" | title }} {{ "hELLO" | capitalize }}', '{{ a | length }} {{ list | count }} {{ dict | length }} {{ missing | length }}', '{{ 5 | length }}', '{{ missing | default("d") }} {{ empty | default("d") }}| {{ empty | default("d", true) }} {{ nothing | d("e") }} {{ nothing | d("e", boolean=true) }} [{{ missing | default }}]',
        '{{ list | join }} {{ list | join(", ") }} {{ users | join(", ", attribute="name") }} {{ numbers | join("-") }}', '{{ list | first }} {{ list | last }} [{{ none_of | first }}]', '{{ a | list }} {{ dict | list }}', '{{ "3" | int }} {{ "x" | int }} {{ "3.9" | int }} {{ 3.9 | int }} {{ "x" | int(7) }} {{ "ff" | int(0, 16) }} {{ true | int }} {{ nothing | int }} {{ " 12 " | int }}', '{{ "3.5" | float }} {{ "x" | float }} {{ 3 | float }} {{ "x" | float(1.5) }}',
        '{{ n | string | length }} {{ none | string }} {{ a | safe }}', '{{ dict | items | list }} {{ missing | items | list }}', '{{ users | selectattr("age", "gt", 1) | map(attribute="name") | list }} {{ users | rejectattr("in") | map(attribute="name") | list }} {{ users | selectattr("in.x", "equalto", "π") | map(attribute="name") | list }} {{ users | selectattr("in", "defined") | list | length }}',
        '{{ numbers | select("odd") | list }} {{ numbers | reject("odd") | list }} {{ [0, 1, "", "a"] | select | list }} {{ numbers | select("in", [1, 2]) | list }}', '{{ list | map("upper") | join }} {{ numbers | map("string") | join }} {{ users | map(attribute="in.x", default="-") | join }} {{ [1.5] | map("int") | list }} {{ ["a"] | map("replace", "a", "b") | list }}', '{{ list | unique | list }} {{ ["a", "A"] | unique | list }}', '{{ list | sort }} {{ numbers | sort(reverse=true) }} {{ users | sort(attribute="age") | map(attribute="name") | list }} {{ ["b", "A", "c"] | sort }} {{ ["b", "A", "c"] | sort(case_sensitive=true) }}',
        '{{ numbers | reverse | list }} {{ a | reverse }}', '{{ {"b": 1, "a": 2} | dictsort }} {{ {"b": 1, "a": 2} | dictsort(by="value") }} {{ {"b": 1, "A": 2} | dictsort(reverse=true) }}', '{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(2, blank=true) }}|{{ "a\\nb" | indent("> ") }}', '{{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(method="ceil") }} {{ 2.19 | round(1, "floor") }} {{ 7 | round }} {{ 2.675 | round(2) }}',
        '{{ -3 | abs }} {{ (-3) | abs }} {{ (-2.5) | abs }}', '{{ numbers | min }} {{ numbers | max }} {{ list | max }} {{ users | min(attribute="age") | tojson }} [{{ none_of | max }}]', '{{ numbers | sum }} {{ users | sum(attribute="age") }} {{ numbers | sum(start=10) }}', '{{ numbers | batch(2) | list }} {{ numbers | batch(2, 0) | list }}', '{% for k, g in [{"k": 2, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}] | groupby("k") %}{{ k }}{{ g | map(attribute="v") | list }}{% endfor %}',
        '{{ c | replace(",", ";") }} {{ c | replace(",", ";", 1) }} {{ 5 | replace("5", "6") }}', '{{ "%s-%s" | format("a", 2) }} {{ "%(q)s" | format(q=a) }}', '{{ "<a>&\'\\"" | e }}', '{{ a | nope }}', '{{ "a" | upper | lower }} {{ ("a" ~ "b") | upper }} {{ "a" ~ "b" | upper }}', '{{ users[0] | attr("name") }}|', '{{ a | center(9) }}|', '{{ "a b c" | wordcount }}', '{{ [1, 2] | map("nope") | list }}', '{{ list | sort | first }}', '{{ [1, "a"] | sort }}', '{{ none | items | list }}', '{{ [[1, 2], [3]] | sum(start=[]) }}', '{{ [3, 1] | sort | join(",") | length }}', '{{ -1.5 | int }} {{ "1_0" | int }}', '{{ missing | upper }}|{{ missing | trim }}|{{ missing | join }}|{{ missing | list }}', '{{ missing | int }}', '{{ nothing | upper }} {{ nothing | length }}', '{{ (users | map(attribute="zz") | list)[0] is defined }}', '{% if users | selectattr("nope") %}always{% endif %}',
        '{{ none | selectattr("a") | list }} {{ none | map("upper") | list }} {{ 0 | select | list }} {{ "" | reject("odd") | list }}', '{{ 5 | select | list }}', '{{ none | join }}', '{{ none | sort }}', '{{ none | list }}',
    ],
    'format': each('{{ "{:$}".format($) }}', SPECS, NUMBERS) + each('{{ "%$" % $ }}', PERCENTS, NUMBERS) + ['{{ "{0}{}".format(1, 2) }}', '{{ "{!r:>5}|{!s:>4}".format("a", 1) }}'],
    'json': [
        '{{ dict | tojson }}', '{{ tool | tojson }}', '{{ tool | tojson(indent=2) }}', '{{ tool | tojson(indent=4) }}', '{{ dict | tojson(ensure_ascii=true) }}', '{{ quoted | tojson }} {{ "<a>&" | tojson }} {{ "\\x01\\x7f/" | tojson }}', '{{ floats | tojson }}', '{{ [] | tojson }} {{ {} | tojson }} {{ none | tojson }} {{ true | tojson }} {{ (1, 2) | tojson }} {{ 1 | tojson }}', '{{ [] | tojson(indent=2) }} {{ [[]] | tojson(indent=1) }}', '{{ {"b": 1, "a": {"d": 1, "c": 2}} | tojson(sort_keys=true) }}', '{{ {"a": [1, 2]} | tojson(separators=(",", ":")) }} {{ [1, {"a": 2}] | tojson(separators=(",", ": "), indent=2) }}', '{{ {1: 2, true: 3, none: 4} | tojson }}', '{{ missing | tojson }}', '{{ "😀é" | tojson }} {{ "😀é" | tojson(ensure_ascii=true) }}', '{{ users | tojson }}', '{{ (users | map(attribute="age") | list) | tojson }}', '{{ users | map(attribute="age") | tojson }}', '{{ tool | tojson(indent="--") }}', '{{ dict.items() | tojson }}', '{{ tool | string }}', '{{ [two, three, quoted] }}', '{{ messages }}', '{{ "a\u00a0b\u200bc\x7f" }} {{ ["a\u00a0b\u200bc\x7f"] }}',
    ],
    'tests': [
        '{{ dict is lower }} {{ numbers is upper }} {{ 1 is lower }}', *each('{{ $ is $ $ }}', ORDERED[:3], ['le', 'ge', 'lt'], ORDERED[:3] + ['none']),
        '{{ a is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ messages[0].x is defined }}', '{{ none is none }} {{ a is none }} {{ a is not none }} {{ missing is none }}', '{{ a is string }} {{ n is string }} {{ dict is mapping }} {{ list is mapping }} {{ list is iterable }} {{ n is iterable }} {{ a is iterable }} {{ missing is iterable }}', '{{ list is sequence }} {{ a is sequence }} {{ dict is sequence }} {{ n is sequence }} {{ missing is string }} {{ (1,) is sequence }} {{ (list | map("upper")) is sequence }}',
        '{{ n is number }} {{ x is number }} {{ yes is number }} {{ a is number }} {{ n is integer }} {{ yes is integer }} {{ x is integer }} {{ x is float }} {{ n is float }}', '{{ yes is boolean }} {{ n is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }}', '{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ a is eq "αβγ" }} {{ 2 is gt 1 }} {{ 2 is lt(1) }} {{ 2 is ge 2 }} {{ 2 is le 1 }}', '{{ 1 is in [1, 2] }} {{ "z" is in(a) }} {{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ none is sameas none }} {{ yes is sameas true }} {{ 1 is sameas true }}',
        '{{ "a" is lower }} {{ "A" is upper }} {{ range is callable }} {{ a is callable }} {{ namespace is callable }}', '{{ a is nope }}', '{{ a is string and n is number }} {{ a is string or missing.x }} {{ not a is string }}', '{{ (a is string) == true }}', '{{ [1, 2] is iterable and [1, 2] is not mapping }}', '{{ "upper" is filter }} {{ "odd" is test }}', '{% if a is string is number %}{% endif %}', '{{ a is defined if yes else n }}',
    ],
    'functions': [
        '{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }}', '{{ dict(a=1, b="c") }} {{ dict([(1, 2)], z=3) }} {{ dict({"a": 1}) }}', '{% for i in range(3)[::-1] %}{{ i }}{% endfor %}', '{{ range(100001) | length }}', '{{ namespace(a=1).a }}', '{{ range(3) | last }} {{ range(3) | length }} {{ 2 in range(3) }}', '{{ range(1, 2, 0) }}', '{{ strftime_now("%") is string }}', '{{ [1, 2, 3] | select("gt", 1) | first }}',
    ],
    'marks': [
        '{{ a ~ "x" ~ b }}', '{{ (a ~ "x" ~ a)[2:5] }} {{ (a ~ "xy")[::-1] }}', '{{ ("x" ~ b ~ "y").strip("xy") }}|{{ (" x" ~ b) | trim }}', '{{ (a ~ "x" ~ a).replace("x", "yy").replace("β", "z") }}', '{{ c.replace(",", a) }}', '{{ (c ~ ",x").split(",") | join("y") }}', '{{ (a ~ "Xy").upper() }} {{ (a ~ "Xy") | lower }} {{ (a ~ "xy") | title }} {{ (a ~ "xy") | capitalize }}', '{{ {"k": a, a: "v"} | tojson(indent=1) }} {{ {"k": a, a: "v"} }}',
        '{{ "%s x %5s" % (a, a) }} {{ "{} x {:>6}".format(a, a) }} {{ "%s" | format(a) }}', '{% set t %}x{{ a }}{% endset %}{{ t }}{{ [t, a] | join("-") }}', '{% macro m(p) %}x{{ p }}{% endmacro %}{{ m(a) | upper }}', '{{ (a ~ "\\n" ~ a) | indent(2) }} {{ lines.splitlines() | map("upper") | join("x") }}', '{% for c in a ~ "x" %}{{ c }}.{% endfor %}{{ (a ~ "x") | list }} {{ (a ~ "x") | reverse }} {{ (a ~ "x") | first }}', '{{ (a ~ "x").partition("β") | join("y") }} {{ (a ~ "x").rsplit("γ", 1) }}', '{{ a.center(9, "x") }}{{ a.ljust(5, "y") }}{{ "x".rjust(3, "α"[0]) if false }}', '{{ (a ~ "x") * 2 }} {{ [a] * 2 }}', '{{ users | map(attribute="name") | sort | join("x") }} {{ ([a, "x"] | sort)[0] }}', '{{ dict.items() | list }} {{ dict | dictsort }} {{ dict.keys() | join }}', '{{ a | default("x") }}{{ missing | default(a) }}{{ a or "x" }}{{ "x" if no else a }}', '{{ (a ~ "x").removeprefix("α").removesuffix("x") }}', '{% filter upper %}x{{ a }}{% endfilter %}', '{{ (a ~ "&<") | e }}', '{% macro m() %}x{{ caller() }}{% endmacro %}{% call m() %}{{ a }}{% endcall %}', '{% set ns = namespace(t="x") %}{% set ns.t = ns.t + a %}{{ ns.t }}', '{{ mixed.swapcase() }} {{ mixed.title() }}', '{{ messages | map(attribute="content") | join("x") }} {{ messages | tojson }} {{ messages | string }}',
    ],
}


def main():
    cases = []
    for area, templates in CASES.items():
        for template in templates:
            words = {name: value for name, value in WORDS.items() if name in template}
            case = {'area': area, 'template': template, 'words': words}
            try:
                case['text'] = _compile_jinja_template(template).render(**words)
            except Exception as error:
                case['fails'] = type(error).__name__
            cases.append(case)
    path = pathlib.Path(__file__).parent / 'jinja_cases.json'
    lines = ',\n'.join(json.dumps(case, ensure_ascii=False) for case in cases)
    path.write_text(f'[\n{lines}\n]\n')


if __name__ == '__main__':
    main()
