#include "proof/remembered_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// A token occupies one float of the cache.
static_assert(sizeof(TokenId) == sizeof(float));
KvLayout TokenLayout(bool has_head) {
  return {.num_layers = has_head ? 2 : 1,
          .num_kv_heads = 1,
          .head_dim = 1,
          .page_size = 16,
          .state_size = has_head ? 1 : 0};
}
constexpr int kTokenPages = 1 << 16;  // a million tokens; memory is touched only as they are used

std::string KeyOf(absl::Span<const TokenId> tokens, int num_drafted) {
  std::string key(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
  key.push_back(static_cast<char>(num_drafted));
  return key;
}

// A text is kept if at least kMuchRead of its tokens had to be read, and at most kRecentTexts are
// kept.
constexpr int kMuchRead = 8;
constexpr size_t kRecentTexts = 32;

}  // namespace

RememberedRows::RememberedRows(LanguageModel* model, PagedKvCache* cache, int layer,
                               int64_t max_bytes)
    : model_(model),
      cache_(cache),
      layer_(layer),
      max_rows_(
          std::max<int64_t>(max_bytes / (int64_t{model->head_tokens()} * int64_t{sizeof(float)}),
                            int64_t{4} * kRowsPerPass)) {}

// Returns the place of a token in a layer; with `is_own`, the place of the flag that its row reads
// the model's own states.
float* RememberedRows::Place(const KvSequence& kv, int layer, int position, bool is_own) const {
  const PagedKvView view = cache_->LayerView(layer);
  return static_cast<float*>(is_own ? view.values : view.keys) +
         view.BlockOf(kv.pages()[position / view.page_size], 0) + position % view.page_size;
}

const float* RememberedRows::Find(const Wanted& wanted) const {
  const std::string key = KeyOf(wanted.tokens, wanted.num_drafted);
  for (const Rows* rows : {&rows_, &passing_rows_}) {
    const auto it = rows->find(key);
    if (it != rows->end()) return it->second.data();
  }
  return nullptr;
}

void RememberedRows::Keep(absl::Span<const TokenId> tokens, int num_drafted, const float* row) {
  Rows& rows = static_cast<int64_t>(rows_.size()) < max_rows_ ? rows_ : passing_rows_;
  rows.try_emplace(KeyOf(tokens, num_drafted), row, row + head_tokens());
  ++num_rows_computed_;
}

absl::StatusOr<MatrixView> RememberedRows::Forward(absl::Span<const ForwardRequest> requests) {
  constexpr float kTargets = 0.0f;
  constexpr float kOwn = 1.0f;
  std::vector<int> lengths_before;
  absl::Cleanup undo = [&] {
    for (size_t i = 0; i < lengths_before.size(); ++i) requests[i].kv->Truncate(lengths_before[i]);
  };
  std::vector<Wanted> wanted;
  states_.clear();
  for (const ForwardRequest& r : requests) {
    const int before = r.kv->length();
    const int count = static_cast<int>(r.tokens.size());
    TANDEM_CHECK(r.kv->cache() == cache_);
    TANDEM_CHECK(count > 0 && r.num_logits <= count);
    TANDEM_CHECK(read_state_size() == 0 ||
                 (before > 0 && r.num_logits <= 1 && r.states.rows == count));
    if (state_size() > 0) states_.resize(states_.size() + count);
    lengths_before.push_back(before);
    RETURN_IF_ERROR(r.kv->Extend(count));
    for (int i = 0; i < count; ++i) {
      std::memcpy(Place(*r.kv, layer_, before + i, false), &r.tokens[i], sizeof(TokenId));
      *Place(*r.kv, layer_, before + i, true) = r.reads_own_states ? kOwn : kTargets;
    }
    if (r.num_logits == 0) continue;
    std::vector<TokenId> tokens(before + count);
    for (int i = 0; i < before + count; ++i) {
      // A head does not have a row for the first token.
      std::memcpy(&tokens[i], Place(*r.kv, i == 0 ? 0 : layer_, i, false), sizeof(TokenId));
    }
    int num_drafted = 0;
    for (int i = before + count - 1; i > 0 && *Place(*r.kv, layer_, i, true) == kOwn; --i) {
      ++num_drafted;
    }
    for (int i = r.num_logits - 1; i >= 0; --i) {
      wanted.push_back({.tokens = {tokens.begin(), tokens.end() - i}, .num_drafted = num_drafted});
    }
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

absl::StatusOr<absl::Span<const float>> RememberedRows::RowAfter(absl::Span<const TokenId> context,
                                                                 int num_drafted) {
  const Wanted want{.tokens = {context.begin(), context.end()},
                    .num_drafted = read_state_size() == 0 ? 0 : num_drafted};
  TANDEM_CHECK(read_state_size() == 0 || want.num_read() > 0);
  RETURN_IF_ERROR(Compute({&want, 1}));
  const absl::Span<const float> row(Find(want), head_tokens());
  const absl::Span<const TokenId> ids = head_ids();
  if (ids.empty()) return row;
  row_.assign(ids.back() + 1, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < ids.size(); ++i) row_[ids[i]] = row[i];
  return absl::MakeConstSpan(row_);
}

// Computes every wanted row that is not known.
absl::Status RememberedRows::Compute(absl::Span<const Wanted> wanted) {
  passing_rows_.clear();
  absl::flat_hash_set<std::string> planned;  // many sequences want the same rows
  std::vector<Wanted> open;
  int num_rows = 0;
  for (const Wanted& want : wanted) {
    if (Find(want) != nullptr) continue;
    if (!planned.insert(KeyOf(want.tokens, want.num_drafted)).second) continue;
    const int cost = CostOf(want);
    if (num_rows > 0 && num_rows + cost > kRowsPerPass) {
      RETURN_IF_ERROR(ComputePass(std::exchange(open, {})));
      num_rows = 0;
    }
    num_rows += cost;
    open.push_back(want);
  }
  return open.empty() ? absl::OkStatus() : ComputePass(open);
}

std::pair<const RememberedRows::Text*, int> RememberedRows::ClosestText(
    absl::Span<const TokenId> tokens, int most) const {
  std::pair<const Text*, int> closest = {nullptr, 0};
  for (const std::vector<Text>* texts : {&prompts_, &recent_}) {
    for (const Text& text : *texts) {
      const auto ours =
          std::mismatch(tokens.begin(), tokens.end(), text.tokens.begin(), text.tokens.end()).first;
      const int shared = std::min(static_cast<int>(ours - tokens.begin()), most);
      if (shared > closest.second) closest = {&text, shared};
    }
  }
  return closest;
}

absl::StatusOr<std::unique_ptr<RememberedModel>> RememberedModel::Create(LanguageModel* model,
                                                                         PagedKvCache* model_cache,
                                                                         int64_t max_bytes,
                                                                         bool has_head) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend({.num_threads = 1}));
  ASSIGN_OR_RETURN(std::unique_ptr<PagedKvCache> cache,
                   PagedKvCache::Create(backend.get(), TokenLayout(has_head), kTokenPages));
  return std::unique_ptr<RememberedModel>(
      new RememberedModel(model, model_cache, max_bytes, std::move(backend), std::move(cache)));
}

absl::Status RememberedModel::ComputePass(absl::Span<const Wanted> wanted) {
  std::vector<KvSequence> sequences;
  std::vector<ForwardRequest> passes;
  sequences.reserve(wanted.size());
  for (size_t begin = 0; begin < wanted.size();) {
    // Rows of one text come from one sequence.
    size_t end = begin + 1;
    const auto goes_on = [&] {
      const absl::Span<const TokenId> last = wanted[end - 1].tokens;
      const absl::Span<const TokenId> next = wanted[end].tokens;
      return next.size() == last.size() + 1 && next.first(last.size()) == last;
    };
    while (end < wanted.size() && goes_on()) ++end;
    const absl::Span<const TokenId> tokens = wanted[end - 1].tokens;
    const auto [text, shared] = ClosestText(tokens, wanted[begin].num_read());
    sequences.push_back(text == nullptr ? model_cache_->NewSequence() : text->kv.Fork());
    sequences.back().Truncate(shared);
    passes.push_back({.tokens = tokens.subspan(shared),
                      .kv = &sequences.back(),
                      .num_logits = static_cast<int>(end - begin)});
    begin = end;
  }
  ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
  const float* row = static_cast<const float*>(logits.data);
  for (const Wanted& want : wanted) {
    Keep(want.tokens, want.num_drafted, row);
    row += logits.stride;
  }
  return absl::OkStatus();
}

absl::Status RememberedModel::KeepPrompt(absl::Span<const TokenId> prompt) {
  constexpr int kChunk = 256;
  Text kept{.tokens = {prompt.begin(), prompt.end() - 1},
            .kv = model_cache_->NewSequence(),
            .states = {}};
  for (absl::Span<const TokenId> left = kept.tokens; !left.empty();) {
    const absl::Span<const TokenId> chunk = left.first(std::min<size_t>(left.size(), kChunk));
    const ForwardRequest pass{.tokens = chunk, .kv = &kept.kv, .num_logits = 0};
    RETURN_IF_ERROR(model_->Forward({&pass, 1}).status());
    left.remove_prefix(chunk.size());
  }
  prompts_.push_back(std::move(kept));
  return absl::OkStatus();
}

struct RememberedHead::Reading {
  const Wanted* wanted = nullptr;
  KvSequence kv;       // of wanted->num_read() tokens, once read
  KvSequence head_kv;  // an overlay of `kv` for the head's rows
  int start = 0;       // number of tokens already known
  Buffer states;       // f32 [num_read, read_state_size]
  Buffer own_state;    // of the head's last row
};

RememberedHead::RememberedHead(const Parts& parts, int64_t max_bytes)
    : RememberedRows(parts.head, parts.remembered->cache(), /*layer=*/1, max_bytes), parts_(parts) {
  TANDEM_CHECK(parts.head->read_state_size() > 0 &&
               parts.head->read_state_size() == parts.target->state_size());
  TANDEM_CHECK(parts.remembered->state_size() == 1);
}

// Leaves at least one token of the text to read, so that the head's rows are never written to a
// page of another text.
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
  for (Reading& reading : readings) {
    if (reading.wanted->num_read() - reading.start >= kMuchRead) KeepText(std::move(reading));
  }
  return absl::OkStatus();
}

// Prepares both models after the known part of the text.
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

// Computes the row of the last committed token, the first of the draft, and after it those of the
// drafted tokens. A row of the text reads the state before it, a drafted one the head's own.
absl::Status RememberedHead::ReadRows(std::vector<Reading>* readings) {
  for (int step = 0;; ++step) {
    const int size = step == 0 ? parts_.head->read_state_size() : parts_.head->state_size();
    std::vector<ForwardRequest> passes;
    std::vector<Reading*> active;
    for (Reading& reading : *readings) {
      const Wanted& want = *reading.wanted;
      if (want.num_drafted < step) continue;
      active.push_back(&reading);
      const int first = step == 0 ? std::max(reading.start, 1) : want.num_read() + step;
      const int count = step == 0 ? want.num_read() - first + 1 : 1;
      const void* states = reading.own_state.data();
      if (step == 0) {
        reading.head_kv = reading.kv.Overlay(first);
        states = static_cast<const std::byte*>(reading.states.data()) + (first - 1) * state_bytes();
      }
      passes.push_back({.tokens = absl::MakeConstSpan(want.tokens).subspan(first, count),
                        .kv = &reading.head_kv,
                        .num_logits = 1,
                        .states = ConstMatrixView(states, DType::kF32, count, size, size),
                        .reads_own_states = step > 0});
    }
    if (active.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const MatrixView logits, parts_.head->Forward(passes));
    const ConstMatrixView left = parts_.head->states();
    const auto* row = static_cast<const float*>(logits.data);
    const auto* state = static_cast<const float*>(left.data);
    for (size_t i = 0; i < active.size(); ++i, row += logits.stride) {
      const Wanted& want = *active[i]->wanted;
      Keep(absl::MakeConstSpan(want.tokens).first(want.num_read() + 1 + step), step, row);
      state += static_cast<int64_t>(passes[i].tokens.size()) * left.stride;
      parts_.backend->Copy(state - left.stride, active[i]->own_state.data(),
                           left.cols * sizeof(float));
    }
  }
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
  // Reads all tokens except the last, as before a first draft.
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
