#include "draft/ngram_drafter.h"

#include <algorithm>
#include <random>
#include <vector>

#include "draft/tenants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Tokens = std::vector<TokenId>;

// Brute force: the longest end of `text` that occurs earlier, and the latest place after it.
NgramIndex::Match FindByTrying(const Tokens& text) {
  const int end = static_cast<int>(text.size());
  const auto length_at = [&](int place) {
    int length = 0;
    while (length < place && text[place - 1 - length] == text[end - 1 - length]) ++length;
    return std::min(length, NgramIndex::kLongestMatch);
  };
  // The index keys runs by at most their last kLongestKey tokens.
  const auto key_at = [&](int place) {
    return std::min(length_at(place), NgramIndex::kLongestKey);
  };
  int longest = 0;
  for (int place = 1; place < end; ++place) longest = std::max(longest, key_at(place));
  if (longest == 0) return {};
  std::vector<int> places;
  for (int place = end - 1; place > 0; --place) {
    if (key_at(place) >= longest) places.push_back(place);
  }
  return {.length = length_at(places[0]),
          .next = places[0],
          .is_repeated = places.size() > 1 && text[places[1]] == text[places[0]]};
}

TEST(NgramIndex, FindsTheLongestMatchAndItsLatestPlace) {
  for (const int vocab : {1, 2, 3, 10, 1000}) {
    std::mt19937_64 random(vocab);
    const Tokens all = RandomTokens(random, vocab, 200);
    NgramIndex index;
    Tokens text;
    for (const TokenId token : all) {
      text.push_back(token);
      // Skip some lengths, so that Extend indexes several tokens at once.
      if (random() % 3 == 0) continue;
      index.Extend(text);
      const NgramIndex::Match match = index.Find(text);
      const NgramIndex::Match want = FindByTrying(text);
      ASSERT_EQ(match.length, want.length) << vocab << " " << text.size();
      ASSERT_EQ(match.next, want.next);
      ASSERT_EQ(match.is_repeated, want.is_repeated);
    }
  }
}

TEST(NgramIndex, FindsNothingInATextWithoutRepetition) {
  NgramIndex index;
  for (const Tokens& text : {Tokens{}, Tokens{1}, Tokens{1, 2, 3, 4}}) {
    index.Extend(text);
    EXPECT_EQ(index.Find(text).length, 0);
  }
}

struct LookedUpText {
  explicit LookedUpText(Tokens text, std::shared_ptr<const Tenant> tenant = nullptr)
      : tokens(std::move(text)),
        state(drafter.NewStateOf(DrafterKind::kNgram, tokens, std::move(tenant))) {}
  Tokens Draft(int max_tokens, DraftSource source = DraftSource::kLookup) {
    proposal.Clear();
    const DraftRequest request{
        .context = tokens, .granted = max_tokens, .source = source, .state = state.get()};
    Proposal* proposals[] = {&proposal};
    EXPECT_TRUE(drafter.Propose({&request, 1}, proposals).ok());
    return proposal.tokens;
  }

  NgramDrafter drafter;
  Tokens tokens;
  std::unique_ptr<DraftState> state;
  Proposal proposal;
};

TEST(NgramDrafter, ProposesTheTokensAfterTheLatestOccurrence) {
  LookedUpText s({1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 2, 3});
  EXPECT_THAT(s.Draft(3), ElementsAre(5, 6, 7));
  s.tokens.push_back(4);
  EXPECT_THAT(s.Draft(2), ElementsAre(9, 2));
  s.tokens.push_back(100);
  EXPECT_THAT(s.Draft(4), IsEmpty());
  EXPECT_THAT(s.drafter.Options(s.state.get(), s.tokens), IsEmpty());
}

TEST(NgramDrafter, ContinuesARepetitiveTextBeyondItsEnd) {
  LookedUpText s({7, 1, 2, 3, 1, 2, 3, 1});
  EXPECT_THAT(s.Draft(7), ElementsAre(2, 3, 1, 2, 3, 1, 2));
}

TEST(NgramDrafter, ProposesEachTokenWithCertainty) {
  LookedUpText s({1, 2, 1, 2, 1});
  s.proposal.drawn_from.resize(3);
  s.proposal.drawn_from[1].probs = {0.5f, 0.5f};  // left from another drafter
  s.Draft(3);
  ASSERT_GE(s.proposal.drawn_from.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(s.proposal.drawn_from[i].only, s.proposal.tokens[i]);
    EXPECT_THAT(s.proposal.drawn_from[i].probs, IsEmpty());
  }
  EXPECT_FALSE(s.drafter.is_drawn());
}

TEST(NgramDrafter, ProposesNothingWhenGrantedNoTokens) {
  LookedUpText s({1, 1, 1});
  EXPECT_THAT(s.Draft(0), IsEmpty());
}

// While a prompt is read in chunks, the index may already hold all of it. A sanitizer reports reads
// beyond the part that is shown.
TEST(NgramDrafter, ProposesNothingAfterAPartOfAnIndexedPrompt) {
  LookedUpText s(Tokens(50, 1));
  EXPECT_THAT(s.drafter.Options(s.state.get(), s.tokens), testing::SizeIs(1));
  s.tokens = Tokens(7, 1);
  EXPECT_THAT(s.Draft(0), IsEmpty());
}

// A rollback into the indexed text clears the index, and the replacement tokens count.
TEST(NgramDrafter, ForgetsRolledBackTokens) {
  LookedUpText s({1, 2, 3, 1, 2, 4, 1, 2});
  EXPECT_THAT(s.Draft(1), ElementsAre(4));
  s.drafter.Rollback(s.state.get(), 5);
  s.tokens = {1, 2, 3, 1, 2, 5, 1, 2};
  EXPECT_THAT(s.Draft(1), ElementsAre(5));
  s.drafter.Rollback(s.state.get(), 8);  // nothing to forget
  EXPECT_THAT(s.Draft(1), ElementsAre(5));
}

TEST(NgramDrafter, EvidenceGrowsWithTheMatch) {
  EXPECT_LT(NgramDrafter::EvidenceOf({.length = 1, .next = 1, .is_repeated = false}),
            NgramDrafter::EvidenceOf({.length = 1, .next = 1, .is_repeated = true}));
  for (const int length : {1, 2, 3, 6, NgramIndex::kLongestMatch}) {
    const int evidence = NgramDrafter::EvidenceOf({.length = length, .is_repeated = true});
    EXPECT_GE(evidence, 0);
    EXPECT_LT(evidence, kNumEvidence);
    EXPECT_GE(evidence,
              NgramDrafter::EvidenceOf({.length = std::max(1, length - 1), .is_repeated = true}));
  }
  LookedUpText s({1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6});
  const std::vector<DraftOption> options = s.drafter.Options(s.state.get(), s.tokens);
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].source, DraftSource::kLookup);
  EXPECT_EQ(options[0].evidence, NgramDrafter::EvidenceOf({.length = 6}));
  EXPECT_EQ(options[0].max_tokens, kMaxDraftTokens);
}

// ---- Memory of earlier texts of the tenant ----

std::shared_ptr<Tenant> TenantThatWrote(const std::vector<Tokens>& texts) {
  auto tenant = std::make_shared<Tenant>();
  tenant->memory = std::make_unique<TextMemory>(size_t{1} << 20);
  for (const Tokens& text : texts) tenant->memory->Learn(text, static_cast<int>(text.size()));
  return tenant;
}

TEST(NgramDrafter, OffersContinuationsOfEarlierTextsOfItsTenant) {
  const auto tenant = TenantThatWrote({{1, 2, 3, 4, 5, 6}});
  LookedUpText s({9, 1, 2, 3}, tenant);
  const std::vector<DraftOption> options = s.drafter.Options(s.state.get(), s.tokens);
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].source, DraftSource::kMemory);
  EXPECT_EQ(options[0].max_tokens, 3);
  EXPECT_THAT(s.Draft(2, DraftSource::kMemory), ElementsAre(4, 5));
  EXPECT_THAT(s.Draft(8, DraftSource::kMemory), ElementsAre(4, 5, 6));
  EXPECT_EQ(s.proposal.drawn_from[2].only, 6);
  EXPECT_THAT(s.proposal.drawn_from[2].probs, IsEmpty());
  EXPECT_THAT(LookedUpText({9, 1, 2, 3}).Draft(3, DraftSource::kMemory), IsEmpty());
}

TEST(NgramDrafter, OffersSuccessorsOfShortRuns) {
  const auto tenant = TenantThatWrote({{1, 2, 3, 4}});
  LookedUpText s({9, 9, 2}, tenant);
  const std::vector<DraftOption> options = s.drafter.Options(s.state.get(), s.tokens);
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].source, DraftSource::kSuccessors);
  EXPECT_THAT(s.Draft(3, DraftSource::kSuccessors), ElementsAre(3, 4));
}

TEST(NgramDrafter, OffersItsOwnTextAndTheMemory) {
  const auto tenant = TenantThatWrote({{1, 2, 3, 4, 5}});
  LookedUpText s({1, 2, 3, 7, 1, 2, 3}, tenant);
  const std::vector<DraftOption> options = s.drafter.Options(s.state.get(), s.tokens);
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].source, DraftSource::kLookup);
  EXPECT_EQ(options[1].source, DraftSource::kMemory);
  for (const DraftOption& option : options) EXPECT_LT(option.evidence, kNumEvidence);
  EXPECT_THAT(s.Draft(1), ElementsAre(7));
  EXPECT_THAT(s.Draft(1, DraftSource::kMemory), ElementsAre(4));
}

// Tenants drops the memory of an evicted tenant while its sequences still run.
TEST(NgramDrafter, WorksAfterItsTenantLosesItsMemory) {
  const auto tenant = TenantThatWrote({{1, 2, 3, 4, 5}});
  LookedUpText s({1, 2, 3}, tenant);
  EXPECT_EQ(s.drafter.Options(s.state.get(), s.tokens).size(), 1u);
  tenant->memory = nullptr;
  EXPECT_THAT(s.drafter.Options(s.state.get(), s.tokens), IsEmpty());
  EXPECT_THAT(s.Draft(2, DraftSource::kMemory), IsEmpty());
}

}  // namespace
}  // namespace tandem
