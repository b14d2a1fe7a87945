#include <string>
#include <utility>
#include <vector>

#include "draft/make_drafter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Proposes as many copies of its token as granted, and logs its calls.
class LoggingDrafter final : public Drafter {
 public:
  LoggingDrafter(DraftSource source, TokenId token, std::vector<std::string>* log)
      : source_(source), token_(token), log_(*log) {}

  std::string_view name() const override { return "logging"; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind /*kind*/, absl::Span<const TokenId> /*prompt*/,
                                         std::shared_ptr<const Tenant> /*tenant*/) override {
    auto state = std::make_unique<State>();
    state->owner = this;
    return state;
  }
  std::vector<DraftOption> Options(DraftState* state,
                                   absl::Span<const TokenId> /*context*/) override {
    Check(state, "options");
    return {{.source = source_, .max_tokens = token_}};
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      Check(requests[i].state, "propose");
      for (int j = 0; j < requests[i].granted; ++j) proposals[i]->tokens.push_back(token_);
    }
    return fails ? absl::InternalError("injected") : absl::OkStatus();
  }
  void Rollback(DraftState* state, int length) override {
    Check(state, "rollback " + std::to_string(length));
  }
  void Publish(DraftState* state, absl::Span<const TokenId> /*tokens*/) override {
    Check(state, "publish");
  }
  void Evict(DraftState* state) override { Check(state, "evict"); }

  bool fails = false;

 private:
  struct State final : DraftState {
    LoggingDrafter* owner = nullptr;
  };
  void Check(DraftState* state, std::string what) {
    EXPECT_EQ(static_cast<State*>(state)->owner, this);
    log_.push_back((source_ == DraftSource::kModel ? "model: " : "lookup: ") + std::move(what));
  }

  DraftSource source_;
  TokenId token_;
  std::vector<std::string>& log_;
};

struct CombinedWorld {
  explicit CombinedWorld(DraftSource lookup_source = DraftSource::kLookup) {
    auto model_part = std::make_unique<LoggingDrafter>(DraftSource::kModel, 1, &log);
    auto lookup_part = std::make_unique<LoggingDrafter>(lookup_source, 2, &log);
    model = model_part.get();
    lookup = lookup_part.get();
    drafter = CombineDrafters(std::move(model_part), std::move(lookup_part));
  }
  std::vector<std::string> log;
  LoggingDrafter* model;
  LoggingDrafter* lookup;
  std::unique_ptr<Drafter> drafter;
};

// A sequence whose kind names only one drafter never uses the other.
TEST(CombinedDrafter, UsesOnlyTheDrafterOfTheSequencesKind) {
  const std::vector<TokenId> context = {4, 5};
  for (const bool is_model : {true, false}) {
    CombinedWorld world;
    const auto state = world.drafter->NewStateOf(
        is_model ? DrafterKind::kModel : DrafterKind::kNgram, context, nullptr);
    const std::vector<DraftOption> options = world.drafter->Options(state.get(), context);
    ASSERT_EQ(options.size(), 1u);
    EXPECT_EQ(options[0].source, is_model ? DraftSource::kModel : DraftSource::kLookup);
    for (const DraftSource source : {DraftSource::kModel, DraftSource::kLookup}) {
      Proposal proposal;
      Proposal* const to = &proposal;
      const DraftRequest request{
          .context = context, .granted = 2, .source = source, .state = state.get()};
      ASSERT_TRUE(world.drafter->Propose({&request, 1}, {&to, 1}).ok());
      EXPECT_EQ(proposal.tokens.size(), source == options[0].source ? 2u : 0u);
    }
    world.drafter->Publish(state.get(), context);
    world.drafter->AdoptLongerPrefix(state.get(), context, KvSequence());
    world.drafter->Rollback(state.get(), 1);
    world.drafter->Evict(state.get());
    EXPECT_EQ(world.drafter->NumCached(*state), 0);
    const std::string own = is_model ? "model: " : "lookup: ";
    for (const std::string& line : world.log) EXPECT_EQ(line.substr(0, own.size()), own);
    EXPECT_EQ(world.log.size(), 5u);
  }
}

TEST(CombinedDrafter, OffersSuccessorsOnlyWithoutAModel) {
  const std::vector<TokenId> context = {4, 5};
  const auto sources = [&](DraftSource lookup, DrafterKind kind) {
    CombinedWorld world(lookup);
    const auto state = world.drafter->NewStateOf(kind, context, nullptr);
    std::vector<DraftSource> offered;
    for (const DraftOption& option : world.drafter->Options(state.get(), context)) {
      offered.push_back(option.source);
    }
    return offered;
  };
  EXPECT_THAT(sources(DraftSource::kSuccessors, DrafterKind::kModelAndNgram),
              ElementsAre(DraftSource::kModel));
  EXPECT_THAT(sources(DraftSource::kSuccessors, DrafterKind::kNgram),
              ElementsAre(DraftSource::kSuccessors));
  EXPECT_THAT(sources(DraftSource::kMemory, DrafterKind::kModelAndNgram),
              ElementsAre(DraftSource::kModel, DraftSource::kMemory));
}

TEST(CombinedDrafter, OffersTheOptionsOfBoth) {
  CombinedWorld world;
  const auto state = world.drafter->NewState({});
  const std::vector<DraftOption> options = world.drafter->Options(state.get(), {});
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].source, DraftSource::kModel);
  EXPECT_EQ(options[0].max_tokens, 1);
  EXPECT_EQ(options[1].source, DraftSource::kLookup);
  EXPECT_EQ(options[1].max_tokens, 2);
}

TEST(CombinedDrafter, DraftsWithTheChosenDrafter) {
  CombinedWorld world;
  std::vector<std::unique_ptr<DraftState>> states;
  std::vector<DraftRequest> requests;
  std::vector<Proposal> proposals(3);
  std::vector<Proposal*> pointers;
  for (int i = 0; i < 3; ++i) {
    states.push_back(world.drafter->NewState({}));
    requests.push_back({.context = {},
                        .granted = i + 1,
                        .source = i == 1 ? DraftSource::kLookup : DraftSource::kModel,
                        .state = states[i].get()});
    pointers.push_back(&proposals[i]);
  }
  ASSERT_TRUE(world.drafter->Propose(requests, pointers).ok());
  EXPECT_THAT(proposals[0].tokens, ElementsAre(1));
  EXPECT_THAT(proposals[1].tokens, ElementsAre(2, 2));
  EXPECT_THAT(proposals[2].tokens, ElementsAre(1, 1, 1));
  world.lookup->fails = true;
  EXPECT_FALSE(world.drafter->Propose(requests, pointers).ok());
}

TEST(CombinedDrafter, ForwardsCallsToBoth) {
  CombinedWorld world;
  const auto state = world.drafter->NewState({});
  world.drafter->Rollback(state.get(), 5);
  world.drafter->Publish(state.get(), {});
  world.drafter->Evict(state.get());
  EXPECT_THAT(world.log, ElementsAre("model: rollback 5", "lookup: rollback 5", "model: publish",
                                     "lookup: publish", "model: evict", "lookup: evict"));
  ASSERT_TRUE(world.drafter->Propose({}, {}).ok());
}

}  // namespace
}  // namespace tandem
