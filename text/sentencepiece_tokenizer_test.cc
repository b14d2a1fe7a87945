#include "text/sentencepiece_tokenizer.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/golden_lines.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = SortedJson;
using Ids = std::vector<TokenId>;

struct GoldenPieces {
  const char* name;
  const char* model;
  const char* lines;
};

// Models with the ids that SentencePiece's library gives: tests/data/README.md.
class GoldenSentencePiece : public testing::TestWithParam<GoldenPieces> {};

TEST_P(GoldenSentencePiece, EncodesEveryLineLikeItsLibrary) {
  const std::string root = SourcePath("") + "/";
  if (!fs::exists(root + GetParam().lines)) {
    GTEST_SKIP() << GetParam().name << " is not next to this checkout";
  }
  const auto tokenizer = Tokenizer::Load(root + GetParam().model).value();
  const std::vector<Json> lines = ReadGoldenLines(root + GetParam().lines);
  EXPECT_GT(lines.size(), 50u);
  for (const Json& line : lines) {
    SCOPED_TRACE(line.dump().substr(0, 300));
    const auto ids =
        tokenizer->Encode(line["text"].get<std::string>(), SpecialTokens::kPlain).value();
    EXPECT_EQ(ids, line["ids"].get<Ids>());
    if (line.contains("decoded")) {
      EXPECT_EQ(tokenizer->Decode(ids), line["decoded"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenSentencePiece,
    testing::Values(GoldenPieces{"plain", "tests/data/sentencepiece/plain.model",
                                 "tests/data/sentencepiece/plain.jsonl"},
                    GoldenPieces{"ties", "tests/data/sentencepiece/ties.model",
                                 "tests/data/sentencepiece/ties.jsonl"},
                    GoldenPieces{"ties_bytes", "tests/data/sentencepiece/ties-bytes.model",
                                 "tests/data/sentencepiece/ties-bytes.jsonl"},
                    GoldenPieces{"tok512", "../shared/golden/tokenizers/tok512-spm/tokenizer.model",
                                 "../shared/golden/tokenizers/tok512-spm/encode.jsonl"}),
    [](const auto& info) { return info.param.name; });

// Writes fields of a message in the wire format of protocol buffers.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string WireInteger(int number, uint64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) + Varint(value);
}
std::string WireBytes(int number, const std::string& value) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(value.size()) + value;
}

std::string Piece(const std::string& piece, TokenKind kind = TokenKind::kNormal) {
  return WireBytes(1, WireBytes(1, piece) + WireInteger(3, static_cast<uint64_t>(kind)));
}

// The pieces <unk>, <s>, </s>, the space, a, b.
std::string SmallPieces() {
  return Piece("<unk>", TokenKind::kUnknown) + Piece("<s>", TokenKind::kControl) +
         Piece("</s>", TokenKind::kControl) + Piece("\u2581") + Piece("a") + Piece("b");
}
std::string Trainer(const std::string& fields = "") {
  return WireBytes(2, WireInteger(3, 2) + fields);
}
std::string Spaces(const std::string& fields = "") {
  return WireBytes(3, WireInteger(4, 0) + fields);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParsePieces(const std::string& model,
                                                       const std::string& config = "") {
  return ParseSentencePieceTokenizer(model, config, "tokenizer.model");
}

TEST(SentencePieceTokenizer, NamesUnimplementedFields) {
  const auto message = [](const std::string& model) {
    return std::string(ParsePieces(model).status().message());
  };
  EXPECT_EQ(message(SmallPieces()),
            "tokenizer.model: trainer_spec.model_type: UNIGRAM is not implemented, allowed: BPE");
  EXPECT_EQ(message(SmallPieces() + WireBytes(2, WireInteger(3, 4))),
            "tokenizer.model: trainer_spec.model_type: CHAR is not implemented, allowed: BPE");
  EXPECT_EQ(message(SmallPieces() + Trainer(WireInteger(24, 1))),
            "tokenizer.model: trainer_spec.treat_whitespace_as_suffix: true is not implemented, "
            "allowed: false");
  EXPECT_EQ(message(SmallPieces() + Trainer() + Spaces(WireBytes(2, "map"))),
            "tokenizer.model: normalizer_spec.precompiled_charsmap: one of 3 bytes is not "
            "implemented, allowed: none (normalization_rule_name identity)");
  EXPECT_EQ(message(SmallPieces() + Trainer() + Spaces(WireInteger(5, 0))),
            "tokenizer.model: normalizer_spec.escape_whitespaces: false is not implemented, "
            "allowed: true");
  EXPECT_EQ(message(SmallPieces() + Piece("c", TokenKind::kUnused) + Trainer()),
            "tokenizer.model: pieces[6]: type: 5 is not implemented, allowed: 1, 2, 3, 4, 6");
}

TEST(SentencePieceTokenizer, NamesDamagedFields) {
  const auto message = [](const std::string& model) {
    return std::string(ParsePieces(model).status().message());
  };
  EXPECT_EQ(message(""), "tokenizer.model: has no pieces, allowed: a SentencePiece model");
  EXPECT_EQ(message(SmallPieces() + Piece("a") + Trainer()),
            "tokenizer.model: pieces[6]: \"a\" is token 4 already");
  EXPECT_EQ(message(SmallPieces() + Piece("") + Trainer()), "tokenizer.model: pieces[6]: is empty");
  EXPECT_EQ(message("\x0A\x7F"),
            "tokenizer.model: found a field of 127 bytes before byte 2 of 2, allowed: a "
            "SentencePiece model");
  EXPECT_EQ(message("\x0B"),
            "tokenizer.model: found a field of type 3, allowed: 0, 1, 2, 5 before byte 1 of 1, "
            "allowed: a SentencePiece model");
  EXPECT_EQ(message("\xFF"),
            "tokenizer.model: found a number without an end before byte 1 of 1, allowed: a "
            "SentencePiece model");
  EXPECT_EQ(message(WireInteger(1, 3)),
            "tokenizer.model: found field 1 of type 0 before byte 2 of 2, allowed: a SentencePiece "
            "model");
  EXPECT_NE(
      message(WireBytes(1, WireBytes(2, "1234"))).find("tokenizer.model: pieces[0]: found field 2"),
      std::string::npos);
  // A truncated file is refused or read, and never read past its end.
  const std::string whole = SmallPieces() + Trainer() + Spaces();
  ASSERT_TRUE(ParsePieces(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) (void)ParsePieces(whole.substr(0, size));
}

TEST(SentencePieceTokenizer, PutsTheTokensOfItsConfigAroundAText) {
  const auto around = [](const std::string& trainer, const std::string& config) {
    const auto tokenizer = ParsePieces(SmallPieces() + Trainer(trainer) + Spaces(), config);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->WithTemplate({4}) : Ids{};
  };
  EXPECT_EQ(around("", ""), (Ids{1, 4}));
  EXPECT_EQ(around(WireInteger(41, 2), ""), (Ids{2, 4}));
  EXPECT_EQ(around(WireInteger(41, ~uint64_t{0}), ""), (Ids{4}));
  EXPECT_EQ(around("", "{}"), (Ids{1, 4}));
  EXPECT_EQ(around("", R"({"add_bos_token": false, "add_eos_token": true})"), (Ids{4, 2}));
  EXPECT_EQ(around("", R"({"bos_token": {"content": "b"}})"), (Ids{5, 4}));
  EXPECT_FALSE(ParsePieces(SmallPieces() + Trainer(), R"({"bos_token": "<bos>"})").ok());
}

TEST(SentencePieceTokenizer, NamesACharacterWithoutATokenOrUnknownToken) {
  const auto tokenizer =
      ParsePieces(Piece("\u2581") + Piece("ab") + Trainer(WireInteger(41, ~uint64_t{0}))).value();
  EXPECT_EQ(*tokenizer->Encode("ab", SpecialTokens::kPlain), (Ids{0, 1}));
  for (const char* text : {"a", "z"}) {
    EXPECT_EQ(
        tokenizer->Encode(text, SpecialTokens::kPlain).status().message(),
        absl::StrCat("text: \"", text, "\" has no token, and the vocabulary has no unknown token"));
  }
}

TEST(SentencePieceTokenizer, AddsTheTokensOfItsConfig) {
  const std::string model = SmallPieces() + Trainer() + Spaces(WireInteger(3, 0));
  const auto tokenizer = ParsePieces(model, R"({"added_tokens_decoder": {
      "1": {"content": "<s>", "special": true, "rstrip": true},
      "6": {"content": "<x>", "special": true}, "8": {"content": "a b", "special": false}}})")
                             .value();
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(*tokenizer->Encode("<s> a<x>a ba", SpecialTokens::kParse), (Ids{1, 4, 6, 8, 4}));
  EXPECT_EQ(tokenizer->Decode({4, 6, 8, 3, 5}), "a<x>a b b");
  const auto message = [&](const std::string& entries) {
    const auto other =
        ParsePieces(model, absl::StrCat("{\"added_tokens_decoder\": {", entries, "}}"));
    return std::string(other.status().message());
  };
  EXPECT_NE(message(R"("4": {"content": "c"})").find("is not the piece of that id, \"a\""),
            std::string::npos);
  EXPECT_NE(message(R"("7": {"content": "a"})").find("has content that is token 4 already"),
            std::string::npos);
  EXPECT_NE(message(R"("x": {"content": "c"})").find("has a key that is not an id from 0 to "),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
