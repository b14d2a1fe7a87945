#include "draft/tenants.h"

#include <algorithm>
#include <utility>

namespace tandem {

std::shared_ptr<Tenant> Tenants::Make(const CacheSalt& salt) const {
  auto tenant = std::make_shared<Tenant>(Tenant{.salt = salt});
  const int64_t half = memory_bytes_ / 2;
  const int64_t share = salt == nullptr ? half : half / kMostSalted;
  if (share >= static_cast<int64_t>(TextMemory::kLeastBytes)) {
    tenant->memory = std::make_unique<TextMemory>(share);
  }
  if (salt != nullptr) tenant->speculation = std::make_unique<TenantSpeculation>();
  return tenant;
}

std::shared_ptr<Tenant> Tenants::Get(const CacheSalt& salt) {
  if (salt == nullptr) {
    if (unsalted_ == nullptr) unsalted_ = Make(nullptr);
    return unsalted_;
  }
  const auto found = std::find_if(salted_.begin(), salted_.end(), [&](const auto& tenant) {
    return IsSameSalt(tenant->salt, salt);
  });
  if (found != salted_.end()) {
    salted_.splice(salted_.begin(), salted_, found);
    return salted_.front();
  }
  if (static_cast<int>(salted_.size()) == kMostSalted) {
    // Its sequences that still run go on without a memory, so that the sum is kept.
    salted_.back()->memory = nullptr;
    salted_.pop_back();
  }
  salted_.push_front(Make(salt));
  return salted_.front();
}

int64_t Tenants::bytes_in_use() const {
  int64_t bytes = 0;
  const auto add = [&bytes](const std::shared_ptr<Tenant>& tenant) {
    if (tenant != nullptr && tenant->memory != nullptr) {
      bytes += static_cast<int64_t>(tenant->memory->bytes());
    }
  };
  add(unsalted_);
  for (const auto& tenant : salted_) add(tenant);
  return bytes;
}

}  // namespace tandem
