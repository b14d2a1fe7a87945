#include "tandem/tool_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Family = ToolFormat::Family;

// Returns "content|f({...})g({...})" of a text that is pushed in pieces.
std::string AnswerOf(const ToolCallParser::Options& options,
                     const std::vector<std::string>& pieces) {
  ToolCallParser parser(options);
  std::string content;
  std::vector<AnswerDelta::Call> calls;
  const auto add = [&](const AnswerDelta& delta) {
    content += delta.content;
    for (const AnswerDelta::Call& call : delta.calls) {
      EXPECT_LE(call.index, static_cast<int>(calls.size()));
      EXPECT_EQ(call.name.empty(), call.index < static_cast<int>(calls.size()));
      if (!call.name.empty()) calls.push_back({.index = call.index, .name = call.name});
      calls[call.index].arguments += call.arguments;
    }
  };
  for (const std::string& piece : pieces) add(parser.Push(piece));
  add(parser.Finish());
  EXPECT_EQ(parser.num_calls(), static_cast<int>(calls.size()));
  std::string all = content + "|";
  for (const AnswerDelta::Call& call : calls) {
    absl::StrAppend(&all, call.name, "(", call.arguments, ")");
  }
  return all;
}

struct ToolCase {
  Family family;
  std::string text;
  std::string answer;
  bool must_call = false;
  bool parallel = true;
};

ToolCallParser::Options OptionsOf(const ToolCase& c) {
  return {
      .format = ToolFormat::Of(c.family),
      .functions = {{"f",
                     {{"s", JsonTypes(JsonTypes::kString)}, {"n", JsonTypes(JsonTypes::kNumber)}}},
                    {"g"}},
      .must_call = c.must_call,
      .parallel = c.parallel};
}

std::vector<ToolCase> ToolCases() {
  const std::string f = R"({"name": "f", "arguments": {"a": "}\"<x", "b": [1, {}]}})";
  const std::string f_called = R"(f({"a": "}\"<x", "b": [1, {}]}))";
  const std::string g = R"({"parameters":{},"name":"g"})";
  const std::string no_call = R"({"name": "h", "arguments": {}})";
  return {
      {Family::kHermes, "", "|"},
      {Family::kHermes, " Hi \n there <b> <tool_cal", " Hi \n there <b> <tool_cal|"},
      {Family::kHermes, "Hi \n", "Hi \n|"},
      {Family::kHermes, "<tool_call>\n" + f + "\n</tool_call>", "|" + f_called},
      {Family::kHermes, "Well.\n<tool_call>" + f + "</tool_call>\n<tool_call>" + g + "</tool_call>",
       "Well.|" + f_called + "g({})"},
      {Family::kHermes, "Well.\n```json\n" + f + "\n```\nDone.", "Well.\nDone.|" + f_called},
      {Family::kHermes, "```json" + f + g + "```", "|" + f_called + "g({})"},
      {Family::kHermes, "```json\n[" + f + ",\n" + g + "]\n```", "|" + f_called + "g({})"},
      {Family::kHermes, "```json\n" + f + "\n```\n```json\n" + g, "|" + f_called + "g({})"},
      {Family::kHermes, "```json\n" + f + "```<tool_call>" + g, "|" + f_called + "g({})"},
      {Family::kHermes, "```json\n" + no_call + "\n```", "```json\n" + no_call + "\n```|"},
      {Family::kHermes, "```json\n{\"a\": 1}\n```\n", "```json\n{\"a\": 1}\n```\n|"},
      {Family::kHermes, "```json\n" + f + "\n and``` so", "\n and``` so|" + f_called},
      {Family::kHermes, "```json\n", "```json\n|"},
      {Family::kLlama3, "```json\n" + f + "\n```", "```json\n" + f + "\n```|"},
      {Family::kHermes, "<tool_call>" + f + "</tool_call>\n Done. ", "\n Done.|" + f_called},
      {Family::kHermes, "<tool_call>" + f + "</tool_ca", "|" + f_called},
      {Family::kHermes, "<tool_call>" + f + " more", " more|" + f_called},
      {Family::kHermes, R"(<tool_call>{"name": "f"}</tool_call>)", "|f({})"},
      {Family::kHermes, R"(<tool_call>{"name": "\u0066", "id": 1, "x": "}", "arguments": {"a)",
       R"(|f({"a))"},
      // Texts that are not valid calls.
      {Family::kHermes, "<tool_call>" + no_call + "</tool_call>",
       "<tool_call>" + no_call + "</tool_call>|"},
      {Family::kHermes, "<tool_call>f(1)</tool_call>", "<tool_call>f(1)</tool_call>|"},
      {Family::kHermes, "<tool_call>\n{\"name\": \"f\"", "<tool_call>\n{\"name\": \"f\"|"},
      {Family::kHermes, R"(<tool_call>{"name": "f", "arguments": 1}</tool_call>)",
       R"(<tool_call>{"name": "f", "arguments": 1}</tool_call>|)"},
      {Family::kHermes, R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>)",
       R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>|)"},
      {Family::kHermes, "<tool_call><tool_call>" + g + "</tool_call>", "<tool_call>|g({})"},
      {Family::kHermes, "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>|"},
      {Family::kHermes, f, f + "|"},
      // An error after the beginning of a call ends the call.
      {Family::kHermes, R"(<tool_call>{"name": "f", "arguments": {"a": ]} rest)",
       R"(]} rest|f({"a": ))"},
      {Family::kHermes, "<tool_call>" + f + "</tool_call><tool_call>" + g + "</tool_call>",
       "|" + f_called, false, /*parallel=*/false},
      {Family::kLlama3, f, "|" + f_called},
      {Family::kLlama3, "\n\n<|python_tag|>" + g + "; " + f + "\n", "|g({})" + f_called},
      {Family::kLlama3, g + "\n" + g + " ;", "|g({})g({})"},
      {Family::kLlama3, "So: <|python_tag|>" + g, "So:|g({})"},
      {Family::kLlama3, "So: " + g, "So: " + g + "|"},
      {Family::kLlama3, no_call, no_call + "|"},
      {Family::kLlama3, "<|python_tag|>print(1)", "<|python_tag|>print(1)|"},
      {Family::kLlama3, g + "; and then", "; and then|g({})"},
      {Family::kLlama3, g + " and then", " and then|g({})"},
      {Family::kList, "[TOOL_CALLS] [" + f + ", " + g + "]", "|" + f_called + "g({})"},
      {Family::kList, "[TOOL_CALLS]" + g, "|g({})"},
      {Family::kList, "Hm. [TOOL_CALLS][" + g + ",", "Hm.|g({})"},
      {Family::kList, "[" + g + "]", "[" + g + "]|"},
      {Family::kList, "[" + g + "]", "|g({})", /*must_call=*/true},
      {Family::kList, "[[TOOL_CALLS][" + g + "]", "[|g({})"},
      {Family::kList, "[TOOL_CALLS] [1]", "[TOOL_CALLS] [1]|"},
      // The end of a call may be missing before the next call.
      {Family::kHermes, "<tool_call>" + g + "\n<tool_call>" + f, "|g({})" + f_called},
      {Family::kMistralNamed, R"([TOOL_CALLS]f[ARGS]{"a": "}[", "b": 1}[TOOL_CALLS]g[ARGS]{})",
       R"(|f({"a": "}[", "b": 1})g({}))"},
      {Family::kMistralNamed, R"(Hm. [TOOL_CALLS] f [ARGS] {"a": 1} done)",
       "Hm. [TOOL_CALLS] f [ARGS] {\"a\": 1} done|"},
      {Family::kMistralNamed, R"(Hm.[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS] {"a)", R"(Hm.|f({"a))"},
      {Family::kMistralNamed, R"([TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g{})", R"(|f({"a": 1})g({}))"},
      {Family::kMistralNamed, "[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]h[ARGS]{}|"},
      {Family::kMistralNamed, "[TOOL_CALLS]f[ARGS]1", "[TOOL_CALLS]f[ARGS]1|"},
      {Family::kMistralNamed, "[TOOL_CALLS]f[AB", "[TOOL_CALLS]f[AB|"},
      {Family::kMistralNamed, "[TOOL_CALLS]f", "[TOOL_CALLS]f|"},
      {Family::kMistralNamed, "[TOOL_CALLS] [" + f + ", " + g + "]", "|" + f_called + "g({})"},
      {Family::kMistralNamed, "[" + g + "]", "|g({})", /*must_call=*/true},
      {Family::kGlm,
       "Hm.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>\nA \"<b>\n</arg_value>\n"
       "<arg_key>n</arg_key>\n<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
       R"(Hm.|f({"s": "\nA \"<b>\n", "n": 12})g({}))"},
      {Family::kGlm, "<tool_call>g\n<arg_key>x</arg_key><arg_value>[1, 2]</arg_value></tool_call>.",
       R"(.|g({"x": [1, 2]}))"},
      {Family::kGlm, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Par</arg",
       R"(|f({"s": "Par))"},
      {Family::kGlm, "<tool_call>f\n<arg_key>s", "<tool_call>f\n<arg_key>s|"},
      {Family::kGlm, "<tool_call>h\n</tool_call>", "<tool_call>h\n</tool_call>|"},
      {Family::kGlm, "<tool_call>f(1)</tool_call>", "<tool_call>f(1)</tool_call>|"},
      {Family::kGlm, "<tool_call>f\n<arg_kez>", "<tool_call>f\n<arg_kez>|"},
      {Family::kGlm, "<tool_call>" + f + "</tool_call>", "<tool_call>" + f + "</tool_call>|"},
      {Family::kGlm, "<tool_call>g</tool_call><tool_call>g</tool_call>", "|g({})", false,
       /*parallel=*/false},
      {Family::kQwenXml,
       "So:\n<tool_call>\n<function=f>\n<parameter=s>\nParis \"<b>\n\n</x>\n</parameter>\n"
       "<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
       "</function>\n</tool_call>\n",
       R"(So:|f({"s": "Paris \"<b>\n\n</x>", "n": 5})g({}))"},
      // A parameter that can only be a string is one. Others are read as JSON if their types allow
      // it.
      {Family::kQwenXml,
       "<tool_call><function=f><parameter=s>5</parameter><parameter=n>five</parameter>"
       "<parameter=x>True</parameter><parameter=y>{\"a\": [1]}</parameter><parameter=z>"
       "None</parameter><parameter=a b>\n\n</parameter></function></tool_call>",
       R"(|f({"s": "5", "n": "five", "x": true, "y": {"a": [1]}, "z": null, "a b": ""}))"},
      {Family::kQwenXml,
       "<function=f>\n<parameter=n>\n1.5\n</parameter>\n</function>\n</tool_call>",
       R"(|f({"n": 1.5}))"},
      {Family::kQwenXml, "<function=g></function>\n<function=g></function>", "|g({})g({})"},
      {Family::kQwenXml, "<tool_call>\n<function=f>\n<parameter=s>\nPar\n</para",
       R"(|f({"s": "Par))"},
      {Family::kQwenXml, "<tool_call>\n<function=f>\n<parameter=n>\n12", R"(|f({"n": ))"},
      {Family::kQwenXml, "<tool_call>\n<function=f>\n<param", "<tool_call>\n<function=f>\n<param|"},
      {Family::kQwenXml, "<tool_call>\n<function=h>\n</function>\n</tool_call>",
       "<tool_call>\n<function=h>\n</function>\n</tool_call>|"},
      {Family::kQwenXml, "<tool_call>" + f + "</tool_call>", "<tool_call>" + f + "</tool_call>|"},
      {Family::kQwenXml, "<tool_call>\n<tool_call>\n<function=g></function></tool_call>", "|g({})"},
      {Family::kQwenXml, "a <fun and <func>", "a <fun and <func>|"},
      {Family::kQwenXml,
       "<function=f><parameter=s>a</parameter></function><tool_call><function=g></function>",
       R"(|f({"s": "a"}))", false, /*parallel=*/false},
  };
}

TEST(ToolCalls, AreSeparatedFromContent) {
  for (const ToolCase& c : ToolCases()) {
    EXPECT_EQ(AnswerOf(OptionsOf(c), {c.text}), c.answer) << c.text;
  }
}

TEST(ToolCalls, DoNotDependOnHowTheTextIsCut) {
  for (const ToolCase& c : ToolCases()) {
    const ToolCallParser::Options options = OptionsOf(c);
    std::vector<std::string> bytes;
    for (const char byte : c.text) bytes.emplace_back(1, byte);
    EXPECT_EQ(AnswerOf(options, bytes), c.answer) << c.text;
    for (size_t i = 0; i <= c.text.size(); ++i) {
      for (size_t j = i; j <= c.text.size(); ++j) {
        EXPECT_EQ(
            AnswerOf(options, {c.text.substr(0, i), c.text.substr(i, j - i), c.text.substr(j)}),
            c.answer)
            << c.text << " cut at " << i << " and " << j;
      }
    }
  }
}

// A client that reads the stream sees a long argument grow.
TEST(ToolCalls, ArgumentsAreStreamed) {
  ToolCallParser parser({.functions = {{"f"}}});
  EXPECT_TRUE(parser.Push(R"(<tool_call>{"name": "f", "arguments": )").empty());
  AnswerDelta delta = parser.Push("{\"a\"");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "f");
  EXPECT_EQ(delta.calls[0].arguments, "{\"a\"");
  delta = parser.Push(": 1}");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "");
  EXPECT_EQ(delta.calls[0].arguments, ": 1}");
  EXPECT_TRUE(parser.Push("}</tool_call>").empty());
}

TEST(ToolCalls, StringsInXmlAreStreamed) {
  ToolCallParser parser({.format = ToolFormat::Of(Family::kQwenXml),
                         .functions = {{"f", {{"s", JsonTypes(JsonTypes::kString)}}}}});
  EXPECT_TRUE(parser.Push("<tool_call>\n<function=f>\n").empty());
  EXPECT_EQ(parser.Push("<parameter=s>\nOnce \"up").calls[0].arguments, R"({"s": "Once \"up)");
  EXPECT_EQ(parser.Push("on\n<").calls[0].arguments, "on");
  EXPECT_EQ(parser.Push("/p>\n").calls[0].arguments, R"(\n</p>)");
  EXPECT_EQ(parser.Push("</parameter>\n</function>").calls[0].arguments, "\"}");
}

// Other formats, each with the snippet of a template that identifies it.
struct TemplateCase {
  const char* jinja;
  std::string text;
  std::string answer;
};

std::vector<TemplateCase> TemplateCases() {
  const std::string f = R"({"name": "f", "arguments": {"a": [1, "]"]}})";
  const std::string f_called = R"(f({"a": [1, "]"]}))";
  const std::string begin = "<\uff5ctool\u2581call\u2581begin\uff5c>";
  const std::string sep = "<\uff5ctool\u2581sep\uff5c>";
  const std::string end = "<\uff5ctool\u2581call\u2581end\uff5c>";
  const std::string opening = "<\uff5ctool\u2581calls\u2581begin\uff5c>";
  const std::string closing = "<\uff5ctool\u2581calls\u2581end\uff5c>";
  static constexpr char kFenced[] = "<\uff5ctool\u2581calls\u2581begin\uff5c>```json";
  static constexpr char kUnfenced[] = "<\uff5ctool\u2581calls\u2581begin\uff5c>";
  const std::string fenced = begin + "function" + sep + "f\n```json\n{\"a\": \"```\"}\n```" + end;
  const std::string plain = begin + "g" + sep + "{\"b\": 1}" + end;
  const std::string command =
      "{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}";
  return {
      {"<|tool_call|>", "<|tool_call|>[" + f + "]", "|" + f_called},
      {"<|tool_call|>", "Hm. <|tool_call|>[" + f + ", " + f + "]", "Hm.|" + f_called + f_called},
      {"<|tool|><|/tool|>", "<|tool_call|>[" + f + "]<|/tool_call|>", "|" + f_called},
      {"<|tool|><|/tool|>", "<|tool_call|>[" + f + "]<|/tool_call|> So.", " So.|" + f_called},
      {"<|tool|><|/tool|>", "<|tool_call|>[1]<|/tool_call|>", "<|tool_call|>[1]<|/tool_call|>|"},
      {"<|START_ACTION|>", "<|START_ACTION|>[\n    " + command + "\n]<|END_ACTION|>",
       "|f({\"a\": 1})"},
      {kFenced, "So. " + opening + fenced + "\n" + fenced + closing,
       "So.|f({\"a\": \"```\"})f({\"a\": \"```\"})"},
      {kFenced, fenced, "|f({\"a\": \"```\"})"},
      {kFenced, opening + begin + "function" + sep + "f\n```json\n{\"a", "|f({\"a)"},
      {kFenced, opening + begin + "function" + sep + "f\n```python\n{}",
       opening + begin + "function" + sep + "f\n```python\n{}|"},
      {kFenced, opening + " What?", opening + " What?|"},
      {kUnfenced, opening + plain + plain + closing, "|g({\"b\": 1})g({\"b\": 1})"},
      {kUnfenced, begin + "h" + sep + "{}" + end, begin + "h" + sep + "{}" + end + "|"},
      {kUnfenced, begin + "g" + sep + "1", begin + "g" + sep + "1|"}};
}

TEST(ToolCalls, FormatsOfOtherFamiliesAreFoundByTheirTemplates) {
  for (const TemplateCase& c : TemplateCases()) {
    SCOPED_TRACE(absl::StrCat(c.jinja, " ", c.text));
    const auto chat =
        ChatTemplate::Parse(absl::StrCat("{{ tools }}{{ '", c.jinja, "' }}"), "", "").value();
    const ToolCallParser::Options options{.format = ToolFormat::Of(chat),
                                          .functions = {{"f"}, {"g"}}};
    EXPECT_EQ(AnswerOf(options, {c.text}), c.answer);
    std::vector<std::string> bytes;
    for (const char byte : c.text) bytes.emplace_back(1, byte);
    EXPECT_EQ(AnswerOf(options, bytes), c.answer);
  }
}

TEST(ToolCalls, GenericCallsMayLackMarkers) {
  const std::string f = R"({"name": "f", "arguments": {"a": 1}})";
  const ToolCallParser::Options options{.format = {.may_lack_markers = true}, .functions = {{"f"}}};
  const std::string call = R"(f({"a": 1}))";
  EXPECT_EQ(AnswerOf(options, {f}), "|" + call);
  EXPECT_EQ(AnswerOf(options, {"\n", f, "\n", f, " Done."}), " Done.|" + call + call);
  EXPECT_EQ(AnswerOf(options, {f, "</tool_call>\n<tool_call>", f, "</tool_call>"}),
            "|" + call + call);
  EXPECT_EQ(AnswerOf(options, {"So: <tool_call>", f, "</tool_call>"}), "So:|" + call);
  EXPECT_EQ(AnswerOf(options, {"So: ", f}), "So: " + f + "|");
  EXPECT_EQ(AnswerOf(options, {R"({"name": "g"})"}), R"({"name": "g"}|)");
}

TEST(ToolCalls, TemplatesDecideTheFormat) {
  const auto family_of = [](const char* jinja) {
    const auto chat = ChatTemplate::Parse(absl::StrCat("{{ tools }}", jinja), "", "");
    return ToolFormat::Of(*chat).family;
  };
  EXPECT_EQ(family_of("{{ '<tool_call>' }}{{ 'ipython' }}"), Family::kHermes);
  EXPECT_EQ(family_of("{{ '[TOOL_CALLS]' }}"), Family::kList);
  EXPECT_EQ(family_of("{{ '<|python_tag|>{\"parameters\": ' }}"), Family::kLlama3);
  EXPECT_EQ(family_of(""), Family::kHermes);
  EXPECT_EQ(family_of("{{ '<tool_call>f<arg_key>a</arg_key>' }}"), Family::kGlm);
  EXPECT_EQ(family_of("{{ '<tool_call><function=f><parameter=a>' }}"), Family::kQwenXml);
  EXPECT_EQ(family_of("{{ '[TOOL_CALLS]f[ARGS]{}' }}"), Family::kMistralNamed);
  const auto with_ids =
      ChatTemplate::Parse("{{ tools }}{{ '[TOOL_CALLS]f[CALL_ID]i[ARGS]' }}", "", "");
  EXPECT_TRUE(ToolFormat::Of(*with_ids).has_call_ids);
  const auto without_place = ChatTemplate::Parse("{{ '[TOOL_CALLS]' }}", "", "");
  EXPECT_TRUE(ToolFormat::Of(*without_place).may_lack_markers);
  EXPECT_EQ(ToolFormat::Of(*without_place).family, Family::kHermes);
}

}  // namespace
}  // namespace tandem
