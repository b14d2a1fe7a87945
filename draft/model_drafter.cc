#include "draft/model_drafter.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

struct ModelDraftState final : DraftState {
  KvSequence kv;
};

}  // namespace

struct ModelDrafter::Draft {
  const DraftRequest* request;
  Proposal* proposal;
  KvSequence* kv;
  int max_tokens;  // what the draft's own context leaves of the request's
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
                           int chunk_tokens)
    : model_(model),
      cache_(cache),
      target_vocab_size_(target_vocab_size),
      chunk_tokens_(chunk_tokens) {}

std::unique_ptr<DraftState> ModelDrafter::NewState(absl::Span<const TokenId> prompt) {
  auto state = std::make_unique<ModelDraftState>();
  state->kv = cache_->NewSequenceWithPrefix(prompt);
  return state;
}

void ModelDrafter::Rollback(DraftState* state, int length) {
  KvSequence& kv = static_cast<ModelDraftState*>(state)->kv;
  kv.Truncate(std::min(kv.length(), length));
}

void ModelDrafter::Publish(DraftState* state, absl::Span<const TokenId> tokens) {
  cache_->Publish(tokens, static_cast<ModelDraftState*>(state)->kv);
}

int ModelDrafter::Room(const KvSequence& kv, absl::Span<const TokenId> context) const {
  const bool can_read = model_->vocab_size() >= target_vocab_size_ ||
                        absl::c_all_of(context.subspan(kv.length()), [this](TokenId token) {
                          return token < model_->vocab_size();
                        });
  if (!can_read) return 0;
  // Draft token j is read off a pass over context.size() + j tokens.
  return std::max(model_->context_length() - static_cast<int>(context.size()) + 1, 0);
}

std::vector<DraftOption> ModelDrafter::Options(DraftState* state,
                                               absl::Span<const TokenId> context) {
  const KvSequence& kv = static_cast<ModelDraftState*>(state)->kv;
  const int room = std::min(Room(kv, context), kMaxDraftTokens);
  if (room == 0) return {};
  return {{.source = DraftSource::kModel,
           .evidence = 0,
           .max_tokens = room,
           .num_unread = static_cast<int>(context.size()) - kv.length()}};
}

absl::Status ModelDrafter::Propose(absl::Span<const DraftRequest> requests,
                                   absl::Span<Proposal* const> proposals) {
  std::vector<Draft> drafts;
  drafts.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    KvSequence* kv = &static_cast<ModelDraftState*>(requests[i].state)->kv;
    const int room = Room(*kv, requests[i].context);
    drafts.push_back({.request = &requests[i],
                      .proposal = proposals[i],
                      .kv = kv,
                      .max_tokens = std::min(requests[i].max_tokens, room),
                      .ended = room == 0});
  }
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
    const absl::Span<const TokenId> context = draft.request->context;
    for (;;) {
      const int pending = static_cast<int>(context.size()) - draft.kv->length();
      const int left_for_step = draft.wants_more() ? chunk_tokens_ : 0;
      if (pending <= left_for_step) break;
      const ForwardRequest pass{
          .tokens = context.subspan(draft.kv->length(), std::min(pending, chunk_tokens_)),
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
    const absl::Span<const TokenId> pending =
        proposal.tokens.empty() ? draft.request->context.subspan(draft.kv->length())
                                : absl::MakeConstSpan(&proposal.tokens.back(), 1);
    free_pages -= draft.kv->PagesToExtend(static_cast<int>(pending.size()));
    if (free_pages < 0) {  // the requests before this one get what there is
      draft.ended = true;
      continue;
    }
    active.push_back(&draft);
    passes.push_back({.tokens = pending, .kv = draft.kv, .num_logits = 1});
  }
  if (passes.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
  for (size_t i = 0; i < active.size(); ++i) {
    const float* row = static_cast<const float*>(logits.data) + i * logits.stride;
    if (!DrawNext(active[i], {row, static_cast<size_t>(logits.cols)})) active[i]->ended = true;
  }
  return absl::OkStatus();
}

// Adds a token drawn from this row. False if the row is no distribution: the draft ends before it.
bool ModelDrafter::DrawNext(Draft* draft, absl::Span<const float> logits) {
  const DraftRequest& request = *draft->request;
  Proposal& proposal = *draft->proposal;
  // Tokens the target does not know are masked before drawing, so that q stays what was drawn from.
  const absl::Span<const float> known =
      logits.first(std::min<size_t>(logits.size(), target_vocab_size_));
  if (request.counts != nullptr) {
    for (const TokenId token : proposal.tokens) request.counts->AddOutput(token);
  }
  Distribution* distribution = proposal.NextDistribution();
  SamplingParams sampling = *request.sampling;
  if (request.sharpness != nullptr && !sampling.is_greedy()) {
    sampling.temperature /= request.sharpness->At(static_cast<int>(proposal.tokens.size()));
  }
  const bool valid = MakeDistribution(known, sampling, request.counts, distribution).ok();
  if (request.counts != nullptr) {
    for (const TokenId token : proposal.tokens) request.counts->RemoveOutput(token);
  }
  if (!valid) return false;
  const RandomPlace place =
      request.noise == DraftNoise::kTargets
          ? RandomPlace{.stream = RandomStream::kTarget,
                        .position = static_cast<uint32_t>(draft->next_position())}
          : RandomPlace{.stream = RandomStream::kDraft,
                        .position = static_cast<uint32_t>(request.context.size()),
                        .slot = static_cast<uint32_t>(proposal.tokens.size())};
  const TokenId token = Draw(*distribution, request.random, place);
  if (token < 0) return false;
  proposal.tokens.push_back(token);
  return true;
}

}  // namespace tandem
