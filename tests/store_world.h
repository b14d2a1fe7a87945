// Engines that start and stop over one store, or exchange pages.
#ifndef TANDEM_TESTS_STORE_WORLD_H_
#define TANDEM_TESTS_STORE_WORLD_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/instant.h"
#include "engine/engine_testing.h"
#include "engine/judged_engine.h"
#include "kvcache/store/sqlite_store.h"
#include "kvcache/store/store_testing.h"
#include "tests/golden_file.h"

namespace tandem {

// ---- Prompts whose pages outlive their engine ----

// Returns `length` tokens: the pair's prompt, then its output, repeated.
inline std::vector<TokenId> PromptOf(const GoldenPair& pair, int length) {
  std::vector<TokenId> prompt = pair.prompt_ids;
  for (size_t i = 0; static_cast<int>(prompt.size()) < length; ++i) {
    prompt.push_back(pair.output_ids[i % pair.output_ids.size()]);
  }
  prompt.resize(length);
  return prompt;
}

inline Request RequestFor(std::vector<TokenId> prompt) {
  return {.prompt_ids = std::move(prompt),
          .max_tokens = 20,
          .sampling = kGreedy,
          .ignore_eos = true,
          .draft_tokens = 4,
          .logprobs = {.num_top = 2}};
}

// Returns the number of tokens in the whole pages before a prompt's last token.
inline int WholePages(int num_tokens, int page_size) {
  return (num_tokens - 1) / page_size * page_size;
}

// ---- Stores ----

// Wraps a store with hooks for tests. Its pools report the test's speed of computation, which
// determines how long prompts wait for pages.
class WatchedStore final : public WrappedStore {
 public:
  WatchedStore(std::shared_ptr<PageStore> store, double tokens_per_second)
      : WrappedStore(std::move(store)), tokens_per_second_(tokens_per_second) {}

  std::function<void()> before_page;  // called before each page is delivered
  absl::Status write_error;           // returned by every write

  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    return WrappedStore::Read(pool, run, page_bytes, [&](int i, absl::Span<const std::byte> bytes) {
      if (before_page != nullptr) before_page();
      return take(i, bytes);
    });
  }
  absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) override {
    return write_error.ok() ? WrappedStore::Write(pool, pages) : write_error;
  }
  absl::StatusOr<std::vector<PoolInfo>> Pools() override {
    auto pools = WrappedStore::Pools();
    if (!pools.ok()) return pools;
    for (PoolInfo& pool : *pools) pool.tokens_per_second = tokens_per_second_;
    return pools;
  }

 private:
  const double tokens_per_second_;
};

// A folder with a store, and a clock that stands still, so that no wait for pages times out.
class StoreWorld {
 public:
  static constexpr double kTokensPerSecond = 100.0;

  std::shared_ptr<WatchedStore> Open(int64_t max_bytes = int64_t{64} << 20) {
    auto store = OpenSqliteStore({.folder = folder_.path(), .max_bytes = max_bytes});
    TANDEM_CHECK(store.ok());
    return std::make_shared<WatchedStore>(*std::move(store), kTokensPerSecond);
  }
  // Starts a new engine. Its published pages are in the store once it has been destroyed.
  std::unique_ptr<Engine> Start(const EngineOptions& options) { return Start(options, Open()); }
  static std::unique_ptr<Engine> Start(const EngineOptions& options,
                                       std::shared_ptr<PageStore> store) {
    auto engine = CreateEngineWithStore(options, std::move(store));
    if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    TANDEM_CHECK(engine.ok());
    return *std::move(engine);
  }
  const std::string& folder() const { return folder_.path(); }
  FakeClock& clock() { return clock_; }

 private:
  TestFolder folder_;
  FakeClock clock_;
};

// ---- Prompts that another worker reads ----

inline constexpr char kTransferSecret[] = "0123456789abcdef0123456789abcdef";

inline Request PrefillOf(Request request) {
  request.max_tokens = 1;
  request.kv_transfer_params.do_remote_decode = true;
  return request;
}

// Returns the request that a router sends to the decode worker after `prefill` has answered. With a
// clock that stands still it waits until its pages have arrived or can no longer arrive.
inline Request DecodeAfter(Engine* prefill, const Request& request) {
  const Completion read = Generate(prefill, PrefillOf(request));
  Request decode = request;
  TANDEM_CHECK(read.kv_transfer_params.has_value());
  decode.kv_transfer_params = *read.kv_transfer_params;
  decode.kv_transfer_params.tokens_per_second = StoreWorld::kTokensPerSecond;
  return decode;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_STORE_WORLD_H_
