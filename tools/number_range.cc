#include "tools/number_range.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem {

std::function<std::string(const std::string& text)> NumberWithin(double low, double high) {
  return [low, high](const std::string& text) {
    double number = 0;
    const bool is_number = absl::SimpleAtod(text, &number);
    if (is_number && number >= low && number <= high) return std::string();
    return absl::StrCat("\"", text, "\" is not a number from ", low, " to ", high);
  };
}

}  // namespace tandem
