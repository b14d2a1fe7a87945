// For tests: bytes that strangers send to a port.
#ifndef TANDEM_BASE_NET_ATTACK_TESTING_H_
#define TANDEM_BASE_NET_ATTACK_TESTING_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem {

// Each ended, or changed the memory of, a process that listened with UCX 1.13.1; or is in the form
// of another protocol, or of wire version 1.
inline std::vector<std::string> Attacks() {
  const std::string magic("\x78\x56\x34\x12\xbe\xba\xfe\xca", 8);
  const auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i, value >>= 8) text += static_cast<char>(value & 255);
    return text;
  };
  std::string noise;
  uint64_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    noise += static_cast<char>(state >> 56);
  }
  std::vector<std::string> attacks = {
      "", "\x16", std::string("\x16\x03\x01\xff\xff", 5), std::string("\x16\x03\x01\x02\x00", 5),
      "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "*1\r\n$8\r\nFLUSHALL\r\n", noise,
      std::string(100'000, '\0'), std::string("\xff\xff\xff\x7f", 4),
      // UCX: noise; a connection request of family 0; one and an empty message; an active message
      // of 2^32 - 1 bytes; a PUT to address 0x1000, and one of a MiB.
      magic, magic + noise.substr(0, 200), magic + std::string(64, '\0'),
      magic + number(1, 4) + number(0, 60) + number(0, 8), magic + number(0xffffffff, 8),
      magic + "\x21" + number(24, 4) + number(0x1000, 8) + number(8, 8) + std::string(8, 'x'),
      magic + "\x21" + number(16 + (1 << 20), 4) + number(0x10000000, 8) + number(1 << 20, 8) +
          std::string(1 << 20, 'x'),
      // Wire version 1: a hello, a release of a lease, a block of 16 MiB.
      number(30, 4) + std::string("\x97\x00\xactandem pages\x01", 16) + std::string(14, '\x80'),
      number(6, 4) + std::string("\x92\x06\xa3one", 6),
      number(16 << 20, 4) + std::string(1000, 'x')};
  for (const size_t size : {1, 7, 100, 5000}) attacks.push_back(noise.substr(0, size));
  return attacks;
}

}  // namespace tandem

#endif  // TANDEM_BASE_NET_ATTACK_TESTING_H_
