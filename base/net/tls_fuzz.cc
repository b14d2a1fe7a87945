// Feeds bytes to both sides of a handshake. Neither may finish: they do not have the key.
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/net/secret_testing.h"
#include "base/net/stream_testing.h"
#include "base/net/tls_handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  static const PresharedKey key = DerivePresharedKey(kTestSecret, "fuzz", "a");
  static const std::unique_ptr<TlsSettings> settings =
      *TlsSettings::Create([](absl::string_view identity) {
        return identity == key.identity ? std::optional(key) : std::nullopt;
      });
  if (size == 0) return 0;
  Pipe up, down;
  PipeStream wire(&up, &down);
  up.bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  up.is_ended = true;
  const bool connects = data[0] % 2 == 0;
  TlsHandshake stream =
      connects ? TlsHandshake(*settings, &wire, key) : TlsHandshake(*settings, &wire);
  Moved::State state = Moved::kWaits;
  for (int i = 0; i < 10 && state == Moved::kWaits; ++i) state = stream.Continue();
  TANDEM_CHECK(state == Moved::kFailed && !stream.failure().ok());
  return 0;
}
