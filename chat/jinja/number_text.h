// Numbers as Python reads them from text.
#ifndef TANDEM_CHAT_JINJA_NUMBER_TEXT_H_
#define TANDEM_CHAT_JINJA_NUMBER_TEXT_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::jinja {

// int(text, base): allows white space around it, a sign, the base's prefix, single underscores and
// decimal digits of any script. Base 0 is the prefix's. Nothing where Python raises an error, and
// for numbers of more than 64 bits.
std::optional<int64_t> ParseInteger(std::string_view text, int base);
// float(text), which takes the same, "inf" and "nan", and no other base.
std::optional<double> ParseFloat(std::string_view text);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_NUMBER_TEXT_H_
