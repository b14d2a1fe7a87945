#ifndef TANDEM_DRAFT_TENANTS_H_
#define TANDEM_DRAFT_TENANTS_H_

#include <cstdint>
#include <list>
#include <memory>

#include "draft/policy/tenant_speculation.h"
#include "draft/text_memory.h"
#include "kvcache/kv_sequence.h"

namespace tandem {

// What requests with one cache salt leave to later ones, and to no others. Requests without a salt
// are one tenant, too.
struct Tenant {
  CacheSalt salt;                                    // or null
  std::unique_ptr<TextMemory> memory{};              // null where none is kept
  std::unique_ptr<TenantSpeculation> speculation{};  // null without a salt: the policy's own
};

// The tenants of an engine. Each has a fixed share of the memory, so how much one writes leaves the
// others' alone: those without a salt half of it, each of the kMostSalted others an equal part of
// the rest. One more makes the least recently used one forget everything. Thread-compatible.
class Tenants {
 public:
  static constexpr int kMostSalted = 16;

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
