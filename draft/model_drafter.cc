#include "draft/model_drafter.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/device_sampling.h"

namespace tandem {

struct ModelDrafter::State final : DraftState {
  explicit State(std::shared_ptr<States> all_states) : all(std::move(all_states)) {
    all->push_back(this);
  }
  ~State() override { all->erase(std::find(all->begin(), all->end(), this)); }

  std::shared_ptr<States> all;
  KvSequence kv;
  // With a vocabulary map: committed tokens in the draft's, and how many of those the first i of
  // the target's are. Tokens drafted since are one of each.
  std::vector<TokenId> text;
  std::vector<int> ends = {0};

  int num_read() const { return static_cast<int>(ends.size()) - 1; }
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }
};

struct ModelDrafter::Draft {
  const DraftRequest* request;
  Proposal* proposal;
  State* state;
  KvSequence* kv;
  absl::Span<const TokenId> text;  // the context in the draft's tokens
  int max_tokens;                  // what the draft's own context leaves of the request's
  bool ended = false;

  // Position of the next token to be drawn.
  int next_position() const {
    return static_cast<int>(request->context.size() + proposal->tokens.size());
  }
  bool wants_more() const {
    return !ended && static_cast<int>(proposal->tokens.size()) < max_tokens;
  }
};

ModelDrafter::ModelDrafter(LanguageModel* model, PagedKvCache* cache, int target_vocab_size,
                           int chunk_tokens, const VocabularyMap* vocabulary)
    : model_(model),
      cache_(cache),
      target_vocab_size_(target_vocab_size),
      chunk_tokens_(chunk_tokens),
      vocabulary_(vocabulary) {
  TANDEM_CHECK(vocabulary == nullptr || vocabulary->target_size() == target_vocab_size);
}

absl::Span<const TokenId> ModelDrafter::Read(State* state,
                                             absl::Span<const TokenId> context) const {
  if (vocabulary_ == nullptr) return context;
  for (const TokenId token : context.subspan(std::min<size_t>(state->num_read(), context.size()))) {
    const absl::Span<const TokenId> reading = vocabulary_->Reading(token);
    state->text.insert(state->text.end(), reading.begin(), reading.end());
    state->ends.push_back(static_cast<int>(state->text.size()));
  }
  return absl::MakeConstSpan(state->text).first(state->ends[context.size()]);
}

absl::Span<const TokenId> ModelDrafter::ReadDrafted(const TokenId& token) const {
  return vocabulary_ == nullptr ? absl::MakeConstSpan(&token, 1) : vocabulary_->Reading(token);
}

std::unique_ptr<DraftState> ModelDrafter::NewState(absl::Span<const TokenId> prompt) {
  auto state = std::make_unique<State>(states_);
  state->kv = cache_->NewSequenceWithPrefix(Read(state.get(), prompt));
  return state;
}

void ModelDrafter::LookAgain(DraftState* state, absl::Span<const TokenId> tokens) {
  State& s = State::Of(state);
  KvSequence found = cache_->NewSequenceWithPrefix(Read(&s, tokens));
  if (found.length() > s.kv.length()) s.kv = std::move(found);
}

void ModelDrafter::Rollback(DraftState* state, int length) {
  State& s = State::Of(state);
  int kept = length;  // of the draft's tokens
  if (vocabulary_ != nullptr) {
    const int num_drafted = std::max(length - s.num_read(), 0);
    s.ends.resize(length - num_drafted + 1);
    s.text.resize(s.ends.back());
    kept = s.ends.back() + num_drafted;
  }
  s.kv.Truncate(std::min(s.kv.length(), kept));
}

int ModelDrafter::NumCached(const DraftState& state) const {
  return static_cast<const State&>(state).kv.length();
}

void ModelDrafter::Publish(DraftState* state, absl::Span<const TokenId> tokens) {
  State& s = State::Of(state);
  cache_->Publish(Read(&s, tokens), &s.kv);
}

int ModelDrafter::Room(const KvSequence& kv, absl::Span<const TokenId> text) const {
  // A part of a prompt may be shorter than what a published prefix gave the cache.
  const size_t num_read = std::min<size_t>(kv.length(), text.size());
  const bool can_read = absl::c_all_of(text.subspan(num_read), [this](TokenId token) {
    return 0 <= token && token < model_->vocab_size();
  });
  if (!can_read || text.empty()) return 0;
  // Draft token j is read off a pass over text.size() + j tokens.
  return std::max(model_->context_length() - static_cast<int>(text.size()) + 1, 0);
}

std::vector<DraftOption> ModelDrafter::Options(DraftState* state,
                                               absl::Span<const TokenId> context) {
  State& s = State::Of(state);
  const absl::Span<const TokenId> text = Read(&s, context);
  const int room = std::min(Room(s.kv, text), kMaxDraftTokens);
  if (room == 0) return {};
  const int num_unread = std::max(static_cast<int>(text.size()) - s.kv.length(), 1);
  const int64_t lacking = s.kv.PagesToExtend(num_unread) - cache_->num_available_pages();
  if (lacking > 0 && lacking > PagesOfYounger(s)) {
    s.kv.Truncate(0);  // older ones have use for them
    return {};
  }
  return {
      {.source = DraftSource::kModel, .evidence = 0, .max_tokens = room, .num_unread = num_unread}};
}

int64_t ModelDrafter::PagesOfYounger(const State& state) const {
  absl::flat_hash_set<PageId> pages;
  auto it = states_->rbegin();
  for (; *it != &state; ++it) pages.insert((*it)->kv.pages().begin(), (*it)->kv.pages().end());
  for (; it != states_->rend(); ++it) {
    for (const PageId page : (*it)->kv.pages()) pages.erase(page);
  }
  return static_cast<int64_t>(pages.size());
}

// Lets every draft read what it lacks, in order, as long as there are pages or younger states to
// give theirs back.
void ModelDrafter::MakeRoom(absl::Span<Draft> drafts) {
  int64_t taken = 0;
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    const int num_unread = static_cast<int>(draft.text.size()) - draft.kv->length();
    const int64_t pages = draft.kv->PagesToExtend(std::max(num_unread, 0));
    for (auto it = states_->rbegin();
         *it != draft.state && taken + pages > cache_->num_available_pages(); ++it) {
      (*it)->kv.Truncate(0);
      for (Draft& other : drafts) other.ended = other.ended || other.state == *it;
    }
    draft.ended = taken + pages > cache_->num_available_pages();
    if (!draft.ended) taken += pages;
  }
}

absl::Status ModelDrafter::CheckIntegrity() const {
  std::vector<const KvSequence*> sequences;
  for (const State* state : *states_) sequences.push_back(&state->kv);
  return cache_->CheckIntegrity(sequences);
}

absl::Status ModelDrafter::Propose(absl::Span<const DraftRequest> requests,
                                   absl::Span<Proposal* const> proposals) {
  std::vector<Draft> drafts;
  drafts.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    State& state = State::Of(requests[i].state);
    const absl::Span<const TokenId> text = Read(&state, requests[i].context);
    const int room = Room(state.kv, text);
    drafts.push_back({.request = &requests[i],
                      .proposal = proposals[i],
                      .state = &state,
                      .kv = &state.kv,
                      .text = text,
                      .max_tokens = std::min(requests[i].max_tokens, room),
                      .ended = room == 0});
    // The last token is read again if those behind it are nothing to the draft: a step needs one.
    if (drafts.back().wants_more() && state.kv.length() >= static_cast<int>(text.size())) {
      state.kv.Truncate(static_cast<int>(text.size()) - 1);
    }
  }
  MakeRoom(absl::MakeSpan(drafts));
  RETURN_IF_ERROR(CatchUp(absl::MakeSpan(drafts)));
  while (std::any_of(drafts.begin(), drafts.end(), [](const Draft& d) { return d.wants_more(); })) {
    RETURN_IF_ERROR(Step(absl::MakeSpan(drafts)));
  }
  return absl::OkStatus();
}

// Feeds what the caches lack of the contexts, in chunks. Requests that want tokens keep their last
// chunk for the first step, which reads logits off it.
absl::Status ModelDrafter::CatchUp(absl::Span<Draft> drafts) {
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    for (;;) {
      const int pending = static_cast<int>(draft.text.size()) - draft.kv->length();
      const int left_for_step = draft.wants_more() ? chunk_tokens_ : 0;
      if (pending <= left_for_step) break;
      const ForwardRequest pass{
          .tokens = draft.text.subspan(draft.kv->length(), std::min(pending, chunk_tokens_)),
          .kv = draft.kv,
          .num_logits = 0};
      const absl::Status status = model_->Forward({&pass, 1}).status();
      if (absl::IsResourceExhausted(status)) {
        draft.ended = true;
        break;
      }
      RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

// One token for every request that wants one more, in one pass.
absl::Status ModelDrafter::Step(absl::Span<Draft> drafts) {
  std::vector<Draft*> active;
  std::vector<ForwardRequest> passes;
  int free_pages = cache_->num_available_pages();
  for (Draft& draft : drafts) {
    if (!draft.wants_more()) continue;
    const Proposal& proposal = *draft.proposal;
    const absl::Span<const TokenId> pending = proposal.tokens.empty()
                                                  ? draft.text.subspan(draft.kv->length())
                                                  : ReadDrafted(proposal.tokens.back());
    free_pages -= draft.kv->PagesToExtend(static_cast<int>(pending.size()));
    if (free_pages < 0) {  // the requests before this one get what there is
      draft.ended = true;
      continue;
    }
    active.push_back(&draft);
    passes.push_back(
        {.tokens = pending, .kv = draft.kv, .num_logits = 1, .to_host = WantedOf(draft)});
  }
  if (passes.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
  for (size_t i = 0; i < active.size(); ++i) {
    if (passes[i].to_host == LogitsToHost::kNothing) continue;
    const float* row = static_cast<const float*>(logits.data) + i * logits.stride;
    const absl::Span<const float> known = ToTargetRow({row, static_cast<size_t>(logits.cols)});
    if (!DrawNext(active[i], known)) active[i]->ended = true;
  }
  return DrawOnDevice(passes, active);
}

// What of a draft's next row is to come to the host. If nothing, its next distribution has a place
// on the device.
LogitsToHost ModelDrafter::WantedOf(const Draft& draft) {
  const SamplingParams& sampling = *draft.request->sampling;
  if (vocabulary_ != nullptr) return LogitsToHost::kWhole;
  // Where every row of logits is one of the target's tokens as it is.
  const bool is_targets = model_->vocab_size() <= target_vocab_size_;
  if (is_targets && sampling.takes_largest()) return LogitsToHost::kOnlyLargest;
  const DeviceRows rows = model_->device_rows();
  if (!CanSampleOnDevice(rows, sampling)) return LogitsToHost::kWhole;
  const int size = std::min(model_->vocab_size(), target_vocab_size_);
  Distribution* const next = draft.proposal->NextDistribution();
  return PutOnDevice(rows.backend, size, next).ok() ? LogitsToHost::kNothing : LogitsToHost::kWhole;
}

// Adds tokens drawn from those rows of the last pass that did not come to the host.
absl::Status ModelDrafter::DrawOnDevice(absl::Span<const ForwardRequest> passes,
                                        absl::Span<Draft* const> active) {
  const DeviceRows rows = model_->device_rows();
  std::vector<Draft*> drawing;
  std::vector<RowTask> tasks;
  std::vector<SlotTask> slots;
  for (size_t i = 0; i < active.size(); ++i) {
    if (passes[i].to_host != LogitsToHost::kNothing) continue;
    const Draft& draft = *active[i];
    const Distribution& next = *draft.proposal->NextDistribution();
    float* const probs = DeviceProbs(next);
    tasks.push_back(
        DistributionTask(rows, static_cast<int>(i), next.device_size, SamplingOf(draft), probs));
    SlotTask slot{.target = probs, .target_size = next.device_size};
    SetNoise(draft.request->random, PlaceOf(draft), &slot);
    slots.push_back(slot);
    drawing.push_back(active[i]);
  }
  if (drawing.empty()) return absl::OkStatus();
  std::vector<RowState> states(tasks.size());
  std::vector<SlotAnswer> answers(slots.size());
  RETURN_IF_ERROR(
      rows.sampler->Sample(tasks, slots, absl::MakeSpan(states), absl::MakeSpan(answers)));
  for (size_t i = 0; i < drawing.size(); ++i) {
    const bool is_drawn = states[i] == RowState::kDistribution && answers[i].drawn >= 0;
    if (is_drawn) drawing[i]->proposal->tokens.push_back(answers[i].drawn);
    drawing[i]->ended = !is_drawn;
  }
  return absl::OkStatus();
}

// Tokens the target does not know are masked before drawing, so that q stays what was drawn from.
absl::Span<const float> ModelDrafter::ToTargetRow(absl::Span<const float> logits) {
  if (vocabulary_ == nullptr) {
    return logits.first(std::min<size_t>(logits.size(), target_vocab_size_));
  }
  vocabulary_->ToTargetRow(logits, &target_row_);
  return target_row_;
}

// How the next token is to be drawn, and with which noise.
SamplingParams ModelDrafter::SamplingOf(const Draft& draft) {
  const DraftRequest& request = *draft.request;
  SamplingParams sampling = *request.sampling;
  if (request.sharpness != nullptr && !sampling.is_greedy()) {
    sampling.temperature /= request.sharpness->At(static_cast<int>(draft.proposal->tokens.size()));
  }
  return sampling;
}
RandomPlace ModelDrafter::PlaceOf(const Draft& draft) {
  if (draft.request->noise == DraftNoise::kTargets) {
    return {.stream = RandomStream::kTarget,
            .position = static_cast<uint32_t>(draft.next_position())};
  }
  return {.stream = RandomStream::kDraft,
          .position = static_cast<uint32_t>(draft.request->context.size()),
          .slot = static_cast<uint32_t>(draft.proposal->tokens.size())};
}

// Adds a token drawn from this row. False if the row is no distribution: the draft ends before it.
bool ModelDrafter::DrawNext(Draft* draft, absl::Span<const float> logits) {
  const DraftRequest& request = *draft->request;
  Proposal& proposal = *draft->proposal;
  if (request.counts != nullptr) {
    for (const TokenId token : proposal.tokens) request.counts->AddOutput(token);
  }
  Distribution* distribution = proposal.NextDistribution();
  const bool valid =
      MakeDistribution(logits, SamplingOf(*draft), request.counts, distribution).ok();
  if (request.counts != nullptr) {
    for (const TokenId token : proposal.tokens) request.counts->RemoveOutput(token);
  }
  if (!valid) return false;
  const TokenId token = Draw(*distribution, request.random, PlaceOf(*draft));
  if (token < 0) return false;
  proposal.tokens.push_back(token);
  return true;
}

}  // namespace tandem
