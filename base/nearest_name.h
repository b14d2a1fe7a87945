#ifndef TANDEM_BASE_NEAREST_NAME_H_
#define TANDEM_BASE_NEAREST_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// The name that `typed` was probably meant to be: the one that it begins, if it has three
// characters or more, else the one that the fewest insertions, deletions, replacements and swaps of
// neighbours make of it, at most one for every three characters. The first of equals; empty if
// there is none. ASCII.
std::string NearestName(absl::string_view typed, absl::Span<const std::string> names);

}  // namespace tandem

#endif  // TANDEM_BASE_NEAREST_NAME_H_
