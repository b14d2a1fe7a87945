#include "tests/disturbed_world.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/make_drafter.h"
#include "draft/ngram_drafter.h"
#include "kvcache/kv_testing.h"

namespace tandem {
namespace {

constexpr int kTargetPageSize = 4;  // of RoundModels
constexpr int kDraftPageSize = 2;
constexpr int kGenerations = 14;
constexpr int kLive = 6;  // at most at the same time
constexpr int kMaxRounds = 4000;

}  // namespace

// ---- Drafters ----

struct CatalogueDrafter::State final : DraftState {
  Proposer proposer = Proposer::kModel;
  const Tokens* expected = nullptr;
  std::unique_ptr<DraftState> inner;
};

Drafter* CatalogueDrafter::InnerOf(Proposer proposer) const {
  switch (proposer) {
    case Proposer::kModel:
      return inner_.model;
    case Proposer::kSelf:
      return inner_.self;
    case Proposer::kLookup:
      return inner_.lookup;
    case Proposer::kBoth:
      return inner_.both;
    default:
      return nullptr;
  }
}

std::unique_ptr<DraftState> CatalogueDrafter::NewStateFor(Proposer proposer, const Tokens* expected,
                                                          absl::Span<const TokenId> prompt) {
  auto state = std::make_unique<State>();
  state->proposer = proposer;
  state->expected = expected;
  if (Drafter* inner = InnerOf(proposer)) state->inner = inner->NewState(prompt);
  return state;
}

void CatalogueDrafter::Suggestions(const State& state, const DraftRequest& request,
                                   Proposal* proposal) {
  constexpr TokenId kIllegal[] = {-1, -7, kSmallVocab, kSmallVocab + 1, 1 << 20, INT_MIN, INT_MAX};
  const int illegal_from = static_cast<int>(random_() % 4);
  for (int i = 0; i < request.granted; ++i) {
    const size_t at = request.context.size() + i;
    const TokenId right = at < state.expected->size() ? (*state.expected)[at] : 0;
    const TokenId wrong = static_cast<TokenId>((right + 1 + random_() % (vocab_ - 1)) % vocab_);
    switch (state.proposer) {
      case Proposer::kOracle:
        Suggest(right, proposal);
        break;
      case Proposer::kWrong:
        Suggest(wrong, proposal);
        break;
      case Proposer::kRightThenWrong:
        Suggest(i < 2 ? right : wrong, proposal);
        break;
      case Proposer::kRandom:
      case Proposer::kFailing:
        Suggest(static_cast<TokenId>(random_() % vocab_), proposal);
        break;
      case Proposer::kIllegal:
        Suggest(i < illegal_from ? right : kIllegal[random_() % std::size(kIllegal)], proposal);
        break;
      case Proposer::kStops:
        Suggest(kStopToken, proposal);
        break;
      default:
        return;
    }
  }
}

std::vector<DraftOption> CatalogueDrafter::Options(DraftState* state,
                                                   absl::Span<const TokenId> context) {
  State& s = *static_cast<State*>(state);
  if (s.inner != nullptr) return InnerOf(s.proposer)->Options(s.inner.get(), context);
  return {{.source = DraftSource::kModel, .evidence = 0, .max_tokens = 8, .num_unread = 1}};
}

absl::Status CatalogueDrafter::Propose(absl::Span<const DraftRequest> requests,
                                       absl::Span<Proposal* const> proposals) {
  std::map<Drafter*, std::pair<std::vector<DraftRequest>, std::vector<Proposal*>>> inner;
  bool fails = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    State& state = *static_cast<State*>(requests[i].state);
    if (state.inner == nullptr) {
      Suggestions(state, requests[i], proposals[i]);
      fails = fails || (state.proposer == Proposer::kFailing && random_() % 3 == 0);
      continue;
    }
    auto& [inner_requests, inner_proposals] = inner[InnerOf(state.proposer)];
    inner_requests.push_back(requests[i]);
    inner_requests.back().state = state.inner.get();
    inner_proposals.push_back(proposals[i]);
  }
  for (const auto& [drafter, work] : inner) {
    RETURN_IF_ERROR(drafter->Propose(work.first, work.second));
  }
  return fails ? absl::InternalError("the drafter fails") : absl::OkStatus();
}

void CatalogueDrafter::Rollback(DraftState* state, int length) {
  State& s = *static_cast<State*>(state);
  if (s.inner != nullptr) InnerOf(s.proposer)->Rollback(s.inner.get(), length);
}

void CatalogueDrafter::Publish(DraftState* state, absl::Span<const TokenId> tokens) {
  State& s = *static_cast<State*>(state);
  if (s.inner != nullptr) InnerOf(s.proposer)->Publish(s.inner.get(), tokens);
}

void CatalogueDrafter::Evict(DraftState* state) {
  State& s = *static_cast<State*>(state);
  if (s.inner != nullptr) InnerOf(s.proposer)->Evict(s.inner.get());
}

CatalogueCounts& CatalogueCounts::operator+=(const CatalogueCounts& other) {
  mismatches += other.mismatches;
  failed_generations += other.failed_generations;
  failures += other.failures;
  preemptions += other.preemptions;
  hit_tokens += other.hit_tokens;
  published_evictions += other.published_evictions;
  proposed += other.proposed;
  accepted += other.accepted;
  return *this;
}

// ---- The world ----

namespace {

// Returns true for a few contexts in a thousand.
bool IsPoison(absl::Span<const TokenId> context, uint32_t which) {
  uint32_t hash = 17 + which;
  for (const TokenId token : context) hash = hash * 31 + static_cast<uint32_t>(token);
  return hash % 211 == 0;
}

class World {
 public:
  World(uint64_t seed, const TargetWrapper& wrapper)
      : random_(seed),
        tight_(seed % 2 == 0),
        models_({.draft = {.vocab = kSmallVocab - 2 + 2 * static_cast<int>(seed % 3), .salt = 2},
                 .num_pages = tight_ ? 30 : 300,
                 .chunk_tokens = 1 + static_cast<int>(seed % (kDraftPageSize + 1))}),
        self_cache_(3, tight_ ? 20 : 300),
        self_model_(self_cache_.get(), {}),
        self_drafter_(&self_model_, self_cache_.get(), kSmallVocab, 1 + static_cast<int>(seed % 4)),
        both_(CombineDrafters(std::make_unique<ModelDrafter>(
                                  &models_.draft, models_.draft_cache.get(), kSmallVocab, 3),
                              std::make_unique<NgramDrafter>())),
        drafter_({&models_.drafter, &self_drafter_, &lookup_, both_.get()}, kSmallVocab, seed) {
    models_.target_cache->AddObserver(&page_counts_);
    if (wrapper) {
      wrapped_ = wrapper(&models_.target);
      models_.verifier = Verifier(wrapped_.get());
    }
    // The rows after some contexts are NaN. Only the generations that reach them fail, as in plain
    // decoding.
    calm_.target.options().poisoned = [](absl::Span<const TokenId> c) { return IsPoison(c, 0); };
    models_.target.options().poisoned = calm_.target.options().poisoned;
    for (FakeModel* draft : {&models_.draft, &self_model_}) {
      draft->options().poisoned = [](absl::Span<const TokenId> c) { return IsPoison(c, 1); };
    }
    common_ = RandomTokens(random_, kSmallVocab, 24);
    for (int i = 0; i < kGenerations; ++i) AddAsk();
  }

  CatalogueCounts Run() {
    for (int round = 0; round < kMaxRounds && num_ended_ < kGenerations; ++round) {
      StartNew();
      for (const int i : live_) Disturb(i);
      PoisonFreePages(round % 2 == 0 ? NAN : 1e30f);
      PlayRound();
      ExpectCachesHoldCommittedTokens();
      EndFinished();
      if (testing::Test::HasFatalFailure()) break;
    }
    EXPECT_EQ(num_ended_, kGenerations);
    ExpectNoPageLost();
    counts_.published_evictions = page_counts_.evicted;
    return counts_;
  }

 private:
  int Below(int count) { return static_cast<int>(random_() % count); }
  bool OneIn(int count) { return Below(count) == 0; }

  // Adds a request whose prompt is a prefix of the common text and a few tokens of its own.
  void AddAsk() {
    Tokens prompt = Prefix(common_, 1 + Below(static_cast<int>(common_.size())));
    const Tokens own = RandomTokens(random_, kSmallVocab, Below(4));
    prompt.insert(prompt.end(), own.begin(), own.end());
    const std::vector<SamplingParams> all = AllSampling();
    Ask ask{.prompt = std::move(prompt),
            .max_tokens = 1 + Below(30),
            .sampling = all[random_() % all.size()],
            .seed = random_(),
            .logprobs = {.num_top = 1, .processed = OneIn(2)}};
    if (OneIn(3)) ask.stop_tokens = {CatalogueDrafter::kStopToken};
    expected_.push_back(Plain(ask, &calm_));
    calm_.target.passes().clear();
    asks_.push_back(std::move(ask));
    sessions_.push_back(nullptr);
  }

  void StartNew() {
    while (static_cast<int>(live_.size()) < kLive && num_started_ < kGenerations) {
      const int i = num_started_++;
      const Ask& ask = asks_[i];
      constexpr AcceptanceRule kRules[] = {AcceptanceRule::kExactMatch, AcceptanceRule::kBlock,
                                           AcceptanceRule::kToken};
      sessions_[i] =
          Start(&models_, nullptr, ask, ask.sampling.is_greedy() ? kRules[Below(3)] : kRules[0]);
      Session& s = *sessions_[i];
      s.learns_draft_temperature = OneIn(2);
      s.target_kv = models_.target_cache->NewSequenceWithPrefix(ask.prompt);
      counts_.hit_tokens += s.target_kv.length();
      s.draft_state = drafter_.NewStateFor(static_cast<Proposer>(Below(kNumProposers)),
                                           &expected_[i]->tokens, ask.prompt);
      live_.push_back(i);
    }
  }

  void Preempt(Session* s) {
    s->target_kv.Truncate(0);
    drafter_.Evict(s->draft_state.get());
    ++counts_.preemptions;
  }

  void Disturb(int i) {
    Session& s = *sessions_[i];
    if (OneIn(25)) Preempt(&s);
    if (OneIn(12)) drafter_.Rollback(s.draft_state.get(), Below(s.length()));
    if (OneIn(3)) {
      models_.target_cache->Publish(s.tokens, &s.target_kv);
      drafter_.Publish(s.draft_state.get(), s.tokens);
    }
  }

  void PoisonFreePages(float value) {
    FillFreePages(models_.target_cache.get(), value);
    FillFreePages(models_.draft_cache.get(), -value);
    FillFreePages(self_cache_.get(), value);
  }

  // Returns steps for a random part of the batch in random order, each with a chunk or a draft of
  // any length.
  std::vector<RoundStep> AnySteps() {
    std::vector<RoundStep> steps;
    for (const int i : live_) {
      if (OneIn(3)) continue;
      Session* s = sessions_[i].get();
      RoundStep step{.session = s, .num_fed = s->num_pending(), .granted = 0};
      if (step.num_fed > 2 || OneIn(4)) {
        step.num_fed = std::min(step.num_fed, 1 + Below(kTargetPageSize + 1));
      }
      const std::vector<DraftOption> options = drafter_.Options(s->draft_state.get(), s->tokens);
      if (step.completes() && !options.empty()) {
        step.option = options[random_() % options.size()];
        step.granted = std::min({Below(9), s->DraftRoom(), step.option.max_tokens});
      }
      steps.push_back(step);
    }
    std::shuffle(steps.begin(), steps.end(), random_);
    return steps;
  }

  void PlayRound() {
    const std::vector<RoundStep> steps = AnySteps();
    if (steps.empty()) return;
    models_.target.options().fail_every = OneIn(6) ? 1 : 0;
    models_.draft.options().fail_every = OneIn(10) ? 1 + Below(3) : 0;
    self_model_.options().fail_every = OneIn(10) ? 1 + Below(3) : 0;
    std::vector<Tokens> before;
    for (const RoundStep& step : steps) before.push_back(step.session->tokens);
    if (models_.Round(&drafter_, steps).ok()) return;
    ++counts_.failures;
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].session->tokens, before[i]);
    // The round can fail for lack of pages, because it was not planned.
    if (tight_) Preempt(sessions_[live_[Below(static_cast<int>(live_.size()))]].get());
  }

  void ExpectCachesHoldCommittedTokens() {
    std::vector<const KvSequence*> sequences;
    for (const int i : live_) {
      const Session& s = *sessions_[i];
      sequences.push_back(&s.target_kv);
      ASSERT_LE(s.target_kv.length(), s.num_cacheable());
      const Tokens cached = FakeModel::Contents(s.target_kv);
      ASSERT_TRUE(std::equal(cached.begin(), cached.end(), s.tokens.begin()));
    }
    const absl::Status status = models_.target_cache->CheckIntegrity(sequences);
    ASSERT_TRUE(status.ok()) << status;
  }

  void EndFinished() {
    const auto ended = [this](int i) {
      const Session& s = *sessions_[i];
      if (!s.finished) return false;
      counts_.mismatches += !SameCompletion(s, *expected_[i]);
      counts_.failed_generations += !s.status.ok();
      counts_.proposed += s.completion.stats.proposed;
      counts_.accepted += s.completion.stats.accepted;
      sessions_[i].reset();
      ++num_ended_;
      return true;
    };
    live_.erase(std::remove_if(live_.begin(), live_.end(), ended), live_.end());
    models_.target.passes().clear();
    models_.draft.passes().clear();
    self_model_.passes().clear();
  }

  void ExpectNoPageLost() {
    sessions_.clear();
    for (FakeCache* cache : {&models_.target_cache, &models_.draft_cache, &self_cache_}) {
      EXPECT_EQ((*cache)->num_available_pages(), (*cache)->num_pages());
      EXPECT_TRUE((*cache)->CheckIntegrity({}).ok());
    }
  }

  std::mt19937_64 random_;
  bool tight_;
  RoundModels calm_;  // without disturbances
  PageCounts page_counts_;
  RoundModels models_;
  FakeCache self_cache_;
  FakeModel self_model_;
  ModelDrafter self_drafter_;
  NgramDrafter lookup_;
  std::unique_ptr<Drafter> both_;
  CatalogueDrafter drafter_;
  std::unique_ptr<LanguageModel> wrapped_;
  Tokens common_;  // prompts start with a prefix of it
  std::vector<Ask> asks_;
  std::vector<std::unique_ptr<Session>> expected_;  // by plain decoding
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<int> live_;
  int num_started_ = 0;
  int num_ended_ = 0;
  CatalogueCounts counts_;
};

}  // namespace

CatalogueCounts RunCatalogueWorld(uint64_t seed, const TargetWrapper& wrapper) {
  return World(seed, wrapper).Run();
}

}  // namespace tandem
