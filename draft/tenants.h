#ifndef TANDEM_DRAFT_TENANTS_H_
#define TANDEM_DRAFT_TENANTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/draft_text_store.h"
#include "draft/policy/tenant_speculation.h"
#include "kvcache/kv_sequence.h"
#include "tandem/types.h"

namespace tandem {

// Remembers how texts continued: for runs of a few lengths, the token that usually followed. It
// outlives the texts, and a lookup takes constant time. The idea of remembering successors of
// single tokens is from Token Recycling (arXiv 2408.08696).
//
// The table has a fixed size. If two runs hash to the same place, the more frequent one stays. A
// false hit is as rare as equal 50-bit hashes, and costs at most a rejected draft.
// Thread-compatible.
class TextMemory {
 public:
  // The lengths of runs, in tokens, ascending.
  static constexpr std::array<int, 5> kRuns = {1, 2, 3, 5, 8};
  static constexpr int kLongestRun = kRuns.back();

  // Allocates at most `bytes`, all of them at once. REQUIRES: bytes >= kMinBytes.
  explicit TextMemory(size_t bytes);
  static constexpr size_t kMinBytes = 4096;

  // Learns the last `count` tokens of `text`, each as the continuation of the runs before it.
  // Cannot fail.
  // REQUIRES: 0 <= count <= text.size().
  void Learn(absl::Span<const TokenId> text, int count);

  // Learns `next` as the continuation of `text`, which ends with a rejected draft token. Only for
  // runs of one and two tokens. Cannot fail.
  void LearnSuccessor(absl::Span<const TokenId> text, TokenId next);

  struct Next {
    TokenId token = 0;
    int run = 0;            // length of the longest known run; 0 without one
    bool is_usual = false;  // has followed several times, more often than other tokens
  };
  // Finds the token after the longest known run at the end of `text`.
  Next Find(absl::Span<const TokenId> text) const;

  size_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  struct Entry {
    uint32_t check = 0;  // upper bits of the run's hash; 0 for an empty place
    TokenId next = 0;
    int32_t votes = 0;  // how much more often `next` followed than other tokens
  };
  void LearnRuns(absl::Span<const uint64_t> hashes, TokenId next);
  // Hashes the runs at the end of `text`, of all lengths in kRuns that fit. Returns their number.
  static int HashRuns(absl::Span<const TokenId> text, std::array<uint64_t, kRuns.size()>* hashes);

  std::vector<Entry> entries_;
};

// The data that requests with one cache salt leave to later requests with the same salt, and to no
// others. Requests without a salt are one tenant, too.
struct Tenant {
  CacheSalt salt;                                    // or null
  std::unique_ptr<TextMemory> memory{};              // null if memory is off or was dropped
  std::unique_ptr<TenantSpeculation> speculation{};  // null without a salt: the policy's own
  std::shared_ptr<const DraftTextList> texts{};      // given to draft from; null if there are none
};

// The tenants of an engine. Each has a fixed share of the memory, so that one tenant's texts cannot
// displace another's. The tenant without a salt gets half; each of the kMaxSaltedTenants others
// gets an equal part of the rest. A further tenant evicts the least recently used one.
// Thread-compatible.
class Tenants {
 public:
  static constexpr int kMaxSaltedTenants = 16;

  // `memory_bytes`: the size of all text memories together; 0: no memories. `texts` may be null.
  explicit Tenants(int64_t memory_bytes, std::shared_ptr<const DraftTextStore> texts = nullptr)
      : memory_bytes_(memory_bytes), texts_(std::move(texts)) {}

  // Returns the tenant of `salt`, and marks it as the most recently used.
  std::shared_ptr<Tenant> Get(const CacheSalt& salt);

  // Gives every tenant its texts, if any were added or removed since the last call.
  void RefreshTexts();

  int num_tenants() const { return static_cast<int>(salted_.size()) + (unsalted_ ? 1 : 0); }
  // The bytes in use by text memories.
  int64_t bytes_in_use() const;

 private:
  std::shared_ptr<Tenant> Make(const CacheSalt& salt) const;

  void SetTexts(Tenant* tenant) const;

  int64_t memory_bytes_;
  std::shared_ptr<const DraftTextStore> texts_;
  int64_t texts_version_ = 0;
  std::shared_ptr<Tenant> unsalted_;           // null before its first request
  std::list<std::shared_ptr<Tenant>> salted_;  // most recently used first
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_TENANTS_H_
