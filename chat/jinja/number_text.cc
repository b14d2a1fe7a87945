#include "chat/jinja/number_text.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "chat/jinja/letter_case.h"
#include "chat/jinja/text_tools.h"

namespace tandem::jinja {
namespace {

// Lower case ASCII, without space around it. Digits of other scripts become ASCII's: each script
// has ten in a row.
std::string Plain(std::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  std::string plain;
  while (!text.empty()) {
    const Utf8Prefix next = ReadUtf8(text);
    if (next.code_point < 0x80) {
      plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(text[0])));
    } else {
      plain.push_back(static_cast<char>(
          IsDecimalDigit(next.code_point) ? '0' + DecimalDigitOf(next.code_point) : '?'));
    }
    text.remove_prefix(next.size);
  }
  return plain;
}

// Takes out underscores; false if one is not between two characters that `is_digit` takes.
template <typename IsDigit>
bool TakeUnderscores(std::string* text, IsDigit is_digit) {
  for (size_t i = 0; i < text->size(); ++i) {
    if ((*text)[i] != '_') continue;
    const bool is_between =
        i > 0 && i + 1 < text->size() && is_digit((*text)[i - 1]) && is_digit((*text)[i + 1]);
    if (!is_between) return false;
  }
  text->erase(std::remove(text->begin(), text->end(), '_'), text->end());
  return true;
}

int BaseOfPrefix(absl::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') return 10;
  return digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : digits[1] == 'b' ? 2 : 10;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  std::string digits = Plain(text);
  const bool has_sign = !digits.empty() && (digits[0] == '-' || digits[0] == '+');
  const std::string sign = has_sign && digits[0] == '-' ? "-" : "";
  if (has_sign) digits.erase(0, 1);
  const int prefix_base = BaseOfPrefix(digits);
  const bool has_prefix = prefix_base != 10 && (base == 0 || base == prefix_base);
  if (has_prefix) {
    digits.erase(0, 2);
    base = prefix_base;
    if (!digits.empty() && digits[0] == '_') digits.erase(0, 1);
  }
  // The function below would take a prefix of its own.
  if (base == 16 && BaseOfPrefix(digits) == 16) return std::nullopt;
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  if (!TakeUnderscores(&digits, is_alphanumeric)) return std::nullopt;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_alphanumeric)) {
    return std::nullopt;
  }
  const bool has_zero_in_front = digits[0] == '0' && digits.find_first_not_of('0') != digits.npos;
  if (base == 0 && has_zero_in_front) return std::nullopt;
  int64_t integer = 0;
  const bool is_read = absl::numbers_internal::safe_strto64_base(absl::StrCat(sign, digits),
                                                                 &integer, base == 0 ? 10 : base);
  return is_read ? std::optional<int64_t>(integer) : std::nullopt;
}

std::optional<double> ParseFloat(std::string_view text) {
  std::string digits = Plain(text);
  if (!TakeUnderscores(&digits, IsAsciiDigit)) return std::nullopt;
  // The function below takes other bases, and NaN with more text after it; Python does not.
  if (digits.find_first_of("x(") != digits.npos) return std::nullopt;
  double number = 0;
  return absl::SimpleAtod(digits, &number) ? std::optional<double>(number) : std::nullopt;
}

}  // namespace tandem::jinja
