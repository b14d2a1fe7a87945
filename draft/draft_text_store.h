#ifndef TANDEM_DRAFT_DRAFT_TEXT_STORE_H_
#define TANDEM_DRAFT_DRAFT_TEXT_STORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "draft/draft_text.h"
#include "tandem/draft_texts.h"
#include "tandem/tokenizer.h"

namespace tandem {

// INVALID_ARGUMENT naming the field `cache_salt` if it is too long: each tenant keeps its salt.
absl::Status CheckCacheSalt(const std::string& salt);

// NOT_FOUND: the tenant has no texts with this id.
absl::Status NoSuchDraftText(std::string_view id);

// The texts of all tenants to draft from, within a limit of memory. Half of it is for the texts
// without a salt, and each tenant with a salt may use an eighth, so that none can use what another
// needs. Texts stay until they are removed. Thread-safe.
class DraftTextStore {
 public:
  static constexpr int kMaxPerTenant = 64;  // each costs a lookup in every round

  explicit DraftTextStore(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // INVALID_ARGUMENT naming a field of the input (`texts`, `name`, `cache_salt`), or
  // RESOURCE_EXHAUSTED that says how much memory there is.
  absl::StatusOr<DraftTextInfo> Add(const DraftTextInput& input, const Tokenizer& tokenizer);
  // The texts of a tenant, oldest first.
  std::vector<DraftTextInfo> List(std::string_view salt) const;
  // NOT_FOUND if the tenant has no such texts.
  absl::Status Remove(std::string_view id, std::string_view salt);

  // The texts from which the tenant drafts; null if it has none.
  std::shared_ptr<const DraftTextList> Of(std::string_view salt) const;
  // Changes with every Add and Remove.
  int64_t version() const { return version_.load(std::memory_order_acquire); }
  int64_t bytes_in_use() const;

 private:
  struct Held {
    DraftTextInfo info;
    std::shared_ptr<const DraftText> text;
  };
  struct TenantTexts {
    std::vector<Held> held;
    std::shared_ptr<const DraftTextList> list;
    int64_t bytes = 0;
  };
  static void Update(TenantTexts* texts);
  int64_t BytesOf(std::string_view salt) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(const DraftTextInput& input, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::map<std::string, TenantTexts, std::less<>> tenants_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::atomic<int64_t> version_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_DRAFT_TEXT_STORE_H_
