#include "constraint/string_formats.h"

#include <initializer_list>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

std::string AnyOfPatterns(std::initializer_list<absl::string_view> patterns) {
  return absl::StrCat("(?:", absl::StrJoin(patterns, "|"), ")");
}

std::string DatePattern() {
  const std::string year = "(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])";
  const std::string long_months = "(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])";
  const std::string short_months = "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)";
  const std::string february = "02-(?:0[1-9]|1\\d|2[0-8])";
  // Multiples of 4 from 4 to 96, which are a year of its century or a century of 400 years.
  const std::string fours = "(?:0[48]|[2468][048]|[13579][26])";
  return AnyOfPatterns(
      {absl::StrCat(year, "-", AnyOfPatterns({long_months, short_months, february})),
       absl::StrCat("(?:\\d\\d", fours, "|", fours, "00)-02-29")});
}

std::string TimePattern() {
  const std::string hour_and_minute = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  return absl::StrCat(hour_and_minute, ":[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]", hour_and_minute, ")");
}

std::string DurationPattern() {
  const std::string number = "\\d{1,6}";
  const auto unit = [&](absl::string_view letter, absl::string_view smaller) {
    const std::string rest = smaller.empty() ? "" : absl::StrCat("(?:", smaller, ")?");
    return absl::StrCat(number, letter, rest);
  };
  const std::string seconds = unit("S", "");
  const std::string minutes = unit("M", seconds);
  const std::string time = "T" + AnyOfPatterns({unit("H", minutes), minutes, seconds});
  const std::string days = unit("D", "");
  const std::string months = unit("M", days);
  const std::string date =
      absl::StrCat(AnyOfPatterns({unit("Y", months), months, days}), "(?:", time, ")?");
  return "P" + AnyOfPatterns({date, time, unit("W", "")});
}

// A label: single hyphens within, or none. At most 2 * `most_pairs` + 1 characters.
std::string LabelPattern(absl::string_view first, int most_pairs) {
  return absl::StrCat(first, "(?:(?:-?[A-Za-z0-9]){0,", most_pairs, "}|[A-Za-z0-9]{",
                      most_pairs + 1, ",", 2 * most_pairs, "})");
}
constexpr char kLetterOrDigit[] = "[A-Za-z0-9]";
constexpr char kAsciiLetter[] = "[A-Za-z]";

// At most 3 labels of 63 characters, or 8 of 29: 247 characters and less. RFC 1035 has 253.
std::string HostnamePattern() {
  const auto labels = [](int most_pairs, absl::string_view counts) {
    return absl::StrCat("(?:", LabelPattern(kLetterOrDigit, most_pairs), "\\.){", counts, "}",
                        LabelPattern(kAsciiLetter, most_pairs));
  };
  return AnyOfPatterns({labels(31, "0,2"), labels(14, "3,7")});
}

std::string EmailPattern() {
  const std::string text = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  const std::string local =
      absl::StrCat("(?:", text, "{1,64}|", text, "{1,20}(?:\\.", text, "{1,20}){1,2})");
  // With the local part within the 254 characters of RFC 5321: 65 + 2 * 64 + 24.
  const std::string domain =
      absl::StrCat("(?:", LabelPattern(kLetterOrDigit, 31), "\\.){1,2}", "[A-Za-z]{2,24}");
  return absl::StrCat(local, "@", domain);
}

std::string Ipv4Pattern() {
  const std::string octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return absl::StrCat(octet, "(?:\\.", octet, "){3}");
}

// RFC 3986 section 3.2.2, IPv6address.
std::string Ipv6Pattern() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last_two = AnyOfPatterns({absl::StrCat(group, ":", group), Ipv4Pattern()});
  const auto before = [&](int most) {  // at most so many groups in front of `::`
    if (most == 0) return std::string();
    if (most == 1) return absl::StrCat("(?:", group, ")?");
    return absl::StrCat("(?:(?:", group, ":){0,", most - 1, "}", group, ")?");
  };
  const auto after = [&](int exactly) {
    return exactly == 0 ? std::string() : absl::StrCat("(?:", group, ":){", exactly, "}");
  };
  std::string pattern = absl::StrCat("(?:", after(6), last_two);
  for (int i = 0; i <= 5; ++i) {
    absl::StrAppend(&pattern, "|", before(i), "::", after(5 - i), last_two);
  }
  absl::StrAppend(&pattern, "|", before(6), "::", group, "|", before(7), "::)");
  return pattern;
}

constexpr char kHexPair[] = "%[0-9A-Fa-f]{2}";

// RFC 3986, with its name for each part.
struct UriParts {
  UriParts() {
    const std::string pchar = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|", kHexPair, ")");
    const std::string no_colon = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=@-]|", kHexPair, ")");
    const std::string user = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:-]|", kHexPair, ")");
    const std::string name = absl::StrCat("(?:", kLetterOrDigit, "(?:-?", kLetterOrDigit, ")*\\.)*",
                                          kAsciiLetter, "(?:-?", kLetterOrDigit, ")*");
    const std::string host =
        AnyOfPatterns({name, Ipv4Pattern(), absl::StrCat("\\[", Ipv6Pattern(), "\\]")});
    const std::string authority =
        absl::StrCat("(?:", user, "+@)?", host, "(?::(?:\\d{1,4}|[1-5]\\d{4}))?");
    const std::string path_abempty = absl::StrCat("(?:/", pchar, "*)*");
    // A path after an empty authority, such as file:///etc.
    const std::string with_authority =
        absl::StrCat("//(?:", authority, path_abempty, "|/(?:", pchar, "+", path_abempty, ")?)");
    const std::string path_absolute = absl::StrCat("/(?:", pchar, "+", path_abempty, ")?");
    const std::string query_and_fragment =
        absl::StrCat("(?:\\?(?:", pchar, "|[/?])*)?(?:#(?:", pchar, "|[/?])*)?");
    uri = absl::StrCat("[A-Za-z][A-Za-z0-9+.-]*:",
                       AnyOfPatterns({with_authority, path_absolute, pchar + "+" + path_abempty}),
                       query_and_fragment);
    relative = absl::StrCat(
        AnyOfPatterns({with_authority, path_absolute, no_colon + "+" + path_abempty, ""}),
        query_and_fragment);
  }

  std::string uri{};
  std::string relative{};
};

}  // namespace

const char* PatternOfFormat(absl::string_view format) {
  static const auto& patterns = *new std::map<std::string, std::string>([] {
    const std::string date = DatePattern();
    const std::string time = TimePattern();
    const std::string pointer = "(?:/(?:[^/~]|~[01])*)*";
    const UriParts uris;
    return std::map<std::string, std::string>{
        {"date", date},
        {"time", time},
        {"date-time", absl::StrCat(date, "T", time)},
        {"duration", DurationPattern()},
        {"hostname", HostnamePattern()},
        {"email", EmailPattern()},
        {"ipv4", Ipv4Pattern()},
        {"ipv6", Ipv6Pattern()},
        {"uri", uris.uri},
        {"uri-reference", AnyOfPatterns({uris.uri, uris.relative})},
        // Each of these allows more.
        {"iri", uris.uri},
        {"iri-reference", AnyOfPatterns({uris.uri, uris.relative})},
        {"idn-hostname", HostnamePattern()},
        {"idn-email", EmailPattern()},
        {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
        {"json-pointer", pointer},
        {"relative-json-pointer", absl::StrCat("(?:0|[1-9]{1,8}0?)(?:#|", pointer, ")")},
    };
  }());
  const auto found = patterns.find(std::string(format));
  return found == patterns.end() ? nullptr : found->second.c_str();
}

}  // namespace tandem
