#include "draft/draft_text.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "draft/draft_text_store.h"
#include "draft/ngram_drafter.h"
#include "draft/tenants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tests/fake_model.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using IdList = std::vector<TokenId>;

// Encodes each byte as a token.
class ByteTokens final : public Tokenizer {
 public:
  absl::StatusOr<IdList> Encode(std::string_view text, SpecialTokens /*special*/) const override {
    if (text == "bad") return FieldError("text", "is not UTF-8");
    return IdList(text.begin(), text.end());
  }
  absl::StatusOr<IdList> EncodeMarked(absl::Span<const MarkedText> /*parts*/) const override {
    return absl::UnimplementedError("");
  }
  IdList WithTemplate(IdList ids) const override { return ids; }
  std::string Decode(absl::Span<const TokenId> ids, bool /*skip_special*/) const override {
    return {ids.begin(), ids.end()};
  }
  int vocab_size() const override { return 256; }
  bool IsSpecial(TokenId /*id*/) const override { return false; }
  TokenId IdOf(std::string_view /*token*/) const override { return -1; }
  std::optional<TokenText> TextOf(TokenId /*id*/, bool /*is_first*/) const override {
    return std::nullopt;
  }
  const TextRules& text_rules() const override { return rules_; }
  IdList TokensByMerges() const override { return {}; }

 private:
  TextRules rules_;
};

// The definition, in time proportional to the texts: the length of the longest run at the end of
// `context` that other tokens of a text follow.
int LongestMatch(const std::vector<IdList>& texts, const IdList& context) {
  int longest = 0;
  for (const IdList& text : texts) {
    for (size_t place = 1; place < text.size(); ++place) {
      int length = 0;
      while (length < DraftText::kLongestMatch && length < static_cast<int>(place) &&
             length < static_cast<int>(context.size()) &&
             text[place - 1 - length] == context[context.size() - 1 - length]) {
        ++length;
      }
      longest = std::max(longest, length);
    }
  }
  return longest < DraftText::kShortestMatch ? 0 : longest;
}

TEST(DraftText, FindsTheLongestMatchOfEveryEnd) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int vocab = 1 + static_cast<int>(random() % 4);
    std::vector<IdList> texts;
    for (size_t i = 0; i < 1 + random() % 3; ++i) {
      texts.push_back(RandomTokens(random, vocab, static_cast<int>(random() % 60)));
    }
    const DraftText text(texts);
    for (int i = 0; i < 20; ++i) {
      const IdList context = RandomTokens(random, vocab, static_cast<int>(random() % 40));
      const DraftText::Match match = text.Find(context);
      EXPECT_EQ(match.length, LongestMatch(texts, context));
      if (match.length == 0) continue;
      // The tokens at the place continue a text in which the match ends before them.
      const absl::Span<const TokenId> next = text.From(match.next);
      ASSERT_FALSE(next.empty());
      IdList run(context.end() - match.length, context.end());
      run.insert(run.end(), next.begin(), next.end());
      EXPECT_TRUE(std::any_of(texts.begin(), texts.end(), [&run](const IdList& one) {
        return std::search(one.begin(), one.end(), run.begin(), run.end()) != one.end();
      }));
    }
  }
}

TEST(DraftText, ContinuesToTheEndOfItsOwnTextOnly) {
  const std::vector<IdList> texts = {{1, 2, 3, 4, 5}, {6, 7, 8, 9}};
  const DraftText text(texts);
  EXPECT_EQ(text.num_tokens(), 9);
  EXPECT_THAT(text.From(text.Find({0, 1, 2, 3}).next), ElementsAre(4, 5));
  EXPECT_THAT(text.From(text.Find({6, 7, 8}).next), ElementsAre(9));
  EXPECT_EQ(text.Find({3, 4, 5}).length, 0);  // nothing follows
  EXPECT_EQ(text.Find({7, 8}).length, 0);
  EXPECT_EQ(text.Find({}).length, 0);
}

TEST(DraftText, SaysWhetherSeveralMatchesContinueAlike) {
  const std::vector<IdList> alike = {{1, 2, 3, 4, 0, 1, 2, 3, 4, 5}};
  EXPECT_TRUE(DraftText(alike).Find({1, 2, 3}).is_repeated);
  const std::vector<IdList> once = {{1, 2, 3, 4, 5, 6}};
  EXPECT_FALSE(DraftText(once).Find({1, 2, 3}).is_repeated);
}

TEST(DraftText, TakesEightBytesForEachToken) {
  const std::vector<IdList> texts = {IdList(100'000, 1)};
  EXPECT_LE(DraftText(texts).bytes(), 8 * 100'000 + 100);
}

// ---- The store ----

DraftTextInput TextOf(const std::string& text, const std::string& salt = "") {
  return {.texts = {text}, .cache_salt = salt};
}

TEST(DraftTextStore, KeepsTheTextsOfTenantsApart) {
  DraftTextStore store(1 << 20);
  const ByteTokens tokenizer;
  const auto own = store.Add({.name = "own", .texts = {"abcdef", "x"}}, tokenizer);
  const auto other = store.Add(TextOf("uvwxyz", "other"), tokenizer);
  ASSERT_TRUE(own.ok() && other.ok());
  EXPECT_EQ(own->num_tokens, 7);
  EXPECT_EQ(own->num_texts, 2);
  EXPECT_THAT(store.List(""), ElementsAre(*own));
  EXPECT_THAT(store.List("other"), ElementsAre(*other));
  EXPECT_THAT(store.List("third"), IsEmpty());
  EXPECT_EQ(store.Of("third"), nullptr);
  EXPECT_EQ(FindInTexts(*store.Of("other"), {'a', 'b', 'c'}).text, nullptr);
  EXPECT_NE(FindInTexts(*store.Of(""), {'a', 'b', 'c'}).text, nullptr);
  EXPECT_TRUE(absl::IsNotFound(store.Remove(own->id, "other")));
  EXPECT_TRUE(absl::IsNotFound(store.Remove("dt-99", "")));
  EXPECT_TRUE(store.Remove(own->id, "").ok());
  EXPECT_THAT(store.List(""), IsEmpty());
  EXPECT_EQ(store.bytes_in_use(), other->bytes);
}

TEST(DraftTextStore, NamesTheFieldsThatItRefuses) {
  DraftTextStore store(1 << 20);
  const ByteTokens tokenizer;
  const auto message = [&](const DraftTextInput& input) {
    return std::string(store.Add(input, tokenizer).status().message());
  };
  EXPECT_THAT(message({}), HasSubstr("texts: must not be empty"));
  EXPECT_THAT(message({.texts = {""}}), HasSubstr("texts: must not be empty"));
  EXPECT_THAT(message({.texts = {"a", "bad"}}), HasSubstr("texts[1]: is not UTF-8"));
  EXPECT_THAT(message({.name = std::string(257, 'a'), .texts = {"a"}}), HasSubstr("name: "));
  EXPECT_THAT(message(TextOf("a", std::string(1025, 's'))), HasSubstr("cache_salt: "));
}

TEST(DraftTextStore, BoundsTheMemoryOfAllAndOfEachTenant) {
  constexpr int64_t kBytes = 1 << 20;
  DraftTextStore store(kBytes);
  const ByteTokens tokenizer;
  const auto fits = [&](int64_t bytes, const std::string& salt) {
    const auto added = store.Add(TextOf(std::string(bytes / 8, 'a'), salt), tokenizer);
    EXPECT_TRUE(added.ok() || absl::IsResourceExhausted(added.status())) << added.status();
    return added.ok();
  };
  EXPECT_FALSE(fits(kBytes / 8 + 8, "a"));
  for (const char* salt : {"a", "b", "c", "d"}) EXPECT_TRUE(fits(kBytes / 8 - 500, salt));
  EXPECT_FALSE(fits(kBytes / 8 - 500, "e"));  // the salted half is full
  EXPECT_FALSE(fits(kBytes / 2 + 8, ""));
  EXPECT_TRUE(fits(kBytes / 2 - 500, ""));
  EXPECT_LE(store.bytes_in_use(), kBytes);
  ASSERT_TRUE(store.Remove(store.List("b")[0].id, "b").ok());
  EXPECT_TRUE(fits(kBytes / 8 - 500, "e"));
}

TEST(DraftTextStore, BoundsTheNumberOfTenants) {
  DraftTextStore store(1 << 20);
  const ByteTokens tokenizer;
  int num_tenants = 0;
  for (; num_tenants < 10'000; ++num_tenants) {
    const std::string salt = absl::StrCat(num_tenants, std::string(1000, 's'));
    if (!store.Add(TextOf("a", salt), tokenizer).ok()) break;
  }
  EXPECT_GT(num_tenants, 100);
  EXPECT_LT(num_tenants, (1 << 19) / 1000);
}

TEST(DraftTextStore, HoldsAtMost64TextsOfATenant) {
  DraftTextStore store(1 << 20);
  const ByteTokens tokenizer;
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(store.Add(TextOf("abcd"), tokenizer).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Add(TextOf("abcd"), tokenizer).status()));
}

TEST(DraftTextStore, IsUsedByManyThreads) {
  DraftTextStore store(1 << 20);
  const ByteTokens tokenizer;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, salt = absl::StrCat("t", t)] {
      for (int i = 0; i < 50; ++i) {
        const auto added = store.Add(TextOf("abcdef", salt), tokenizer);
        ASSERT_TRUE(added.ok());
        EXPECT_NE(FindInTexts(*store.Of(salt), {'a', 'b', 'c'}).text, nullptr);
        EXPECT_TRUE(store.Remove(added->id, salt).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.bytes_in_use(), 0);
}

// ---- Files ----

TEST(DraftTextFile, IsATextOrJsonLines) {
  const TestFolder folder;
  const std::string text = folder.Write("a.txt", "one\ntwo\n");
  EXPECT_THAT(ReadDraftTextFile(text)->texts, ElementsAre("one\ntwo\n"));
  const std::string lines = folder.Write("b.jsonl", "\"one\"\n\n{\"text\": \"two\", \"id\": 3}\n");
  EXPECT_THAT(ReadDraftTextFile(lines)->texts, ElementsAre("one", "two"));
  EXPECT_EQ(ReadDraftTextFile(lines)->name, lines);
  const std::string wrong = folder.Write("c.jsonl", "\"one\"\n{\"txt\": 1}\n");
  EXPECT_THAT(std::string(ReadDraftTextFile(wrong).status().message()),
              HasSubstr(wrong + ":2: found {\"txt\":1}, allowed: a string, or {\"text\": ...}"));
  EXPECT_FALSE(ReadDraftTextFile("/nonexistent/text").ok());
}

// ---- Drafts ----

class TextDrafts : public testing::Test {
 protected:
  IdList DraftAfter(const std::string& context, int granted) {
    const std::shared_ptr<Tenant> tenant = tenants_.Get(nullptr);
    const auto state = drafter_.NewStateOf(DrafterKind::kNgram, {}, tenant);
    const IdList ids(context.begin(), context.end());
    Proposal proposal;
    Proposal* const proposals[] = {&proposal};
    const DraftRequest request{.context = ids,
                               .num_committed = static_cast<int>(ids.size()),
                               .granted = granted,
                               .source = DraftSource::kText,
                               .state = state.get()};
    EXPECT_TRUE(drafter_.Propose({&request, 1}, proposals).ok());
    options_ = drafter_.Options(state.get(), ids);
    return proposal.tokens;
  }

  std::shared_ptr<DraftTextStore> store_ = std::make_shared<DraftTextStore>(1 << 20);
  Tenants tenants_{0, store_};
  NgramDrafter drafter_;
  ByteTokens tokenizer_;
  std::vector<DraftOption> options_;
};

TEST_F(TextDrafts, AreAnOptionOfTheNgramDrafterWhileTheTextIsHeld) {
  EXPECT_THAT(DraftAfter("zabc", 8), IsEmpty());
  EXPECT_THAT(options_, IsEmpty());
  const auto added = store_->Add(TextOf("..abcdefgh"), tokenizer_);
  ASSERT_TRUE(added.ok());
  EXPECT_THAT(DraftAfter("zabc", 8), IsEmpty());  // until tenants are refreshed
  tenants_.RefreshTexts();
  EXPECT_THAT(DraftAfter("zabc", 3), ElementsAre('d', 'e', 'f'));
  ASSERT_THAT(options_, SizeIs(1));
  EXPECT_EQ(options_[0].source, DraftSource::kText);
  EXPECT_EQ(options_[0].max_tokens, 5);
  ASSERT_TRUE(store_->Remove(added->id, "").ok());
  tenants_.RefreshTexts();
  EXPECT_THAT(DraftAfter("zabc", 3), IsEmpty());
}

TEST_F(TextDrafts, HaveEvidenceThatGrowsWithTheMatch) {
  int before = -1;
  for (const int length : {3, 6, 8, 16}) {
    const int evidence =
        NgramDrafter::TextEvidenceOf(DraftText::Match{.length = length, .next = 1});
    EXPECT_EQ(evidence, before + (before < 0 ? 1 : 2));
    before = evidence;
  }
  EXPECT_LT(
      NgramDrafter::TextEvidenceOf(DraftText::Match{.length = 32, .next = 1, .is_repeated = true}),
      kNumEvidence);
}

}  // namespace
}  // namespace tandem
