#include "text/pre_tokenizer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<PreTokenizer> MakePreTokenizer(const std::string& text) {
  const Json json = Json::parse(text);
  return PreTokenizer::FromJson(JsonField(&json, "pre_tokenizer"));
}

std::vector<std::string> Split(const std::string& pre_tokenizer, const std::string& text,
                               bool is_first = true) {
  const auto made = MakePreTokenizer(pre_tokenizer);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return {};
  std::vector<std::string> texts;
  const absl::Status status =
      made->ForEach({.text = text, .is_first = is_first}, [&](const PreTokenizer::Piece& piece) {
        texts.push_back(piece.text);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return texts;
}

std::vector<std::string> SplitAtHyphens(const std::string& behaviour, bool invert) {
  return Split(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behaviour +
                   R"(", "invert": )" + (invert ? "true}" : "false}"),
               "the-final--countdown");
}

// The pieces of a text never exist all at once.
TEST(PreTokenizer, YieldsEachPieceBeforeCuttingTheNext) {
  const auto made =
      MakePreTokenizer(
          R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
          {"type": "ByteLevel", "add_prefix_space": false}]})")
          .value();
  int num_given = 0;
  const absl::Status status =
      made.ForEach({.text = std::string(1'000'000, '1')}, [&](const PreTokenizer::Piece& piece) {
        EXPECT_EQ(piece.text, "1");
        return ++num_given == 3 ? absl::CancelledError("enough") : absl::OkStatus();
      });
  EXPECT_EQ(status, absl::CancelledError("enough"));
  EXPECT_EQ(num_given, 3);
}

TEST(PreTokenizer, NullLeavesTheTextWhole) {
  EXPECT_THAT(Split("null", "a b"), ElementsAre("a b"));
  EXPECT_THAT(Split("null", ""), IsEmpty());
}

// Examples from the reference's documentation of these behaviours.
TEST(PreTokenizer, SplitBehaviours) {
  EXPECT_THAT(SplitAtHyphens("Removed", false), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(SplitAtHyphens("Isolated", false),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(SplitAtHyphens("MergedWithPrevious", false),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(SplitAtHyphens("MergedWithNext", false),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(SplitAtHyphens("Contiguous", false),
              ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(SplitAtHyphens("Removed", true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(SplitAtHyphens("MergedWithPrevious", true),
              ElementsAre("the", "-final", "-", "-countdown"));
}

TEST(PreTokenizer, ByteLevel) {
  EXPECT_THAT(Split(R"({"type": "ByteLevel", "add_prefix_space": false})", "it's 12 \u00e9  !?"),
              ElementsAre("it", "'s", "\u012012", "\u0120\u00c3\u00a9", "\u0120", "\u0120!?"));
  EXPECT_THAT(
      Split(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", "a b"),
      ElementsAre("\u0120a\u0120b"));
  EXPECT_THAT(Split(R"({"type": "ByteLevel", "add_prefix_space": true})", " a"),
              ElementsAre("\u0120a"));
}

TEST(PreTokenizer, Metaspace) {
  const std::string always = R"({"type": "Metaspace", "replacement": "_"})";
  EXPECT_THAT(Split(always, "a  b"), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(Split(always, "a", /*is_first=*/false), ElementsAre("_a"));
  EXPECT_THAT(Split(always, "_a"), ElementsAre("_a"));
  const std::string first =
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": false})";
  EXPECT_THAT(Split(first, "a b"), ElementsAre("_a_b"));
  EXPECT_THAT(Split(first, "a b", /*is_first=*/false), ElementsAre("a_b"));
  EXPECT_THAT(
      Split(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})", "a b"),
      ElementsAre("a", "_b"));
  EXPECT_THAT(Split(R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})", "a"),
              ElementsAre("a"));
}

TEST(PreTokenizer, OnlyThePieceAtTheStartIsFirst) {
  EXPECT_THAT(Split(R"({"type": "Sequence", "pretokenizers": [
                        {"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed"},
                        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
                    "-a-b"),
              ElementsAre("a", "b"));
}

TEST(PreTokenizer, SplitsByCharacterClasses) {
  EXPECT_THAT(Split(R"({"type": "Digits", "individual_digits": true})", "a12\u00bd b"),
              ElementsAre("a", "1", "2", "\u00bd", " b"));
  EXPECT_THAT(Split(R"({"type": "Digits", "individual_digits": false})", "a12\u00bd b"),
              ElementsAre("a", "12\u00bd", " b"));
  EXPECT_THAT(Split(R"({"type": "Whitespace"})", "  Hey, man!? e\u0301_1\u24b6\u3000b "),
              ElementsAre("Hey", ",", "man", "!?", "e\u0301_1\u24b6", "b"));
  EXPECT_THAT(Split(R"({"type": "WhitespaceSplit"})", " Hey, man!?\tb"),
              ElementsAre("Hey,", "man!?", "b"));
  EXPECT_THAT(Split(R"({"type": "Punctuation", "behavior": "Contiguous"})", "Hey!?\u3002 a$b"),
              ElementsAre("Hey", "!?\u3002", " a", "$", "b"));
  EXPECT_THAT(Split(R"({"type": "Punctuation"})", "a!?"), ElementsAre("a", "!", "?"));
  EXPECT_THAT(Split(R"({"type": "CharDelimiterSplit", "delimiter": "."})", "a..b."),
              ElementsAre("a", "b"));
}

TEST(PreTokenizer, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "UnicodeScripts"})", "UnicodeScripts"},
      {"3", "object"},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "isolated"})", "behavior"},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": 0})",
       "invert"},
      {R"({"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Removed"})",
       "pattern.Regex"},
      {R"({"type": "ByteLevel"})", "add_prefix_space"},
      {R"({"type": "Metaspace", "replacement": "ab"})", "replacement"},
      {R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})", "prepend_scheme"},
      {R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
           "add_prefix_space": false})",
       "add_prefix_space"},
      {R"({"type": "Digits", "individual_digits": 1})", "individual_digits"},
      {R"({"type": "CharDelimiterSplit", "delimiter": ""})", "delimiter"},
      {R"({"type": "Sequence", "pretokenizers": [{"type": "Bert"}]})", "pretokenizers[0].type"}};
  for (const auto& [json, field] : cases) {
    const auto pre_tokenizer = MakePreTokenizer(json);
    EXPECT_EQ(pre_tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(pre_tokenizer.status().message(), HasSubstr(field)) << json;
  }
}

}  // namespace
}  // namespace tandem
