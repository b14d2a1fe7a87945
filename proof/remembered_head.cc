#include "proof/remembered_head.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// Rows that the target reads in one pass.
constexpr int kRowsPerHeadPass = 64;
// A text is kept if so many of its tokens had to be read, and so many texts are.
constexpr int kMuchRead = 8;
constexpr size_t kRecentTexts = 32;

std::string KeyOfRow(absl::Span<const TokenId> tokens, int num_drafted) {
  std::string key(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
  key.push_back(static_cast<char>(num_drafted));
  return key;
}

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
    : parts_(parts),
      max_rows_(max_bytes / (int64_t{parts.head->head_tokens()} * int64_t{sizeof(float)})) {
  TANDEM_CHECK(parts.head->read_state_size() > 0 &&
               parts.head->read_state_size() == parts.target->state_size());
  TANDEM_CHECK(parts.remembered->state_size() == 1);
}

// Where the remembered target's cache has a token of the layer, or whether its row is an own one.
float* RememberedHead::Place(const KvSequence& kv, int layer, int position, bool is_own) const {
  const PagedKvView view = parts_.remembered->cache()->LayerView(layer);
  return static_cast<float*>(is_own ? view.values : view.keys) +
         view.BlockOf(kv.pages()[position / view.page_size], 0) + position % view.page_size;
}

const float* RememberedHead::Find(const Wanted& wanted) const {
  const std::string key = KeyOfRow(wanted.tokens, wanted.num_drafted);
  for (const Rows* rows : {&rows_, &passing_rows_}) {
    const auto it = rows->find(key);
    if (it != rows->end()) return it->second.data();
  }
  return nullptr;
}

absl::StatusOr<MatrixView> RememberedHead::Forward(absl::Span<const ForwardRequest> requests) {
  constexpr float kTargets = 0.0f;
  constexpr float kOwn = 1.0f;
  std::vector<int> lengths_before;
  absl::Cleanup undo = [&] {
    for (size_t i = 0; i < lengths_before.size(); ++i) requests[i].kv->Truncate(lengths_before[i]);
  };
  std::vector<Wanted> wanted;
  states_.clear();
  for (const ForwardRequest& r : requests) {
    TANDEM_CHECK(r.kv->cache() == parts_.remembered->cache() && r.kv->length() > 0);
    TANDEM_CHECK(!r.tokens.empty() && r.num_logits <= 1);
    TANDEM_CHECK(r.states.rows == static_cast<int>(r.tokens.size()));
    const int before = r.kv->length();
    const int count = static_cast<int>(r.tokens.size());
    lengths_before.push_back(before);
    RETURN_IF_ERROR(r.kv->Extend(count));
    for (int i = 0; i < count; ++i) {
      std::memcpy(Place(*r.kv, 1, before + i, false), &r.tokens[i], sizeof(TokenId));
      *Place(*r.kv, 1, before + i, true) = r.reads_own_states ? kOwn : kTargets;
    }
    states_.resize(states_.size() + count);
    if (r.num_logits == 0) continue;
    Wanted want;
    want.tokens.resize(before + count);
    for (int i = 0; i < before + count; ++i) {
      std::memcpy(&want.tokens[i], Place(*r.kv, i == 0 ? 0 : 1, i, false), sizeof(TokenId));
    }
    for (int i = before + count - 1; i > 0 && *Place(*r.kv, 1, i, true) == kOwn; --i) {
      ++want.num_drafted;
    }
    wanted.push_back(std::move(want));
  }
  RETURN_IF_ERROR(Compute(wanted));
  const size_t cols = head_tokens();
  logits_.resize(wanted.size() * cols);
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(logits_.data() + i * cols, Find(wanted[i]), cols * sizeof(float));
  }
  std::move(undo).Cancel();
  return MatrixView{logits_.data(), DType::kF32, static_cast<int>(wanted.size()),
                    static_cast<int>(cols), static_cast<int64_t>(cols)};
}

absl::StatusOr<absl::Span<const float>> RememberedHead::RowAfter(absl::Span<const TokenId> context,
                                                                 int num_drafted) {
  const Wanted want{.tokens = {context.begin(), context.end()}, .num_drafted = num_drafted};
  TANDEM_CHECK(want.num_read() > 0);
  RETURN_IF_ERROR(Compute({&want, 1}));
  const absl::Span<const float> row(Find(want), head_tokens());
  const absl::Span<const TokenId> ids = head_ids();
  if (ids.empty()) return row;
  row_.assign(ids.back() + 1, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < ids.size(); ++i) row_[ids[i]] = row[i];
  return absl::MakeConstSpan(row_);
}

// Makes every wanted row known at once.
absl::Status RememberedHead::Compute(absl::Span<const Wanted> wanted) {
  passing_rows_.clear();
  absl::flat_hash_set<std::string> planned;  // many sequences want the same
  std::vector<Wanted> open;
  int num_rows = 0;
  const auto compute = [&]() -> absl::Status {
    num_rows = 0;
    return ComputePass(std::exchange(open, {}));
  };
  for (const Wanted& want : wanted) {
    if (Find(want) != nullptr) continue;
    if (!planned.insert(KeyOfRow(want.tokens, want.num_drafted)).second) continue;
    ASSIGN_OR_RETURN(const Reading reading, StartOf(want));
    const int needs = want.num_read() - reading.start;
    if (num_rows > 0 && num_rows + needs > kRowsPerHeadPass) RETURN_IF_ERROR(compute());
    num_rows += needs;
    open.push_back(want);
  }
  return open.empty() ? absl::OkStatus() : compute();
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

// Both models after what is known of the text. At least one token of it is left to read, so that
// no page which the head's rows are written to is another text's.
absl::StatusOr<RememberedHead::Reading> RememberedHead::StartOf(const Wanted& wanted) {
  Reading reading;
  reading.wanted = &wanted;
  reading.kv = parts_.cache->NewSequence();
  const Text* best = nullptr;
  for (const std::vector<Text>* texts : {&prompts_, &recent_}) {
    for (const Text& text : *texts) {
      const auto [ours, theirs] = std::mismatch(wanted.tokens.begin(), wanted.tokens.end(),
                                                text.tokens.begin(), text.tokens.end());
      const int shared =
          std::min(static_cast<int>(ours - wanted.tokens.begin()), wanted.num_read() - 1);
      if (shared <= reading.start) continue;
      best = &text;
      reading.start = shared;
    }
  }
  ASSIGN_OR_RETURN(reading.states, parts_.backend->Allocate(wanted.num_read() * state_bytes()));
  ASSIGN_OR_RETURN(reading.own_state,
                   parts_.backend->Allocate(parts_.head->state_size() * sizeof(float)));
  if (best == nullptr) return reading;
  reading.kv = best->kv.Fork();
  reading.kv.Truncate(reading.start);
  parts_.backend->Copy(best->states.data(), reading.states.data(), reading.start * state_bytes());
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
    Keep(*reading.wanted, 0, row);
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
      Keep(*active[i]->wanted, step, static_cast<const float*>(logits.data) + i * logits.stride);
      parts_.backend->Copy(static_cast<const float*>(left.data) + i * left.stride,
                           active[i]->own_state.data(), size * sizeof(float));
    }
  }
}

// The row after as many of its drafted tokens.
void RememberedHead::Keep(const Wanted& wanted, int num_drafted, const float* row) {
  Rows& rows = static_cast<int64_t>(rows_.size()) < max_rows_ ? rows_ : passing_rows_;
  const auto tokens = absl::MakeConstSpan(wanted.tokens).first(wanted.num_read() + 1 + num_drafted);
  rows.try_emplace(KeyOfRow(tokens, num_drafted), row, row + head_tokens());
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
