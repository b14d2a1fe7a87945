#ifndef TANDEM_TOOLS_NUMBER_RANGE_H_
#define TANDEM_TOOLS_NUMBER_RANGE_H_

#include <functional>
#include <string>

namespace tandem {

// For CLI::Option::check of an option that may be a fraction. Returns an error unless the text is a
// finite number from `low` to `high`. CLI::Range and its like accept NaN.
std::function<std::string(const std::string& text)> NumberWithin(double low, double high);

}  // namespace tandem

#endif  // TANDEM_TOOLS_NUMBER_RANGE_H_
