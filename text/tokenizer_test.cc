#include "tandem/tokenizer.h"

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = SortedJson;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const auto& kSmall = *new std::string(SourcePath("tests/data/tokenizers/llama3-small"));
const auto& kStoryteller = *new std::string(SourcePath("models/storyteller-7m"));

Json AddedToken(const std::string& content, const Json& id, bool special = true) {
  return {{"id", id},        {"content", content},   {"special", special}, {"lstrip", false},
          {"rstrip", false}, {"single_word", false}, {"normalized", false}};
}

// A tokenizer with the tokens a, b, ab and <s>.
Json SmallFile() {
  return {{"version", "1.0"},
          {"added_tokens", Json::array({AddedToken("<s>", 3)})},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}},
            {"merges", Json::array({"a b"})}}}};
}

Json TemplateOf(const Json& single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {3}}, {"tokens", {"<s>"}}}}}}};
}

const Json kText = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
const Json kStart = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const Json& file,
                                                         const std::string& config = "") {
  return Tokenizer::Parse(file.dump(), config, "dir/tokenizer.json");
}

void ExpectError(const Json& file, const std::string& what, const std::string& config = "") {
  const auto tokenizer = MakeTokenizer(file, config);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << file.dump();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(what)) << file.dump();
  EXPECT_THAT(std::string(tokenizer.status().message()), StartsWith("dir/tokenizer"))
      << file.dump();
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, const std::string& text,
                            SpecialTokens special = SpecialTokens::kParse) {
  return tokenizer.Encode(text, special).value();
}

TEST(Tokenizer, EncodesWithAndWithoutSpecialTokens) {
  const auto tokenizer = MakeTokenizer(SmallFile()).value();
  EXPECT_THAT(Encode(*tokenizer, "ab<s>ba"), ElementsAre(2, 3, 1, 0));
  EXPECT_THAT(Encode(*tokenizer, "ab<s>ba", SpecialTokens::kPlain), ElementsAre(2, 1, 0));
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_TRUE(tokenizer->IsSpecial(3));
  for (const TokenId id : {-1, 0, 2, 4}) EXPECT_FALSE(tokenizer->IsSpecial(id));
  EXPECT_EQ(tokenizer->IdOf("<s>"), 3);
  EXPECT_EQ(tokenizer->IdOf("ab"), 2);
  EXPECT_EQ(tokenizer->IdOf("ba"), -1);
  EXPECT_EQ(tokenizer->Decode({2, 3, -1, 99, 1}), "ab<s>b");
  EXPECT_EQ(tokenizer->Decode({2, 3, 1}, /*skip_special=*/true), "abb");
}

// A text that is cut anywhere has the same ids as the whole text; special tokens count only in
// kParse parts.
TEST(Tokenizer, EncodesPartsAsOneText) {
  const std::string text = "It's  the\u00e9 12345 end.\n\n Once<s>upon";
  for (const std::string& path : {kSmall, kStoryteller}) {
    const auto tokenizer = Tokenizer::Load(path).value();
    const std::vector<TokenId> whole = Encode(*tokenizer, text, SpecialTokens::kPlain);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const auto ids = tokenizer
                           ->EncodeMarked({{text.substr(0, cut), SpecialTokens::kPlain},
                                           {text.substr(cut), SpecialTokens::kPlain}})
                           .value();
      EXPECT_EQ(ids, whole) << "cut at " << cut;
    }
  }
  const auto small = MakeTokenizer(SmallFile()).value();
  const auto ids = small
                       ->EncodeMarked({{"<s>a", SpecialTokens::kParse},
                                       {"b<s><", SpecialTokens::kPlain},
                                       {"s>b<s>", SpecialTokens::kParse}})
                       .value();
  EXPECT_THAT(ids, ElementsAre(3, 2, 1, 3));
}

TEST(Tokenizer, FindsNonSpecialAddedTokensInEitherMode) {
  Json file = SmallFile();
  file["added_tokens"].push_back(AddedToken("<t>", 4, /*special=*/false));
  file["added_tokens"].push_back(AddedToken("ab", 2, /*special=*/false));  // in the vocabulary
  const auto tokenizer = MakeTokenizer(file).value();
  EXPECT_THAT(Encode(*tokenizer, "a<t>ab<s>"), ElementsAre(0, 4, 2, 3));
  EXPECT_THAT(Encode(*tokenizer, "a<t>ab<s>", SpecialTokens::kPlain), ElementsAre(0, 4, 2));
}

TEST(Tokenizer, FindsNormalizedTokensInTheNormalizedText) {
  Json file = SmallFile();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"][0] = AddedToken("<S>", 3);
  file["added_tokens"].push_back(AddedToken("<T>", 4));
  file["added_tokens"][1]["normalized"] = true;
  const auto tokenizer = MakeTokenizer(file).value();
  EXPECT_THAT(Encode(*tokenizer, "A<S>B<s>"), ElementsAre(0, 3, 1));
  EXPECT_THAT(Encode(*tokenizer, "A<T>B<t>"), ElementsAre(0, 4, 1, 4));
}

TEST(Tokenizer, RefusesInvalidUtf8WithItsOffset) {
  const auto tokenizer = MakeTokenizer(SmallFile()).value();
  for (const char* text : {"ab\xff", "ab\xe4\xb8", "ab\xed\xa0\x80", "ab\xc0\xaf"}) {
    const auto ids = tokenizer->Encode(text, SpecialTokens::kParse);
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ids.status().message(), HasSubstr("byte 2 "));
    EXPECT_EQ(FieldOf(ids.status()), "text");
  }
}

TEST(Tokenizer, AppliesTemplates) {
  Json file = SmallFile();
  file["post_processor"] = TemplateOf({kStart, kText, kStart, kStart});
  EXPECT_THAT((*MakeTokenizer(file))->WithTemplate({0}), ElementsAre(3, 0, 3, 3));
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}, {"trim_offsets", true}}, TemplateOf({kStart, kText})}}};
  EXPECT_THAT((*MakeTokenizer(file))->WithTemplate({0}), ElementsAre(3, 0));
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 3}}, {"sep", {"b", 1}}};
  EXPECT_THAT((*MakeTokenizer(file))->WithTemplate({0}), ElementsAre(3, 0, 1));
  file["post_processor"] = {{"type", "ByteLevel"}};
  EXPECT_THAT((*MakeTokenizer(file))->WithTemplate({0}), ElementsAre(0));
}

TEST(Tokenizer, ConfigAddsTokensIfTheTemplateDoesNot) {
  const Json file = SmallFile();
  const auto with = [](const Json& file, const std::string& config) {
    const auto tokenizer = MakeTokenizer(file, config);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->WithTemplate({0}) : std::vector<TokenId>();
  };
  EXPECT_THAT(with(file, R"({"add_bos_token": true, "bos_token": "<s>"})"), ElementsAre(3, 0));
  EXPECT_THAT(with(file, R"({"add_eos_token": true, "eos_token": {"content": "b"}})"),
              ElementsAre(0, 1));
  EXPECT_THAT(with(file, R"({"add_bos_token": false, "bos_token": "<s>"})"), ElementsAre(0));
  EXPECT_THAT(with(file, R"({"bos_token": "<s>", "eos_token": 3})"), ElementsAre(0));
  Json templated = file;
  templated["post_processor"] = TemplateOf({kStart, kText});
  EXPECT_THAT(with(templated, R"({"add_bos_token": true, "bos_token": "<s>",
                                  "add_eos_token": true, "eos_token": "<s>"})"),
              ElementsAre(3, 0));
  templated["post_processor"] = TemplateOf(Json::array({kText}));
  EXPECT_THAT(with(templated, R"({"add_bos_token": true, "bos_token": "<s>"})"), ElementsAre(3, 0));
  ExpectError(file, "bos_token", R"({"add_bos_token": true, "bos_token": "<bos>"})");
  ExpectError(file, "bos_token", R"({"add_bos_token": true, "bos_token": null})");
  ExpectError(file, "bos_token", R"({"add_bos_token": true})");
  ExpectError(file, "eos_token.content", R"({"add_eos_token": true, "eos_token": {"content": 1}})");
  ExpectError(file, "add_bos_token", R"({"add_bos_token": "yes"})");
  ExpectError(file, "tokenizer_config.json", "[");
  ExpectError(file, "tokenizer_config.json", "[]");
}

TEST(Tokenizer, ErrorsNameTheField) {
  const Json good = SmallFile();
  ASSERT_TRUE(MakeTokenizer(good).ok());
  const auto with = [&](const std::string& key, const Json& value) {
    Json file = good;
    file[key] = value;
    return file;
  };
  ExpectError(Json::array(), "object");
  ExpectError(with("version", "2.0"), "version");
  ExpectError(with("model", nullptr), "model");
  ExpectError(with("normalizer", "NFC"), "normalizer");
  ExpectError(with("pre_tokenizer", {{"type", "X"}}), "pre_tokenizer.type");
  ExpectError(with("decoder", {{"type", "X"}}), "decoder.type");
  ExpectError(with("post_processor", {{"type", "X"}}), "post_processor.type");
  ExpectError(with("added_tokens", Json::object()), "added_tokens");
  ExpectError(with("added_tokens", {3}), "added_tokens[0]");
  for (const Json& id : {Json(-1), Json(1 << 30), Json("3"), Json(nullptr), Json(~uint64_t{0})}) {
    ExpectError(with("added_tokens", Json::array({AddedToken("<s>", id)})), "added_tokens[0].id");
  }
  const auto added = [&](const Json& second) {
    return with("added_tokens", Json::array({AddedToken("<s>", 3), second}));
  };
  ExpectError(added(AddedToken("<t>", 3)), "added_tokens[1].id");  // the id of <s>
  ExpectError(added(AddedToken("<t>", 0)), "added_tokens[1].id");  // the id of a
  ExpectError(added(AddedToken("a", 4)), "added_tokens[1].id");    // a has another id
  ExpectError(added(AddedToken("<s>", 4)), "added_tokens[1].content");
  ExpectError(added(AddedToken("", 4)), "added_tokens[1].content");
  Json flag = AddedToken("<t>", 4);
  flag["rstrip"] = 1;
  ExpectError(added(flag), "added_tokens[1].rstrip");
  Json empty = added(AddedToken("  ", 4));
  empty["added_tokens"][1]["normalized"] = true;
  empty["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  ExpectError(empty, "added_tokens[1]");
}

TEST(Tokenizer, TemplateErrorsNameTheField) {
  const auto expect_error = [](const Json& post_processor, const std::string& what) {
    Json file = SmallFile();
    file["post_processor"] = post_processor;
    ExpectError(file, what);
  };
  expect_error(TemplateOf(Json::array({kStart})), "single");
  expect_error(TemplateOf({kText, kText}), "single[1].Sequence.id");
  expect_error(TemplateOf(Json::array({{{"Sequence", {{"id", "B"}}}}})), "single[0].Sequence.id");
  expect_error(TemplateOf(Json::array({{{"Other", 1}}})), "single[0]");
  expect_error(TemplateOf(Json::array({{{"SpecialToken", {{"id", "<t>"}}}}})),
               "single[0].SpecialToken.id");
  Json outside = TemplateOf({kStart, kText});
  outside["special_tokens"]["<s>"]["ids"] = {4};
  expect_error(outside, "special_tokens.<s>.ids[0]");
  expect_error(
      {{"type", "Sequence"},
       {"processors", {TemplateOf(Json::array({kText})), TemplateOf(Json::array({kText}))}}},
      "processors[1]");
  expect_error({{"type", "BertProcessing"}, {"cls", {"<s>", 3}}}, "sep");
}

TEST(Tokenizer, RefusesDamagedFiles) {
  const std::string good = SmallFile().dump();
  for (const std::string& contents :
       {std::string(), good.substr(0, good.size() / 2), good + "}", std::string("null"),
        "\xff" + good, absl::StrCat("{\"model\": \"\xc3\"}"), std::string(100'000, '['),
        std::string("{\"a\": 1, \"a\": 2}"), std::string("\xef\xbb\xbf")}) {
    const auto tokenizer = Tokenizer::Parse(contents, "", "t.json");
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tokenizer.status().message()), StartsWith("t.json"));
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Tokenizer::Parse(good.substr(0, size), "", "t.json").ok()) << size;
  }
}

class TokenizerFiles : public FolderTest {
 protected:
  absl::Status Load(const std::string& name = "") { return Tokenizer::Load(Path(name)).status(); }
};

TEST_F(TokenizerFiles, LoadsAFolderOrFileWithItsConfig) {
  Write("tokenizer.json", SmallFile().dump());
  Write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})");
  for (const std::string& path : {folder_, Path("tokenizer.json")}) {
    const auto tokenizer = Tokenizer::Load(path).value();
    EXPECT_THAT(tokenizer->WithTemplate({0}), ElementsAre(3, 0));
  }
  Write("tokenizer_config.json", "");
  EXPECT_THAT(Load().message(), HasSubstr("tokenizer_config.json"));
}

TEST_F(TokenizerFiles, NamesMissingFiles) {
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Load().message(), HasSubstr(Path("tokenizer.json")));
  EXPECT_EQ(Load("nothing").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Load("nothing").message(), HasSubstr("nothing"));
  Write("tokenizer.model", "SentencePiece");
  EXPECT_EQ(Load().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Load().message(), HasSubstr("tokenizer.model: found"));
  Write("tokenizer.json", "");
  EXPECT_EQ(Load().code(), absl::StatusCode::kInvalidArgument);
  fs::remove(Path("tokenizer.json"));
  fs::create_directory(Path("tokenizer.json"));
  EXPECT_EQ(Load().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenizerFiles, LoadsASentencePieceModelWithoutATokenizerJson) {
  fs::copy(SourcePath("tests/data/sentencepiece/plain.model"), Path("tokenizer.model"));
  for (const std::string& path : {folder_, Path("tokenizer.model")}) {
    const auto tokenizer = Tokenizer::Load(path).value();
    EXPECT_EQ(tokenizer->vocab_size(), 500);
    EXPECT_THAT(tokenizer->WithTemplate({}), ElementsAre(1));
  }
  Write("tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_THAT((*Tokenizer::Load(folder_))->WithTemplate({}), ElementsAre());
  Write("tokenizer.json", SmallFile().dump());
  EXPECT_LT((*Tokenizer::Load(folder_))->vocab_size(), 500);
}

TEST_F(TokenizerFiles, LoadsTheGgufFileOfAFolder) {
  fs::copy(SourcePath("tests/data/gguf/tokenizers/spm.gguf"), Path("model.gguf"));
  for (const std::string& path : {folder_, Path("model.gguf")}) {
    const auto tokenizer = Tokenizer::Load(path).value();
    EXPECT_EQ(tokenizer->vocab_size(), 500);
  }
}

TEST_F(TokenizerFiles, FindsTheTokenizerFileOfAModel) {
  EXPECT_EQ(*Tokenizer::FileOf(folder_), "");
  Write("config.json", "{}");
  EXPECT_EQ(*Tokenizer::FileOf(folder_), "");
  const std::string json = Path("tokenizer.json");
  // An unsupported kind of tokenizer must not be replaced by another model's.
  Write("vocab.json", "{}");
  EXPECT_EQ(*Tokenizer::FileOf(folder_), json);
  fs::remove(Path("vocab.json"));
  Write("tokenizer.model", "");
  EXPECT_EQ(*Tokenizer::FileOf(folder_), Path("tokenizer.model"));
  Write("tokenizer.json", "{}");
  EXPECT_EQ(*Tokenizer::FileOf(folder_), json);
  EXPECT_EQ(*Tokenizer::FileOf(json), json);
}

// Returns a random character of all Unicode, often one that matters to expressions and merges.
char32_t RandomCharacter(std::mt19937* random) {
  constexpr char32_t kInteresting[] =
      U" \n\r\t'sSdlLveREtTm019\u00a0\u017f\u0301\u0345\u2028\u3000"
      U"\u180e\u200d\ufeff\ufffd\u4e2d\U0001f600\U0010ffff<|>_\u00e9";
  if ((*random)() % 2 == 0) return kInteresting[(*random)() % (std::size(kInteresting) - 1)];
  while (true) {
    const char32_t c = (*random)() % 2 == 0 ? (*random)() % 0x800 : (*random)() % 0x110000;
    if (c < 0xD800 || c > 0xDFFF) return c;
  }
}

TEST(Tokenizer, DecodesByteLevelTextsExactly) {
  std::mt19937 random(6);
  for (const std::string& path : {kSmall, kStoryteller}) {
    const auto tokenizer = Tokenizer::Load(path).value();
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int length = random() % 30; length > 0; --length) {
        AppendUtf8(RandomCharacter(&random), &text);
      }
      if (round % 4 == 0) text.insert(0, "<|begin_of_text|><|endoftext|>");
      for (const auto special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
        const auto ids = tokenizer->Encode(text, special).value();
        ASSERT_EQ(tokenizer->Decode(ids), text);
        for (const TokenId id : ids) {
          ASSERT_TRUE(id >= 0 && id < tokenizer->vocab_size());
          ASSERT_FALSE(special == SpecialTokens::kPlain && tokenizer->IsSpecial(id));
        }
      }
    }
  }
}

TEST(Tokenizer, StorytellerBeginsTextsWithItsSpecialToken) {
  const auto tokenizer = Tokenizer::Load(kStoryteller).value();
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->IdOf("<|endoftext|>"), 0);
  const std::string text = "Once upon a time, there was a little girl named Lily.";
  const std::vector<TokenId> ids = Encode(*tokenizer, text);
  EXPECT_LE(ids.size(), 16u);  // mostly whole words
  EXPECT_EQ(tokenizer->WithTemplate(ids).front(), 0);
  EXPECT_EQ(tokenizer->WithTemplate(ids).size(), ids.size() + 1);
  EXPECT_EQ(tokenizer->Decode(tokenizer->WithTemplate(ids), /*skip_special=*/true), text);
}

// Guards against quadratic time: with it, this test would exceed its time limit.
TEST(Tokenizer, EncodesLongTextsWithoutSpaces) {
  const auto tokenizer = Tokenizer::Load(kSmall).value();
  for (const char* part : {"a", "the", " ", "\n ", "1", "<", "\u4e2d", "\u0301\u0323", "'s"}) {
    std::string text;
    while (text.size() < 1'000'000) text += part;
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text)), text);
  }
}

// Whatever the order of ids, bytes and special tokens come first, then the tokens that merges make,
// in the order of the merges.
TEST(Tokenizer, RanksTokensByTheirMerges) {
  Json file = SmallFile();
  file["model"]["vocab"] = {{"bab", 0}, {"a", 1}, {"ab", 2}, {"b", 4}, {"long", 5}};
  file["model"]["merges"] = Json::array({"a b", "b ab"});
  const auto tokenizer = MakeTokenizer(file).value();
  EXPECT_THAT(tokenizer->TokensByMerges(), ElementsAre(1, 3, 4, 2, 0, 5));
}

}  // namespace
}  // namespace tandem
