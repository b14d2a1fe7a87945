#include "draft/vocabulary_map.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "text/pre_tokenizer.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Json = SortedJson;
using Tokens = std::vector<TokenId>;

// A handwritten vocabulary.
class Words {
 public:
  struct Options {
    std::vector<std::string> special = {};
    std::vector<std::string> merges = {};
    std::string start = "";  // a special token before every text
    Json decoder = {{"type", "ByteLevel"}};
    int num_padding = 0;  // ids of the model without a token
    Tokens end_tokens = {};
  };
  // `tokens`: the bytes of each token, from id 0 on; special tokens follow. An empty string skips
  // its id.
  explicit Words(const std::vector<std::string>& tokens) : Words(tokens, Options()) {}
  Words(const std::vector<std::string>& tokens, const Options& options)
      : end_tokens_(options.end_tokens) {
    const bool is_byte_level =
        options.decoder.is_object() && options.decoder["type"] == "ByteLevel";
    Json vocab = Json::object();
    TokenId next = 0;
    for (const std::string& token : tokens) {
      if (!token.empty()) vocab[is_byte_level ? ToByteAlphabet(token) : token] = next;
      ++next;
    }
    Json added = Json::array();
    for (const std::string& token : options.special) {
      added.push_back({{"id", next++}, {"content", token}, {"special", true}});
    }
    Json template_json;
    if (!options.start.empty()) {
      const TokenId id = static_cast<TokenId>(tokens.size());
      template_json = {
          {"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", options.start}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"special_tokens", {{options.start, {{"ids", {id}}}}}}};
    }
    const Json pre_tokenizer = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
    const Json file = {{"version", "1.0"},
                       {"added_tokens", added},
                       {"pre_tokenizer", is_byte_level ? pre_tokenizer : Json()},
                       {"post_processor", template_json},
                       {"decoder", options.decoder},
                       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", options.merges}}}};
    auto tokenizer = Tokenizer::Parse(file.dump(), "", "tokenizer.json");
    if (!tokenizer.ok()) ADD_FAILURE() << tokenizer.status();
    TANDEM_CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
    size_ = next + options.num_padding;
  }

  Vocabulary Get() const {
    return {.tokenizer = tokenizer_.get(), .size = size_, .end_tokens = end_tokens_};
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  Tokens end_tokens_;
  int size_ = 0;
};

using Pairs = std::map<TokenId, TokenId>;
Pairs PairsOf(const VocabularyMap& map) {
  Pairs pairs;
  for (const auto& [target, draft] : map.pairs()) pairs[target] = draft;
  return pairs;
}
Tokens ReadingOf(const VocabularyMap& map, TokenId target) {
  const auto reading = map.Reading(target);
  return {reading.begin(), reading.end()};
}
VocabularyMap MapOf(const Words& target, const Words& draft) {
  VocabularyMap map(target.Get(), draft.Get());
  EXPECT_EQ(map.target_size(), target.Get().size);
  return map;
}
bool SameIds(const Words& target, const Words& draft) {
  return VocabularyMap::HasSameIds(target.Get(), draft.Get());
}

TEST(VocabularyMap, PairsPermutedTokens) {
  const Words target({"a", "b", " the", "\xE2", "ab"});
  const Words draft({"ab", "\xE2", "b", "a", " the"});
  const VocabularyMap map = MapOf(target, draft);
  EXPECT_EQ(PairsOf(map), (Pairs{{0, 3}, {1, 2}, {2, 4}, {3, 1}, {4, 0}}));
  for (const auto& [id, draft_id] : PairsOf(map))
    EXPECT_THAT(map.Reading(id), ElementsAre(draft_id));
  EXPECT_EQ(map.counts().target, 5);
  EXPECT_EQ(map.counts().draft, 5);
  EXPECT_EQ(map.counts().paired, 5);
  EXPECT_EQ(map.long_counts().target, 2);
  EXPECT_EQ(map.long_counts().draft, 2);
  EXPECT_EQ(map.long_counts().paired, 2);
  EXPECT_FALSE(SameIds(target, draft));
}

TEST(VocabularyMap, HasSameIdsComparesTokensById) {
  const Words target({"a", "b", "", "ab"}, {.special = {"<s>"}});
  EXPECT_TRUE(SameIds(target, target));
  // The models differ in padding.
  EXPECT_TRUE(SameIds(target, Words({"a", "b", "", "ab"}, {.special = {"<s>"}, .num_padding = 9})));
  EXPECT_TRUE(
      SameIds(Words({"a", "b"}, {.num_padding = 9}), Words({"a", "b"}, {.num_padding = 1})));
  // The draft's own tokens have ids that the target does not have.
  EXPECT_TRUE(SameIds(Words({"a", "b"}), Words({"a", "b", "c"})));
  EXPECT_FALSE(SameIds(Words({"a", "b"}, {.num_padding = 1}), Words({"a", "b", "c"})));
  EXPECT_FALSE(SameIds(Words({"a", "b", "c"}), Words({"a", "b"})));
  EXPECT_FALSE(SameIds(Words({"a", "b", "c"}), Words({"a", "b"}, {.num_padding = 1})));
  EXPECT_FALSE(SameIds(target, Words({"a", "b", "", "ab"}, {.special = {"</s>"}})));
  // "<s>" is ordinary in the draft and special in the target.
  EXPECT_FALSE(SameIds(target, Words({"a", "b", "", "ab", "<s>"})));
  EXPECT_FALSE(SameIds(target, Words({"a", "c", "", "ab"}, {.special = {"<s>"}})));
  EXPECT_FALSE(SameIds(target, Words({"a", "b", "c", "ab"}, {.special = {"<s>"}})));
}

// A model may have fewer rows than its tokenizer has tokens.
TEST(VocabularyMap, LeavesOutTokensWithoutARowInTheModel) {
  const Words words({"a", "b", "ab"}, {.merges = {"a b"}});
  Vocabulary draft = words.Get();
  draft.size = 2;
  EXPECT_FALSE(VocabularyMap::HasSameIds(words.Get(), draft));
  const VocabularyMap map(words.Get(), draft);
  EXPECT_EQ(PairsOf(map), (Pairs{{0, 0}, {1, 1}}));
  // The tokenizer alone would write the token that the model lacks.
  EXPECT_THAT(ReadingOf(map, 2), ElementsAre(0, 1));
  EXPECT_EQ(map.counts().draft, 2);
}

TEST(VocabularyMap, ReadsTokensTheDraftDoesNotHaveInPieces) {
  const Words target({"a", "b", "c", "abc", "bc", "cab", "d", "abd"});
  const Words draft({"c", "b", "a", "ab", "bc"}, {.merges = {"a b", "b c"}});
  const VocabularyMap map = MapOf(target, draft);
  EXPECT_EQ(PairsOf(map), (Pairs{{0, 2}, {1, 1}, {2, 0}, {4, 4}}));
  EXPECT_THAT(ReadingOf(map, 3), ElementsAre(3, 0));  // follows its merges; not "a", "bc"
  EXPECT_THAT(ReadingOf(map, 5), ElementsAre(0, 3));
  EXPECT_THAT(ReadingOf(map, 6), ElementsAre(VocabularyMap::kUnreadable));
  EXPECT_THAT(ReadingOf(map, 7), ElementsAre(VocabularyMap::kUnreadable));  // all or nothing
  EXPECT_EQ(map.counts().target, 8);
  EXPECT_EQ(map.counts().draft, 5);
  EXPECT_EQ(map.counts().paired, 4);
  EXPECT_EQ(map.long_counts().paired, 1);
}

// Every reading has the bytes of its token, whichever vocabulary is larger.
TEST(VocabularyMap, ReadingsHaveTheBytesOfTheirTokens) {
  const std::vector<std::string> small = {"\xE2", "\x82", "\xAC", "a", "b", " ", "\xE2\x82", " a"};
  const std::vector<std::string> large = {" a b",       "b",    "\xAC", "\xE2\x82\xAC", "a", "\xE2",
                                          "\x82\xAC a", "\x82", " ",    "a\xE2"};
  for (const auto& [tokens, drafts] : {std::pair(small, large), std::pair(large, small)}) {
    const VocabularyMap map = MapOf(Words(tokens), Words(drafts));
    for (TokenId id = 0; id < map.target_size(); ++id) {
      std::string text;
      for (const TokenId token : map.Reading(id)) text += drafts[token];
      EXPECT_EQ(text, tokens[id]);
    }
  }
}

// The draft's tokenizer cannot encode parts of characters.
TEST(VocabularyMap, CutsPartsOfCharactersIntoTheFewestTokens) {
  const Words target({"\x82\xAC\xE2\x82"});
  const VocabularyMap map = MapOf(target, Words({"\x82", "\xAC", "\xE2", "\xAC\xE2", "\xE2\x82"}));
  EXPECT_THAT(ReadingOf(map, 0), ElementsAre(0, 3, 0));  // not 0, 1, 4: longest first
  // A greedy longest match would reach a dead end.
  const VocabularyMap narrow = MapOf(target, Words({"\x82\xAC\xE2", "\x82\xAC", "\xE2\x82"}));
  EXPECT_THAT(ReadingOf(narrow, 0), ElementsAre(1, 2));
  // The time is linear in the length of a token.
  const VocabularyMap wide =
      MapOf(Words({std::string(100000, '\x82')}), Words({"\x82\x82\x82\x82"}));
  EXPECT_THAT(ReadingOf(wide, 0), testing::SizeIs(25000));
}

TEST(VocabularyMap, PairsSpecialTokensByTheirNameOnly) {
  const Words target({"a", "<s>"}, {.special = {"<|im_end|>", "<pad>"}});
  const Words draft({"a", "<pad>"}, {.special = {"<s>", "<|im_end|>"}});
  const VocabularyMap map = MapOf(target, draft);
  EXPECT_EQ(PairsOf(map), (Pairs{{0, 0}, {2, 3}}));
  EXPECT_THAT(ReadingOf(map, 3), IsEmpty());  // skipped
  EXPECT_THAT(ReadingOf(map, 1),
              ElementsAre(VocabularyMap::kUnreadable));  // text that the draft cannot spell
  EXPECT_EQ(map.counts().target, 2);
  EXPECT_EQ(map.counts().paired, 1);
}

TEST(VocabularyMap, PairsStartAndEndTokensWhateverTheirNames) {
  const Words target(
      {"a"},
      {.special = {"<s>", "</s>", "<|end|>", "<|user|>"}, .start = "<s>", .end_tokens = {2, 3}});
  const Words draft({"a"}, {.special = {"<|begin|>", "<|eot|>", "<|end|>", "<|eos|>"},
                            .start = "<|begin|>",
                            .end_tokens = {3, 2, 4}});
  // One of the end tokens has the same name; the others are paired in order.
  EXPECT_EQ(PairsOf(MapOf(target, draft)), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  // A draft without special tokens.
  const VocabularyMap without = MapOf(target, Words({"a"}));
  EXPECT_EQ(PairsOf(without), (Pairs{{0, 0}}));
  EXPECT_THAT(ReadingOf(without, 1), IsEmpty());
  EXPECT_THAT(ReadingOf(without, 2), IsEmpty());
  EXPECT_EQ(PairsOf(MapOf(Words({"a"}), draft)), (Pairs{{0, 0}}));
}

// "<0x41>" and "A" are two tokens of the same byte.
TEST(VocabularyMap, PairsBytesWithBytesFirst) {
  const Json fallback = {{"type", "Sequence"},
                         {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const Words target({"<0x41>", "A", "<0xE2>"}, {.decoder = fallback});
  const VocabularyMap same = MapOf(target, Words({"A", "<0xE2>", "<0x41>"}, {.decoder = fallback}));
  EXPECT_EQ(PairsOf(same), (Pairs{{0, 2}, {1, 0}, {2, 1}}));
  // In a byte-level vocabulary all three are text. No token is paired twice.
  const VocabularyMap text = MapOf(target, Words({"\xE2", "A"}));
  EXPECT_EQ(PairsOf(text), (Pairs{{1, 1}, {2, 0}}));
  EXPECT_THAT(ReadingOf(text, 0), ElementsAre(1));
  const VocabularyMap back = MapOf(Words({"\xE2", "A", "A\xE2"}), target);
  EXPECT_EQ(PairsOf(back), (Pairs{{0, 2}, {1, 1}}));
  EXPECT_THAT(ReadingOf(back, 2), ElementsAre(1, 2));
}

// Among equal tokens the lowest ids are paired; the others can still be read.
TEST(VocabularyMap, PairsEveryTokenOnce) {
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", "x"}};
  const Words target({"a", "x", "_"}, {.decoder = replace});
  const Words draft({"_", "a", "x"}, {.decoder = replace});
  const VocabularyMap map = MapOf(target, draft);
  EXPECT_EQ(PairsOf(map), (Pairs{{0, 1}, {1, 0}}));
  EXPECT_THAT(ReadingOf(map, 2), testing::SizeIs(1));
  EXPECT_EQ(map.counts().paired, 2);
}

// Without a decoder tokens are joined with spaces, which are then a part of their bytes.
TEST(VocabularyMap, TreatsSeparatorsAsPartOfTokens) {
  const Words spaced({"the", "cat"}, {.decoder = nullptr});
  EXPECT_EQ(PairsOf(MapOf(spaced, Words({"the", " cat", " the"}))), (Pairs{{0, 2}, {1, 1}}));
}

TEST(VocabularyMap, IsEmptyForDisjointVocabularies) {
  const VocabularyMap map = MapOf(Words({"a", "b"}), Words({"c", "d", "e"}));
  EXPECT_THAT(map.pairs(), IsEmpty());
  EXPECT_THAT(ReadingOf(map, 0), ElementsAre(VocabularyMap::kUnreadable));
  EXPECT_EQ(map.counts().target, 2);
  EXPECT_EQ(map.counts().draft, 3);
  EXPECT_EQ(map.counts().paired, 0);
}

TEST(VocabularyMap, PaddingIsUnreadable) {
  const VocabularyMap map = MapOf(Words({"a", ""}, {.num_padding = 2}), Words({"a"}));
  ASSERT_EQ(map.target_size(), 4);
  for (TokenId id = 1; id < 4; ++id)
    EXPECT_THAT(ReadingOf(map, id), ElementsAre(VocabularyMap::kUnreadable));
}

TEST(VocabularyMap, ConvertsRowsToTargetIds) {
  const VocabularyMap map({{0, 2}, {2, 0}}, {{2}, {0, 2}, {0}, {}});
  std::vector<float> row(9, 5.0f);  // stale values
  map.ToTargetRow(std::vector<float>{1.0f, NAN, 3.0f}, &row);
  EXPECT_THAT(row, ElementsAre(3.0f, -INFINITY, 1.0f, -INFINITY));
  map.ToTargetRow(std::vector<float>{1.0f, 2.0f}, &row);  // of a cut head
  EXPECT_THAT(row, ElementsAre(-INFINITY, -INFINITY, 1.0f, -INFINITY));
  EXPECT_THAT(ReadingOf(map, 1), ElementsAre(0, 2));
  EXPECT_THAT(ReadingOf(map, 3), IsEmpty());
}

}  // namespace
}  // namespace tandem
