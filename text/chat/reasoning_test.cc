// Tests of separating reasoning from the rest of an answer.
#include "tandem/reasoning.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/detokenizer.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

using Start = ReasoningStart;

// Returns "reasoning|content" of a text that is pushed in pieces.
std::string PartsOf(Start start, const std::vector<std::string>& pieces) {
  ReasoningSplitter splitter({.start = start});
  AnswerDelta all;
  for (const std::string& piece : pieces) all.Append(splitter.Push(piece));
  all.Append(splitter.Finish());
  EXPECT_TRUE(splitter.has_reasoned() || all.reasoning.empty());
  return absl::StrCat(all.reasoning, "|", all.content);
}

struct SplitCase {
  Start start;
  std::string text;
  std::string parts;
};

const std::vector<SplitCase>& SplitCases() {
  static const auto* const cases = new std::vector<SplitCase>{
      {Start::kMayBegin, "", "|"},
      {Start::kMayBegin, "Hi <think> there", "|Hi <think> there"},
      {Start::kMayBegin, "  Hi\n", "|  Hi\n"},
      {Start::kMayBegin, "<think>\nSo: a <b </thin>.\n</think>\n\nHi \n",
       "So: a <b </thin>.|Hi \n"},
      {Start::kMayBegin, "\n<think>\n\n</think>\n\nHi", "|Hi"},
      {Start::kMayBegin, "<think>a</think>b</think>c", "a|b</think>c"},
      {Start::kMayBegin, "<think>a <think> b</think>", "a <think> b|"},
      {Start::kMayBegin, "<think>cut \n off \n", "cut \n off|"},
      {Start::kMayBegin, "<think>cut</thi", "cut</thi|"},
      {Start::kMayBegin, "<thin", "|<thin"},
      {Start::kMayBegin, " <thinking> is", "| <thinking> is"},
      {Start::kMayBegin, "</think>Hi", "|</think>Hi"},
      {Start::kInside, "", "|"},
      {Start::kInside, "\nSo.\n</think>\n\nHi", "So.|Hi"},
      {Start::kInside, "<think>\nSo.\n</think>Hi", "So.|Hi"},
      {Start::kInside, "</think>Hi", "|Hi"},
      {Start::kInside, "all of it ", "all of it|"},
      {Start::kInside, "<thi", "<thi|"},
      {Start::kInside, "<<think>", "<<think>|"},
      {Start::kContinues, " so.</think> Hi", " so.|Hi"},
      {Start::kContinues, " <think>", " <think>|"},
      {Start::kNone, "<think>a</think>b", "|<think>a</think>b"},
  };
  return *cases;
}

TEST(Reasoning, IsSeparatedFromContent) {
  for (const SplitCase& c : SplitCases()) EXPECT_EQ(PartsOf(c.start, {c.text}), c.parts) << c.text;
}

TEST(Reasoning, DoesNotDependOnHowTheTextIsCut) {
  for (const SplitCase& c : SplitCases()) {
    for (size_t i = 0; i <= c.text.size(); ++i) {
      for (size_t j = i; j <= c.text.size(); ++j) {
        EXPECT_EQ(
            PartsOf(c.start, {c.text.substr(0, i), c.text.substr(i, j - i), c.text.substr(j)}),
            c.parts)
            << c.text << " cut at " << i << " and " << j;
      }
    }
  }
}

TEST(Reasoning, IsStreamed) {
  ReasoningSplitter splitter({});
  EXPECT_TRUE(splitter.Push("<think>").empty());
  EXPECT_EQ(splitter.Push("\nSo a").reasoning, "So a");
  EXPECT_EQ(splitter.Push(" <").reasoning, "");
  EXPECT_EQ(splitter.Push("/b").reasoning, " </b");
  EXPECT_FALSE(splitter.is_over());
  EXPECT_TRUE(splitter.Push("</think>\n").empty());
  EXPECT_TRUE(splitter.is_over());
  EXPECT_EQ(splitter.Push("\nHi ").content, "Hi ");
}

TEST(Reasoning, TokensAreCounted) {
  const auto words = Tokenizer::Load(SourcePath("models/storyteller-7m"));
  const auto tokens = [&](const std::string& text) {
    return *(*words)->Encode(text, SpecialTokens::kPlain);
  };
  const auto count = [&](Start start, const std::string& text) {
    const auto detokenizer = Detokenizer::New(words->get(), {}, /*skip_special=*/true);
    return CountReasoningTokens({.start = start}, detokenizer.get(), tokens(text));
  };
  const std::string thoughts = "<think>\nOnce upon a time.\n</think>";
  const auto size = static_cast<int64_t>(tokens(thoughts).size());
  EXPECT_EQ(tokens(thoughts + " there was").size(), size + 2);
  EXPECT_EQ(count(Start::kMayBegin, thoughts + " there was"), size);
  EXPECT_EQ(count(Start::kMayBegin, "Once upon a time"), 0);
  EXPECT_EQ(count(Start::kInside, "Once upon"), static_cast<int64_t>(tokens("Once upon").size()));
  EXPECT_EQ(count(Start::kNone, thoughts), 0);
}

}  // namespace
}  // namespace tandem
