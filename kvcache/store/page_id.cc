#include "kvcache/store/page_id.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/string_view.h"

namespace tandem {
namespace {

template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

PartHasher& PartHasher::Add(absl::Span<const std::byte> part) {
  const uint64_t size = part.size();
  absl::StrAppend(&parts_, View(AsBytes(absl::MakeConstSpan(&size, 1))), View(part));
  return *this;
}

PartHasher& PartHasher::Add(absl::string_view part) {
  return Add(AsBytes(absl::MakeConstSpan(part.data(), part.size())));
}

PartHasher& PartHasher::Add(int64_t number) {
  return Add(AsBytes(absl::MakeConstSpan(&number, 1)));
}

PartHasher::Digest PartHasher::Finish() const {
  Digest digest;
  unsigned int size = 0;
  TANDEM_CHECK(EVP_Digest(parts_.data(), parts_.size(),
                          reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
                          nullptr) == 1);
  TANDEM_CHECK(size == digest.size());
  return digest;
}

PageKey RootKey(const PoolId& pool, int variant, absl::string_view salt) {
  return {PartHasher().Add(pool.bytes).Add(variant).Add(salt).Finish()};
}

PageKey KeyAfter(const PageKey& parent, absl::Span<const TokenId> tokens) {
  return {PartHasher().Add(parent.bytes).Add(AsBytes(tokens)).Finish()};
}

std::string HexOf(const PoolId& pool) { return absl::BytesToHexString(View(pool.bytes)); }

}  // namespace tandem
