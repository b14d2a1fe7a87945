#include "text/gguf_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/source_path_testing.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/gguf_builder.h"
#include "tests/golden_lines.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = SortedJson;

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGguf(const std::string& bytes) {
  const absl::Span<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()),
                                         bytes.size());
  const auto file = GgufFile::Parse(span, "x.gguf");
  if (!file.ok()) return file.status();
  return ReadGgufTokenizer(**file);
}

std::string GgufMessage(const std::string& bytes) {
  return std::string(ReadGguf(bytes).status().message());
}

// Files with llama.cpp's encodings of texts. The vocabularies of third parties are not in the
// repository; their tests skip if the folder next to the checkout is missing.
class GoldenGgufTokenizer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const char* root : {"/tests/data/gguf/", "/../shared/golden/gguf/"}) {
      const std::string stem = absl::StrCat(SourcePath(""), root, "tokenizers/", GetParam());
      if (!fs::exists(stem + ".jsonl")) continue;
      lines_ = ReadGoldenLines(stem + ".jsonl");
      if (fs::exists(stem + ".gguf")) {
        tokenizer_ = *Tokenizer::Load(stem + ".gguf");
      } else if (const std::string bytes = ReadXz(stem + ".gguf.xz"); !bytes.empty()) {
        tokenizer_ = *ReadGguf(bytes);
      }
      if (tokenizer_ == nullptr) GTEST_SKIP() << "no xz on this machine";
      return;
    }
    GTEST_SKIP() << GetParam() << " is not next to this checkout";
  }
  std::vector<Json> lines_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GoldenGgufTokenizer, EncodesAndDecodesEveryLineAsLlamaCpp) {
  ASSERT_GT(lines_.size(), 40u);
  for (const Json& line : lines_) {
    SCOPED_TRACE(line.dump().substr(0, 300));
    const auto text = line["text"].get<std::string>();
    const auto parsed = line["parse"].get<std::vector<TokenId>>();
    EXPECT_EQ(*tokenizer_->Encode(text, SpecialTokens::kParse), parsed);
    EXPECT_EQ(*tokenizer_->Encode(text, SpecialTokens::kPlain),
              line["plain"].get<std::vector<TokenId>>());
    EXPECT_EQ(tokenizer_->WithTemplate(parsed), line["parse_add"].get<std::vector<TokenId>>());
    EXPECT_EQ(tokenizer_->Decode(parsed), line["decoded"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGgufTokenizer,
                         testing::Values("llama-bpe-small", "qwen2-small", "spm", "llama-bpe",
                                         "qwen2"),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"-", "_"}});
                         });

Json ReadCuts() {
  std::ifstream file(SourcePath("tests/data/gguf/tokenizers/cuts.json"));
  return Json::parse(file);
}

GgufBuilder CutsFile(const Json& cuts, const std::string& pre) {
  GgufBuilder file;
  file.Set("tokenizer.ggml.model", GgufString("gpt2"));
  file.Set("tokenizer.ggml.pre", GgufString(pre));
  file.Set("tokenizer.ggml.tokens", GgufStrings(cuts["tokens"]));
  file.Set("tokenizer.ggml.merges", GgufStrings(cuts["merges"]));
  file.Set("tokenizer.ggml.add_bos_token", GgufBool(false));
  return file;
}

// The vocabulary has merges across every border at which any of the pre-tokenizers cuts.
TEST(GgufTokenizer, CutsLikeTheReferenceForEveryPreTokenizer) {
  const Json cuts = ReadCuts();
  const std::pair<const char*, const char*> names[] = {
      {"llama-bpe", "llama-bpe"}, {"llama3", "llama-bpe"},       {"llama-v3", "llama-bpe"},
      {"qwen2", "qwen2"},         {"deepseek-r1-qwen", "qwen2"}, {"glm4", "llama-bpe"},
      {"dbrx", "dbrx"},           {"smaug-bpe", "dbrx"},         {"chatglm-bpe", "dbrx"},
      {"smollm", "smollm"},       {"refact", "smollm"},          {"starcoder", "smollm"},
      {"command-r", "command-r"}, {"gpt-4o", "gpt-4o"},          {"gpt-2", "gpt-2"},
      {"tekken", "tekken"},       {"default", "default"}};
  for (const auto& [name, reference] : names) {
    const auto tokenizer = ReadGguf(CutsFile(cuts, name).Bytes()).value();
    for (const Json& line : cuts["lines"]) {
      const auto text = line["text"].get<std::string>();
      EXPECT_EQ(*tokenizer->Encode(text, SpecialTokens::kParse),
                line["ids"][reference].get<std::vector<TokenId>>())
          << name << ": " << line["text"];
    }
  }
}

// A small byte-level vocabulary: letters, "ab" and "abc"; only "ab" has a merge.
GgufBuilder ByteLevelFile() {
  GgufBuilder file;
  file.Set("tokenizer.ggml.model", GgufString("gpt2"));
  file.Set("tokenizer.ggml.pre", GgufString("gpt-2"));
  file.Set("tokenizer.ggml.tokens",
           GgufStrings({"a", "b", "c", "ab", "abc", "\u0120", "<e>", "<\u00e9 >"}));
  file.Set("tokenizer.ggml.token_type",
           GgufArray(5, 8, GgufNumbers<int32_t>({1, 1, 1, 1, 1, 1, 3, 4})));
  file.Set("tokenizer.ggml.merges", GgufStrings({"a b"}));
  return file;
}

std::vector<TokenId> EncodeIn(const GgufBuilder& file, const std::string& text,
                              SpecialTokens special = SpecialTokens::kParse) {
  const auto tokenizer = ReadGguf(file.Bytes());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return {};
  return (*tokenizer)->Encode(text, special).value();
}

TEST(GgufTokenizer, IgnoreMergesKeepsPiecesThatAreTokens) {
  using Ids = std::vector<TokenId>;
  GgufBuilder file = ByteLevelFile();
  EXPECT_EQ(EncodeIn(file, "abc"), (Ids{3, 2}));
  file.Set("tokenizer.ggml.pre", GgufString("llama-bpe"));
  file.Set("tokenizer.ggml.add_bos_token", GgufBool(false));
  EXPECT_EQ(EncodeIn(file, "abc"), (Ids{4}));
}

TEST(GgufTokenizer, OrdinaryTextNeverBecomesAControlToken) {
  using Ids = std::vector<TokenId>;
  GgufBuilder file = ByteLevelFile();
  file.Set("tokenizer.ggml.tokens", GgufStrings({"a", "b", "c", "ab", "abc", "\u0120", "ac", "-"}));
  file.Set("tokenizer.ggml.merges", GgufStrings({"a b", "a c"}));
  file.Set("tokenizer.ggml.pre", GgufString("tekken"));
  file.Set("tokenizer.ggml.add_bos_token", GgufBool(false));
  EXPECT_EQ(EncodeIn(file, "ac"), (Ids{6}));
  EXPECT_EQ(EncodeIn(file, "ac", SpecialTokens::kPlain), (Ids{0, 2}));
}

TEST(GgufTokenizer, DecodesControlAndUserDefinedTokensVerbatim) {
  const auto tokenizer = ReadGguf(ByteLevelFile().Bytes()).value();
  EXPECT_EQ(tokenizer->Decode({0, 6, 7, 5, 1}), "a<e><\u00e9 > b");
  EXPECT_EQ(tokenizer->Decode({0, 6, 7, 5, 1}, /*skip_special=*/true), "a<\u00e9 > b");
  const auto ids = tokenizer->Encode("a<\u00e9 >b", SpecialTokens::kPlain).value();
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 7, 1}));
  EXPECT_EQ(tokenizer->IdOf("<\u00e9 >"), 7);
}

TEST(GgufTokenizer, TokensThatEndTurnsAreControlTokens) {
  GgufBuilder file = ByteLevelFile();
  file.Set("tokenizer.ggml.tokens",
           GgufStrings({"a", "b", "c", "ab", "abc", "\u0120", "<|im_end|>", "<|eot_id|>"}));
  file.Set("tokenizer.ggml.token_type",
           GgufArray(5, 8, GgufNumbers<int32_t>({1, 1, 1, 1, 1, 1, 1, 4})));
  const auto tokenizer = ReadGguf(file.Bytes()).value();
  EXPECT_TRUE(tokenizer->IsSpecial(6));
  EXPECT_TRUE(tokenizer->IsSpecial(7));
  EXPECT_EQ(EncodeIn(file, "a<|im_end|>"), (std::vector<TokenId>{0, 6}));
}

TEST(GgufTokenizer, PrependsASpaceToEachStretchByDefault) {
  using Ids = std::vector<TokenId>;
  GgufBuilder file = PiecesFile();
  EXPECT_EQ(EncodeIn(file, "a<s>ab"), (Ids{7, 1, 3, 6}));
  EXPECT_EQ(EncodeIn(file, "b  a"), (Ids{3, 5, 9, 7}));  // two spaces are user-defined
  EXPECT_EQ(EncodeIn(file, "z\nzz"), (Ids{3, 0, 8, 0}));
  file.Set("tokenizer.ggml.add_space_prefix", GgufBool(false));
  EXPECT_EQ(EncodeIn(file, "a<s>ab"), (Ids{4, 1, 6}));
  const auto tokenizer = ReadGguf(file.Bytes());
  EXPECT_EQ((*tokenizer)->Decode({7, 9, 8}), " a  \n");
}

TEST(GgufTokenizer, MergesCharactersThatAreNotTokensOfText) {
  GgufBuilder file = PiecesFile();
  file.Set("tokenizer.ggml.tokens",
           GgufStrings({"<unk>", "<s>", "</s>", "x", "a", "y", "xa", "zzy", "zy", "\u2581"}));
  file.Set("tokenizer.ggml.token_type",
           GgufArray(5, 10, GgufNumbers<int32_t>({2, 3, 3, 3, 1, 1, 1, 1, 1, 1})));
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(EncodeIn(file, "xa", SpecialTokens::kPlain), (Ids{9, 6}));
  EXPECT_EQ(EncodeIn(file, "xx", SpecialTokens::kPlain), (Ids{9, 0}));
  EXPECT_EQ(EncodeIn(file, "zzyz", SpecialTokens::kPlain), (Ids{9, 7, 0}));
}

TEST(GgufTokenizer, ATokenOfTextCannotBeTheUnknownToken) {
  GgufBuilder file = PiecesFile();
  file.Set("tokenizer.ggml.unknown_token_id", GgufUint32(5));
  const auto tokenizer = ReadGguf(file.Bytes()).value();
  EXPECT_EQ(tokenizer->Encode("az", SpecialTokens::kPlain).status().message(),
            "text: \"z\" has no token, and the vocabulary has no unknown token");
}

TEST(GgufTokenizer, PutsTheTokensOfTheKeysAroundAText) {
  using Ids = std::vector<TokenId>;
  const auto around = [](const GgufBuilder& file) {
    const auto tokenizer = ReadGguf(file.Bytes());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->WithTemplate({4}) : Ids{};
  };
  GgufBuilder pieces = PiecesFile();
  EXPECT_EQ(around(pieces), (Ids{1, 4}));
  pieces.Set("tokenizer.ggml.add_eos_token", GgufBool(true));
  EXPECT_EQ(around(pieces), (Ids{1, 4, 2}));
  pieces.Set("tokenizer.ggml.bos_token_id", GgufUint32(9));
  pieces.Set("tokenizer.ggml.eos_token_id", GgufUint32(8));
  EXPECT_EQ(around(pieces), (Ids{9, 4, 8}));
  pieces.Set("tokenizer.ggml.add_bos_token", GgufBool(false));
  EXPECT_EQ(around(pieces), (Ids{4, 8}));
  GgufBuilder bytes = ByteLevelFile();
  bytes.Set("tokenizer.ggml.bos_token_id", GgufUint32(6));
  EXPECT_EQ(around(bytes), (Ids{4}));
  bytes.Set("tokenizer.ggml.pre", GgufString("llama-bpe"));
  EXPECT_EQ(around(bytes), (Ids{6, 4}));
}

// Models may have more ids than tokenizers have tokens; the tokens that fill the gap are neither
// read nor written as text.
TEST(GgufTokenizer, HolesHaveNoText) {
  GgufBuilder bytes = ByteLevelFile();
  bytes.Set("tokenizer.ggml.tokens",
            GgufStrings({"a", "b", "c", "ab", "[PAD4]", "[PAD4]x", "[PAD6]", "<e>"}));
  bytes.Set("tokenizer.ggml.token_type",
            GgufArray(5, 8, GgufNumbers<int32_t>({1, 1, 1, 1, 5, 5, 1, 3})));
  const auto tokenizer = ReadGguf(bytes.Bytes()).value();
  EXPECT_EQ(tokenizer->vocab_size(), 8);
  EXPECT_FALSE(tokenizer->TextOf(4, false).has_value());
  EXPECT_EQ(tokenizer->IdOf("[PAD4]"), -1);
  EXPECT_EQ(tokenizer->Decode({{3, 4, 0}}), "aba");
  EXPECT_EQ(tokenizer->TextOf(5, false)->bytes, "[PAD4]x");  // another name
  EXPECT_EQ(tokenizer->TextOf(6, false)->bytes, "[PAD6]");   // another type
  GgufBuilder pieces = PiecesFile();
  pieces.Set("tokenizer.ggml.tokens", GgufStrings({"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab",
                                                   "\u2581a", "<0x0A>", "[PAD9]"}));
  pieces.Set("tokenizer.ggml.token_type",
             GgufArray(5, 10, GgufNumbers<int32_t>({2, 3, 3, 1, 1, 1, 1, 1, 6, 5})));
  const auto piecewise = ReadGguf(pieces.Bytes()).value();
  EXPECT_FALSE(piecewise->TextOf(9, false).has_value());
  EXPECT_EQ(piecewise->Decode({{4, 9, 5}}), "ab");
}

// A pre-tokenizer as published tokenizers write it.
Json CutBy(const std::string& expression, bool ignore_merges) {
  return {{"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"model", {{"ignore_merges", ignore_merges}, {"merges", {"a b"}}}}};
}

TEST(GgufTokenizer, NamesThePreTokenizerOfATokenizerJson) {
  const std::string llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(GgufPreOf(CutBy(llama3, true)), "llama-bpe");
  EXPECT_EQ(GgufPreOf(CutBy(llama3, false)), "dbrx");
  EXPECT_EQ(GgufPreOf(CutBy(llama3 + "|a", false)), "");
  const std::string word = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string small = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string rest = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string ends = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|";
  EXPECT_EQ(GgufPreOf(CutBy(absl::StrCat(word, "*", small, "+", ends, word, "+", small, "*", ends,
                                         R"(\p{N}{1,3}|)", rest),
                            false)),
            "gpt-4o");
  // The only name for these cuts, although its ignore_merges differs.
  EXPECT_EQ(
      GgufPreOf(CutBy(absl::StrCat(word, "*", small, "+|", word, "+", small, R"(*|\p{N}|)", rest),
                      false)),
      "tekken");
  Json digits = CutBy("", false);
  digits["pre_tokenizer"]["pretokenizers"] = {
      {{"type", "Digits"}, {"individual_digits", true}},
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}};
  EXPECT_EQ(GgufPreOf(digits), "smollm");
  digits["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(GgufPreOf(digits), "command-r");
  digits["normalizer"] = {{"type", "NFKC"}};
  EXPECT_EQ(GgufPreOf(digits), "");
}

TEST(GgufTokenizer, ErrorsNameTheKey) {
  const auto spoiled = [](GgufBuilder file, const std::string& key, const std::string& value) {
    file.Set("tokenizer.ggml." + key, value);
    return GgufMessage(file.Bytes());
  };
  const GgufBuilder bytes = ByteLevelFile();
  const GgufBuilder pieces = PiecesFile();
  EXPECT_EQ(spoiled(bytes, "model", GgufString("bert")),
            "x.gguf: key \"tokenizer.ggml.model\": found \"bert\", allowed: gpt2, llama");
  EXPECT_EQ(
      spoiled(bytes, "pre", GgufString("gpt-3")),
      "x.gguf: key \"tokenizer.ggml.pre\": found \"gpt-3\", allowed: llama-bpe, llama3, "
      "llama-v3, qwen2, deepseek-r1-qwen, glm4, dbrx, smaug-bpe, chatglm-bpe, smollm, refact, "
      "starcoder, command-r, gpt-4o, gpt-2, tekken, default");
  EXPECT_EQ(spoiled(bytes, "pre", "").substr(0, 60),
            "x.gguf: key \"tokenizer.ggml.pre\": found nothing, allowed: ll");
  EXPECT_EQ(spoiled(bytes, "token_type", GgufArray(5, 1, GgufNumber(int32_t{1}))),
            "x.gguf: key \"tokenizer.ggml.token_type\": found 1 elements, allowed: 8, as many as "
            "tokens");
  EXPECT_EQ(
      spoiled(bytes, "token_type", GgufArray(5, 8, GgufNumbers<int32_t>({1, 1, 1, 1, 1, 1, 7, 1}))),
      "x.gguf: key \"tokenizer.ggml.token_type\": found 7 at 6, allowed: 1 to 6");
  EXPECT_EQ(spoiled(bytes, "tokens", GgufStrings({"a", "b", "c", "ab", "b", "d", "e", "f"})),
            "x.gguf: tokenizer.ggml.tokens[4]: \"b\" is token 1 already");
  EXPECT_EQ(spoiled(bytes, "tokens", GgufStrings({"a", "b", "c", "ab", "\xC3", "d", "e", "f"})),
            "x.gguf: tokenizer.ggml.tokens[4]: \"\\xc3\" is not UTF-8");
  EXPECT_EQ(spoiled(bytes, "tokens", GgufStrings({})),
            "x.gguf: key \"tokenizer.ggml.tokens\": found no tokens, allowed: one or more");
  EXPECT_EQ(spoiled(bytes, "merges", GgufStrings({"a b", "ab"})),
            "x.gguf: tokenizer.ggml.merges[1]: \"ab\" is not two tokens with a space between");
  EXPECT_EQ(spoiled(bytes, "merges", GgufStrings({"a d"})),
            "x.gguf: tokenizer.ggml.merges[0]: \"a d\" needs \"d\", which is not a token");
  EXPECT_EQ(spoiled(bytes, "merges", GgufStrings({"b c"})),
            "x.gguf: tokenizer.ggml.merges[0]: \"b c\" needs \"bc\", which is not a token");
  EXPECT_EQ(spoiled(bytes, "bos_token_id", GgufUint32(8)),
            "x.gguf: key \"tokenizer.ggml.bos_token_id\": found 8, allowed: an integer from 0 to "
            "7");
  EXPECT_EQ(spoiled(bytes, "add_bos_token", GgufBool(true)),
            "x.gguf: key \"tokenizer.ggml.bos_token_id\": found nothing, allowed: the id of the "
            "token before a text");
  EXPECT_EQ(spoiled(bytes, "add_eos_token", GgufBool(true)),
            "x.gguf: key \"tokenizer.ggml.eos_token_id\": found nothing, allowed: the id of the "
            "token after a text");
  EXPECT_EQ(spoiled(pieces, "scores", GgufArray(6, 1, GgufNumber(0.0f))),
            "x.gguf: key \"tokenizer.ggml.scores\": found 1 elements, allowed: 10, as many as "
            "tokens");
  GgufBuilder long_token = pieces;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "b", "c",
                                     "d",     "e",   "f",    "g", std::string(4097, 'a')};
  long_token.Set("tokenizer.ggml.token_type", "");
  EXPECT_NE(
      spoiled(long_token, "tokens", GgufStrings(tokens)).find("has 4097 bytes, allowed: 4096"),
      std::string::npos);
}

TEST(GgufTokenizer, MayBeAbsent) {
  const auto has_tokenizer = [](const GgufBuilder& builder) {
    const std::string bytes = builder.Bytes();
    return HasGgufTokenizer(**GgufFile::Parse(
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf"));
  };
  GgufBuilder file = ByteLevelFile();
  EXPECT_TRUE(*has_tokenizer(file));
  file.Set("tokenizer.ggml.model", GgufString("bert"));  // unknown, but there
  EXPECT_TRUE(*has_tokenizer(file));
  for (const char* none : {"none", "no_vocab"}) {
    file.Set("tokenizer.ggml.model", GgufString(none));
    EXPECT_FALSE(*has_tokenizer(file)) << none;
  }
  file.Set("tokenizer.ggml.model", "");
  EXPECT_FALSE(*has_tokenizer(file));
  file.Set("tokenizer.ggml.model", GgufUint32(1));
  EXPECT_EQ(has_tokenizer(file).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
