#include "kvtransfer/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

const sockaddr_in& V4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& V6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}
bool IsV4(const Address& address) { return address.storage.ss_family == AF_INET; }

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

absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names) {
  RETURN_IF_ERROR(
      WithField(CheckWithin("kv_transfer", port, {.low = 0, .high = 65535}), "kv_transfer"));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (names == Names::kRefused ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0 || host.empty()) {
    return FieldError("kv_transfer", absl::StrCat("must be an address of this machine's network, "
                                                  "for instance 10.0.0.7, got '",
                                                  host, "' (", gai_strerror(error), ")"));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
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

}  // namespace tandem
