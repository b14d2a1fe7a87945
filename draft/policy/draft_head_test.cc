#include "draft/policy/draft_head.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::Not;

constexpr int kHeadVocab = 40000;
// Like Qwen2.5-Coder 1.5B and 0.5B: the head takes a third of a step.
constexpr DraftHead::Bytes kHeadBytes = {.body = 250e6, .row = 952.0 * 3.8, .target = 1000e6};

std::vector<TokenId> AllHeadIds() {
  std::vector<TokenId> ids(kHeadVocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::swap(ids[0], ids[kHeadVocab - 1]);  // the end token
  return ids;
}

// Returns an estimate after `tenths` of ten draft tokens were accepted.
AcceptanceEstimate AcceptanceOf(int tenths) {
  AcceptanceEstimate acceptance;
  for (int round = 0; round < 300; ++round) {
    acceptance.Observe({.source = DraftSource::kModel}, 1, round % 10 < tenths ? 1 : 0);
  }
  return acceptance;
}

TEST(DraftHead, StartsWithTheTopOfTheRanking) {
  const DraftHead head(AllHeadIds(), 1, kHeadBytes);
  EXPECT_EQ(head.size(), 16384);
  const std::vector<TokenId> ids = head.Ids();
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(ids.back(), kHeadVocab - 1);  // the end token
  EXPECT_EQ(ids[ids.size() - 2], 16383);
  EXPECT_GT(head.coverage(), 0.8);
  EXPECT_EQ(head.CoverageOf(kHeadVocab), 1.0);
}

TEST(DraftHead, StaysWholeIfRowsAreCheap) {
  const DraftHead head(AllHeadIds(), 1, {.body = 300e6, .row = 1.0, .target = 1000e6});
  EXPECT_EQ(head.size(), kHeadVocab);
  EXPECT_EQ(head.coverage(), 1.0);
}

// A rare token enters the head after it was seen, and a common one stays.
TEST(DraftHead, AddsTokensThatWereSeen) {
  constexpr TokenId kRare = 37000;
  DraftHead head(AllHeadIds(), 1, kHeadBytes);
  EXPECT_THAT(head.Ids(), Not(Contains(kRare)));
  head.ObservePrompt(std::vector<TokenId>{kRare, -1, kHeadVocab + 5});
  EXPECT_FALSE(head.is_due());
  for (int i = 0; i < 300; ++i) head.ObserveOutput(std::vector<TokenId>{5 + i % 7, kRare});
  ASSERT_TRUE(head.is_due());
  EXPECT_TRUE(head.Update(AcceptanceOf(7)));
  EXPECT_FALSE(head.is_due());
  EXPECT_THAT(head.Ids(), Contains(kRare));
  EXPECT_THAT(head.Ids(), Contains(5));
  EXPECT_THAT(head.Ids(), Contains(kHeadVocab - 1));
  // Such a text needs few tokens. After the head has shrunk, it is not worth rebuilding.
  bool is_made = true;
  for (int update = 0; update < 4; ++update) {
    for (int i = 0; i < 600; ++i) head.ObserveOutput(std::vector<TokenId>{5 + i % 7, kRare});
    is_made = head.Update(AcceptanceOf(7));
  }
  EXPECT_FALSE(is_made);
  EXPECT_LT(head.size(), 16384);
}

// Coverage is measured before tokens are counted, so it predicts unseen text.
TEST(DraftHead, MeasuresCoverageBeforeLearning) {
  DraftHead head(AllHeadIds(), 1, kHeadBytes);
  for (TokenId id = 20000; id < 24000; ++id) head.ObserveOutput({&id, 1});
  EXPECT_LT(head.CoverageOf(16384), 0.1);
  EXPECT_GT(head.CoverageOf(32768), 0.9);
}

TEST(DraftHead, IsAsLargeAsTheTextNeeds) {
  DraftHead narrow(AllHeadIds(), 1, kHeadBytes);
  DraftHead wide(AllHeadIds(), 1, kHeadBytes);
  for (int i = 0; i < 20000; ++i) {
    const TokenId common = i % 500;
    const TokenId rare = i * 7919 % kHeadVocab;
    narrow.ObserveOutput({&common, 1});
    wide.ObserveOutput({&rare, 1});
  }
  narrow.Update(AcceptanceOf(7));
  wide.Update(AcceptanceOf(7));
  EXPECT_EQ(narrow.size(), DraftHead::kMinTokens);
  EXPECT_GE(wide.size(), 32768);
}

TEST(DraftHead, SurvivesSerialization) {
  DraftHead head(AllHeadIds(), 1, kHeadBytes);
  for (int i = 0; i < 3000; ++i) head.ObserveOutput(std::vector<TokenId>{i * i % 30000, 17});
  head.Update(AcceptanceOf(6));
  StateArchive written;
  head.Serialize(&written);
  StateArchive read(written.numbers());
  DraftHead again(AllHeadIds(), 1, kHeadBytes);
  again.Serialize(&read);
  EXPECT_TRUE(read.is_complete());
  head.Update(AcceptanceOf(6));
  again.Update(AcceptanceOf(6));
  EXPECT_EQ(again.Ids(), head.Ids());
  EXPECT_EQ(again.coverage(), head.coverage());
  // Ids out of range are rejected.
  std::vector<double> numbers = written.numbers();
  *(numbers.end() - 2) = kHeadVocab;
  StateArchive damaged(numbers);
  again.Serialize(&damaged);
  EXPECT_FALSE(damaged.is_complete());
}

}  // namespace
}  // namespace tandem
