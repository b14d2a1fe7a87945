#include "draft/tenants.h"

#include <algorithm>

#include "base/check.h"
#include "base/split_mix.h"

namespace tandem {
namespace {

// With more votes an outdated continuation would stay for too long.
constexpr int kMaxVotes = 8;
constexpr int kUsualVotes = 2;
constexpr int kSuccessorRuns = 2;  // the first lengths in kRuns

size_t PlaceOf(uint64_t hash, size_t num_places) { return (hash & 0xFFFFFFFFu) * num_places >> 32; }

uint32_t CheckOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32) | 1u; }

}  // namespace

TextMemory::TextMemory(size_t bytes) {
  TANDEM_CHECK(bytes >= kMinBytes);
  entries_.resize(bytes / sizeof(Entry));
}

int TextMemory::HashRuns(absl::Span<const TokenId> text,
                         std::array<uint64_t, kRuns.size()>* hashes) {
  int num_runs = 0;
  uint64_t hash = 0;
  for (int length = 1; length <= kLongestRun && length <= static_cast<int>(text.size()); ++length) {
    hash = SplitMix64(hash + static_cast<uint32_t>(text[text.size() - length]));
    if (length == kRuns[num_runs]) (*hashes)[num_runs++] = hash;
  }
  return num_runs;
}

void TextMemory::LearnRuns(absl::Span<const uint64_t> hashes, TokenId next) {
  for (const uint64_t hash : hashes) {
    Entry& entry = entries_[PlaceOf(hash, entries_.size())];
    const uint32_t check = CheckOf(hash);
    if (entry.check == check && entry.next == next) {
      entry.votes = std::min(entry.votes + 1, kMaxVotes);
    } else if (--entry.votes <= 0) {
      entry = {.check = check, .next = next, .votes = 1};
    }
  }
}

void TextMemory::Learn(absl::Span<const TokenId> text, int count) {
  TANDEM_CHECK(0 <= count && count <= static_cast<int>(text.size()));
  std::array<uint64_t, kRuns.size()> hashes;
  for (size_t place = text.size() - count; place < text.size(); ++place) {
    const int num_runs = HashRuns(text.first(place), &hashes);
    LearnRuns(absl::MakeConstSpan(hashes).first(num_runs), text[place]);
  }
}

void TextMemory::LearnSuccessor(absl::Span<const TokenId> text, TokenId next) {
  std::array<uint64_t, kRuns.size()> hashes;
  const int num_runs = std::min(HashRuns(text, &hashes), kSuccessorRuns);
  LearnRuns(absl::MakeConstSpan(hashes).first(num_runs), next);
}

TextMemory::Next TextMemory::Find(absl::Span<const TokenId> text) const {
  std::array<uint64_t, kRuns.size()> hashes;
  for (int i = HashRuns(text, &hashes); i-- > 0;) {
    const Entry& entry = entries_[PlaceOf(hashes[i], entries_.size())];
    if (entry.check != CheckOf(hashes[i])) continue;
    return {.token = entry.next, .run = kRuns[i], .is_usual = entry.votes >= kUsualVotes};
  }
  return {};
}

std::shared_ptr<Tenant> Tenants::Make(const CacheSalt& salt) const {
  auto tenant = std::make_shared<Tenant>(Tenant{.salt = salt});
  const int64_t half = memory_bytes_ / 2;
  const int64_t share = salt == nullptr ? half : half / kMaxSaltedTenants;
  if (share >= static_cast<int64_t>(TextMemory::kMinBytes)) {
    tenant->memory = std::make_unique<TextMemory>(share);
  }
  if (salt != nullptr) tenant->speculation = std::make_unique<TenantSpeculation>();
  SetTexts(tenant.get());
  return tenant;
}

void Tenants::SetTexts(Tenant* tenant) const {
  if (texts_ == nullptr) return;
  tenant->texts = texts_->Of(tenant->salt == nullptr ? std::string_view() : *tenant->salt);
}

void Tenants::RefreshTexts() {
  if (texts_ == nullptr || texts_->version() == texts_version_) return;
  texts_version_ = texts_->version();
  if (unsalted_ != nullptr) SetTexts(unsalted_.get());
  for (const auto& tenant : salted_) SetTexts(tenant.get());
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
  if (static_cast<int>(salted_.size()) == kMaxSaltedTenants) {
    // Its running sequences continue without a memory, so that the total stays within bounds.
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
