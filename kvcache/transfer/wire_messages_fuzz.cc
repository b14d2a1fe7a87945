// Checks that a decoded message is within the limits, and that encoding and decoding it again
// gives the same message.
#include <string>

#include "base/check.h"
#include "kvcache/transfer/wire_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = tandem::Decode(bytes);
  if (!message.ok()) return 0;
  if (const auto* ask = std::get_if<tandem::AskPages>(&*message)) {
    TANDEM_CHECK(ask->keys.size() <= size_t{tandem::kMaxKeys});
    TANDEM_CHECK(ask->lease.size() <= size_t{tandem::kMaxNameBytes});
  }
  const std::string written = tandem::Encode(*message);
  const auto again =
      tandem::Decode({reinterpret_cast<const std::byte*>(written.data()), written.size()});
  TANDEM_CHECK(again.ok() && tandem::Encode(*again) == written);
  return 0;
}
