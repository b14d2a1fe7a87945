#include "engine/idle_reason.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Adds `count` rounds with a draft of one token, or plain ones.
void AddRounds(int count, DraftSource source, int proposed, int accepted, Session* session) {
  for (int i = 0; i < count; ++i) session->completion.stats.Add(source, proposed, accepted, 1);
}

std::string ReasonOf(const Session& session) { return IdleReasonOf(session, RoundCosts()); }

TEST(IdleReason, NamesCostsAndSources) {
  Session session;
  session.draft_tokens = kAutoDraftTokens;
  session.drafter = DrafterKind::kModelAndNgram;
  AddRounds(8, DraftSource::kLookup, 1, 1, &session);
  AddRounds(2, DraftSource::kLookup, 1, 0, &session);
  AddRounds(30, DraftSource::kModel, 0, 0, &session);
  EXPECT_EQ(
      ReasonOf(session),
      "draft idle in 30 of 40 rounds: a step costs 0.25 of a plain pass by its size, a row "
      "0.10; 8 of 10 tokens of lookup kept, the model not tried; -k 4 (draft_tokens) forces it");
  session.drafter = DrafterKind::kNgram;
  EXPECT_THAT(ReasonOf(session),
              StartsWith("draft idle in 30 of 40 rounds: a row costs 0.10 of a plain pass; 8 of"));
  session.drafter = DrafterKind::kModelAndNgram;
  RoundCosts costs;
  costs.Observe({.num_rows = 1, .verify_time = absl::Milliseconds(10)});
  costs.Observe({.is_plain = false,
                 .num_rows = 2,
                 .num_steps = 1,
                 .num_draft_sequences = 1,
                 .draft_time = absl::Milliseconds(4),
                 .verify_time = absl::Milliseconds(13)});
  EXPECT_THAT(IdleReasonOf(session, costs),
              HasSubstr("a step costs 0.40 of a plain pass, a row 0.30;"));
}

TEST(IdleReason, IsEmptyWhereNothingIsToBeExplained) {
  Session session;
  session.draft_tokens = kAutoDraftTokens;
  session.drafter = DrafterKind::kModel;
  AddRounds(7, DraftSource::kModel, 0, 0, &session);
  EXPECT_EQ(ReasonOf(session), "");  // too few
  AddRounds(1, DraftSource::kModel, 0, 0, &session);
  EXPECT_THAT(ReasonOf(session), HasSubstr("the model not tried"));
  AddRounds(8, DraftSource::kModel, 1, 1, &session);
  EXPECT_EQ(ReasonOf(session), "");  // half of them drafted
  AddRounds(8, DraftSource::kModel, 0, 0, &session);
  EXPECT_THAT(ReasonOf(session), HasSubstr("8 of 8 tokens of model kept"));
  session.draft_tokens = 3;
  EXPECT_EQ(ReasonOf(session), "");
  session.draft_tokens = kAutoDraftTokens;
  session.drafter = DrafterKind::kNone;
  EXPECT_EQ(ReasonOf(session), "");
}

}  // namespace
}  // namespace tandem
