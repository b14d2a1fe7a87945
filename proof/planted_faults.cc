#include "proof/planted_faults.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proof/wrapped_drafter.h"

namespace tandem {
namespace {

constexpr AcceptanceRule kToken = AcceptanceRule::kToken;
constexpr AcceptanceRule kBlock = AcceptanceRule::kBlock;

// ---- Broken drafters ----

// Draws each token anew from the row the drafter recorded: with another choice of random numbers.
class RedrawingDrafter final : public WrappedDrafter {
 public:
  using DrawFunction =
      std::function<TokenId(const Distribution& row, const DraftRequest& request, int slot)>;
  RedrawingDrafter(Drafter* inner, DrawFunction draw)
      : WrappedDrafter(inner), draw_(std::move(draw)) {}

  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      RETURN_IF_ERROR(requests[i].granted == 0
                          ? inner_->Propose(requests.subspan(i, 1), proposals.subspan(i, 1))
                          : ProposeOne(requests[i], proposals[i]));
    }
    return absl::OkStatus();
  }

 private:
  // A token at a time, so that each row follows the tokens drawn here.
  absl::Status ProposeOne(const DraftRequest& request, Proposal* proposal) {
    std::vector<TokenId> context(request.context.begin(), request.context.end());
    absl::Status status;
    for (int slot = 0; slot < request.granted; ++slot) {
      DraftRequest next = request;
      next.context = context;
      next.granted = 1;
      Proposal one;
      Proposal* to = &one;
      status = inner_->Propose({&next, 1}, {&to, 1});
      if (!status.ok() || one.tokens.empty()) break;
      const TokenId token = draw_(one.drawn_from[0], request, slot);
      *proposal->NextDistribution() = std::move(one.drawn_from[0]);
      proposal->tokens.push_back(token);
      context.push_back(token);
      if (request.history != nullptr) request.history->AddOutput(token);
    }
    if (request.history != nullptr) {
      for (const TokenId token : proposal->tokens) request.history->RemoveOutput(token);
    }
    return status;
  }

  DrawFunction draw_;
};

RandomPlace PlaceOf(RandomStream stream, const DraftRequest& request, int slot) {
  return {.stream = stream,
          .position = static_cast<uint32_t>(request.context.size()),
          .slot = static_cast<uint32_t>(slot)};
}

// By the inverse of the cumulated row at the very number that will decide about acceptance.
TokenId DrawByCoin(const Distribution& row, const DraftRequest& request, int slot) {
  if (row.only >= 0) return row.only;
  double sum = 0.0;
  for (const float p : row.probs) sum += p;
  double left = sum * request.random.Uniform(PlaceOf(RandomStream::kAccept, request, slot));
  TokenId token = -1;
  for (TokenId v = 0; v < static_cast<TokenId>(row.probs.size()) && left >= 0.0; ++v) {
    if (row.probs[v] <= 0.0f) continue;
    token = v;
    left -= row.probs[v];
  }
  return token;
}

TokenId DrawByResidualNoise(const Distribution& row, const DraftRequest& request, int slot) {
  return Draw(row, request.random, PlaceOf(RandomStream::kResidual, request, slot));
}

// Changes the proposal behind the drafter's back.
class MeddlingDrafter final : public WrappedDrafter {
 public:
  using Function = std::function<void(Proposal* proposal)>;
  MeddlingDrafter(Drafter* inner, Function meddle)
      : WrappedDrafter(inner), meddle_(std::move(meddle)) {}
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    RETURN_IF_ERROR(inner_->Propose(requests, proposals));
    for (Proposal* proposal : proposals) meddle_(proposal);
    return absl::OkStatus();
  }

 private:
  Function meddle_;
};

void ShiftRows(Proposal* proposal) {
  const auto begin = proposal->drawn_from.begin();
  if (proposal->tokens.empty()) return;
  std::rotate(begin, begin + 1, begin + static_cast<int>(proposal->tokens.size()));
}

void DropUnlikely(Proposal* proposal) {
  for (size_t i = 0; i < proposal->tokens.size(); ++i) {
    const Distribution& row = proposal->drawn_from[i];
    if (row.only < 0 && row.probs[proposal->tokens[i]] < 0.5f) return proposal->tokens.resize(i);
  }
}

// Never rolls back: what was rejected stays in front of what is drafted next.
class UnrolledDrafter final : public WrappedDrafter {
 public:
  using WrappedDrafter::WrappedDrafter;
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override {
    auto state = std::make_unique<State>();
    state->inner = inner_->NewStateOf(kind, prompt, std::move(tenant));
    return state;
  }
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override {
    return inner_->Options(Of(state).inner.get(), Believed(Of(state), context));
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    std::vector<DraftRequest> believed(requests.begin(), requests.end());
    for (DraftRequest& request : believed) {
      State& state = Of(request.state);
      state.tokens = Believed(state, request.context);
      request.context = state.tokens;
      request.state = state.inner.get();
    }
    RETURN_IF_ERROR(inner_->Propose(believed, proposals));
    for (size_t i = 0; i < requests.size(); ++i) {
      State& state = Of(requests[i].state);
      const std::vector<TokenId>& drafted = proposals[i]->tokens;
      state.tokens.insert(state.tokens.end(), drafted.begin(), drafted.end());
      state.has_drafted = state.has_drafted || !drafted.empty();
    }
    return absl::OkStatus();
  }
  void Rollback(DraftState* /*state*/, int /*length*/) override {}
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override {
    inner_->Publish(Of(state).inner.get(), tokens);
  }
  void Evict(DraftState* state) override {
    Of(state).tokens.clear();
    Of(state).has_drafted = false;
    inner_->Evict(Of(state).inner.get());
  }

 private:
  struct State final : DraftState {
    std::unique_ptr<DraftState> inner;
    std::vector<TokenId> tokens;  // what it takes for the sequence
    bool has_drafted = false;     // from then on it differs from what was committed
  };
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }

  static std::vector<TokenId> Believed(const State& state, absl::Span<const TokenId> context) {
    if (!state.has_drafted) return {context.begin(), context.end()};
    std::vector<TokenId> tokens = state.tokens;
    tokens.push_back(context.back());
    return tokens;
  }
};

// Reads the states of a pass one row off: the previous row, or the next where it has none.
class StatesOffDrafter final : public WrappedDrafter {
 public:
  StatesOffDrafter(Drafter* inner, const LanguageModel* target)
      : WrappedDrafter(inner), target_(target) {}
  absl::Status ReadStates(absl::Span<const TargetRows> rows) override {
    std::vector<TargetRows> off(rows.begin(), rows.end());
    for (TargetRows& of : off) {
      const int num_kept = of.kv->length() - of.first_position;
      if (of.first_row > 0) {
        --of.first_row;
      } else if (num_kept < target_->states().rows) {
        ++of.first_row;
      }
    }
    return inner_->ReadStates(off);
  }

 private:
  const LanguageModel* target_;
};

// ---- Broken targets ----

// Changes rows of a pass before anybody sees them.
class MeddlingModel final : public LanguageModel {
 public:
  // Of one request: `rows` [num_logits], each [vocab], the last behind all of `tokens`.
  using Function =
      std::function<void(absl::Span<const TokenId> tokens, absl::Span<const absl::Span<float>>)>;
  MeddlingModel(LanguageModel* inner, Function meddle)
      : inner_(inner), meddle_(std::move(meddle)) {}
  int vocab_size() const override { return inner_->vocab_size(); }
  int context_length() const override { return inner_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    std::vector<ForwardRequest> whole(requests.begin(), requests.end());
    for (ForwardRequest& request : whole)
      request.to_host = LogitsToHost::kWhole;  // rows are changed here
    ASSIGN_OR_RETURN(const MatrixView logits, inner_->Forward(whole));
    float* row = static_cast<float*>(logits.data);
    for (const ForwardRequest& request : requests) {
      std::vector<absl::Span<float>> rows;
      for (int i = 0; i < request.num_logits; ++i, row += logits.stride) {
        rows.emplace_back(row, logits.cols);
      }
      meddle_(request.tokens, rows);
    }
    return logits;
  }

 private:
  LanguageModel* inner_;
  Function meddle_;
};

void DelayRows(absl::Span<const TokenId> /*tokens*/, absl::Span<const absl::Span<float>> rows) {
  for (size_t i = rows.size(); i > 1; --i) {
    std::copy(rows[i - 2].begin(), rows[i - 2].end(), rows[i - 1].begin());
  }
}

// Takes back what the frequency penalty will subtract for tokens of the round's own draft.
void ForgiveDraft(absl::Span<const TokenId> tokens, absl::Span<const absl::Span<float>> rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    const size_t end = tokens.size() - rows.size() + 1 + i;
    for (size_t j = tokens.size() - rows.size() + 1; j < end; ++j) {
      rows[i][tokens[j]] += kPlantedFrequencyPenalty;
    }
  }
}

// ---- Broken judges ----

using Outcome = absl::StatusOr<Verdict>;

// Passes everything on.
class WrappedSlots : public Slots {
 public:
  explicit WrappedSlots(Slots* inner) : inner_(inner) {}
  absl::Status Reach(int slot) override { return inner_->Reach(slot); }
  int num_reached() const override { return inner_->num_reached(); }
  TokenId Token(int slot) override { return inner_->Token(slot); }
  float TargetOf(int slot) override { return inner_->TargetOf(slot); }
  float DraftOf(int slot) override { return inner_->DraftOf(slot); }
  double ResidualMass(int slot, double scale) override { return inner_->ResidualMass(slot, scale); }
  TokenId DrawResidual(int slot, double scale) override {
    return inner_->DrawResidual(slot, scale);
  }
  TokenId DrawTarget(int slot) override { return inner_->DrawTarget(slot); }
  float AcceptUniform(int slot) override { return inner_->AcceptUniform(slot); }
  const Distribution& TargetRow(int slot) override { return inner_->TargetRow(slot); }
  const Distribution& DraftRow(int slot) override { return inner_->DraftRow(slot); }
  TokenId DrawFrom(absl::Span<const float> weights, int slot) override {
    return inner_->DrawFrom(weights, slot);
  }

 protected:
  Slots* inner_;
};

// A judge that asks through a wrapper.
template <typename Wrapper>
Outcome JudgeThrough(AcceptanceRule rule, int num_tokens, Slots& slots) {
  Wrapper wrapper(&slots);
  return Judge(rule, num_tokens, wrapper);
}

class ResidualIsTarget final : public WrappedSlots {
 public:
  using WrappedSlots::WrappedSlots;
  TokenId DrawResidual(int slot, double scale) override {
    const Distribution& row = TargetRow(slot);
    return row.only >= 0 ? WrappedSlots::DrawResidual(slot, scale) : DrawFrom(row.probs, slot);
  }
};

class UnscaledResidual final : public WrappedSlots {
 public:
  using WrappedSlots::WrappedSlots;
  TokenId DrawResidual(int slot, double scale) override {
    std::vector<float> weights = TargetRow(slot).probs;
    const Distribution& q = DraftRow(slot);
    for (size_t v = 0; v < weights.size(); ++v) {
      const float drafted = q.only >= 0          ? static_cast<TokenId>(v) == q.only
                            : v < q.probs.size() ? q.probs[v]
                                                 : 0.0f;
      weights[v] = std::max(0.0f, weights[v] - drafted);
    }
    return weights.empty() ? WrappedSlots::DrawResidual(slot, scale) : DrawFrom(weights, slot);
  }
};

class WithCoin final : public WrappedSlots {
 public:
  WithCoin(Slots* inner, absl::FunctionRef<float(int)> coin) : WrappedSlots(inner), coin_(coin) {}
  float AcceptUniform(int slot) override { return coin_(slot); }

 private:
  absl::FunctionRef<float(int)> coin_;
};

// No test passes with a coin of 2. A slot's own test is had by failing all others, and stopping in
// front of it by judging the draft up to there, its last test failed.
Outcome StopAtFirstFailure(AcceptanceRule rule, int num_tokens, Slots& slots) {
  const auto judge = [&](int count, absl::FunctionRef<float(int)> coin) {
    WithCoin with_coin(&slots, coin);
    return Judge(rule, count, with_coin);
  };
  constexpr float kNever = 2.0f;
  for (int i = 0; i < num_tokens; ++i) {
    ASSIGN_OR_RETURN(const Verdict alone, judge(std::min(i + 2, num_tokens), [&](int slot) {
                       return slot == i ? slots.AcceptUniform(slot) : kNever;
                     }));
    if (alone.num_accepted > i) continue;
    return judge(i + 1, [&](int slot) { return slot == i ? kNever : slots.AcceptUniform(slot); });
  }
  return Judge(rule, num_tokens, slots);
}

// The target's choices with noise that counts judgements instead of positions.
class NoiseOfRound final : public WrappedSlots {
 public:
  NoiseOfRound(Slots* inner, uint32_t round) : WrappedSlots(inner), round_(round) {}
  TokenId DrawTarget(int slot) override {
    return Draw(
        TargetRow(slot), RandomSource(0),
        {.stream = RandomStream::kTarget, .position = round_, .slot = static_cast<uint32_t>(slot)});
  }

 private:
  uint32_t round_;
};

JudgeFunction NoiseByRound() {
  return [round = uint32_t{0}](AcceptanceRule rule, int num_tokens, Slots& slots) mutable {
    NoiseOfRound wrapper(&slots, ++round);
    return Judge(rule, num_tokens, wrapper);
  };
}

}  // namespace

absl::Span<const PlantedFault> PlantedFaults() {
  static const auto* const faults = new std::vector<PlantedFault>{
      {.name = "coin-draws-the-draft",
       .what = "each draft token drawn with the number that decides about its acceptance",
       .rules = {kToken, kBlock},
       .needs_drawn_drafts = true,
       .shows = FaultShows::kWhereOneCoinDrawsToo},
      {.name = "residual-noise-draws-the-draft",
       .what = "each draft token drawn with the noise of the draw that follows its rejection",
       .rules = {kToken, kBlock},
       .needs_drawn_drafts = true,
       .shows = FaultShows::kWhereSharedNoiseDelays},
      {.name = "residual-is-target",
       .what = "after a rejection drawn from p instead of the residual",
       .rules = {kToken, kBlock}},
      {.name = "draft-rows-off-by-one",
       .what = "the draft's recorded distributions one slot off",
       .rules = {kToken, kBlock},
       .needs_drawn_drafts = true},
      {.name = "draft-drops-unlikely",
       .what = "draft cut before a token because its own probability came out low",
       .rules = {kToken, kBlock},
       .needs_drawn_drafts = true,
       .shows = FaultShows::kWhereDraftsVary},
      {.name = "target-rows-late",
       .what = "each verified row but the first is the row before it",
       .rules = {kToken, kBlock}},
      {.name = "penalties-once-per-round",
       .what = "penalties of verified rows without the tokens drafted before them",
       .rules = {kToken, kBlock},
       .shows = FaultShows::kWhereTokensRepeat},
      {.name = "noise-by-round",
       .what = "exact_match's noise keyed by the round instead of the position",
       .seen_by = SeenBy::kOutput,
       .rules = {}},
      {.name = "draft-not-rolled-back",
       .what = "rejected tokens left in the draft's state",
       .seen_by = SeenBy::kProposals,
       .rules = {},
       .needs_drawn_drafts = true,
       .needs_own_cache = true},
      {.name = "head-states-off-by-one",
       .what = "the target's states that a head reads one row off",
       .seen_by = SeenBy::kProposals,
       .rules = {},
       .needs_head = true},
      {.name = "block-stops-early",
       .what = "block stopping at its first failed test",
       .rules = {kBlock},
       .shows = FaultShows::kWhereBlockPassesLater},
      {.name = "residual-unscaled",
       .what = "block's residual p - q in place of pi p - q",
       .rules = {kBlock},
       .needs_drawn_drafts = true,
       .shows = FaultShows::kWhereResidualsAreScaled},
      {.name = "mask-late",
       .what = "a constraint's masks one position late",
       .rules = {kToken, kBlock},
       .shows = FaultShows::kWhereAConstraintBinds},
      {.name = "matcher-not-rolled-back",
       .what = "rejected tokens left in a constraint's state",
       .rules = {kToken, kBlock},
       .shows = FaultShows::kWhereAConstraintBinds},
      {.name = "mask-not-on-bonus",
       .what = "no mask of a constraint on the row behind a whole draft",
       .rules = {kToken, kBlock},
       .shows = FaultShows::kWhereAConstraintBinds},
  };
  return *faults;
}

bool AppliesTo(const PlantedFault& fault, const Drafter& drafter) {
  if (fault.needs_drawn_drafts && !drafter.is_drawn()) return false;
  return drafter.shares_target_cache() ? !fault.needs_own_cache : !fault.needs_head;
}

absl::StatusOr<const PlantedFault*> FindPlantedFault(std::string_view name) {
  std::string names;
  for (const PlantedFault& fault : PlantedFaults()) {
    if (fault.name == name) return &fault;
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(fault.name));
  }
  return absl::NotFoundError(absl::StrCat("\"", std::string(name), "\" is not one of ", names));
}

PlantedWorld::PlantedWorld(const ProofWorld& base, const PlantedFault& fault) : world_(base) {
  TANDEM_CHECK(AppliesTo(fault, *base.drafter));
  if (fault.name == "coin-draws-the-draft") {
    drafter_ = std::make_unique<RedrawingDrafter>(base.drafter, DrawByCoin);
  } else if (fault.name == "residual-noise-draws-the-draft") {
    drafter_ = std::make_unique<RedrawingDrafter>(base.drafter, DrawByResidualNoise);
  } else if (fault.name == "draft-rows-off-by-one") {
    drafter_ = std::make_unique<MeddlingDrafter>(base.drafter, ShiftRows);
  } else if (fault.name == "draft-drops-unlikely") {
    drafter_ = std::make_unique<MeddlingDrafter>(base.drafter, DropUnlikely);
  } else if (fault.name == "draft-not-rolled-back") {
    drafter_ = std::make_unique<UnrolledDrafter>(base.drafter);
  } else if (fault.name == "head-states-off-by-one") {
    drafter_ = std::make_unique<StatesOffDrafter>(base.drafter, base.target);
  } else if (fault.name == "target-rows-late") {
    target_ = std::make_unique<MeddlingModel>(base.target, DelayRows);
  } else if (fault.name == "penalties-once-per-round") {
    target_ = std::make_unique<MeddlingModel>(base.target, ForgiveDraft);
  } else if (fault.name == "residual-is-target") {
    world_.judge = JudgeThrough<ResidualIsTarget>;
  } else if (fault.name == "residual-unscaled") {
    world_.judge = JudgeThrough<UnscaledResidual>;
  } else if (fault.name == "block-stops-early") {
    world_.judge = StopAtFirstFailure;
  } else if (fault.name == "noise-by-round") {
    world_.judge = NoiseByRound();
  } else if (fault.name == "mask-late") {
    world_.constraint_fault = ConstraintFault::kLate;
  } else if (fault.name == "matcher-not-rolled-back") {
    world_.constraint_fault = ConstraintFault::kNotRolledBack;
  } else if (fault.name == "mask-not-on-bonus") {
    world_.constraint_fault = ConstraintFault::kNotOnBonus;
  } else {
    TANDEM_CHECK(false);
  }
  if (drafter_ != nullptr) world_.drafter = drafter_.get();
  if (target_ != nullptr) world_.target = target_.get();
}

}  // namespace tandem
