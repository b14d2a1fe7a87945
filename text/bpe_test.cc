#include "text/bpe.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = SortedJson;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a model of the given tokens, numbered from 0.
Json ModelOf(const std::vector<std::string>& tokens, const Json& merges = Json::array()) {
  Json model = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", merges}};
  for (size_t i = 0; i < tokens.size(); ++i) model["vocab"][tokens[i]] = i;
  return model;
}

absl::StatusOr<BytePairEncoder> MakeEncoder(const Json& model) {
  return BytePairEncoder::FromJson(JsonField(&model, "model"));
}

std::vector<TokenId> Encode(const Json& model, const std::string& text) {
  const auto encoder = MakeEncoder(model);
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  std::vector<TokenId> ids;
  if (!encoder.ok()) return ids;
  EXPECT_TRUE(encoder->Encode(text, &ids).ok());
  return ids;
}

TEST(BytePairEncoder, MergesTheFirstInTheListThenTheLeftmost) {
  const Json model = ModelOf({"a", "b", "c", "bc", "ab", "abc", "aa"},
                             {"b c", Json::array({"a", "bc"}), "a b", "a a"});
  EXPECT_THAT(Encode(model, "abc"), ElementsAre(5));
  EXPECT_THAT(Encode(model, "ab"), ElementsAre(4));
  EXPECT_THAT(Encode(model, "aaa"), ElementsAre(6, 0));
  EXPECT_THAT(Encode(model, ""), IsEmpty());
}

// Merges one pair at a time, with a scan of all pairs.
std::vector<std::string> MergedSlowly(std::vector<std::string> parts, const Json& merges) {
  while (true) {
    size_t best = parts.size();
    size_t best_rank = merges.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] != Json::array({parts[i], parts[i + 1]})) continue;
        best = i;
        best_rank = rank;
        break;
      }
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

// Random merges and random texts, short ones and texts long enough for the queue.
TEST(BytePairEncoder, AgreesWithMergingOnePairAtATime) {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    Json merges = Json::array();
    while (merges.size() < 25) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      const Json merge = {left, right};
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      const std::string merged = left + right;
      if (std::find(tokens.begin(), tokens.end(), merged) == tokens.end()) tokens.push_back(merged);
    }
    const auto encoder = MakeEncoder(ModelOf(tokens, merges)).value();
    for (const int length : {1, 2, 3, 7, 20, 63, 64, 65, 66, 150}) {
      std::string text;
      std::vector<std::string> parts;
      for (int i = 0; i < length; ++i) {
        parts.emplace_back(1, "abc"[random() % 3]);
        text += parts.back();
      }
      std::vector<TokenId> ids;
      ASSERT_TRUE(encoder.Encode(text, &ids).ok());
      std::vector<std::string> encoded;
      for (const TokenId id : ids) encoded.push_back(encoder.tokens()[id]);
      ASSERT_EQ(encoded, MergedSlowly(parts, merges)) << text << " by " << merges.dump();
    }
  }
}

TEST(BytePairEncoder, UsesTheLaterOfDuplicateMerges) {
  EXPECT_THAT(Encode(ModelOf({"a", "b", "c", "ab", "bc"}, {"a b", "b c", "a b"}), "abc"),
              ElementsAre(0, 4));
}

TEST(BytePairEncoder, IgnoreMergesKeepsWholePieces) {
  Json model = ModelOf({"a", "b", "ab"});
  EXPECT_THAT(Encode(model, "ab"), ElementsAre(0, 1));
  model["ignore_merges"] = true;
  EXPECT_THAT(Encode(model, "ab"), ElementsAre(2));
  EXPECT_THAT(Encode(model, "aba"), ElementsAre(0, 1, 0));
}

TEST(BytePairEncoder, EncodesUnknownCharacters) {
  Json model = ModelOf({"<unk>", "a"});
  EXPECT_THAT(Encode(model, "xa\u4e2dya"), ElementsAre(1, 1));  // dropped
  model["unk_token"] = "<unk>";
  EXPECT_THAT(Encode(model, "xa\u4e2dya"), ElementsAre(0, 1, 0, 0, 1));
  model["fuse_unk"] = true;
  EXPECT_THAT(Encode(model, "xa\u4e2dyaz"), ElementsAre(0, 1, 0, 1, 0));
}

TEST(BytePairEncoder, ByteFallbackNeedsATokenForEachByte) {
  Json model = ModelOf({"<unk>", "a", "<0xC3>", "<0xA9>"});
  model["unk_token"] = "<unk>";
  model["byte_fallback"] = true;
  EXPECT_THAT(Encode(model, "a\u00e9"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Encode(model, "\u00e8a"), ElementsAre(0, 1));  // no <0xA8>
  EXPECT_THAT(Encode(model, "\u00e8\u00e9a"), ElementsAre(2, 3, 0, 1));
}

TEST(BytePairEncoder, AMissingUnknownTokenIsAnErrorOnUse) {
  Json model = ModelOf({"a"});
  model["unk_token"] = "<unk>";
  const auto encoder = MakeEncoder(model).value();
  std::vector<TokenId> ids;
  EXPECT_TRUE(encoder.Encode("aa", &ids).ok());
  const absl::Status status = encoder.Encode("ab", &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("<unk>"));
}

TEST(BytePairEncoder, IdsMayHaveGaps) {
  Json model = ModelOf({"a"});
  model["vocab"]["b"] = 40000;
  const auto encoder = MakeEncoder(model).value();
  EXPECT_EQ(encoder.tokens().size(), 40001u);
  EXPECT_EQ(encoder.IdOf("b"), 40000);
  EXPECT_EQ(encoder.IdOf("c"), -1);
}

TEST(BytePairEncoder, ErrorsNameTheField) {
  const auto expect_error = [](const Json& model, const std::string& what) {
    const auto encoder = MakeEncoder(model);
    EXPECT_EQ(encoder.status().code(), absl::StatusCode::kInvalidArgument) << model.dump();
    EXPECT_THAT(encoder.status().message(), HasSubstr(what)) << model.dump();
  };
  const Json good = ModelOf({"a", "b", "ab"});
  const auto with = [&](const std::string& key, const Json& value) {
    Json model = good;
    model[key] = value;
    return model;
  };
  ASSERT_TRUE(MakeEncoder(good).ok());
  expect_error(Json::array(), "object");
  expect_error(with("type", "Unigram"), "Unigram");
  expect_error(with("type", 1), "type");
  expect_error(with("vocab", nullptr), "vocab");
  expect_error(with("vocab", Json::array()), "vocab");
  for (const Json& id : {Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(1 << 24),
                         Json(1 << 30), Json(int64_t{1} << 40), Json(~uint64_t{0})}) {
    Json model = good;
    model["vocab"]["c"] = id;
    expect_error(model, R"(vocab["c"])");
  }
  Json twice = good;
  twice["vocab"]["c"] = 1;
  expect_error(twice, R"(is the id of "b" already)");
  expect_error(with("merges", nullptr), "merges");
  for (const Json& merge :
       {Json("ab"), Json("a b c"), Json(3), Json::array({"a"}), Json::array({"a", "b", "c"}),
        Json::array({"a", 1}), Json("a x"), Json("x b"), Json("b a"), Json("")}) {
    expect_error(with("merges", {"a b", merge}), "merges[1]");
  }
  expect_error(with("continuing_subword_prefix", "##"), "continuing_subword_prefix");
  expect_error(with("end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_error(with("dropout", 0.1), "dropout");
  expect_error(with("unk_token", 0), "unk_token");
  for (const char* key : {"fuse_unk", "ignore_merges", "byte_fallback"}) {
    expect_error(with(key, "yes"), key);
  }
  EXPECT_TRUE(MakeEncoder(with("dropout", 0.0)).ok());
  EXPECT_TRUE(MakeEncoder(with("end_of_word_suffix", "")).ok());
}

}  // namespace
}  // namespace tandem
