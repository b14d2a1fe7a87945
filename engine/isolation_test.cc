// Failures of a session's constraint or draft do not affect other sessions.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/source_path_testing.h"
#include "engine/round.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tandem/tokenizer.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void FailAsLibrariesDo() { std::vector<int>().at(0); }

enum class Failure {
  kAcceptThrows,
  kAllowedThrows,
  kAcceptRunsOutOfTime,
  kAllowedRunsOutOfTime,
};

// Allows every token, and fails after `num_good` calls.
class FailingState final : public ConstraintState {
 public:
  FailingState(Failure failure, int num_good) : failure_(failure), num_good_(num_good) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<FailingState>(*this);
  }
  bool Accept(TokenId /*token*/) override {
    if (failure_ == Failure::kAcceptThrows && num_good_-- == 0) FailAsLibrariesDo();
    return failure_ != Failure::kAcceptRunsOutOfTime || !RunsOutOfTime();
  }
  void Undo() override {}
  absl::Span<const uint32_t> Allowed() override {
    if (failure_ == Failure::kAllowedThrows && num_good_-- == 0) FailAsLibrariesDo();
    if (failure_ == Failure::kAllowedRunsOutOfTime && RunsOutOfTime()) return {};
    return mask_;
  }
  std::string Forced() override { return ""; }
  absl::Status status() const override { return status_; }

 private:
  bool RunsOutOfTime() {
    if (num_good_-- > 0) return false;
    status_ = FieldError("constraint", "cannot be followed");
    return true;
  }

  Failure failure_;
  int num_good_;
  std::vector<uint32_t> mask_ = {~uint32_t{0}};
  absl::Status status_;
};

class FailingConstraint final : public TokenConstraint {
 public:
  FailingConstraint(Failure failure, int num_good) : failure_(failure), num_good_(num_good) {}
  std::unique_ptr<ConstraintState> Begin() const override {
    return std::make_unique<FailingState>(failure_, num_good_);
  }

 private:
  Failure failure_;
  int num_good_;
};

constexpr int kLength = 12;
Ask VictimsAsk() { return {.prompt = {3, 1, 4, 1, 5}, .max_tokens = kLength, .seed = 5}; }

// Row 118 of the bug catalogue: the constraint may fail at any call, in a draft, a verification or
// a commit.
TEST(RunRound, AFailingConstraintEndsOnlyItsSession) {
  for (const Failure failure : {Failure::kAcceptThrows, Failure::kAllowedThrows,
                                Failure::kAcceptRunsOutOfTime, Failure::kAllowedRunsOutOfTime}) {
    const bool throws = failure == Failure::kAcceptThrows || failure == Failure::kAllowedThrows;
    int num_failed = 0;
    for (int num_good = 0; num_good < 30; ++num_good) {
      for (const DraftSource source : {DraftSource::kModel, DraftSource::kPredicted}) {
        RoundModels models;
        const auto alone = Plain(VictimsAsk(), &models);
        Ask ask = VictimsAsk();
        ask.sampling.constraint = std::make_shared<const FailingConstraint>(failure, num_good);
        std::vector<std::unique_ptr<Session>> sessions;
        sessions.push_back(Start(&models, &models.drafter, ask));
        sessions.push_back(Start(&models, &models.drafter, VictimsAsk()));
        for (const auto& session : sessions) {
          session->prediction =
              Prediction(std::make_shared<const PredictedText>("", OutputOf(*alone)));
        }
        RunAll(&models, &models.drafter, sessions, 2, {.source = source});
        ExpectSameCompletion(*sessions[1], *alone);
        const absl::Status& status = sessions[0]->status;
        if (status.ok()) {
          EXPECT_EQ(sessions[0]->tokens, alone->tokens);
        } else if (throws) {
          EXPECT_THAT(status.message(), HasSubstr("vector::_M_range_check"));
        } else {
          EXPECT_EQ(status, FieldError("constraint", "cannot be followed"));
        }
        num_failed += status.ok() ? 0 : 1;
        sessions.clear();
        const KvSequence* const held[] = {&alone->target_kv};
        EXPECT_TRUE(models.target_cache->CheckIntegrity(held).ok());
        EXPECT_TRUE(models.drafter.CheckIntegrity().ok());
      }
    }
    EXPECT_GT(num_failed, 5);
  }
}

TEST(RunRound, AFailingDraftModelCostsOnlyDrafts) {
  for (int pass_that_throws = 0; pass_that_throws < 12; ++pass_that_throws) {
    RoundModels models;
    const auto alone = Plain(VictimsAsk(), &models);
    int pass = 0;
    models.draft.options().on_pass = [&](int /*num_tokens*/) {
      if (pass++ == pass_that_throws) FailAsLibrariesDo();
    };
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 2; ++i) {
      sessions.push_back(Start(&models, &models.drafter, VictimsAsk()));
    }
    RunAll(&models, &models.drafter, sessions, 2, {.source = DraftSource::kModel});
    for (const auto& session : sessions) {
      ExpectSameCompletion(*session, *alone);
      EXPECT_LE(session->completion.stats.draft_failures, 1);
    }
  }
}

// Sessions are unchanged by the failed round.
TEST(RunRound, AFailingTargetFailsTheRound) {
  RoundModels models;
  const auto alone = Plain(VictimsAsk(), &models);
  bool throws = true;
  models.target.options().on_pass = [&](int /*num_tokens*/) {
    if (std::exchange(throws, false)) FailAsLibrariesDo();
  };
  const auto session = Start(&models, &models.drafter, VictimsAsk());
  const absl::Status status = models.Round(&models.drafter, session.get(), 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("round: vector"));
  while (!session->finished) ASSERT_TRUE(models.Round(&models.drafter, session.get(), 2).ok());
  ExpectSameCompletion(*session, *alone);
}

// ---- Given drafts ----

TEST(KeepToConstraint, DropsDraftsAfterABrokenHistory) {
  Session session;
  session.sampling.constraint = std::make_shared<const ClassConstraint>();
  session.history = TokenHistory(session.sampling.constraint.get());
  KeepToConstraint(&session);
  EXPECT_THAT(session.proposal.tokens, IsEmpty());
  for (const TokenId token : {0, 1, 1, 1}) Suggest(token, &session.proposal);
  KeepToConstraint(&session);
  EXPECT_THAT(session.proposal.tokens,
              SizeIs(3));        // the last token is not allowed after a sum of 2
  session.history.AddOutput(2);  // not allowed as the first token
  session.history.Commit();
  KeepToConstraint(&session);
  EXPECT_THAT(session.proposal.tokens, IsEmpty());
  KeepToConstraint(&session);
  EXPECT_THAT(session.proposal.tokens, IsEmpty());
}

// Forces a practically endless text, and counts the calls of Accept.
class EndlessState final : public ConstraintState {
 public:
  explicit EndlessState(int* num_accepted) : num_accepted_(num_accepted) {}
  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<EndlessState>(*this);
  }
  bool Accept(TokenId /*token*/) override {
    ++*num_accepted_;
    return true;
  }
  void Undo() override {}
  absl::Span<const uint32_t> Allowed() override { return {}; }
  std::string Forced() override {
    std::string text = "x";
    while (text.size() < 250'000) text += "é";  // kMaxForcedBytes falls within one
    return text;
  }

 private:
  int* num_accepted_;
};

TEST(FindGivenDrafts, ReadsOnlyAsMuchOfALiteralAsDraftsCanUse) {
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  int num_accepted = 0;
  Session session;
  session.sampling.constraint = std::make_shared<const ClassConstraint>();
  session.history = TokenHistory(std::make_unique<EndlessState>(&num_accepted));
  session.draft_state = std::make_unique<DraftState>();
  FindGivenDrafts(*tokenizer, &session);
  EXPECT_EQ(session.forced.size(), size_t{kMaxDraftTokens});
  EXPECT_EQ(num_accepted, kMaxDraftTokens);
}

}  // namespace
}  // namespace tandem
