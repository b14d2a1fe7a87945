#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

using AddressBytes = std::array<uint8_t, 16>;
constexpr int kMappedBits = 96;  // the prefix ::ffff:0:0/96 of IPv4 addresses as IPv6

const sockaddr_in& V4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& V6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}
bool IsV4(const Address& address) { return address.storage.ss_family == AF_INET; }

AddressBytes BytesOf(const Address& address) {
  AddressBytes bytes = {};
  if (!IsV4(address)) {
    std::memcpy(bytes.data(), &V6(address).sin6_addr, sizeof(in6_addr));
  } else {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &V4(address).sin_addr, sizeof(in_addr));
  }
  return bytes;
}

Address MakeV4(const void* bytes, in_port_t port) {
  Address address;
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = port;
  std::memcpy(&v4.sin_addr, bytes, sizeof(in_addr));
  std::memcpy(&address.storage, &v4, sizeof(v4));
  address.size = sizeof(v4);
  return address;
}

bool SharesPrefix(const AddressBytes& a, const AddressBytes& b, int bits) {
  const int whole = bits / 8, rest = bits % 8;
  if (!std::equal(a.begin(), a.begin() + whole, b.begin())) return false;
  return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

Address FromInterface(const sockaddr* found) {
  Address address;
  address.size = found->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, found, address.size);
  return address;
}

}  // namespace

absl::StatusOr<HostAndPort> ParseHostAndPort(absl::string_view text, absl::string_view field) {
  const size_t colon = text.rfind(':');
  HostAndPort parsed;
  const bool has_port = colon != absl::string_view::npos && colon > 0 &&
                        absl::SimpleAtoi(text.substr(colon + 1), &parsed.port) &&
                        0 <= parsed.port && parsed.port <= 65535;
  if (!has_port) {
    return FieldError(
        field, absl::StrCat("must be HOST:PORT with a port from 0 to 65535, got \"", text, "\""));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  parsed.host = std::string(host);
  return parsed;
}

absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names,
                                     absl::string_view field) {
  RETURN_IF_ERROR(WithField(CheckWithin(field, port, {.low = 0, .high = 65535}), field));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (names == Names::kRefused ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0 || host.empty()) {
    return FieldError(field,
                      absl::StrCat(names == Names::kRefused
                                       ? "must be an address, for instance 10.0.0.7, got \""
                                       : "must be an address or a name that resolves to one, got \"",
                                   host, "\""));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  if (!IsV4(address) && IN6_IS_ADDR_V4MAPPED(&V6(address).sin6_addr)) {
    return MakeV4(V6(address).sin6_addr.s6_addr + 12, V6(address).sin6_port);
  }
  return address;
}

std::string HostOf(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes = IsV4(address) ? static_cast<const void*>(&V4(address).sin_addr)
                                          : static_cast<const void*>(&V6(address).sin6_addr);
  inet_ntop(address.storage.ss_family, bytes, text, sizeof(text));
  return text;
}

int PortOf(const Address& address) {
  return ntohs(IsV4(address) ? V4(address).sin_port : V6(address).sin6_port);
}

std::string ToString(const Address& address) {
  const std::string host = HostOf(address);
  return IsV4(address) ? absl::StrCat(host, ":", PortOf(address))
                       : absl::StrCat("[", host, "]:", PortOf(address));
}

bool IsLoopback(const Address& address) {
  if (IsV4(address)) return ntohl(V4(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&V6(address).sin6_addr);
}

bool IsAnyAddress(const Address& address) {
  if (IsV4(address)) return V4(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&V6(address).sin6_addr);
}

// ---- Networks ----

absl::StatusOr<Networks> Networks::Parse(absl::string_view text, absl::string_view field) {
  Networks parsed;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const auto wrong = [&] {
      return FieldError(field, absl::StrCat("must be networks such as 10.0.0.0/8 or [fd00::]/8, "
                                            "each with an optional port as in 10.0.0.7:7777, "
                                            "separated by commas, got \"",
                                            item, "\""));
    };
    absl::string_view rest = item;
    std::string host;
    if (!rest.empty() && rest[0] == '[') {
      const size_t end = rest.find(']');
      if (end == absl::string_view::npos) return wrong();
      host = std::string(rest.substr(1, end - 1));
      rest.remove_prefix(end + 1);
    } else if (const size_t end = rest.find_first_of("/:"); std::count(rest.begin(), rest.end(), ':') > 1) {
      const size_t slash = rest.find('/');  // IPv6 without brackets, so without a port
      host = std::string(rest.substr(0, slash));
      rest.remove_prefix(host.size());
    } else {
      host = std::string(rest.substr(0, end));
      rest.remove_prefix(host.size());
    }
    const absl::StatusOr<Address> address = ParseAddress(host, 0, Names::kRefused, field);
    if (!address.ok()) return wrong();
    const int family_bits = IsV4(*address) ? 32 : 128;
    Network network{.bytes = BytesOf(*address), .prefix = family_bits, .port = 0};
    if (!rest.empty() && rest[0] == '/') {
      const size_t end = rest.find(':');
      if (!absl::SimpleAtoi(rest.substr(1, end - 1), &network.prefix)) return wrong();
      rest = end == absl::string_view::npos ? "" : rest.substr(end);
    }
    if (!rest.empty() && (rest[0] != ':' || !absl::SimpleAtoi(rest.substr(1), &network.port) ||
                          network.port < 1 || network.port > 65535)) {
      return wrong();
    }
    if (network.prefix < 0 || network.prefix > family_bits) return wrong();
    network.prefix += 128 - family_bits;
    parsed.networks_.push_back(network);
  }
  return parsed;
}

Networks Networks::Around(const Address& own) {
  Networks around;
  const AddressBytes bytes = BytesOf(own);
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) all = nullptr;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr ||
        one->ifa_addr->sa_family != own.storage.ss_family) {
      continue;
    }
    const Address at = FromInterface(one->ifa_addr);
    // Every address of 127.0.0.0/8 is this machine's, and an interface has one of them.
    const bool is_own = BytesOf(at) == bytes || (IsLoopback(at) && IsLoopback(own));
    if (!is_own) continue;
    Address mask = FromInterface(one->ifa_netmask);
    mask.storage.ss_family = own.storage.ss_family;
    int prefix = 0;
    const AddressBytes bits = BytesOf(mask);
    for (int bit = IsV4(own) ? kMappedBits : 0; bit < 128; ++bit) {
      prefix += bits[bit / 8] >> (7 - bit % 8) & 1;
    }
    if (IsV4(own)) prefix += kMappedBits;
    around.networks_.push_back({.bytes = bytes, .prefix = prefix, .port = 0});
  }
  freeifaddrs(all);
  if (around.networks_.empty()) {
    around.networks_.push_back({.bytes = bytes, .prefix = 128, .port = 0});
  }
  return around;
}

bool Networks::Allow(const Address& address) const {
  const bool is_for_no_worker =
      IsV4(address) ? IN_MULTICAST(ntohl(V4(address).sin_addr.s_addr)) ||
                          ntohl(V4(address).sin_addr.s_addr) >> 16 == 0xa9fe ||  // 169.254.0.0/16
                          V4(address).sin_addr.s_addr == htonl(INADDR_BROADCAST)
                    : IN6_IS_ADDR_MULTICAST(&V6(address).sin6_addr) ||
                          IN6_IS_ADDR_LINKLOCAL(&V6(address).sin6_addr);
  if (is_for_no_worker || IsAnyAddress(address)) return false;
  const AddressBytes bytes = BytesOf(address);
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    return (network.port == 0 || network.port == PortOf(address)) &&
           SharesPrefix(bytes, network.bytes, network.prefix);
  });
}

std::string Networks::ToString() const {
  return absl::StrJoin(networks_, ",", [](std::string* text, const Network& network) {
    char host[INET6_ADDRSTRLEN] = "";
    const bool is_v4 = network.prefix >= kMappedBits && network.bytes[10] == 0xff &&
                       std::all_of(network.bytes.begin(), network.bytes.begin() + 10,
                                   [](uint8_t byte) { return byte == 0; });
    inet_ntop(is_v4 ? AF_INET : AF_INET6, network.bytes.data() + (is_v4 ? 12 : 0), host,
              sizeof(host));
    absl::StrAppend(text, is_v4 ? "" : "[", host, is_v4 ? "" : "]", "/",
                    network.prefix - (is_v4 ? kMappedBits : 0));
    if (network.port != 0) absl::StrAppend(text, ":", network.port);
  });
}

}  // namespace tandem
