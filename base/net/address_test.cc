#include "base/net/address.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/net/host_and_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

Address At(const std::string& host, int port = 7777) {
  return ParseAddress(host, port, Names::kRefused, "host").value();
}

Networks NetworksOf(const std::string& text) { return Networks::Parse(text, "peers").value(); }

TEST(HostAndPort, AreParsed) {
  for (const auto& [text, host, port] :
       {std::tuple("a:1", "a", 1), std::tuple("10.0.0.7:65535", "10.0.0.7", 65535),
        std::tuple("[::1]:0", "::1", 0)}) {
    const auto parsed = ParseHostAndPort(text, "at");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, host);
    EXPECT_EQ(parsed->port, port);
  }
  for (const char* text : {"", "a", ":1", "a:", "a:-1", "a:65536", "a:1x"}) {
    EXPECT_EQ(
        ParseHostAndPort(text, "at").status().message(),
        absl::StrCat("at: must be HOST:PORT with a port from 0 to 65535, got \"", text, "\""));
  }
}

TEST(Address, IsParsedAndWritten) {
  for (const auto& [host, text] :
       {std::pair("10.0.0.7", "10.0.0.7:7777"), std::pair("fd00::1", "[fd00::1]:7777"),
        std::pair("::ffff:10.0.0.7", "10.0.0.7:7777")}) {
    EXPECT_EQ(ToString(At(host)), text) << host;
  }
  for (const char* host : {"", "localhost", "10.0.0.256", "10.0.0.7 ", "fd00::g", "[::1]", "127.1",
                           "0x0a000007", "167772167", "012.0.0.7"}) {
    EXPECT_THAT(ParseAddress(host, 1, Names::kRefused, "host").status().message(),
                HasSubstr("host: must be an address, for instance 10.0.0.7"))
        << host;
  }
  EXPECT_TRUE(ParseAddress("localhost", 1, Names::kResolved, "host")->address().is_loopback());
  EXPECT_FALSE(ParseAddress("10.0.0.7", 65536, Names::kRefused, "host").ok());
}

TEST(Networks, AllowTheirAddressesAndPorts) {
  const std::string text =
      "10.0.0.0/8,192.168.1.7/32:7777,172.16.0.0/12,[fd00::]/8:1,[fe00::1]/128";
  const Networks networks = NetworksOf(text);
  EXPECT_EQ(networks.ToString(), text);
  EXPECT_EQ(NetworksOf("192.168.1.7:7777,fe00::1").ToString(), "192.168.1.7/32:7777,[fe00::1]/128");
  for (const auto& [host, port] :
       {std::pair("10.255.0.1", 1), std::pair("::ffff:10.0.0.1", 1), std::pair("192.168.1.7", 7777),
        std::pair("172.31.255.255", 1), std::pair("fdff::1", 1), std::pair("fe00::1", 9)}) {
    EXPECT_TRUE(networks.Allow(At(host, port))) << host;
  }
  for (const auto& [host, port] :
       {std::pair("11.0.0.1", 1), std::pair("192.168.1.7", 7778), std::pair("192.168.1.6", 7777),
        std::pair("172.32.0.1", 1), std::pair("172.15.0.1", 1), std::pair("fdff::1", 2),
        std::pair("fe00::2", 9), std::pair("127.0.0.1", 1), std::pair("::1", 1)}) {
    EXPECT_FALSE(networks.Allow(At(host, port))) << host;
  }
}

TEST(Networks, AllowNoAddressThatIsForNoWorker) {
  const Networks all = NetworksOf("0.0.0.0/0,::/0");
  EXPECT_TRUE(all.Allow(At("8.8.8.8")) && all.Allow(At("2001:db8::1")));
  for (const char* host : {"0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "169.254.169.254",
                           "fe80::1", "ff02::1", "::ffff:169.254.169.254"}) {
    EXPECT_FALSE(all.Allow(At(host))) << host;
  }
  // The networks of one kind of address allow none of the other.
  EXPECT_FALSE(NetworksOf("::/0").Allow(At("10.0.0.1")));
  EXPECT_FALSE(NetworksOf("0.0.0.0/0").Allow(At("fd00::1")));
}

TEST(Networks, NamesTheWrongItem) {
  for (const char* item :
       {"", "near", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "10.0.0.7:0",
        "10.0.0.7:65536", "10.0.0.7:", "[fd00::", "[fd00::]8", "fd00::/129", "/8", " 10.0.0.7"}) {
    EXPECT_EQ(Networks::Parse(absl::StrCat("10.0.0.1,", item), "peers").status().message(),
              absl::StrCat("peers: must be networks such as 10.0.0.0/8 or [fd00::]/8, each with an "
                           "optional port as in 10.0.0.7:7777, separated by commas, got \"",
                           item, "\""));
  }
}

TEST(Address, AClientsNetworkIsTheSameForAllAddressesThatItMayChoose) {
  for (const auto& [address, network] :
       {std::pair("10.0.0.7", "10.0.0.7"), std::pair("::ffff:10.0.0.7", "10.0.0.7"),
        std::pair("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"), std::pair("unknown", "unknown")}) {
    EXPECT_EQ(ClientNetwork(address), network);
  }
}

TEST(Networks, AroundAnAddressIsItsOwn) {
  const Networks loopback = Networks::Around(At("127.0.0.1"));
  EXPECT_TRUE(loopback.Allow(At("127.0.0.2", 1)));
  EXPECT_FALSE(loopback.Allow(At("10.0.0.1")) || loopback.Allow(At("::1")));
  // No interface has this address (RFC 5737).
  const Networks alone = Networks::Around(At("192.0.2.1"));
  EXPECT_EQ(alone.ToString(), "192.0.2.1/32");
  EXPECT_FALSE(alone.Allow(At("127.0.0.1")));
}

}  // namespace
}  // namespace tandem
