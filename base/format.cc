#include "base/format.h"

#include <iterator>

namespace tandem {

std::string DecimalSize(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  int decimals = 0;
  if (unit > 0 && size < 99.95) decimals = size < 9.995 ? 2 : 1;
  return Format("%.*f %s", decimals, size, kUnits[unit]);
}

}  // namespace tandem
