#ifndef TANDEM_KVCACHE_STORE_PAGE_ID_H_
#define TANDEM_KVCACHE_STORE_PAGE_ID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// SHA-256 of a list of parts. The length of each part is hashed before it: {"ab", "c"} and
// {"a", "bc"} differ.
class PartHasher {
 public:
  using Digest = std::array<std::byte, 32>;

  PartHasher& Add(absl::Span<const std::byte> part);
  PartHasher& Add(absl::string_view part);
  PartHasher& Add(int64_t number);
  // Returns the digest of all parts so far.
  Digest Finish() const;

 private:
  std::string parts_;
};

// An identifier of 256 bits. `Kind` makes identifiers of different things different types.
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
// Identifies a page of a pool: its tokens, and all tokens before them.
using PageKey = DigestId<struct PageKind>;

// Returns the key of the parent of first pages, for texts of a variant (KvSequence::variant) and a
// tenant's salt.
PageKey RootKey(const PoolId& pool, int variant, absl::string_view salt = "");
// Returns the key of the page that holds `tokens` after the page `parent`.
PageKey KeyAfter(const PageKey& parent, absl::Span<const TokenId> tokens);

// 64 hexadecimal digits.
std::string HexOf(const PoolId& pool);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_STORE_PAGE_ID_H_
