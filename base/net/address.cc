#include "base/net/address.h"

#include <ifaddrs.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <regex>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/net/host_and_port.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

namespace ip = net::ip;

bool Contains(const ip::address& network, int prefix, const ip::address& address) {
  if (network.is_v4() != address.is_v4()) return false;
  if (network.is_v4()) {
    return ip::network_v4(network.to_v4(), prefix).canonical() ==
           ip::network_v4(address.to_v4(), prefix).canonical();
  }
  return ip::network_v6(network.to_v6(), prefix).canonical() ==
         ip::network_v6(address.to_v6(), prefix).canonical();
}

ip::address AddressOf(const sockaddr& found) {
  Address address;
  const size_t size = found.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(address.data(), &found, size);
  address.resize(size);
  return address.address();
}

int NumBits(const ip::address& mask) {
  if (mask.is_v4()) return std::popcount(mask.to_v4().to_uint());
  int bits = 0;
  for (const unsigned char byte : mask.to_v6().to_bytes()) bits += std::popcount(byte);
  return bits;
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

absl::Status CheckNetworks(absl::string_view text, absl::string_view field) {
  return Networks::Parse(text, field).status();
}

absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names,
                                     absl::string_view field) {
  RETURN_IF_ERROR(WithField(CheckWithin(field, port, {.low = 0, .high = 65535}), field));
  boost::system::error_code error;
  ip::address address = ip::make_address(host, error);
  if (error && names == Names::kResolved && !host.empty()) {
    net::io_context io;
    const auto found = ip::tcp::resolver(io).resolve(host, "", error);
    if (!error) address = found.begin()->endpoint().address();
  }
  if (error) {
    return FieldError(
        field, absl::StrCat(names == Names::kRefused
                                ? "must be an address, for instance 10.0.0.7, got \""
                                : "must be an address or a name that resolves to one, got \"",
                            host, "\""));
  }
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = ip::make_address_v4(ip::v4_mapped, address.to_v6());
  }
  return Address(address, static_cast<uint16_t>(port));
}

std::string ClientNetwork(const std::string& address) {
  const absl::StatusOr<Address> parsed = ParseAddress(address, 0, Names::kRefused, "address");
  if (!parsed.ok()) return address;
  const ip::address of = parsed->address();
  if (of.is_v4()) return of.to_string();
  return ip::network_v6(of.to_v6(), 64).canonical().address().to_string();
}

std::string ToString(const Address& address) {
  std::ostringstream text;
  text << address;
  return text.str();
}

// ---- Networks ----

absl::StatusOr<Networks> Networks::Parse(absl::string_view text, absl::string_view field) {
  static const std::regex form(
      "(?:\\[([0-9a-fA-F:.]+)\\]|([0-9.]+))(?:/([0-9]{1,3}))?(?::([0-9]{1,5}))?"
      "|([0-9a-fA-F:.]+)(?:/([0-9]{1,3}))?");
  Networks parsed;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    std::cmatch parts;
    Network network;
    bool is_right = std::regex_match(item.begin(), item.end(), parts, form);
    if (is_right) {
      const std::string host = absl::StrCat(parts[1].str(), parts[2].str(), parts[5].str());
      const std::string prefix = absl::StrCat(parts[3].str(), parts[6].str());
      const auto address = ParseAddress(host, 0, Names::kRefused, field);
      is_right = address.ok();
      if (is_right) network.address = address->address();
      const int bits = network.address.is_v4() ? 32 : 128;
      network.prefix = prefix.empty() ? bits : std::stoi(prefix);
      network.port = parts[4].matched ? std::stoi(parts[4].str()) : 0;
      is_right = is_right && network.prefix <= bits && network.port <= 65535 &&
                 (network.port > 0 || !parts[4].matched);
    }
    if (!is_right) {
      return FieldError(field, absl::StrCat("must be networks such as 10.0.0.0/8 or [fd00::]/8, "
                                            "each with an optional port as in 10.0.0.7:7777, "
                                            "separated by commas, got \"",
                                            item, "\""));
    }
    parsed.networks_.push_back(network);
  }
  return parsed;
}

Networks Networks::Around(const Address& own) {
  Networks around;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) all = nullptr;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr ||
        one->ifa_addr->sa_family != own.protocol().family()) {
      continue;
    }
    const ip::address at = AddressOf(*one->ifa_addr);
    // Every address of 127.0.0.0/8 is this machine's, and an interface has one of them.
    if (at != own.address() && !(at.is_loopback() && own.address().is_loopback())) continue;
    sockaddr_storage mask = {};
    std::memcpy(&mask, one->ifa_netmask, at.is_v4() ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    mask.ss_family = one->ifa_addr->sa_family;
    const int prefix = NumBits(AddressOf(reinterpret_cast<const sockaddr&>(mask)));
    around.networks_.push_back({.address = own.address(), .prefix = prefix});
  }
  freeifaddrs(all);
  if (around.networks_.empty()) {
    around.networks_.push_back(
        {.address = own.address(), .prefix = own.address().is_v4() ? 32 : 128});
  }
  return around;
}

bool Networks::Allow(const Address& address) const {
  const ip::address& at = address.address();
  const bool is_for_no_worker =
      at.is_unspecified() || at.is_multicast() || (at.is_v6() && at.to_v6().is_link_local()) ||
      at == ip::address_v4::broadcast() || Contains(ip::address_v4({169, 254, 0, 0}), 16, at);
  if (is_for_no_worker) return false;
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    return (network.port == 0 || network.port == address.port()) &&
           Contains(network.address, network.prefix, at);
  });
}

std::string Networks::ToString() const {
  return absl::StrJoin(networks_, ",", [](std::string* text, const Network& network) {
    const std::string host = network.address.to_string();
    absl::StrAppend(text, network.address.is_v4() ? host : absl::StrCat("[", host, "]"), "/",
                    network.prefix);
    if (network.port != 0) absl::StrAppend(text, ":", network.port);
  });
}

}  // namespace tandem
