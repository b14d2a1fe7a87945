#include "text/chat/jinja/jinja_template.h"

#include <cctype>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "text/chat/jinja/value_text.h"

namespace tandem::jinja {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Template::Variables VariablesOf(const JsonValue& words) {
  Template::Variables variables;
  for (const auto& [name, value] : words.items()) {
    const absl::StatusOr<Value> converted = FromJson(value);
    EXPECT_TRUE(converted.ok()) << converted.status();
    variables.emplace_back(name, *converted);
  }
  return variables;
}

absl::StatusOr<MarkedText> RenderText(const std::string& source,
                                      const JsonValue& words = JsonValue::object(),
                                      const Limits& limits = Limits()) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(VariablesOf(words), absl::FromUnixSeconds(1700000000), limits);
}

std::string ErrorOf(const std::string& source, const Limits& limits = Limits()) {
  const JsonValue words = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  const absl::StatusOr<MarkedText> text = RenderText(source, words, limits);
  EXPECT_FALSE(text.ok()) << source << " gives " << text->text();
  return std::string(text.status().message());
}

// Shows the text of variables in [brackets], and the template's own text as it is.
std::string Marked(const MarkedText& text) {
  std::string shown;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    const std::string part = text.text().substr(begin, run.end - begin);
    absl::StrAppend(&shown,
                    run.special == SpecialTokens::kPlain ? absl::StrCat("[", part, "]") : part);
    begin = run.end;
  }
  return shown;
}

bool IsGreek(char32_t c) { return c >= 0x370 && c < 0x400; }

// Checks the convention of tests/data/chat/make_jinja_cases.py: Greek letters come from variables,
// and other letters from the template, unless the case's variables contain some too.
void ExpectMarks(const MarkedText& text, bool has_other_words, const std::string& source) {
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    while (at < run.end) {
      const Utf8Prefix next = ReadUtf8(std::string_view(text.text()).substr(at));
      const bool is_letter =
          next.code_point < 0x80 && std::isalpha(static_cast<int>(next.code_point));
      const SpecialTokens other =
          run.special == SpecialTokens::kPlain ? SpecialTokens::kParse : SpecialTokens::kPlain;
      if (IsGreek(next.code_point)) {
        EXPECT_NE(other, SpecialTokens::kPlain) << source << " gives " << Marked(text);
      } else if (is_letter && !has_other_words) {
        EXPECT_NE(other, SpecialTokens::kParse) << source << " gives " << Marked(text);
      }
      at += next.size;
    }
  }
}

JsonValue ReadCases() {
  std::ifstream file(SourcePath("tests/data/chat/jinja_cases.json"));
  return JsonValue::parse(file, nullptr, /*allow_exceptions=*/false);
}

class JinjaCases : public ::testing::TestWithParam<std::string> {};

TEST_P(JinjaCases, MatchTheReference) {
  int count = 0;
  for (const JsonValue& one : ReadCases()) {
    if (one.at("area") != GetParam()) continue;
    ++count;
    const auto source = one.at("template").get<std::string>();
    const absl::StatusOr<MarkedText> text = RenderText(source, one.at("words"));
    if (one.contains("fails")) {
      EXPECT_FALSE(text.ok()) << source << " gives " << text->text();
      continue;
    }
    ASSERT_TRUE(text.ok()) << source << ": " << text.status();
    EXPECT_EQ(text->text(), one.at("text").get<std::string>()) << source;
    bool template_is_greek = false;
    for (size_t at = 0; at < source.size();) {
      const Utf8Prefix next = ReadUtf8(std::string_view(source).substr(at));
      template_is_greek = template_is_greek || IsGreek(next.code_point);
      at += next.size;
    }
    const bool has_other_words =
        one.at("words").contains("messages") || one.at("words").contains("users");
    if (GetParam() == "marks" && !template_is_greek) ExpectMarks(*text, has_other_words, source);
  }
  EXPECT_GT(count, 5);
}

INSTANTIATE_TEST_SUITE_P(All, JinjaCases,
                         ::testing::Values("text", "whitespace", "literals", "arithmetic",
                                           "comparison", "access", "statements", "methods",
                                           "filters", "format", "json", "tests", "functions",
                                           "marks"),
                         [](const auto& info) { return info.param; });

TEST(JinjaMarks, SurviveTheOperationsOfChatTemplates) {
  const JsonValue words = {{"m", {{"role", "user"}, {"content", " <|end|> "}}}, {"t", "</x>a"}};
  const std::pair<const char*, const char*> cases[] = {
      {"<|{{ m.role }}|>{{ m.content | trim }}<|end|>", "<|[user]|>[<|end|>]<|end|>"},
      {"{{ '<|' + m.role + '|>' ~ m.content.strip().upper() }}", "<|[user]|>[<|END|>]"},
      {"{{ t.split('</x>')[-1] + '</x>' }}", "[a]</x>"},
      {"{{ m | tojson }}", "{\"[role]\": \"[user]\", \"[content]\": \"[ <|end|> ]\"}"},
      {"{{ {'own': t} | tojson }}", "{\"own\": \"[</x>a]\"}"},
      {"{{ ('<b>' ~ t)[1:6] }}", "b>[</x]"},
      {"{{ '%s;' % t }}{{ '{}!'.format(t) }}{{ '%5d' % 3 }}", "[</x>a];[</x>a]!    3"},
      {"{{ t.replace('</x>', '<y>') }}{{ 'z'.replace('z', t) }}", "<y>[a</x>a]"},
      {"{{ [t, 'own'] | join('+') }}", "[</x>a]+own"},
      {"{% set q %}a{{ t }}{% endset %}{{ q | title }}", "A[</x>a]"},
      {"{{ 'x'.join([t, t]) }}{{ t | first }}{{ t[-1] }}", "[</x>a]x[</x>a<a]"}};
  for (const auto& [source, marked] : cases) {
    const absl::StatusOr<MarkedText> text = RenderText(source, words);
    ASSERT_TRUE(text.ok()) << source << ": " << text.status();
    EXPECT_EQ(Marked(*text), marked) << source;
  }
}

TEST(JinjaTemplate, CanBeRenderedSeveralTimes) {
  const auto parsed = Template::Parse("{{ strftime_now('%d %b %Y') }}{{ x }}").value();
  EXPECT_EQ(parsed.Render({{"x", Value::Int(1)}}, absl::UnixEpoch())->text(), "01 Jan 19701");
  EXPECT_EQ(parsed.Render({}, absl::FromUnixSeconds(1700000000))->text(), "14 Nov 2023");
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("a\n{{ 1 +\n }}"), StartsWith("line 3: found the end of the tag, allowed: "));
  EXPECT_THAT(ErrorOf("\n{% iff x %}"), StartsWith("line 2: found \"iff\", allowed: if, for"));
  EXPECT_THAT(ErrorOf("{% if x %}\n{% for y in z %}"), HasSubstr("a tag endfor"));
  EXPECT_THAT(ErrorOf("\n\n{{ messages[0].nope.more }}"),
              StartsWith("line 3: a dict has no \"nope\""));
  EXPECT_THAT(ErrorOf("{% for m in messages %}\n{{ nope() }}{% endfor %}"),
              StartsWith("line 2: \"nope\" is undefined"));
  EXPECT_THAT(ErrorOf("{{ messages['x' * 999].more }}"),
              HasSubstr(absl::StrCat("has no \"", std::string(64, 'x'), "\"...")));
  EXPECT_THAT(ErrorOf("{{ 1 | nope }}"), HasSubstr("unknown filter \"nope\""));
  EXPECT_THAT(ErrorOf("{{ 1 is nope }}"), HasSubstr("unknown test \"nope\""));
  EXPECT_EQ(ErrorOf("\n{{ raise_exception('Roles must alternate') }}"),
            "Roles must alternate (line 2)");
  EXPECT_THAT(ErrorOf("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}"),
              StartsWith("line 2: found a division by zero"));
}

TEST(JinjaTemplate, ErrorsNameTheWrongType) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ {[1]: 2} }}", "a list is not a valid dictionary key"},
      {"{{ {(1, 2): 3} | tojson }}", "a tuple is not a valid JSON key"},
      {"{{ namespace | tojson }}", "cannot be written as JSON"},
      {"{{ 1 < 'a' }}", "values of the types int and str cannot be ordered"},
      {"{{ 'a' | abs }}", "a str is not a number"},
      {"{{ 'a' | round }}", "a str is not a number"},
      {"{{ ([] | first) + 1 }}", "an empty sequence has no first element"},
      {"{{ ([] | last) + 1 }}", "an empty sequence has no last element"},
      {"{{ dict([1]) }}", "dict: the argument is not a list of pairs"},
      {"{{ namespace(1).x }}", "namespace: the argument is not a dictionary"},
      {"{{ dict(**1) }}", "found ** of a value that is not a dictionary"},
      {"{{ dict(**{1: 2}) }}", "found ** of a dictionary with keys that are not strings"},
      {"{{ 10.0 ** 1000 }}", "found a power that is not a finite number"},
      {"{{ '\\ud800' }}", "found an escape that is not a character"}};
  for (const auto& [source, message] : cases) {
    EXPECT_THAT(ErrorOf(source), HasSubstr(message)) << source;
  }
}

// Python rounds integers exactly at any size. Here the result must fit in 64 bits.
TEST(JinjaTemplate, RoundsIntegersExactly) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"15|round(-1)", "20"},
      {"25|round(-1)", "20"},
      {"-25|round(-1)", "-20"},
      {"-35|round(-1)", "-40"},
      {"250|round(-2)", "200"},
      {"251|round(-2)", "300"},
      {"9007199254740993|round(-1)", "9007199254740990"},
      {"9223372036854775807|round(-2)", "9223372036854775800"},
      {"9223372036854775807|round(-18)", "9000000000000000000"},
      {"(0 - 9223372036854775807 - 1)|round(-2)", "-9223372036854775800"},
      {"5000000000000000000|round(-19)", "0"},
      {"9223372036854775807|round(-20)", "0"},
      {"9223372036854775807|round(-300)", "0"},
      {"true|round(-1)", "0"}};
  for (const auto& [expression, wanted] : cases) {
    const auto text = RenderText("{{ " + expression + " }}");
    ASSERT_TRUE(text.ok()) << expression << ": " << text.status();
    EXPECT_EQ(text->text(), wanted) << expression;
  }
  for (const char* places : {"-1", "-3", "-19"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("{{ 9223372036854775807|round(", places, ") }}")),
                HasSubstr("an integer of more than 64 bits"));
  }
}

TEST(JinjaTemplate, RejectsFeaturesThatChatTemplatesDoNotUse) {
  for (const char* source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% block x %}{% endblock %}",
        "{% import 'x' as y %}", "{% autoescape true %}{% endautoescape %}",
        "{% for x in y recursive %}{% endfor %}"}) {
    const auto parsed = Template::Parse(source);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented) << source;
    EXPECT_THAT(std::string(parsed.status().message()), StartsWith("line 1: ")) << source;
  }
  EXPECT_THAT(ErrorOf("{{ messages.append(1) }}"), HasSubstr("may not change a list"));
  EXPECT_THAT(ErrorOf("\xFF"), HasSubstr("not UTF-8"));
  EXPECT_THAT(ErrorOf("{{ 007 }}"), HasSubstr("allowed: integers without leading zeros"));
  EXPECT_THAT(ErrorOf("{{ 7.real }}{{ (7).real }}"), HasSubstr("has no \"real\""));
  for (const char* shown : {"{{ range(3) }}", "{{ range(3)[1:] | string }}", "{{ dict }}",
                            "{{ namespace() }}", "{{ [1].index }}", "{{ 'a'.upper ~ '' }}"}) {
    EXPECT_THAT(ErrorOf(shown), HasSubstr(" is not text")) << shown;
  }
  EXPECT_THAT(ErrorOf(std::string((1 << 20) + 1, 'a')), HasSubstr("1048577 bytes"));
}

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(JinjaLimits, SyntaxDepthIsLimited) {
  for (const int times : {50, 5000}) {
    const std::string nests[] = {
        "{{ " + Repeat("(", times) + "1" + Repeat(")", times) + " }}",
        "{{ " + Repeat("[", times) + "1" + Repeat("]", times) + " }}",
        "{{ " + Repeat("not ", times) + "1 }}",
        "{{ " + Repeat("-", times) + "1 }}",
        "{{ a" + Repeat(".a", times) + " is defined }}",
        "{{ 1" + Repeat(" | string", times) + " }}",
        "{{ 1" + Repeat(" if 1 else 1", times) + " }}",
        Repeat("{% if 1 %}", times) + Repeat("{% endif %}", times),
        Repeat("{% macro m() %}", times) + Repeat("{% endmacro %}", times)};
    for (const std::string& nest : nests) {
      const absl::StatusOr<Template> parsed = Template::Parse(nest);
      EXPECT_EQ(parsed.ok(), times == 50) << nest.substr(0, 20) << parsed.status();
      if (!parsed.ok()) {
        EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("more than 100 deep"));
      }
    }
  }
  // Long expressions and blocks are not deeper than short ones.
  EXPECT_TRUE(RenderText("{{ 1" + Repeat(" + 1", 5000) + " }}").ok());
  EXPECT_TRUE(RenderText("{% if 0 %}" + Repeat("{% elif 0 %}", 5000) + "{% endif %}").ok());
}

TEST(JinjaLimits, CallDepthIsLimited) {
  EXPECT_THAT(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("calls more than 400 deep"));
}

TEST(JinjaLimits, StepsAreLimited) {
  const Limits few{.steps = 20'000, .memory_bytes = size_t{1} << 60};
  for (const char* source :
       {"{% for i in range(100000) %}{% endfor %}",
        "{% for i in range(200) %}{% for j in range(200) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 1000000000000 }}",
        "{{ [1] * 1000000000000 }}",
        "{{ 'a'.center(999999999999) }}",
        "{{ '%999999999999d' % 1 }}",
        "{{ '{:>999999999999}'.format(1) }}",
        "{{ 'a\nb' | indent(999999999999) }}",
        "{{ [1] | tojson(indent=999999999999) }}",
        "{{ [1] | batch(999999999999, 0) | list }}",
        "{{ range(90000) | list | length }}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(s=[1, 2]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{{ ('a' * 9999).split('') if 0 }}{{ ('a' * 9999).replace('a', 'b' * 999) }}",
        "{{ ('a' * 99999).count('a' * 9999) }}",
        "{{ ('a' * 99999) | list | length }}",
        "{{ ('a' * 9999)[::-1] }}{{ ('a' * 9999)[::-1] }}{{ ('a' * 9999)[::-1] }}",
        "{{ '1'.zfill(999999999999) }}",
        "{{ '\t'.expandtabs(999999999999) }}",
        "{% for i in range(999) %}{{ ('1' * 9999) | int }}{% endfor %}",
        "{% for i in range(999) %}{{ ('1' * 9999) | float }}{% endfor %}",
        "{% set s = 'a' * 99999 %}{% for i in range(99) %}{{ {}[s] }}{% endfor %}",
        "{% set s = 'a' * 99999 %}{% for i in range(99) %}{{ {} | attr(s) }}{% endfor %}",
        "{{ ['a'] | map(attribute='a' + '.' * 9999, default='') | list }}"}) {
    EXPECT_THAT(ErrorOf(source, few), AllOf(StartsWith("line "), HasSubstr("20000 steps")))
        << source;
  }
}

// Variables are found by linear search, scope by scope.
TEST(JinjaLimits, NameComparisonsCountAsSteps) {
  std::string sets;
  for (int i = 0; i < 4000; ++i) absl::StrAppend(&sets, "{% set v", i, " = 1 %}");
  absl::StrAppend(&sets, "{% set last = namespace() %}");
  const Limits few{.steps = 1'200'000};
  EXPECT_TRUE(RenderText(sets, JsonValue::object(), few).ok());
  for (const char* use : {"{{ last is true }}", "{{ nowhere }}", "{% set last.a = 1 %}"}) {
    const std::string source = absl::StrCat(sets, "{% for i in range(999) %}", use, "{% endfor %}");
    const absl::StatusOr<MarkedText> text = RenderText(source, JsonValue::object(), few);
    EXPECT_THAT(std::string(text.status().message()), HasSubstr("1200000 steps")) << use;
  }
  std::string names = "a0";
  for (int i = 1; i < 400; ++i) absl::StrAppend(&names, ", a", i);
  EXPECT_THAT(ErrorOf(absl::StrCat("{% macro m(", names,
                                   ") %}{% endmacro %}"
                                   "{% for i in range(99) %}{{ m() }}{% endfor %}"),
                      {.steps = 100'000}),
              HasSubstr("100000 steps"));
  EXPECT_THAT(ErrorOf("{{ " + std::string(257, 'a') + " }}"),
              HasSubstr("a name of 257 bytes, allowed: at most 256"));
}

// Keys that are not strings are found as fast as strings.
TEST(JinjaLimits, KeysOfAnyTypeAreFoundInConstantTime) {
  std::string dict = "{% set d = {0: 0";
  for (int i = 1; i < 20'000; ++i) absl::StrAppend(&dict, ",", i, ":", i);
  const auto text =
      RenderText(dict +
                     "} %}{{ d[19999] }}{{ d.get(19998.0) }}{{ true in d }}{{ (1, 2) in d }}"
                     "{{ dict(d) == d }}{{ d.keys() | unique | list | length }}",
                 JsonValue::object(), {.steps = 1'000'000});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->text(), "1999919998TrueFalseTrue20000");
}

// Destroying, comparing and printing objects is recursive.
TEST(JinjaLimits, DeepObjectsAreRejected) {
  const std::pair<const char*, const char*> cases[] = {
      {"a method of a dictionary", "{% set ns.f = {'a': ns.f}.get %}"},
      {"a method of a list", "{% set ns.f = [ns.f].index %}"},
      {"a loop", "{% for x in [ns.f] %}{% set ns.f = loop %}{% endfor %}"},
      {"a method of a loop", "{% for x in [ns.f] %}{% set ns.f = loop.changed %}{% endfor %}"},
      {"the items of a dictionary", "{% set ns.f = {'a': ns.f}.items() %}"},
      {"a filter's result", "{% set ns.f = [ns.f] | batch(1) %}"},
      {"groups", "{% set ns.f = [{'a': 1, 'b': ns.f}] | groupby('a') %}"}};
  for (const auto& [what, body] : cases) {
    EXPECT_THAT(ErrorOf(absl::StrCat("{% set ns = namespace(f=1) %}{% for i in range(100000) %}",
                                     body, "{% endfor %}")),
                HasSubstr("values nested more than 100 deep"))
        << what;
  }
  // Finished loops drop the arguments of loop.changed, and namespaces are cleared one by one.
  EXPECT_TRUE(RenderText("{% set ns = namespace(f=1) %}{% for i in range(50000) %}"
                         "{% for x in [1] %}{{ loop.changed(loop, ns.f) }}{% set ns.f = loop %}"
                         "{% endfor %}{{ ns.f.changed(ns.f) }}{% set ns.n = namespace(n=ns.n) %}"
                         "{% endfor %}")
                  .ok());
}

TEST(JinjaLimits, FiltersThatCallFiltersCountAsCalls) {
  EXPECT_THAT(ErrorOf("{{ ['a'] | map(*(['map'] * 2000)) | list }}"),
              HasSubstr("calls more than 400 deep"));
  EXPECT_THAT(ErrorOf("{{ ['a'] | map(*(['map'] * 100000)) | list }}"),
              HasSubstr("holds more than 268435456 bytes"));
}

// Each case stays within the limit on steps, but not within that on memory.
TEST(JinjaLimits, MemoryIsLimited) {
  const Limits limits{.steps = 50'000'000, .memory_bytes = size_t{4} << 20};
  const std::string_view keeps = "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}";
  for (const char* source :
       {"{{ ('a' * 1000) * 9000 }}",
        "{{ [1] * 900000 }}",
        "{{ ('a,' * 90000).split(',') }}",
        "{{ ('a ' * 90000).split() }}",
        "{{ ('a,' * 90000).rsplit(',') }}",
        "{{ ('a\n' * 90000).splitlines() }}",
        "{{ ('a\n' * 90000) | indent }}",
        "{{ ('a' * 90000) | list }}",
        "{% for c in 'a' * 90000 %}{% endfor %}",
        "{{ ('a' * 90000) | reverse }}",
        "{{ 'a'.center(9000000) }}",
        "{{ 'a' | center(9000000) }}",
        "{{ 'a'.ljust(9000000) }}",
        "{{ 'a'.zfill(9000000) }}",
        "{{ '\t'.expandtabs(9000000) }}",
        "{{ 'a\nb' | indent(9000000) }}",
        "{{ [1] | tojson(indent=9000000) }}",
        "{{ [1] | batch(900000, 0) | list }}",
        "{{ '%9000000d' % 1 }}",
        "{{ '{:9000000}'.format(1) }}",
        "{{ '{0}{0}{0}{0}{0}{0}'.format('a' * 999999) }}",
        "{{ ('a' * 90000) | replace('a', 'b' * 99) }}",
        "{{ ('a' * 90000).replace('', 'b' * 99) }}",
        "{{ range(9000) | join('x' * 999) }}",
        "{{ ('x' * 999).join(range(9000) | map('string')) }}",
        "{{ ('<' * 900000) | e }}",
        "{{ ('\x01' * 900000) | tojson }}",
        "{{ ['\x01' * 900000] | string }}",
        "{{ ('ΐ' * 900000) | upper }}",
        "{{ (('a' ~ messages[0].role) * 900000) }}",
        "{{ range(90000) | map('string') | list }}",
        "{{ range(90000) | map('list') if 0 else range(90000) | batch(1) | list }}",
        "{{ ('a' * 999999)[5] }}",
        "{{ ('a' * 999999)[::2] }}",
        "{{ ('a' * 999999).find('a', 9) }}",
        "{% macro m(n) %}{{ 'a' * 400000 }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}"
        "{{ m(20) }}"}) {
    EXPECT_THAT(ErrorOf(source, limits), HasSubstr("holds more than 4194304 bytes")) << source;
  }
  for (const char* kept :
       {"{% set ns.l = ns.l + ['a' * 999] %}", "{% set ns.l = ns.l + [range(99)] %}",
        "{% set ns.l = namespace(a=1, b=2, c=3) %}", "{% macro m() %}{% endmacro %}",
        "{% set ns.l = ns.l + [messages['x' * 99]] %}",
        "{% set ns.l = ns.l + [messages.index, messages.count, messages.copy] %}",
        "{% set ns.l = ns.l ~ 'a' * 999 %}", "{% set ns.l = ns.l + [{i: i, i + 1: i}] %}"}) {
    EXPECT_THAT(ErrorOf(absl::StrCat(View(keeps), kept, "{% endfor %}"),
                        {.steps = 50'000'000, .memory_bytes = size_t{1} << 19}),
                HasSubstr("holds more than 524288 bytes"))
        << kept;
  }
  // Destroyed values do not count, and neither do the caller's values.
  const JsonValue words = {{"w", std::string(9'000'000, 'w')}};
  const auto text = RenderText(
      "{% for i in range(99) %}{% set s = ('a' * 999) * 999 %}{% endfor %}{{ w is string }}"
      "{{ ('ab,' * 9999).split(',') | length }}",
      words, limits);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->text(), "True10000");
}

TEST(JinjaLimits, ValuesAndOutputAreLimited) {
  EXPECT_THAT(ErrorOf("{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] "
                      "%}{% endfor %}"),
              HasSubstr("values nested more than 100 deep"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(s=[1]) %}{% for i in range(90) %}{% set ns.s = [ns.s, "
                      "ns.s] %}{% endfor %}"),
              HasSubstr("more than 10000000 elements"));
  EXPECT_THAT(ErrorOf("{% for i in range(99) %}abcdefgh{% endfor %}", {.output_bytes = 700}),
              HasSubstr("writes more than 700 bytes"));
  EXPECT_THAT(ErrorOf("{{ range(100001) }}"), HasSubstr("more than 100000 numbers"));
  EXPECT_THAT(ErrorOf("{{ 9223372036854775807 + 1 }}"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(ErrorOf("{{ 10 ** 30 }}"), HasSubstr("more than 64 bits"));
}

TEST(JinjaValues, CyclesThroughNamespacesAreFreed) {
  EXPECT_TRUE(RenderText("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}"
                         "{% set a.a = a %}{% for i in [a] %}{% set a.l = loop %}{% endfor %}")
                  .ok());
}

TEST(JinjaValues, UnsupportedJsonIsRejected) {
  EXPECT_THAT(std::string(FromJson(SortedJson("a\xFF")).status().message()),
              HasSubstr("not UTF-8 (at byte 1"));
  EXPECT_THAT(std::string(FromJson(SortedJson(~uint64_t{0})).status().message()),
              HasSubstr("18446744073709551615"));
  SortedJson deep;
  for (int i = 0; i < 200; ++i) deep = SortedJson::array({deep});
  EXPECT_THAT(std::string(FromJson(deep).status().message()), HasSubstr("100 deep"));
}

}  // namespace
}  // namespace tandem::jinja
