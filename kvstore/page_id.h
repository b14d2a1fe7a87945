#ifndef TANDEM_KVSTORE_PAGE_ID_H_
#define TANDEM_KVSTORE_PAGE_ID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// SHA-256 of parts, each of which is hashed after its length, so that parts do not run together.
class PartHasher {
 public:
  using Digest = std::array<std::byte, 32>;

  PartHasher& Add(absl::Span<const std::byte> part);
  PartHasher& Add(absl::string_view part);
  PartHasher& Add(int64_t number);
  // Of all parts so far.
  Digest Finish() const;

 private:
  std::string parts_;
};

// 256 bits that name something.  `Kind` keeps those of different things apart.
template <typename Kind>
struct DigestId {
  PartHasher::Digest bytes = {};

  friend bool operator==(const DigestId&, const DigestId&) = default;
  friend auto operator<=>(const DigestId&, const DigestId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const DigestId& id) {
    return H::combine(std::move(h), id.bytes);
  }
};

// Everything that decides the bits of one model's pages: two caches with the same id hold the same
// bits for the same text.
using PoolId = DigestId<struct PoolKind>;
// A page of a pool: its tokens, and all tokens before them.
using PageKey = DigestId<struct PageKind>;

// The parent of the first pages of all texts, in caches of a variant (KvSequence::variant), for the
// tenant whose salt this is.
PageKey RootKey(const PoolId& pool, int variant, absl::string_view salt = "");
// The page after `parent` that holds `tokens`.
PageKey KeyAfter(const PageKey& parent, absl::Span<const TokenId> tokens);

// 64 digits.
std::string HexOf(const PoolId& pool);

}  // namespace tandem

#endif  // TANDEM_KVSTORE_PAGE_ID_H_
