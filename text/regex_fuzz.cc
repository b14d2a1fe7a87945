// Compiles any expression, and searches the text after a zero byte: the expression is refused with
// an offset, or its matches are in order, do not overlap, and begin and end at characters of the
// text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/regex.h"

namespace tandem {
namespace {

bool IsInCharacter(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

void FuzzOne(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view pattern = input.substr(0, end);
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  const absl::StatusOr<std::string> translated = TranslateToPcre2(pattern);
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern);
  TANDEM_CHECK(translated.ok() || !regex.ok());
  if (!regex.ok()) {
    TANDEM_CHECK(regex.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  if (FindInvalidUtf8(text) != std::string_view::npos) return;
  const auto matches = regex->FindAll(text);
  if (!matches.ok()) return;
  size_t last = 0;
  for (const Regex::Match& match : *matches) {
    TANDEM_CHECK(last <= match.begin && match.begin <= match.end && match.end <= text.size());
    TANDEM_CHECK(!IsInCharacter(text, match.begin) && !IsInCharacter(text, match.end));
    last = match.end;
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
