#include "tandem/detokenizer.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

using Json = SortedJson;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json Special(const std::string& content, int id) {
  return {{"id", id},        {"content", content},   {"special", true},    {"lstrip", false},
          {"rstrip", false}, {"single_word", false}, {"normalized", false}};
}

// A tokenizer of the given tokens, numbered from 0, followed by <s>.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeWithTokens(const std::vector<std::string>& tokens,
                                                          const std::string& decoder) {
  Json vocabulary = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  const Json file = {
      {"decoder", Json::parse(decoder)},
      {"added_tokens", Json::array({Special("<s>", static_cast<int>(tokens.size()))})},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  return Tokenizer::Parse(file.dump(), "", "tokenizer.json");
}

struct Stream {
  std::vector<TokenId> context;
  std::vector<TokenId> ids;
  bool skip_special = false;
  std::vector<TokenId> shown = {};
};

// Returns the pieces and, last, the output of Flush.
std::vector<std::string> Pieces(const std::vector<std::string>& tokens, const std::string& decoder,
                                const Stream& stream) {
  const auto tokenizer = MakeWithTokens(tokens, decoder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return {};
  const auto detokenizer =
      Detokenizer::New(tokenizer->get(), stream.context, stream.skip_special, stream.shown);
  std::vector<std::string> pieces;
  for (const TokenId id : stream.ids) pieces.push_back(detokenizer->Push(id));
  pieces.push_back(detokenizer->Flush());
  EXPECT_EQ(detokenizer->Flush(), "");
  return pieces;
}

constexpr char kLlama[] = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Detokenizer, JoinsTokensWithSpacesWithoutADecoder) {
  EXPECT_THAT(Pieces({"a", "b"}, "null", {.context = {}, .ids = {0, 1, 2, 7, 1}}),
              ElementsAre("a", " b", " <s>", "", " b", ""));
  EXPECT_THAT(Pieces({"a", "b"}, "null", {.context = {0}, .ids = {1}}), ElementsAre(" b", ""));
  EXPECT_THAT(Pieces({"a", "b"}, "null", {.context = {}, .ids = {2, 0}, .skip_special = true}),
              ElementsAre("", "a", ""));
  EXPECT_THAT(Pieces({"a", "b"}, "null",
                     {.context = {}, .ids = {0, 2, 1}, .skip_special = true, .shown = {2}}),
              ElementsAre("a", " <s>", " b", ""));
}

TEST(Detokenizer, ByteLevelKeepsTokensOutsideTheAlphabet) {
  EXPECT_THAT(Pieces({"\u0120a", "\u4e2d", "\u00c3", "\u00a9"}, R"({"type": "ByteLevel"})",
                     {.context = {}, .ids = {0, 1, 2, 3, 2, 0}}),
              ElementsAre(" a", "\u4e2d", "", "\u00e9", "", "\ufffd a", ""));
}

TEST(Detokenizer, DecodesLlamaStyle) {
  const std::vector<std::string> tokens = {"_a", "_", "<0xC3>", "<0xA9>", "b"};
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {0, 1, 2, 3, 0}}),
              ElementsAre("a", " ", "", "\u00e9", " a", ""));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {4}, .ids = {0}}), ElementsAre(" a", ""));
  // Only one space is removed, and only at the very beginning.
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {1, 1, 4, 1}}),
              ElementsAre("", " ", "b", " ", ""));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {4, 0}}), ElementsAre("b", " a", ""));
  // A skipped special token does not begin the text; one that is written does.
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {5}, .ids = {0}, .skip_special = true}),
              ElementsAre("a", ""));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {5}, .ids = {0}}), ElementsAre(" a", ""));
}

TEST(Detokenizer, InvalidByteTokensAreReplacedOneByOne) {
  const std::vector<std::string> tokens = {"<0xE4>", "<0xBB>", "<0xC3>", "b", "<0x41>"};
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {0, 1}}),
              ElementsAre("", "", "\ufffd\ufffd"));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {0, 1, 3}}), ElementsAre("", "",
                                                                                     "\ufffd\ufffd"
                                                                                     "b",
                                                                                     ""));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {}, .ids = {0, 1, 4, 1}}),
              ElementsAre("", "",
                          "\ufffd\ufffd"
                          "A",
                          "\ufffd", ""));
  EXPECT_THAT(Pieces(tokens, kLlama, {.context = {0}, .ids = {2}}),
              ElementsAre("\ufffd", "\ufffd"));
}

TEST(Detokenizer, MetaspaceRemovesSpacesOfTheFirstToken) {
  const std::vector<std::string> tokens = {"__a_b", "__c"};
  EXPECT_THAT(Pieces(tokens, R"({"type": "Metaspace", "replacement": "_"})",
                     {.context = {}, .ids = {0, 1, 0}}),
              ElementsAre("ab", "  c", "  a b", ""));
  EXPECT_THAT(
      Pieces(tokens, R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})",
             {.context = {}, .ids = {0, 1}}),
      ElementsAre("  a b", "  c", ""));
}

TEST(Detokenizer, StripBeforeFuseAppliesToEachToken) {
  EXPECT_THAT(Pieces({"xxaxx", "x"}, R"({"type": "Strip", "content": "x", "start": 1, "stop": 3})",
                     {.context = {}, .ids = {0, 1, 0}}),
              ElementsAre("xa", "", "xa", ""));
}

TEST(Detokenizer, ReplaceSupportsExpressions) {
  EXPECT_THAT(Pieces({"a12b3", "\u00bd"},
                     R"({"type": "Replace", "pattern": {"Regex": "\\d+"}, "content": "#"})",
                     {.context = {}, .ids = {0, 1}}),
              ElementsAre("a#b#", "\u00bd", ""));
}

TEST(Detokenizer, RefusesDecodersThatCannotStream) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "WordPiece"})", "WordPiece"},
      {R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})",
       "decoders[1].type"},
      {R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "ByteFallback"}]})",
       "decoders[1].type"},
      {R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
       "decoders[1].type"},
      {R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 1}]})",
       "decoders[1].stop"},
      {R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0},
          {"type": "Strip", "content": "b", "start": 1, "stop": 0}]})",
       "decoders[2]"},
      {R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})", "content"},
      {R"({"type": "Strip", "content": "a", "start": -1, "stop": 0})", "start"},
      {R"({"type": "Metaspace"})", "replacement"},
      {R"({"type": "Replace", "pattern": {"String": "a"}})", "content"},
      {"true", "decoder"}};
  for (const auto& [decoder, field] : cases) {
    const auto tokenizer = MakeWithTokens({"a"}, decoder);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << decoder;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(field)) << decoder;
  }
}

// For random ids, known and unknown, cut anywhere: the text of the context and the pieces together
// are the decoding of all ids, which is always UTF-8.
void ExpectPiecesJoinToDecode(const Tokenizer& tokenizer, uint32_t seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids(random() % 20);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % (tokenizer.vocab_size() + 2)) - 1;
    const bool skip_special = random() % 2 == 0;
    const size_t cut = random() % (ids.size() + 1);
    const std::string whole = tokenizer.Decode(ids, skip_special);
    const absl::Span<const TokenId> context = absl::MakeSpan(ids).subspan(0, cut);
    const auto first = Detokenizer::New(&tokenizer, {}, skip_special);
    std::string joined;
    for (const TokenId id : context) joined += first->Push(id);
    const auto second = Detokenizer::New(&tokenizer, context, skip_special);
    const auto copy = second->Clone();
    for (Detokenizer* rest : {copy.get(), second.get()}) {
      std::string text = joined;
      for (const TokenId id : absl::MakeSpan(ids).subspan(cut)) text += rest->Push(id);
      text += rest->Flush();
      ASSERT_EQ(text, whole);
    }
    ASSERT_NO_FATAL_FAILURE(Json(whole).dump());  // throws if it is not UTF-8
  }
}

TEST(Detokenizer, PiecesJoinToDecodeForByteTokens) {
  std::vector<std::string> tokens = {"_", "_the", "a", "\u4e2d", "<0x", "__"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(absl::StrFormat("<0x%02X>", byte));
  const auto tokenizer = MakeWithTokens(tokens, kLlama).value();
  ExpectPiecesJoinToDecode(*tokenizer, 3);
}

TEST(Detokenizer, PiecesJoinToDecodeForByteLevel) {
  for (const char* path : {"/tests/data/tokenizers/llama3-small", "/models/storyteller-7m"}) {
    const auto tokenizer = Tokenizer::Load(absl::StrCat(SourcePath(""), path)).value();
    ExpectPiecesJoinToDecode(*tokenizer, 4);
  }
}

TEST(Detokenizer, PiecesJoinToDecodeWithoutDecoderAndForMetaspace) {
  for (const char* decoder : {"null", R"({"type": "Metaspace", "replacement": "_"})"}) {
    const auto tokenizer = MakeWithTokens({"a", "_", "_b", "\u4e2d"}, decoder).value();
    ExpectPiecesJoinToDecode(*tokenizer, 5);
  }
}

}  // namespace
}  // namespace tandem
