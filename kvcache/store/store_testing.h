// For tests: a temporary folder, and pages whose bytes are derived from their keys.
#ifndef TANDEM_KVCACHE_STORE_STORE_TESTING_H_
#define TANDEM_KVCACHE_STORE_STORE_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kvcache/store/page_store.h"
#include "kvcache/store/sqlite_store.h"
#include "tests/folder_testing.h"

namespace tandem {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// The pages of a text, as a cache would hold them. A page's bytes are a function of its key.
class TestText {
 public:
  static constexpr int kPageSize = 4;

  TestText(const PoolId& pool, int first_token, int num_pages, size_t page_bytes,
           absl::string_view salt = "")
      : root_(RootKey(pool, /*variant=*/0, salt)) {
    PageKey parent = root_;
    for (int i = 0; i < num_pages; ++i) {
      std::vector<TokenId>& tokens = tokens_.emplace_back();
      for (int t = 0; t < kPageSize; ++t) tokens.push_back(first_token + i * kPageSize + t);
      const PageKey key = KeyAfter(parent, tokens);
      refs_.push_back({.key = key, .depth = i, .tokens = tokens});
      bytes_.push_back(BytesOf(key, page_bytes));
      pages_.push_back({.page = refs_.back(), .parent = parent, .bytes = bytes_.back()});
      parent = key;
    }
  }

  static std::vector<std::byte> BytesOf(const PageKey& key, size_t size) {
    std::vector<std::byte> bytes(size);
    uint64_t state = 1;
    for (const std::byte byte : key.bytes) state = state * 31 + static_cast<uint64_t>(byte);
    for (std::byte& byte : bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(state >> 56);
    }
    return bytes;
  }

  absl::Span<const PageRef> refs() const { return refs_; }
  absl::Span<const PageToWrite> pages() const { return pages_; }
  const std::vector<std::byte>& bytes(int i) const { return bytes_[i]; }

 private:
  PageKey root_;
  std::deque<std::vector<TokenId>> tokens_;
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<PageRef> refs_;
  std::vector<PageToWrite> pages_;
};

// Forwards every call to another store.
class WrappedStore : public PageStore {
 public:
  explicit WrappedStore(std::shared_ptr<PageStore> store) : store_(std::move(store)) {}

  int Find(absl::Span<const PageRef> run) override { return store_->Find(run); }
  int Read(const PoolId& pool, absl::Span<const PageRef> run, size_t page_bytes,
           absl::FunctionRef<bool(int, absl::Span<const std::byte>)> take) override {
    return store_->Read(pool, run, page_bytes, take);
  }
  absl::Status Write(const PoolInfo& pool, absl::Span<const PageToWrite> pages) override {
    return store_->Write(pool, pages);
  }
  void Touch(absl::Span<const PageRef> run) override { store_->Touch(run); }
  absl::StatusOr<std::vector<PoolInfo>> Pools() override { return store_->Pools(); }
  absl::StatusOr<int64_t> RemovePool(const PoolId& pool) override {
    return store_->RemovePool(pool);
  }
  absl::StatusOr<int64_t> RemoveOlderThan(absl::Time time) override {
    return store_->RemoveOlderThan(time);
  }
  StoreStats stats() const override { return store_->stats(); }

 private:
  const std::shared_ptr<PageStore> store_;
};

inline PoolId TestPool(absl::string_view name) { return {PartHasher().Add(name).Finish()}; }

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_STORE_TESTING_H_
