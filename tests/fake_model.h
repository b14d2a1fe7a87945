// A model whose cache holds the tokens themselves. Its next row is a function of everything that it
// reads back through the page table, so a wrong page, a stale entry or a wrong length changes the
// text.
#ifndef TANDEM_TESTS_FAKE_MODEL_H_
#define TANDEM_TESTS_FAKE_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/split_mix.h"
#include "kvcache/kv_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

inline constexpr int kSmallVocab = 7;  // tokens, few enough to enumerate

inline std::vector<TokenId> RandomTokens(std::mt19937_64& random, int vocab, int count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
  return tokens;
}

// A cache of one f32 per token and layer.
class FakeCache {
 public:
  FakeCache(int page_size, int num_pages, int num_layers = 1, int state_size = 0)
      : cache_(*PagedKvCache::Create(&backend_,
                                     {.num_layers = num_layers,
                                      .num_kv_heads = 1,
                                      .head_dim = 1,
                                      .page_size = page_size,
                                      .state_size = state_size},
                                     num_pages)) {
    FillFreePages(cache_.get(), NAN);
  }
  PagedKvCache* get() { return cache_.get(); }
  PagedKvCache* operator->() { return cache_.get(); }
  MemoryBackend* backend() { return &backend_; }

 private:
  MemoryBackend backend_;
  std::unique_ptr<PagedKvCache> cache_;
};

class FakeModel final : public LanguageModel {
 public:
  struct Options {
    int vocab = 7;
    int context_length = 1 << 20;
    uint64_t salt = 1;
    float shared = 2.0f;   // range of the part of the logits that all fakes share
    float own = 1.5f;      // range of the part that depends on the salt
    bool is_bf16 = false;  // rounds the logits
    int fail_every = 0;    // passes per failure; 0 for never
    int packs_for = 0;     // passes until weights are packed
    int state_size = 0;    // floats per row
    int fail_at = -1;      // index of the pass that fails; -1 for none
    // If set, rows stay on a device, and rows that the host did not ask for are NaN on the host.
    Sampler* sampler = nullptr;
    // Called during each pass with its number of tokens, for example to take time.
    std::function<void(int num_tokens)> on_pass = nullptr;
    // Returns whether the row after this context is NaN.
    std::function<bool(absl::Span<const TokenId> context)> poisoned = nullptr;
  };
  // One request of a pass.
  struct Fed {
    const KvSequence* kv;
    int start;
    std::vector<TokenId> tokens;
    int num_logits;
  };

  FakeModel(PagedKvCache* cache, Options options) : cache_(cache), options_(std::move(options)) {}

  int vocab_size() const override { return options_.vocab; }
  int context_length() const override { return options_.context_length; }
  int num_unpacked() const override { return std::max(0, options_.packs_for - num_passes_); }
  Options& options() { return options_; }
  // The passes since the caller last cleared this.
  std::vector<std::vector<Fed>>& passes() { return passes_; }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    const int pass = num_passes_++;
    if (pass == options_.fail_at ||
        (options_.fail_every > 0 && (pass + 1) % options_.fail_every == 0)) {
      return absl::InternalError("injected");
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      if (const absl::Status status = Extend(requests[i]); !status.ok()) {
        for (const ForwardRequest& r : requests.first(i)) {
          r.kv->Truncate(r.kv->length() - static_cast<int>(r.tokens.size()));
        }
        return status;
      }
    }
    passes_.emplace_back();
    const int stride = options_.vocab + 3;  // NaN between the rows
    rows_.clear();
    states_.clear();
    int num_rows = 0;
    int num_tokens = 0;
    for (const ForwardRequest& r : requests) {
      num_tokens += static_cast<int>(r.tokens.size());
      const int start = r.kv->length() - static_cast<int>(r.tokens.size());
      const std::vector<TokenId> tokens = TokensOf(r);
      passes_.back().push_back({r.kv, start, tokens, r.num_logits});
      for (size_t i = 0; i < tokens.size(); ++i) {
        TANDEM_CHECK(0 <= tokens[i] && tokens[i] < options_.vocab);
        *Place(*r.kv, start + static_cast<int>(i)) = static_cast<float>(tokens[i]);
      }
      const std::vector<TokenId> read = Contents(*r.kv);
      for (int length = start + 1; length <= r.kv->length(); ++length) {
        const std::vector<float> state = StateAfter(absl::MakeSpan(read).first(length));
        states_.insert(states_.end(), state.begin(), state.end());
      }
      for (int length = r.kv->length() - r.num_logits + 1; length <= r.kv->length(); ++length) {
        const std::vector<float> row = RowAfter(absl::MakeSpan(read).first(length));
        rows_.insert(rows_.end(), row.begin(), row.end());
        rows_.resize(rows_.size() + stride - row.size(), NAN);
        ++num_rows;
      }
    }
    if (options_.on_pass) options_.on_pass(num_tokens);
    const MatrixView rows(rows_.data(), DType::kF32, num_rows, options_.vocab, stride);
    if (options_.sampler == nullptr) return rows;
    // Tasks hold pointers to the rows of later passes, so the storage must not move.
    constexpr size_t kMaxRows = 4096;
    TANDEM_CHECK(rows_.size() <= kMaxRows);
    device_storage_.resize(kMaxRows, NAN);
    std::copy(rows_.begin(), rows_.end(), device_storage_.begin());
    device_rows_ = rows;
    device_rows_.data = device_storage_.data();
    return ToHost(requests);
  }

  DeviceRows device_rows() override { return {&backend_, options_.sampler, device_rows_}; }

  int state_size() const override { return options_.state_size; }
  ConstMatrixView states() const override {
    const int size = options_.state_size;
    return {states_.data(), DType::kF32, static_cast<int>(states_.size()) / std::max(size, 1), size,
            size};
  }
  // Returns the state of the row of a context's last token.
  std::vector<float> StateAfter(absl::Span<const TokenId> context) const {
    uint64_t hash = options_.salt;
    for (const TokenId token : context) hash = SplitMix64(hash ^ static_cast<uint32_t>(token + 1));
    std::vector<float> state(options_.state_size);
    for (float& value : state) value = Uniform(hash = SplitMix64(hash));
    return state;
  }

  // Returns the logits after a context.
  std::vector<float> RowAfter(absl::Span<const TokenId> context) const {
    std::vector<float> row(options_.vocab, NAN);
    if (options_.poisoned && options_.poisoned(context)) return row;
    uint64_t hash = context.size();
    for (const TokenId token : context) hash = SplitMix64(hash ^ static_cast<uint32_t>(token + 1));
    for (int v = 0; v < options_.vocab; ++v) {
      row[v] = options_.shared * Uniform(SplitMix64(hash + v)) +
               options_.own * Uniform(SplitMix64(SplitMix64(hash + v) ^ options_.salt));
      if (options_.is_bf16) row[v] = Bf16ToFloat(FloatToBf16(row[v]));
    }
    return row;
  }

  // Returns the tokens in the cache of a sequence; -1 for entries that were not written.
  static std::vector<TokenId> Contents(const KvSequence& kv) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < kv.length(); ++i) {
      const float value = *Place(kv, i);
      tokens.push_back(std::isnan(value) ? -1 : static_cast<TokenId>(value));
    }
    return tokens;
  }

 private:
  std::vector<TokenId> TokensOf(const ForwardRequest& r) const {
    if (r.drawn_by < 0) return {r.tokens.begin(), r.tokens.end()};
    TANDEM_CHECK(r.tokens.size() == 1);
    TokenId token = -1;
    options_.sampler->TakeDrawn(&r.drawn_by, 1, &token);
    return {token < 0 ? 0 : token};
  }
  // Returns the host's copy of the last rows, with NaN in rows that it did not ask for.
  MatrixView ToHost(absl::Span<const ForwardRequest> requests) {
    host_rows_ = rows_;
    size_t begin = 0;
    for (const ForwardRequest& r : requests) {
      const size_t size = static_cast<size_t>(r.num_logits) * device_rows_.stride;
      if (r.to_host == LogitsToHost::kNothing) std::fill_n(&host_rows_[begin], size, NAN);
      begin += size;
    }
    MatrixView rows = device_rows_;
    rows.data = host_rows_.data();
    return rows;
  }
  absl::Status Extend(const ForwardRequest& request) const {
    const int count = static_cast<int>(request.tokens.size());
    TANDEM_CHECK(request.kv->cache() == cache_);
    TANDEM_CHECK(count > 0 && 0 <= request.num_logits && request.num_logits <= count);
    if (request.kv->length() + count > options_.context_length) {
      return absl::OutOfRangeError("fake model: longer than its context");
    }
    return request.kv->Extend(count);
  }
  static float* Place(const KvSequence& kv, int position) {
    const PagedKvView view = kv.cache()->LayerView(0);
    return static_cast<float*>(view.keys) + view.BlockOf(kv.pages()[position / view.page_size], 0) +
           position % view.page_size;
  }
  static float Uniform(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }

  PagedKvCache* cache_;
  Options options_;
  int num_passes_ = 0;
  std::vector<std::vector<Fed>> passes_;
  std::vector<float> rows_;
  std::vector<float> states_;
  std::vector<float> device_storage_;
  MatrixView device_rows_;
  std::vector<float> host_rows_;
  MemoryBackend backend_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FAKE_MODEL_H_
