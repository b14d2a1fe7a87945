#include "proof/remembered_head.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// A text is kept if so many of its tokens had to be read, and so many texts are.
constexpr int kMuchRead = 8;
constexpr size_t kRecentTexts = 32;

}  // namespace

struct RememberedHead::Reading {
  const Wanted* wanted = nullptr;
  KvSequence kv;       // of wanted->num_read() tokens, once they are read
  KvSequence head_kv;  // its pages, for the head's rows
  int start = 0;       // tokens that are known already
  Buffer states;       // f32 [num_read, read_state_size]
  Buffer own_state;    // of the head's last row
};

RememberedHead::RememberedHead(const Parts& parts, int64_t max_bytes)
    : RememberedRows(parts.head, parts.remembered->cache(), /*layer=*/1, max_bytes), parts_(parts) {
  TANDEM_CHECK(parts.head->read_state_size() > 0 &&
               parts.head->read_state_size() == parts.target->state_size());
  TANDEM_CHECK(parts.remembered->state_size() == 1);
}

// At least one token of the text is left to read, so that no page which the head's rows are written
// to is another text's.
int RememberedHead::CostOf(const Wanted& wanted) const {
  return wanted.num_read() - ClosestText(wanted.tokens, wanted.num_read() - 1).second;
}

absl::Status RememberedHead::ComputePass(absl::Span<const Wanted> wanted) {
  std::vector<Reading> readings;
  for (const Wanted& want : wanted) {
    ASSIGN_OR_RETURN(Reading reading, StartOf(want));
    readings.push_back(std::move(reading));
  }
  RETURN_IF_ERROR(ReadTexts(&readings));
  RETURN_IF_ERROR(ReadRows(&readings));
  RETURN_IF_ERROR(ReadDrafts(&readings));
  for (Reading& reading : readings) {
    if (reading.wanted->num_read() - reading.start >= kMuchRead) KeepText(std::move(reading));
  }
  return absl::OkStatus();
}

// Both models after what is known of the text.
absl::StatusOr<RememberedHead::Reading> RememberedHead::StartOf(const Wanted& wanted) {
  Reading reading;
  reading.wanted = &wanted;
  ASSIGN_OR_RETURN(reading.states, parts_.backend->Allocate(wanted.num_read() * state_bytes()));
  ASSIGN_OR_RETURN(reading.own_state,
                   parts_.backend->Allocate(parts_.head->state_size() * sizeof(float)));
  reading.kv = parts_.cache->NewSequence();
  const auto [text, shared] = ClosestText(wanted.tokens, wanted.num_read() - 1);
  if (text == nullptr) return reading;
  reading.start = shared;
  reading.kv = text->kv.Fork();
  reading.kv.Truncate(shared);
  parts_.backend->Copy(text->states.data(), reading.states.data(), shared * state_bytes());
  return reading;
}

absl::Status RememberedHead::ReadTexts(std::vector<Reading>* readings) {
  std::vector<ForwardRequest> passes;
  for (Reading& reading : *readings) {
    const int count = reading.wanted->num_read() - reading.start;
    passes.push_back(
        {.tokens = absl::MakeConstSpan(reading.wanted->tokens).subspan(reading.start, count),
         .kv = &reading.kv,
         .num_logits = 0});
  }
  RETURN_IF_ERROR(parts_.target->Forward(passes).status());
  const ConstMatrixView left = parts_.target->states();
  const auto* row = static_cast<const float*>(left.data);
  for (Reading& reading : *readings) {
    for (int i = reading.start; i < reading.wanted->num_read(); ++i, row += left.stride) {
      parts_.backend->Copy(row, static_cast<std::byte*>(reading.states.data()) + i * state_bytes(),
                           state_bytes());
    }
  }
  return absl::OkStatus();
}

// The row of each token reads the state before it; that of the last committed one is a draft's
// first.
absl::Status RememberedHead::ReadRows(std::vector<Reading>* readings) {
  std::vector<ForwardRequest> passes;
  const int size = parts_.head->read_state_size();
  for (Reading& reading : *readings) {
    const int first = std::max(reading.start, 1);
    const int count = reading.wanted->num_read() - first + 1;
    reading.head_kv = reading.kv.Overlay(first);
    passes.push_back(
        {.tokens = absl::MakeConstSpan(reading.wanted->tokens).subspan(first, count),
         .kv = &reading.head_kv,
         .num_logits = 1,
         .states = ConstMatrixView(
             static_cast<const std::byte*>(reading.states.data()) + (first - 1) * state_bytes(),
             DType::kF32, count, size, size)});
  }
  ASSIGN_OR_RETURN(const MatrixView logits, parts_.head->Forward(passes));
  const ConstMatrixView left = parts_.head->states();
  const auto* row = static_cast<const float*>(logits.data);
  const auto* state = static_cast<const float*>(left.data);
  for (size_t i = 0; i < readings->size(); ++i, row += logits.stride) {
    Reading& reading = (*readings)[i];
    KeepDrafted(*reading.wanted, 0, row);
    state += static_cast<int64_t>(passes[i].tokens.size()) * left.stride;
    parts_.backend->Copy(state - left.stride, reading.own_state.data(), left.cols * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status RememberedHead::ReadDrafts(std::vector<Reading>* readings) {
  const int size = parts_.head->state_size();
  for (int step = 1;; ++step) {
    std::vector<ForwardRequest> passes;
    std::vector<Reading*> active;
    for (Reading& reading : *readings) {
      const Wanted& want = *reading.wanted;
      if (want.num_drafted < step) continue;
      active.push_back(&reading);
      passes.push_back(
          {.tokens = absl::MakeConstSpan(want.tokens).subspan(want.num_read() + step, 1),
           .kv = &reading.head_kv,
           .num_logits = 1,
           .states = ConstMatrixView(reading.own_state.data(), DType::kF32, 1, size, size),
           .reads_own_states = true});
    }
    if (active.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const MatrixView logits, parts_.head->Forward(passes));
    const ConstMatrixView left = parts_.head->states();
    for (size_t i = 0; i < active.size(); ++i) {
      KeepDrafted(*active[i]->wanted, step,
                  static_cast<const float*>(logits.data) + i * logits.stride);
      parts_.backend->Copy(static_cast<const float*>(left.data) + i * left.stride,
                           active[i]->own_state.data(), size * sizeof(float));
    }
  }
}

// The row after as many of its drafted tokens.
void RememberedHead::KeepDrafted(const Wanted& wanted, int num_drafted, const float* row) {
  const auto tokens = absl::MakeConstSpan(wanted.tokens).first(wanted.num_read() + 1 + num_drafted);
  Keep(tokens, num_drafted, row);
}

void RememberedHead::KeepText(Reading reading) {
  const auto tokens = absl::MakeConstSpan(reading.wanted->tokens).first(reading.kv.length());
  Text text{.tokens = {tokens.begin(), tokens.end()},
            .kv = std::move(reading.kv),
            .states = std::move(reading.states)};
  if (recent_.size() < kRecentTexts) {
    recent_.push_back(std::move(text));
    return;
  }
  recent_[next_recent_++ % kRecentTexts] = std::move(text);
}

absl::Status RememberedHead::KeepPrompt(absl::Span<const TokenId> prompt) {
  // All but its last token is read, as before a first draft.
  const Wanted want{.tokens = {prompt.begin(), prompt.end()}, .num_drafted = 0};
  TANDEM_CHECK(want.num_read() > 0);
  ASSIGN_OR_RETURN(Reading reading, StartOf(want));
  std::vector<Reading> readings;
  readings.push_back(std::move(reading));
  RETURN_IF_ERROR(ReadTexts(&readings));
  RETURN_IF_ERROR(ReadRows(&readings));
  prompts_.push_back({.tokens = {prompt.begin(), prompt.end() - 1},
                      .kv = std::move(readings[0].kv),
                      .states = std::move(readings[0].states)});
  return absl::OkStatus();
}

}  // namespace tandem
