// For tests: workers on a loopback address, and leases of pages whose bytes are derived from their
// keys.
#ifndef TANDEM_KVCACHE_TRANSFER_TRANSFER_TESTING_H_
#define TANDEM_KVCACHE_TRANSFER_TRANSFER_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/net/secret_testing.h"
#include "kvcache/store/store_testing.h"
#include "kvcache/transfer/offered_pages.h"
#include "kvcache/transfer/page_transfer.h"

namespace tandem {

inline bool Offer(OfferedPages* offered, const std::string& lease, const PoolId& pool,
                  const TestText& text, int page) {
  const std::vector<std::byte>& bytes = text.bytes(page);
  return offered->Add(
      lease, pool, text.refs()[page].key, bytes.size(),
      [&](absl::Span<std::byte> into) { std::copy(bytes.begin(), bytes.end(), into.begin()); });
}

// Offers the first pages of a text in a new lease, and completes the lease.
inline void OfferAll(OfferedPages* offered, const std::string& lease, const PoolId& pool,
                     const TestText& text, int num_pages) {
  TANDEM_CHECK(offered->Open(lease));
  for (int i = 0; i < num_pages; ++i) TANDEM_CHECK(Offer(offered, lease, pool, text, i));
  offered->Complete(lease);
}

inline PageTransfer::Options LoopbackOptions() {
  return {.host = "127.0.0.1",
          .port = 0,
          .secret = kTestSecret,
          .peers = "",
          .pools = {TestPool("target"), TestPool("draft")},
          .offered = {},
          // So long that a busy machine is not mistaken for a silent peer.
          .timeout = absl::Hours(1)};
}

inline std::unique_ptr<PageTransfer> OpenLoopback(
    const PageTransfer::Options& options = LoopbackOptions()) {
  auto transfer = PageTransfer::Open(options);
  TANDEM_CHECK(transfer.ok());
  return *std::move(transfer);
}

inline PageTransfer::Remote RemoteOf(const PageTransfer& transfer, const std::string& lease) {
  return {.host = transfer.host(),
          .port = transfer.port(),
          .engine_id = transfer.engine_id(),
          .lease = lease};
}

// Reads the pages of a text. Checks the bytes of each, and returns the number of pages read.
inline int ReadAll(PageReader* reader, const PoolId& pool, const TestText& text,
                   size_t page_bytes) {
  return reader->Read(pool, text.refs(), page_bytes,
                      [&](int index, absl::Span<const std::byte> bytes) {
                        const std::vector<std::byte>& expected = text.bytes(index);
                        TANDEM_CHECK(bytes == absl::MakeConstSpan(expected));
                        return true;
                      });
}

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_TRANSFER_TESTING_H_
