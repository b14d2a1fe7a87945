#include "draft/head_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {

// Rows [1, end) of the layer are in the target's pages. `pending` holds the states of positions
// [end - 1, known()), which the following rows read. known() is the target's length, unless a call
// failed.
struct HeadDrafter::State final : DraftState {
  bool drafts = false;
  int end = 1;
  int num_pending = 0;
  Buffer pending;    // f32 [page_size + 1, read_state_size]
  Buffer own_state;  // f32 [state_size]: state of the last row of the draft in progress

  int known() const { return end - 1 + num_pending; }
  // After this, known() differs from the target's length until the target starts again from 0.
  void Forget() {
    end = 1;
    num_pending = 0;
  }
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }
};

struct HeadDrafter::Draft : OngoingDraft {
  using OngoingDraft::OngoingDraft;

  State* state = nullptr;
  KvSequence kv;  // of the head's rows

  // The tokens that the draft reads to draw the token of this step.
  absl::Span<const TokenId> TokensOf(int step) const {
    return step == 0 ? request->context.subspan(kv.length())
                     : absl::MakeConstSpan(&proposal->tokens.back(), 1);
  }
};

struct HeadDrafter::Reading {
  const TargetRows* of;
  absl::Span<const TokenId> tokens;  // unread tokens, from kv.length() on
  KvSequence kv;                     // of the head's rows
  const float* states;               // of these tokens
};

HeadDrafter::HeadDrafter(const Parts& parts)
    : parts_(parts), drawer_(parts.head, parts.target_vocab_size, /*vocabulary=*/nullptr) {
  TANDEM_CHECK(parts.head->read_state_size() > 0 &&
               parts.head->read_state_size() == parts.target->state_size());
}

std::unique_ptr<DraftState> HeadDrafter::NewStateOf(DrafterKind kind,
                                                    absl::Span<const TokenId> /*prompt*/,
                                                    std::shared_ptr<const Tenant> /*tenant*/) {
  auto state = std::make_unique<State>();
  state->drafts = HasModel(kind);
  return state;
}

absl::Status HeadDrafter::Reserve(size_t bytes, Buffer* buffer) {
  if (buffer->size_bytes() >= bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(*buffer, parts_.backend->Allocate(bytes));
  return absl::OkStatus();
}

std::byte* HeadDrafter::PendingOf(const State& state, int row) const {
  return static_cast<std::byte*>(state.pending.data()) + row * state_bytes();
}

// Copies the target's states of positions [begin, end) to `to`.
void HeadDrafter::CopyStates(const TargetRows& of, int begin, int end, std::byte* to) {
  const ConstMatrixView states = parts_.target->states();
  TANDEM_CHECK(states.stride == states.cols);
  const int row = of.first_row + begin - of.first_position;
  parts_.backend->Copy(static_cast<const float*>(states.data) + row * states.stride, to,
                       (end - begin) * state_bytes());
}

// Drops all pending states but the last: the rows before `target_length` have been computed.
void HeadDrafter::KeepLastOnly(State* state, int target_length) {
  if (state->num_pending > 1) {
    parts_.backend->Copy(PendingOf(*state, state->num_pending - 1), PendingOf(*state, 0),
                         state_bytes());
  }
  state->end = target_length;
  state->num_pending = 1;
}

void HeadDrafter::Evict(DraftState* state) { State::Of(state).Forget(); }

void HeadDrafter::Rollback(DraftState* state, int length) {
  State& s = State::Of(state);
  if (length >= s.known()) return;
  // The state that the first missing row reads has been dropped.
  if (length < s.end) return s.Forget();
  s.num_pending = length - (s.end - 1);
}

void HeadDrafter::AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> /*tokens*/,
                                    const KvSequence& target_kv) {
  State& s = State::Of(state);
  const int length = target_kv.length();
  if (length <= s.known() || length % parts_.page_size != 0) return;
  s.Forget();
  if (!Reserve((parts_.page_size + 1) * state_bytes(), &s.pending).ok()) return;
  parts_.backend->Copy(target_kv.cache()->StateOf(target_kv.pages().back()), PendingOf(s, 0),
                       state_bytes());
  s.end = length;
  s.num_pending = 1;
}

bool HeadDrafter::HoldsFullPages(const DraftState& state, const KvSequence& kv) const {
  const auto& s = static_cast<const State&>(state);
  const int full = kv.length() / parts_.page_size * parts_.page_size;
  return full == 0 || (s.known() == kv.length() && s.end >= full);
}

// Stores in each page that the pass has filled the state of its last token.
void HeadDrafter::KeepPageStates(const TargetRows& of) {
  const int page_size = parts_.page_size;
  const int num_full = of.kv->length() / page_size;
  for (int page = of.first_position / page_size; page < num_full; ++page) {
    const int last = (page + 1) * page_size - 1;
    float* const state = of.kv->cache()->StateOf(of.kv->pages()[page]);
    CopyStates(of, last, last + 1, reinterpret_cast<std::byte*>(state));
  }
}

absl::Status HeadDrafter::ReadStates(absl::Span<const TargetRows> rows) {
  std::vector<Reading> readings;
  size_t num_to_read = 0;
  for (const TargetRows& of : rows) {
    State& s = State::Of(of.state);
    const int length = of.kv->length();
    if (length <= of.first_position) continue;
    KeepPageStates(of);
    if (s.known() != of.first_position) {
      s.Forget();
      continue;
    }
    RETURN_IF_ERROR(Reserve((parts_.page_size + 1) * state_bytes(), &s.pending));
    if (length / parts_.page_size * parts_.page_size <= s.end) {
      CopyStates(of, of.first_position, length, PendingOf(s, s.num_pending));
      s.num_pending += length - of.first_position;
      continue;
    }
    readings.push_back({.of = &of,
                        .tokens = of.tokens.subspan(s.end, length - s.end),
                        .kv = of.kv->Overlay(s.end),
                        .states = nullptr});
    num_to_read += readings.back().tokens.size();
  }
  if (readings.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Reserve(num_to_read * state_bytes(), &scratch_));
  auto* at = static_cast<std::byte*>(scratch_.data());
  for (Reading& reading : readings) {
    const TargetRows& of = *reading.of;
    const State& s = State::Of(of.state);
    reading.states = reinterpret_cast<const float*>(at);
    const size_t pending_bytes = s.num_pending * state_bytes();
    parts_.backend->Copy(PendingOf(s, 0), at, pending_bytes);
    // All but the last state, which the next row will read.
    CopyStates(of, of.first_position, of.kv->length() - 1, at + pending_bytes);
    at += reading.tokens.size() * state_bytes();
  }
  RETURN_IF_ERROR(Read(absl::MakeSpan(readings)));
  for (const Reading& reading : readings) {
    const TargetRows& of = *reading.of;
    State& s = State::Of(of.state);
    const int length = of.kv->length();
    CopyStates(of, length - 1, length, PendingOf(s, 0));
    s.end = length;
    s.num_pending = 1;
  }
  return absl::OkStatus();
}

// Computes the rows of all tokens of `readings`, in passes of at most chunk_tokens rows.
absl::Status HeadDrafter::Read(absl::Span<Reading> readings) {
  const int state_size = parts_.head->read_state_size();
  for (;;) {
    std::vector<ForwardRequest> passes;
    int left = parts_.chunk_tokens;
    for (Reading& reading : readings) {
      const int count = std::min(left, static_cast<int>(reading.tokens.size()));
      if (count == 0) continue;
      passes.push_back(
          {.tokens = reading.tokens.first(count),
           .kv = &reading.kv,
           .num_logits = 0,
           .states = ConstMatrixView(reading.states, DType::kF32, count, state_size, state_size)});
      reading.tokens.remove_prefix(count);
      reading.states += int64_t{count} * state_size;
      left -= count;
    }
    if (passes.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(parts_.head->Forward(passes).status());
  }
}

// Whether a draft after `context_length` tokens has all the states that it reads.
bool HeadDrafter::CanDraft(const State& state, int context_length) const {
  return state.drafts && state.known() > 0 && state.known() == context_length - 1 &&
         context_length <= parts_.head->context_length();
}

std::vector<DraftOption> HeadDrafter::Options(DraftState* state,
                                              absl::Span<const TokenId> context) {
  const State& s = State::Of(state);
  const int length = static_cast<int>(context.size());
  if (!CanDraft(s, length)) return {};
  // Draft token j, from 0 on, needs a context of `length` + j tokens.
  const int room = parts_.head->context_length() - length + 1;
  return {{.source = DraftSource::kModel,
           .max_tokens = std::min(room, kMaxDraftTokens),
           .num_unread = length - s.end,
           .can_stop = true}};
}

absl::Status HeadDrafter::Propose(absl::Span<const DraftRequest> requests,
                                  absl::Span<Proposal* const> proposals) {
  std::vector<Draft> drafts;
  drafts.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    State& state = State::Of(requests[i].state);
    const int length = static_cast<int>(requests[i].context.size());
    if (requests[i].granted == 0 || !CanDraft(state, length)) continue;
    TANDEM_CHECK(requests[i].target_kv->length() == state.known());
    RETURN_IF_ERROR(Reserve(parts_.head->state_size() * sizeof(float), &state.own_state));
    Draft& draft = drafts.emplace_back(
        &requests[i], proposals[i],
        std::min(requests[i].granted, parts_.head->context_length() - length + 1));
    draft.state = &state;
    draft.kv = requests[i].target_kv->Overlay(state.end);
  }
  return DrawTokens(absl::MakeSpan(drafts));
}

// Returns the drafts that draw a token in this step. A draft ends if pages run out.
std::vector<HeadDrafter::Draft*> HeadDrafter::DraftsOfStep(absl::Span<Draft> drafts,
                                                           int step) const {
  std::vector<Draft*> active;
  int64_t taken = 0;
  for (Draft& draft : drafts) {
    if (!draft.wants_more()) continue;
    const int64_t pages = draft.kv.PagesToExtend(static_cast<int>(draft.TokensOf(step).size()));
    draft.ended = taken + pages > draft.kv.cache()->num_available_pages();
    if (draft.ended) continue;
    taken += pages;
    active.push_back(&draft);
  }
  return active;
}

// Draws token i of each draft from the logits of pass i.
absl::Status HeadDrafter::DrawTokens(absl::Span<Draft> drafts) {
  const int read_size = parts_.head->read_state_size();
  const int own_size = parts_.head->state_size();
  for (int step = 0;; ++step) {
    const std::vector<Draft*> active = DraftsOfStep(drafts, step);
    if (active.empty()) return absl::OkStatus();
    std::vector<ForwardRequest> passes;
    for (Draft* draft : active) {
      const absl::Span<const TokenId> tokens = draft->TokensOf(step);
      const int rows = static_cast<int>(tokens.size());
      const State& s = *draft->state;
      TANDEM_CHECK(step > 0 || rows == s.num_pending);
      passes.push_back({.tokens = tokens,
                        .kv = &draft->kv,
                        .states = step == 0 ? ConstMatrixView(s.pending.data(), DType::kF32, rows,
                                                              read_size, read_size)
                                            : ConstMatrixView(s.own_state.data(), DType::kF32, 1,
                                                              own_size, own_size),
                        .reads_own_states = step > 0});
    }
    ASSIGN_OR_RETURN(const MatrixView logits, parts_.head->Forward(passes));
    const ConstMatrixView left = parts_.head->states();
    int last_row = -1;
    for (size_t i = 0; i < active.size(); ++i) {
      Draft& draft = *active[i];
      last_row += static_cast<int>(passes[i].tokens.size());
      // The newest token's row may be in a page that only this draft holds, so keep its state.
      if (step == 0) KeepLastOnly(draft.state, draft.request->target_kv->length());
      const float* row = static_cast<const float*>(logits.data) + i * logits.stride;
      if (!drawer_.DrawNext({row, static_cast<size_t>(logits.cols)}, &draft)) draft.ended = true;
      if (!draft.wants_more()) continue;
      parts_.backend->Copy(static_cast<const float*>(left.data) + last_row * left.stride,
                           draft.state->own_state.data(), own_size * sizeof(float));
    }
  }
}

}  // namespace tandem
