// A draft head whose layer is one f32 per token, a function of the token and of the state before
// it. A row's logits and state are functions of everything that it reads back through the page
// table, so a wrong state, a stale cache entry or a wrong length changes the text.
#ifndef TANDEM_TESTS_FAKE_HEAD_H_
#define TANDEM_TESTS_FAKE_HEAD_H_

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/split_mix.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

class FakeHead final : public LanguageModel {
 public:
  struct Options {
    int vocab = 7;
    int state_size = 2;               // of the target's states
    std::vector<TokenId> head_ids{};  // empty for all
    int context_length = 1 << 20;
    int fail_at = -1;  // index of the pass that fails; -1 for none
  };
  // A row and its results.
  struct Row {
    float place = 0.0f;  // its cache entry
    float own_state = 0.0f;
    std::vector<float> logits;
  };

  FakeHead(PagedKvCache* cache, Options options) : cache_(cache), options_(std::move(options)) {}
  Options& options() { return options_; }
  int num_passes() const { return num_passes_; }

  int vocab_size() const override { return options_.vocab; }
  int head_tokens() const override {
    return options_.head_ids.empty() ? options_.vocab : static_cast<int>(options_.head_ids.size());
  }
  absl::Span<const TokenId> head_ids() const override { return options_.head_ids; }
  int context_length() const override { return options_.context_length; }
  int state_size() const override { return 1; }
  int read_state_size() const override { return options_.state_size; }
  ConstMatrixView states() const override {
    return {states_.data(), DType::kF32, static_cast<int>(states_.size()), 1, 1};
  }

  // Returns the row of `token` after rows with these cache entries at positions 1, 2, ......
  Row RowOf(absl::Span<const float> places, TokenId token, absl::Span<const float> state) const {
    uint64_t hash = SplitMix64(state.size() ^ static_cast<uint32_t>(token + 1));
    for (const float value : state) hash = SplitMix64(hash ^ BitsOf(value));
    Row row;
    row.place = Uniform(hash);
    hash = places.size() + 1;
    for (const float place : places) hash = SplitMix64(hash ^ BitsOf(place));
    hash = SplitMix64(hash ^ BitsOf(row.place));
    row.own_state = Uniform(hash);
    for (int v = 0; v < head_tokens(); ++v) {
      row.logits.push_back(3.0f * Uniform(hash = SplitMix64(hash)));
    }
    return row;
  }
  // Returns the layer's cache entries for positions [1, end).
  std::vector<float> Places(const KvSequence& kv, int end) const {
    std::vector<float> places;
    for (int i = 1; i < end; ++i) places.push_back(*Place(kv, i));
    return places;
  }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    if (num_passes_++ == options_.fail_at) return absl::InternalError("injected");
    rows_.clear();
    states_.clear();
    for (const ForwardRequest& r : requests) {
      TANDEM_CHECK(r.kv->cache() == cache_ && !r.tokens.empty() && r.kv->length() > 0);
      TANDEM_CHECK(r.reads_own_states == requests[0].reads_own_states);
      TANDEM_CHECK(r.states.rows == static_cast<int>(r.tokens.size()));
      TANDEM_CHECK(r.states.cols == (r.reads_own_states ? 1 : options_.state_size));
      const int start = r.kv->length();
      const int count = static_cast<int>(r.tokens.size());
      TANDEM_CHECK(start + count <= options_.context_length && r.kv->Extend(count).ok());
      for (int i = 0; i < count; ++i) {
        const auto* state = static_cast<const float*>(r.states.data) + i * r.states.stride;
        const Row row = RowOf(Places(*r.kv, start + i), r.tokens[i],
                              {state, static_cast<size_t>(r.states.cols)});
        *Place(*r.kv, start + i) = row.place;
        states_.push_back(row.own_state);
        if (i < count - r.num_logits) continue;
        rows_.insert(rows_.end(), row.logits.begin(), row.logits.end());
      }
    }
    const int cols = head_tokens();
    return MatrixView(rows_.data(), DType::kF32, static_cast<int>(rows_.size()) / cols, cols, cols);
  }

 private:
  static uint64_t BitsOf(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  static float Uniform(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }
  static float* Place(const KvSequence& kv, int position) {
    const PagedKvView view = kv.cache()->LayerView(1);
    return static_cast<float*>(view.keys) + view.BlockOf(kv.pages()[position / view.page_size], 0) +
           position % view.page_size;
  }

  PagedKvCache* cache_;
  Options options_;
  int num_passes_ = 0;
  std::vector<float> rows_;
  std::vector<float> states_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FAKE_HEAD_H_
