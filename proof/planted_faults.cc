#include "proof/planted_faults.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proof/proof_world.h"

namespace tandem {
namespace {

// ---- Broken drafters ----

// Draws each token again from the row that the drafter recorded, with other random numbers.
class RedrawingDrafter final : public WrappedDrafter {
 public:
  using DrawFunction =
      std::function<TokenId(const Distribution& row, const DraftRequest& request, int slot)>;
  RedrawingDrafter(const ProofWorld& world, DrawFunction draw)
      : WrappedDrafter(world.drafter), draw_(std::move(draw)) {}

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
  // Draws one token at a time, so that each row follows the tokens drawn here.
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

// Draws by inverting the cumulative distribution at the same number that decides about acceptance.
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

bool IsModelDraft(const DraftRequest& request) {
  return request.granted > 0 && request.source == DraftSource::kModel;
}

// Changes proposals after the drafter has made them, those of the model with `num_more` tokens.
class AlteringDrafter final : public WrappedDrafter {
 public:
  using Function = std::function<void(const DraftRequest& request, Proposal* proposal)>;
  AlteringDrafter(const ProofWorld& world, Function meddle, int num_more = 0)
      : WrappedDrafter(world.drafter), meddle_(std::move(meddle)), num_more_(num_more) {}
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    std::vector<DraftRequest> longer(requests.begin(), requests.end());
    for (DraftRequest& request : longer) {
      if (IsModelDraft(request)) request.granted += num_more_;
    }
    RETURN_IF_ERROR(inner_->Propose(longer, proposals));
    for (size_t i = 0; i < requests.size(); ++i) meddle_(requests[i], proposals[i]);
    return absl::OkStatus();
  }

 private:
  Function meddle_;
  int num_more_;
};

void ShiftRows(const DraftRequest& /*request*/, Proposal* proposal) {
  const auto begin = proposal->drawn_from.begin();
  if (proposal->tokens.empty()) return;
  std::rotate(begin, begin + 1, begin + static_cast<int>(proposal->tokens.size()));
}

void DropUnlikely(const DraftRequest& /*request*/, Proposal* proposal) {
  for (size_t i = 0; i < proposal->tokens.size(); ++i) {
    const Distribution& row = proposal->drawn_from[i];
    if (row.only < 0 && row.probs[proposal->tokens[i]] < 0.5f) return proposal->tokens.resize(i);
  }
}

// Takes each token from the row after its own, for drafts of one more token.
void TakeNextRows(const DraftRequest& request, Proposal* proposal) {
  if (!IsModelDraft(request) || proposal->tokens.empty()) return;
  ShiftRows(request, proposal);
  proposal->tokens.erase(proposal->tokens.begin());
  if (!proposal->confidences.empty()) proposal->confidences.erase(proposal->confidences.begin());
}

// Draws token `slot` from its recorded row again, with the noise of slot `noise_of`.
void RedrawSlot(const DraftRequest& request, int slot, int noise_of, Proposal* proposal) {
  RandomPlace place = PlaceOf(RandomStream::kDraft, request, noise_of);
  if (request.noise == DraftNoise::kTargets) {
    place = {.stream = RandomStream::kTarget, .position = place.position + place.slot};
  }
  proposal->tokens[slot] = Draw(proposal->drawn_from[slot], request.random, place);
}

// Draws from the first mask's row in place of every other mask's.
void DrawFromFirstMask(const DraftRequest& request, Proposal* proposal) {
  const int count = IsModelDraft(request) ? static_cast<int>(proposal->tokens.size()) : 0;
  for (int slot = 2; slot < count; ++slot) {
    proposal->drawn_from[slot] = proposal->drawn_from[1];
    RedrawSlot(request, slot, slot, proposal);
  }
}

void ShareNoise(const DraftRequest& request, Proposal* proposal) {
  const int count = IsModelDraft(request) ? static_cast<int>(proposal->tokens.size()) : 0;
  for (int slot = 1; slot < count; ++slot) RedrawSlot(request, slot, 0, proposal);
}

// Drafts after a sequence that is not the committed one.
class BelievingDrafter : public WrappedDrafter {
 public:
  explicit BelievingDrafter(const ProofWorld& world) : WrappedDrafter(world.drafter) {}
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
      Note(requests[i], *proposals[i], &Of(requests[i].state));
    }
    return absl::OkStatus();
  }
  void Rollback(DraftState* state, int length) override {
    inner_->Rollback(Of(state).inner.get(), length);
  }
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override {
    inner_->Publish(Of(state).inner.get(), tokens);
  }
  void Evict(DraftState* state) override {
    Of(state).has_drafted = false;
    inner_->Evict(Of(state).inner.get());
  }

 protected:
  struct State final : DraftState {
    std::unique_ptr<DraftState> inner;
    std::vector<TokenId> tokens;         // the sequence as the drafter sees it
    bool has_drafted = false;            // since the last eviction
    int masks_begin = 0, masks_end = 0;  // places of the masks of the last pass
  };
  virtual std::vector<TokenId> Believed(const State& state,
                                        absl::Span<const TokenId> context) const = 0;
  virtual void Note(const DraftRequest& request, const Proposal& proposal, State* state) const = 0;

 private:
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }
};

// Never rolls back: later drafts are made after the rejected tokens.
class UnrolledDrafter final : public BelievingDrafter {
 public:
  using BelievingDrafter::BelievingDrafter;
  void Rollback(DraftState* /*state*/, int /*length*/) override {}

 protected:
  std::vector<TokenId> Believed(const State& state,
                                absl::Span<const TokenId> context) const override {
    if (!state.has_drafted) return {context.begin(), context.end()};
    std::vector<TokenId> tokens = state.tokens;
    tokens.push_back(context.back());
    return tokens;
  }
  void Note(const DraftRequest& /*request*/, const Proposal& proposal,
            State* state) const override {
    state->tokens.insert(state->tokens.end(), proposal.tokens.begin(), proposal.tokens.end());
    state->has_drafted = state->has_drafted || !proposal.tokens.empty();
  }
};

// Takes accepted tokens as read where masks were, so that later drafts see masks in their place.
class MasksKeptDrafter final : public BelievingDrafter {
 public:
  using BelievingDrafter::BelievingDrafter;
  void Publish(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/) override {}

 protected:
  // All tokens but the last were accepted.
  std::vector<TokenId> Believed(const State& state,
                                absl::Span<const TokenId> context) const override {
    std::vector<TokenId> tokens = state.tokens;
    const int length = static_cast<int>(context.size());
    if (static_cast<int>(tokens.size()) > length) tokens.resize(length);
    for (int i = static_cast<int>(tokens.size()); i < length; ++i) {
      const bool is_mask = state.masks_begin <= i && i < state.masks_end && i + 1 < length;
      tokens.push_back(is_mask ? inner_->mask_token() : context[i]);
    }
    return tokens;
  }
  void Note(const DraftRequest& request, const Proposal& proposal, State* state) const override {
    state->masks_begin = static_cast<int>(request.context.size());
    state->masks_end = state->masks_begin + std::max(proposal.num_slots - 1, 0);
  }
};

// Reads the states of a pass one row off: the previous row, or the next one for the first row.
class StatesOffDrafter final : public WrappedDrafter {
 public:
  explicit StatesOffDrafter(const ProofWorld& world)
      : WrappedDrafter(world.drafter), target_(world.target) {}
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

// Changes the rows of a pass before they are used.
class AlteringModel final : public LanguageModel {
 public:
  // Called for each request with `rows` [num_logits], each [vocab]. The last row follows all of
  // `tokens`.
  using Function =
      std::function<void(absl::Span<const TokenId> tokens, absl::Span<const absl::Span<float>>)>;
  AlteringModel(LanguageModel* inner, Function meddle)
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

// Adds back the frequency penalty that will be subtracted for tokens of the round's own draft.
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

// Forwards all calls except those that are replaced.
class BrokenSlots final : public Slots {
 public:
  explicit BrokenSlots(Slots* inner) : inner_(inner) {}
  std::function<TokenId(int slot, double scale)> draw_residual;
  std::function<TokenId(int slot)> draw_target;
  std::function<float(int slot)> accept_uniform;

  absl::Status Reach(int slot) override { return inner_->Reach(slot); }
  int num_reached() const override { return inner_->num_reached(); }
  TokenId Token(int slot) override { return inner_->Token(slot); }
  float TargetOf(int slot) override { return inner_->TargetOf(slot); }
  float DraftOf(int slot) override { return inner_->DraftOf(slot); }
  double ResidualMass(int slot, double scale) override { return inner_->ResidualMass(slot, scale); }
  TokenId DrawResidual(int slot, double scale) override {
    return draw_residual ? draw_residual(slot, scale) : inner_->DrawResidual(slot, scale);
  }
  TokenId DrawTarget(int slot) override {
    return draw_target ? draw_target(slot) : inner_->DrawTarget(slot);
  }
  float AcceptUniform(int slot) override {
    return accept_uniform ? accept_uniform(slot) : inner_->AcceptUniform(slot);
  }
  const Distribution& TargetRow(int slot) override { return inner_->TargetRow(slot); }
  const Distribution& DraftRow(int slot) override { return inner_->DraftRow(slot); }
  TokenId DrawFrom(absl::Span<const float> weights, int slot) override {
    return inner_->DrawFrom(weights, slot);
  }

 private:
  Slots* inner_;
};

Outcome JudgeWithResidualOfTarget(AcceptanceRule rule, int num_tokens, Slots& slots) {
  BrokenSlots broken(&slots);
  broken.draw_residual = [&](int slot, double scale) {
    const Distribution& row = slots.TargetRow(slot);
    return row.only >= 0 ? slots.DrawResidual(slot, scale) : slots.DrawFrom(row.probs, slot);
  };
  return Judge(rule, num_tokens, broken);
}

Outcome JudgeWithUnscaledResidual(AcceptanceRule rule, int num_tokens, Slots& slots) {
  BrokenSlots broken(&slots);
  broken.draw_residual = [&](int slot, double scale) {
    std::vector<float> weights = slots.TargetRow(slot).probs;
    const Distribution& q = slots.DraftRow(slot);
    for (size_t v = 0; v < weights.size(); ++v) {
      const float drafted = q.only >= 0          ? static_cast<TokenId>(v) == q.only
                            : v < q.probs.size() ? q.probs[v]
                                                 : 0.0f;
      weights[v] = std::max(0.0f, weights[v] - drafted);
    }
    return weights.empty() ? slots.DrawResidual(slot, scale) : slots.DrawFrom(weights, slot);
  };
  return Judge(rule, num_tokens, broken);
}

// A test never passes with a coin of 2. A slot's own test is made by failing all others. The draft
// is cut there by judging only the slots up to it, with a last test that fails.
Outcome StopAtFirstFailure(AcceptanceRule rule, int num_tokens, Slots& slots) {
  const auto judge = [&](int count, std::function<float(int)> coin) {
    BrokenSlots broken(&slots);
    broken.accept_uniform = std::move(coin);
    return Judge(rule, count, broken);
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

// The target's choices, with noise keyed by the number of judgements instead of the position.
JudgeFunction NoiseByRound() {
  return [round = uint32_t{0}](AcceptanceRule rule, int num_tokens, Slots& slots) mutable {
    ++round;
    BrokenSlots broken(&slots);
    broken.draw_target = [&](int slot) {
      return Draw(slots.TargetRow(slot), RandomSource(0),
                  {.stream = RandomStream::kTarget,
                   .position = round,
                   .slot = static_cast<uint32_t>(slot)});
    };
    return Judge(rule, num_tokens, broken);
  };
}

// ---- Planting ----

bool IsDrawn(const Drafter& drafter) { return drafter.is_drawn(); }
bool IsHead(const Drafter& drafter) { return drafter.shares_target_cache(); }
bool DraftsInOnePass(const Drafter& drafter) { return drafter.mask_token() != kNoMaskToken; }
bool IsDrawnFromItsOwnCache(const Drafter& drafter) { return IsDrawn(drafter) && !IsHead(drafter); }

using Plant = decltype(PlantedFault::plant);

template <typename Broken, typename... How>
Plant InDrafter(How... how) {
  return [how...](ProofWorld* world) {
    auto broken = std::make_shared<Broken>(*world, how...);
    world->drafter = broken.get();
    return broken;
  };
}

Plant InRows(AlteringModel::Function meddle) {
  return [meddle = std::move(meddle)](ProofWorld* world) {
    auto broken = std::make_shared<AlteringModel>(world->target, meddle);
    world->target = broken.get();
    return broken;
  };
}

Plant InJudge(JudgeFunction judge) {
  return [judge = std::move(judge)](ProofWorld* world) {
    world->judge = judge;
    return nullptr;
  };
}

Plant InConstraint(ConstraintFault fault) {
  return [fault](ProofWorld* world) {
    world->constraint_fault = fault;
    return nullptr;
  };
}

}  // namespace

absl::Span<const PlantedFault> PlantedFaults() {
  static const auto* const faults = new std::vector<PlantedFault>{
      {.name = "coin-draws-the-draft",
       .what = "each draft token drawn with the number that decides about its acceptance",
       .plant = InDrafter<RedrawingDrafter>(DrawByCoin),
       .applies_to = IsDrawn,
       .shows = FaultShows::kWhereOneCoinDrawsToo},
      {.name = "residual-noise-draws-the-draft",
       .what = "each draft token drawn with the noise of the draw that follows its rejection",
       .plant = InDrafter<RedrawingDrafter>(DrawByResidualNoise),
       .applies_to = IsDrawn,
       .shows = FaultShows::kWhereSharedNoiseDelays},
      {.name = "residual-is-target",
       .what = "after a rejection drawn from p instead of the residual",
       .plant = InJudge(JudgeWithResidualOfTarget)},
      {.name = "draft-rows-off-by-one",
       .what = "the draft's recorded distributions one slot off",
       .plant = InDrafter<AlteringDrafter>(ShiftRows),
       .applies_to = IsDrawn},
      {.name = "draft-drops-unlikely",
       .what = "draft cut before a token because its own probability came out low",
       .plant = InDrafter<AlteringDrafter>(DropUnlikely),
       .applies_to = IsDrawn,
       .shows = FaultShows::kWhereDraftsVary},
      {.name = "target-rows-late",
       .what = "each verified row but the first is the row before it",
       .plant = InRows(DelayRows)},
      {.name = "penalties-once-per-round",
       .what = "penalties of verified rows without the tokens drafted before them",
       .plant = InRows(ForgiveDraft),
       .shows = FaultShows::kWhereTokensRepeat},
      {.name = "noise-by-round",
       .what = "exact_match's noise keyed by the round instead of the position",
       .plant = InJudge(NoiseByRound()),
       .seen_by = SeenBy::kOutput,
       .rules = {}},
      {.name = "draft-not-rolled-back",
       .what = "rejected tokens left in the draft's state",
       .plant = InDrafter<UnrolledDrafter>(),
       .seen_by = SeenBy::kProposals,
       .applies_to = IsDrawnFromItsOwnCache,
       .rules = {}},
      {.name = "head-states-off-by-one",
       .what = "the target's states that a head reads one row off",
       .plant = InDrafter<StatesOffDrafter>(),
       .seen_by = SeenBy::kProposals,
       .applies_to = IsHead,
       .rules = {}},
      {.name = "mask-keys-kept",
       .what = "masks left in the draft's cache in place of accepted tokens",
       .plant = InDrafter<MasksKeptDrafter>(),
       .seen_by = SeenBy::kProposals,
       .applies_to = DraftsInOnePass,
       .rules = {}},
      {.name = "mask-rows-off-by-one",
       .what = "each token of a draft in one pass taken from the row after its own",
       .plant = InDrafter<AlteringDrafter>(TakeNextRows, 1),
       .seen_by = SeenBy::kProposals,
       .applies_to = DraftsInOnePass,
       .rules = {}},
      {.name = "masks-alike",
       .what = "every mask's row is that of the first mask",
       .plant = InDrafter<AlteringDrafter>(DrawFromFirstMask),
       .seen_by = SeenBy::kProposals,
       .applies_to = DraftsInOnePass,
       .rules = {}},
      {.name = "slots-share-noise",
       .what = "all tokens of a draft in one pass drawn with the noise of the first",
       .plant = InDrafter<AlteringDrafter>(ShareNoise),
       .applies_to = DraftsInOnePass,
       .shows = FaultShows::kWhereSlotsShareNoise},
      {.name = "block-stops-early",
       .what = "block stopping at its first failed test",
       .plant = InJudge(StopAtFirstFailure),
       .shows = FaultShows::kWhereBlockPassesLater,
       .rules = {AcceptanceRule::kBlock}},
      {.name = "residual-unscaled",
       .what = "block's residual p - q in place of pi p - q",
       .plant = InJudge(JudgeWithUnscaledResidual),
       .applies_to = IsDrawn,
       .shows = FaultShows::kWhereResidualsAreScaled,
       .rules = {AcceptanceRule::kBlock}},
      {.name = "mask-late",
       .what = "a constraint's masks one position late",
       .plant = InConstraint(ConstraintFault::kLate),
       .shows = FaultShows::kWhereAConstraintBinds},
      {.name = "matcher-not-rolled-back",
       .what = "rejected tokens left in a constraint's state",
       .plant = InConstraint(ConstraintFault::kNotRolledBack),
       .shows = FaultShows::kWhereAConstraintBinds},
      {.name = "mask-not-on-bonus",
       .what = "no mask of a constraint on the row after a whole draft",
       .plant = InConstraint(ConstraintFault::kNotOnBonus),
       .shows = FaultShows::kWhereAConstraintBinds},
  };
  return *faults;
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
  TANDEM_CHECK(fault.applies_to(*base.drafter));
  broken_ = fault.plant(&world_);
}

}  // namespace tandem
