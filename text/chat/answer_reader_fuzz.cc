// Fuzzes AnswerReader: reads any text as an answer with reasoning and tool calls, in every format
// of tool calls. The result must not depend on how the text is cut into pieces. Without a call, no
// text is lost or invented. Calls name known functions only, and their arguments begin a JSON
// object.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "tandem/answer_reader.h"

namespace tandem {
namespace {

using Family = ToolFormat::Family;

constexpr std::array kFamilies = {Family::kHermes,       Family::kLlama3,  Family::kList,
                                  Family::kMistralNamed, Family::kQwenXml, Family::kGlm,
                                  Family::kDeepSeek};

// The pieces that the formats are made of. A byte below 32 stands for the piece with that index.
constexpr std::array<std::string_view, 32> kParts = {"<think>",
                                                     "</think>",
                                                     "<tool_call>",
                                                     "</tool_call>",
                                                     "<|python_tag|>",
                                                     "[TOOL_CALLS]",
                                                     "[ARGS]",
                                                     "[CALL_ID]",
                                                     "<function=",
                                                     "<function=f>",
                                                     "<parameter=s>",
                                                     "<parameter=n>",
                                                     "\n</parameter>",
                                                     "</parameter>",
                                                     "</function>",
                                                     "{\"name\": \"f\", ",
                                                     "\"arguments\": ",
                                                     "\"parameters\": ",
                                                     "{\"a\": [1, {}]}",
                                                     "{}",
                                                     "}",
                                                     "]",
                                                     "<arg_key>",
                                                     "</arg_key>",
                                                     ", ",
                                                     "<arg_value>",
                                                     "</arg_value>",
                                                     "\n",
                                                     "\"",
                                                     "\\",
                                                     "\xC3\xA9",
                                                     "</"};

std::string TextOf(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < kParts.size()) {
      text += kParts[value];
    } else {
      text += static_cast<char>(value & 0x7F);
    }
  }
  return text;
}

AnswerDelta Read(const AnswerReader::Options& options,
                 const std::vector<std::string_view>& pieces) {
  AnswerReader reader(options);
  AnswerDelta all;
  int num_begun = 0;
  for (const std::string_view piece : pieces) {
    const AnswerDelta delta = reader.Push(piece);
    for (const AnswerDelta::Call& call : delta.calls) {
      num_begun += !call.name.empty();
      TANDEM_CHECK(call.index == num_begun - 1);
    }
    all.Append(delta);
  }
  all.Append(reader.Finish());
  TANDEM_CHECK(reader.num_calls() == static_cast<int>(all.calls.size()));
  return all;
}

void CheckSame(const AnswerDelta& a, const AnswerDelta& b) {
  TANDEM_CHECK(a.reasoning == b.reasoning && a.content == b.content);
  TANDEM_CHECK(a.calls.size() == b.calls.size());
  for (size_t i = 0; i < a.calls.size(); ++i) {
    TANDEM_CHECK(a.calls[i].name == b.calls[i].name);
    TANDEM_CHECK(a.calls[i].arguments == b.calls[i].arguments);
  }
}

void FuzzOne(std::string_view bytes) {
  if (bytes.size() < 3) return;
  const auto bits = static_cast<unsigned char>(bytes[0]);
  const size_t first = static_cast<unsigned char>(bytes[1]);
  const size_t second = static_cast<unsigned char>(bytes[2]);
  const std::string text = TextOf(bytes.substr(3));
  AnswerReader::Options options;
  const auto start = static_cast<ReasoningStart>(bits % 4);
  options.reasoning = {.splitter = {.start = start}, .is_streamed = (bits & 4) != 0};
  if ((bits & 8) != 0) {
    options.tools = {.format = ToolFormat::Of(kFamilies[(bits >> 4) % kFamilies.size()]),
                     .functions = {{"f",
                                    {{"s", JsonTypes(JsonTypes::kString)},
                                     {"n", JsonTypes(JsonTypes::kNumber)}}},
                                   {"g"}},
                     .must_call = (bits & 128) != 0,
                     .parallel = (first & 1) != 0};
  }
  const AnswerDelta whole = Read(options, {text});
  const std::string_view view = text;
  const size_t at = view.empty() ? 0 : first % view.size();
  const size_t until = at + (at == view.size() ? 0 : second % (view.size() - at));
  CheckSame(whole,
            Read(options, {view.substr(0, at), view.substr(at, until - at), view.substr(until)}));
  std::vector<std::string_view> single;
  for (size_t i = 0; i < view.size(); ++i) single.push_back(view.substr(i, 1));
  CheckSame(whole, Read(options, single));
  for (const AnswerDelta::Call& call : whole.calls) {
    TANDEM_CHECK(call.name == "f" || call.name == "g");
    TANDEM_CHECK(call.arguments.empty() || call.arguments.front() == '{');
  }
  TANDEM_CHECK(absl::StrContains(text, whole.reasoning));
  if (whole.calls.empty()) TANDEM_CHECK(absl::EndsWith(text, whole.content));
  if (start == ReasoningStart::kNone && whole.calls.empty()) TANDEM_CHECK(whole.content == text);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
