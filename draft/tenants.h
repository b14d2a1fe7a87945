#ifndef TANDEM_DRAFT_TENANTS_H_
#define TANDEM_DRAFT_TENANTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "draft/policy/tenant_speculation.h"
#include "kvcache/kv_sequence.h"
#include "tandem/types.h"

namespace tandem {

// How texts went on: for runs of a few lengths, the token that mostly followed them. It outlives
// the texts, and answers in the same time however many it has seen. The idea of remembering
// successors of single tokens is Token Recycling's (arXiv 2408.08696).
//
// A table of fixed size; where two runs want the same place, the one that came back more often
// stays. A false hit is as rare as equal 50-bit hashes, and costs a rejected draft at most.
// Thread-compatible.
class TextMemory {
 public:
  // Lengths of the runs, in tokens, ascending.
  static constexpr std::array<int, 5> kRuns = {1, 2, 3, 5, 8};
  static constexpr int kLongestRun = kRuns.back();

  // Takes at most `bytes`, all of it now. REQUIRES: bytes >= kMinBytes.
  explicit TextMemory(size_t bytes);
  static constexpr size_t kMinBytes = 4096;

  // The last `count` tokens of `text` follow what stands before them. Cannot fail.
  // REQUIRES: 0 <= count <= text.size().
  void Learn(absl::Span<const TokenId> text, int count);

  // `next` follows `text`, which was drafted and not kept: of runs of one and two tokens alone.
  // Cannot fail.
  void LearnSuccessor(absl::Span<const TokenId> text, TokenId next);

  struct Next {
    TokenId token = 0;
    int run = 0;            // length of the longest run that is known; 0 if none is
    bool is_usual = false;  // it followed several times, more often than others
  };
  // What follows the end of `text`.
  Next Find(absl::Span<const TokenId> text) const;

  size_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  struct Entry {
    uint32_t check = 0;  // of the run's hash; 0 for an empty place
    TokenId next = 0;
    int32_t votes = 0;  // how much more often `next` followed than others did
  };
  void LearnRuns(absl::Span<const uint64_t> hashes, TokenId next);
  // Hashes of the runs of kRuns at the end of `text`, as far as it reaches.
  static int HashRuns(absl::Span<const TokenId> text, std::array<uint64_t, kRuns.size()>* hashes);

  std::vector<Entry> entries_;
};

// What requests with one cache salt leave to later ones, and to no others. Requests without a salt
// are one tenant, too.
struct Tenant {
  CacheSalt salt;                                    // or null
  std::unique_ptr<TextMemory> memory{};              // null where none is kept
  std::unique_ptr<TenantSpeculation> speculation{};  // null without a salt: the policy's own
};

// The tenants of an engine. Each has a fixed share of the memory, so how much one writes leaves the
// others' alone: those without a salt half of it, each of the kMaxSaltedTenants others an equal
// part of the rest. One more makes the least recently used one forget everything.
// Thread-compatible.
class Tenants {
 public:
  static constexpr int kMaxSaltedTenants = 16;

  // `memory_bytes`: of all texts' memories together; 0 for none.
  explicit Tenants(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // The tenant of `salt`, from now on the most recently used.
  std::shared_ptr<Tenant> Get(const CacheSalt& salt);

  int num_tenants() const { return static_cast<int>(salted_.size()) + (unsalted_ ? 1 : 0); }
  // Bytes that are taken now.
  int64_t bytes_in_use() const;

 private:
  std::shared_ptr<Tenant> Make(const CacheSalt& salt) const;

  int64_t memory_bytes_;
  std::shared_ptr<Tenant> unsalted_;           // null before its first request
  std::list<std::shared_ptr<Tenant>> salted_;  // most recently used first
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_TENANTS_H_
