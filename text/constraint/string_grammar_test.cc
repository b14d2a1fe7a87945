// Checks random matches of formats with readers that are independent of the expressions.
#include "text/constraint/string_grammar.h"

#include <arpa/inet.h>

#include <functional>
#include <regex>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/constraint/regex_testing.h"

namespace tandem {
namespace {

RegexNode FormatNode(absl::string_view format) {
  const auto node = ParseRegex(PatternOfFormat(format), RegexMode::kWhole);
  EXPECT_TRUE(node.ok()) << format << ": " << node.status();
  return node.ok() ? *node : RegexNode();
}
// Matches with the expression that the grammar engine gets.
class FormatMatcher {
 public:
  explicit FormatMatcher(absl::string_view format)
      : matcher_(RegexText(FormatNode(format), TextForm::kPlain)) {
    EXPECT_TRUE(matcher_.status().ok()) << matcher_.status();
  }
  bool Matches(absl::string_view text) const { return matcher_.Matches(text); }

 private:
  WholeMatcher matcher_;
};

void ExpectAllValid(absl::string_view format,
                    const std::function<bool(const std::string&)>& is_valid, int num_texts = 2000) {
  std::mt19937 random(1);
  const RegexNode node = FormatNode(format);
  std::set<std::string> texts;
  for (int i = 0; i < num_texts; ++i) {
    const std::string text = RandomMatch(node, &random);
    EXPECT_TRUE(is_valid(text)) << format << ": " << text;
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 50) << format;
}
void ExpectMatches(absl::string_view format, const std::vector<std::string>& matches,
                   const std::vector<std::string>& others) {
  const FormatMatcher matcher(format);
  for (const std::string& text : matches) EXPECT_TRUE(matcher.Matches(text)) << format << text;
  for (const std::string& text : others) EXPECT_FALSE(matcher.Matches(text)) << format << text;
}

int NumberAt(absl::string_view text, size_t at, size_t length) {
  int value = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(at, length), &value)) << text;
  return value;
}
bool IsTime(absl::string_view text) {
  if (NumberAt(text, 0, 2) > 23 || NumberAt(text, 3, 2) > 59 || NumberAt(text, 6, 2) > 59) {
    return false;
  }
  absl::string_view rest = text.substr(8);
  if (!rest.empty() && rest[0] == '.') {
    const size_t digits = rest.substr(1).find_first_not_of("0123456789");
    if (digits < 1 || digits > 6) return false;
    rest.remove_prefix(1 + digits);
  }
  if (rest == "Z") return true;
  return rest.size() == 6 && NumberAt(rest, 1, 2) <= 23 && NumberAt(rest, 4, 2) <= 59;
}

TEST(StringFormats, DatesAreTheDaysOfTheCalendar) {
  const FormatMatcher date("date");
  // The days around the ends of months, for some years of every century.
  for (int year = 0; year <= 9999; year += year % 100 < 8 ? 1 : 31) {
    for (int month = 0; month <= 13; ++month) {
      for (const int day : {0, 1, 27, 28, 29, 30, 31, 32}) {
        const absl::CivilDay civil(year, month, day);
        const bool is_day =
            year > 0 && civil.year() == year && civil.month() == month && civil.day() == day;
        const std::string text = absl::StrFormat("%04d-%02d-%02d", year, month, day);
        ASSERT_EQ(date.Matches(text), is_day) << text;
      }
    }
  }
  ExpectMatches("date", {}, {"2024-1-01", "24-01-01", "2024-01-01Z", "12024-01-01"});
}

TEST(StringFormats, TimesHaveAnOffset) {
  ExpectAllValid("time", IsTime);
  ExpectAllValid("date-time", [](const std::string& text) {
    return text[10] == 'T' && IsTime(absl::string_view(text).substr(11));
  });
  ExpectMatches("time", {"23:59:59Z", "00:00:00.1+23:59", "12:00:00-00:30"},
                {"24:00:00Z", "12:60:00Z", "23:59:60Z", "12:00:00", "12:00:00.Z", "12:00Z",
                 "12:00:00+24:00", "12:00:00z", "12:00:00.1234567Z"});
  ExpectMatches("date-time", {"2024-02-29T12:00:00Z"},
                {"2023-02-29T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29", "12:00:00Z"});
}

TEST(StringFormats, DurationsNameTheirUnitsInOrder) {
  ExpectAllValid("duration", [](const std::string& text) {
    // No unit occurs twice or is missing between two others of the same half.
    const std::vector<std::string> halves = absl::StrSplit(text.substr(1), 'T');
    size_t num_units = 0;
    for (size_t i = 0; i < halves.size(); ++i) {
      std::string letters = halves[i];
      std::erase_if(letters, [](char c) { return absl::ascii_isdigit(c); });
      num_units += letters.size();
      const std::string order = i == 0 ? "YMD" : "HMS";
      if (letters == "W" && halves.size() == 1) continue;
      if (!absl::StrContains(order, letters) || (i == 1 && letters.empty())) return false;
    }
    return text[0] == 'P' && halves.size() <= 2 && num_units > 0;
  });
  ExpectMatches("duration", {"P4DT12H30M5S", "PT0S", "P1Y", "P1M", "PT1M", "P2W", "P1Y2M3D"},
                {"P", "PT", "P1", "P1YT", "PT1D", "P1D2H", "P2D1Y", "P1W2D", "4D", "P1Y3D"});
}

TEST(StringFormats, AddressesAgreeWithInetPton) {
  unsigned char address[16];
  ExpectAllValid("ipv4", [&](const std::string& text) {
    return inet_pton(AF_INET, text.c_str(), address) == 1;
  });
  ExpectAllValid("ipv6", [&](const std::string& text) {
    return inet_pton(AF_INET6, text.c_str(), address) == 1;
  });
  // Random texts that are nearly addresses match if and only if inet_pton reads them.
  std::mt19937 random(2);
  const FormatMatcher ipv4("ipv4");
  const FormatMatcher ipv6("ipv6");
  int num_addresses = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (const int num_parts = random() % 10; static_cast<int>(random() % 16) < num_parts + 5;) {
      const char* const parts[] = {"::", ":", ":", "f", "0", "1A2b", "12345", "1.2.3.4", "g", "01"};
      absl::StrAppend(&text, parts[random() % 10]);
      if (text.size() > 45) break;
    }
    const bool is_address = inet_pton(AF_INET6, text.c_str(), address) == 1;
    num_addresses += is_address ? 1 : 0;
    EXPECT_EQ(ipv6.Matches(text), is_address) << text;
    const int first = static_cast<int>(random() % 300);
    const std::string dotted =
        absl::StrCat(first, ".", random() % 2 == 0 ? "0" : "", i % 257, ".1.2");
    EXPECT_EQ(ipv4.Matches(dotted), inet_pton(AF_INET, dotted.c_str(), address) == 1) << dotted;
  }
  EXPECT_GT(num_addresses, 100);
  ExpectMatches(
      "ipv6", {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::ffff:1.2.3.4"},
      {"", ":", "1:2:3:4:5:6:7", "1::2::3", "1:2:3:4:5:6:7:8:9", "fe80::1%eth0", "::1.2.3"});
}

bool IsHostname(absl::string_view text) {
  if (text.size() > 253) return false;
  for (const absl::string_view label : absl::StrSplit(text, '.')) {
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-')
      return false;
    if (!absl::c_all_of(label, [](char c) { return absl::ascii_isalnum(c) || c == '-'; }))
      return false;
    if (absl::StrContains(label, "--")) return false;
  }
  return absl::ascii_isalpha(text[text.rfind('.') + 1]);
}

TEST(StringFormats, HostsHaveShortLabels) {
  ExpectAllValid("hostname", IsHostname);
  const std::string label63(63, 'a');
  ExpectMatches("hostname",
                {"localhost", "a.b", "www.sub.example.co.uk", "x-1.example",
                 label63 + "." + label63, "a-b-c-d.e", "a.b.c.d.e.f.g.h"},
                {"", ".", "a.", ".a", "-a.b", "a-.b", "a--b", "a_b", "1.2.3.4", label63 + "a",
                 "a.b.c.d.e.f.g.h.i", "a b", "é.com"});
}

TEST(StringFormats, EmailAddressesHaveADomain) {
  ExpectAllValid("email", [](const std::string& text) {
    const std::vector<std::string> sides = absl::StrSplit(text, '@');
    if (sides.size() != 2 || text.size() > 254 || sides[0].size() > 64) return false;
    for (const absl::string_view atom : absl::StrSplit(sides[0], '.')) {
      if (atom.empty()) return false;
      for (const char c : atom) {
        if (!absl::ascii_isalnum(c) &&
            !absl::StrContains("!#$%&'*+-/=?^_`{|}~", std::string(1, c))) {
          return false;
        }
      }
    }
    return IsHostname(sides[1]) && absl::StrContains(sides[1], ".");
  });
  ExpectMatches("email", {"a@b.co", "first.last+tag@sub.example.com"},
                {"a@b", "@b.co", "a.@b.co", "a..b@c.de", ".a@b.co", "a@b.co.", "a@b@c.de",
                 "a b@c.de", "\"a\"@b.co", "a@b.c1", "a@[1.2.3.4]"});
}

// Splits as in appendix B of RFC 3986, and checks only the characters.
bool IsUriReference(const std::string& text, bool needs_scheme) {
  const std::regex parts("(([^:/?#]+):)?(//([^/?#]*))?([^?#]*)(\\?([^#]*))?(#(.*))?");
  std::smatch match;
  if (!std::regex_match(text, match, parts)) return false;
  const std::string scheme = match[2];
  if (scheme.empty() == needs_scheme && needs_scheme) return false;
  if (!scheme.empty() && !absl::ascii_isalpha(scheme[0])) return false;
  for (const char c : scheme) {
    if (!absl::ascii_isalnum(c) && c != '+' && c != '.' && c != '-') return false;
  }
  const std::string authority = match[4];
  if (std::string(match[5]).starts_with("//") && !match[3].matched) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_bracket = text[i] == '[' || text[i] == ']';
    if (is_bracket && authority.find(text[i]) == std::string::npos) return false;
    if (text[i] == '%') {
      if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) ||
          !absl::ascii_isxdigit(text[i + 2])) {
        return false;
      }
    } else if (!absl::ascii_isalnum(text[i]) &&
               !absl::StrContains("-._~:/?#[]@!$&'()*+,;=", std::string(1, text[i]))) {
      return false;
    }
  }
  return true;
}

TEST(StringFormats, UrisKeepToTheirCharacters) {
  ExpectAllValid("uri", [](const std::string& text) { return IsUriReference(text, true); });
  ExpectAllValid("uri-reference",
                 [](const std::string& text) { return IsUriReference(text, false); });
  const std::vector<std::string> uris = {"https://example.com/a/b?c=d&e#f",
                                         "mailto:a@b.co",
                                         "urn:isbn:0451450523",
                                         "http://[::1]:8080/",
                                         "a:/b",
                                         "ftp://u:p@1.2.3.4/x%20y",
                                         "file:///etc/hosts",
                                         "http://a"};
  ExpectMatches(
      "uri", uris,
      {"", "//a/b", "/a", "a", "1a:b", "a b:c", "http://a b", "http://[::1", "http://a/%2",
       "http://a/\\", "http://a/é", "http://a/<", "http://a#b#c", "http:", "http://a:99999"});
  ExpectMatches("uri-reference", uris, {"a b", "1a:b", "%", "[", "a\\b"});
  ExpectMatches("uri-reference", {"", "//a/b", "/a", "a", "../a?b#c", "?a", "#", "./a:b"}, {});
}

TEST(StringFormats, OtherFormatsMatchExamples) {
  ExpectMatches("uuid", {"123e4567-e89b-12d3-A456-426614174000"},
                {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
                 "g23e4567-e89b-12d3-a456-426614174000"});
  ExpectMatches("json-pointer", {"", "/", "/a/0", "/~0~1", "/é \n"}, {"a", "/~", "/~2", "#/a"});
  ExpectMatches("relative-json-pointer", {"0", "1#", "10/a", "0/"},
                {"", "01", "102", "-1", "/a", "1#/a", "#"});
  EXPECT_EQ(PatternOfFormat("uri-template"), nullptr);
  EXPECT_EQ(PatternOfFormat(""), nullptr);
}

}  // namespace
}  // namespace tandem
