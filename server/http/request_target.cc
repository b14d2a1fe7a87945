#include "server/http/request_target.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/string_view.h"

namespace tandem {
namespace {

constexpr std::string_view kScheme = "http://";

// Returns an empty string if a % is not followed by two hexadecimal digits.
std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
        !absl::ascii_isxdigit(digits[1])) {
      return "";
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
  parsed.path = PercentDecoded(target.substr(0, target.find('?')));
  if (parsed.path.size() > 1 && parsed.path.back() == '/') parsed.path.pop_back();
  return parsed;
}

}  // namespace tandem
