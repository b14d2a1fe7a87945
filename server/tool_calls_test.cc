#include "server/tool_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Family = ToolFormat::Family;

ToolFormat FormatOf(Family family) {
  switch (family) {
    case Family::kLlama3:
      return {.family = family, .begin = "<|python_tag|>", .end = "", .arguments = "parameters"};
    case Family::kMistral:
      return {.family = family, .begin = "[TOOL_CALLS]", .end = ""};
    default:
      return {};
  }
}

// "content|f({...})g({...})" of a text in pieces.
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
  return {.format = FormatOf(c.family),
          .names = {"f", "g"},
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
      {Family::kHermes, "<tool_call>" + f + "</tool_call>\n Done. ", "\n Done.|" + f_called},
      {Family::kHermes, "<tool_call>" + f + "</tool_ca", "|" + f_called},
      {Family::kHermes, "<tool_call>" + f + " more", " more|" + f_called},
      {Family::kHermes, R"(<tool_call>{"name": "f"}</tool_call>)", "|f({})"},
      {Family::kHermes, R"(<tool_call>{"name": "\u0066", "id": 1, "x": "}", "arguments": {"a)",
       R"(|f({"a))"},
      // No calls.
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
      // What goes wrong behind a call's beginning ends it.
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
      {Family::kMistral, "[TOOL_CALLS] [" + f + ", " + g + "]", "|" + f_called + "g({})"},
      {Family::kMistral, "[TOOL_CALLS]" + g, "|g({})"},
      {Family::kMistral, "Hm. [TOOL_CALLS][" + g + ",", "Hm.|g({})"},
      {Family::kMistral, "[" + g + "]", "[" + g + "]|"},
      {Family::kMistral, "[" + g + "]", "|g({})", /*must_call=*/true},
      {Family::kMistral, "[[TOOL_CALLS][" + g + "]", "[|g({})"},
      {Family::kMistral, "[TOOL_CALLS] [1]", "[TOOL_CALLS] [1]|"},
  };
}

TEST(ToolCalls, AreTakenOutOfTexts) {
  for (const ToolCase& c : ToolCases()) {
    EXPECT_EQ(AnswerOf(OptionsOf(c), {c.text}), c.answer) << c.text;
  }
}

TEST(ToolCalls, AreTheSameHoweverTheTextIsCut) {
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

// Whoever reads the stream sees a long argument grow.
TEST(ToolCalls, ArgumentsAreLetOutAsTheyCome) {
  ToolCallParser parser({.names = {"f"}});
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

TEST(ToolCalls, FormatsAreThoseOfTemplates) {
  const auto family_of = [](const char* jinja) {
    const auto chat = ChatTemplate::Parse(jinja, "", "");
    return ToolFormat::Of(*chat).family;
  };
  EXPECT_EQ(family_of("{{ '<tool_call>' }}{{ 'ipython' }}"), Family::kHermes);
  EXPECT_EQ(family_of("{{ '[TOOL_CALLS]' }}"), Family::kMistral);
  EXPECT_EQ(family_of("{{ '<|python_tag|>{\"parameters\": ' }}"), Family::kLlama3);
  EXPECT_EQ(family_of("{{ tools }}"), Family::kHermes);
}

}  // namespace
}  // namespace tandem
