#include "server/http/request_target.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/string_view.h"

namespace tandem {
namespace {

constexpr std::string_view kScheme = "http://";

// Returns nothing if a % is not followed by two hexadecimal digits.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
        !absl::ascii_isxdigit(digits[1])) {
      return std::nullopt;
    }
    decoded += absl::HexStringToBytes(View(digits));
    i += 2;
  }
  return decoded;
}

}  // namespace

RequestTarget ParseTarget(std::string_view target) {
  RequestTarget parsed;
  if (absl::StartsWithIgnoreCase(View(target), View(kScheme))) {
    target.remove_prefix(kScheme.size());
    const std::string_view host = target.substr(0, target.find_first_of("/?"));
    parsed.host = std::string(host);
    target.remove_prefix(host.size());
    if (target.empty() || target[0] == '?') target = "/";
  }
  parsed.path = PercentDecoded(target.substr(0, target.find('?'))).value_or("");
  if (parsed.path.size() > 1 && parsed.path.back() == '/') parsed.path.pop_back();
  return parsed;
}

std::optional<std::string> QueryValue(std::string_view target, std::string_view name) {
  const size_t query = target.find('?');
  if (query == std::string_view::npos) return "";
  const absl::string_view parameters = View(target.substr(query + 1));
  for (const absl::string_view parameter : absl::StrSplit(parameters, '&')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(parameter, absl::MaxSplits('=', 1));
    if (StdView(parts.first) == name) return PercentDecoded(StdView(parts.second));
  }
  return "";
}

}  // namespace tandem
