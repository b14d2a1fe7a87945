#ifndef TANDEM_BASE_NET_SECRET_H_
#define TANDEM_BASE_NET_SECRET_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// Reads a secret, or two on a line each while it is replaced: the first is used for connecting, and
// both are accepted. Each has from 32 to 1,000 visible ASCII characters, at least 8 of them
// different, because one message of a handshake is enough to test guesses (RFC 9257).
// INVALID_ARGUMENT that names `field` and never shows the secret.
absl::StatusOr<std::vector<std::string>> ParseSecrets(absl::string_view text,
                                                      absl::string_view field);

// A pre-shared key of TLS 1.3, and the identity that is sent in clear text to name it.
struct PresharedKey {
  std::string identity;  // "tandem/1 SERVICE SCOPE KEYID"
  std::array<uint8_t, 32> key = {};
};

// Derives a key from a secret by HKDF-SHA256 (RFC 5869).
//   service: the purpose of the connection, such as "pages"; each service has keys of its own
//   scope: for which side of which connection, such as the name of the process that listens
PresharedKey DerivePresharedKey(absl::string_view secret, absl::string_view service,
                                absl::string_view scope);

// Fills `derived` by HKDF-SHA256 (RFC 5869) from a key, for the use that `info` names.
void DeriveKey(absl::string_view key, absl::string_view info, absl::Span<uint8_t> derived);

// Returns 32 hexadecimal digits, 128 random bits of the system.
std::string NewRandomName();

}  // namespace tandem

#endif  // TANDEM_BASE_NET_SECRET_H_
