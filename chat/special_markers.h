#ifndef TANDEM_CHAT_SPECIAL_MARKERS_H_
#define TANDEM_CHAT_SPECIAL_MARKERS_H_

#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// A marker that is a special token, with its id.
using SpecialMarker = std::pair<std::string_view, TokenId>;

// Those among `markers`, of which some may be empty. They must outlive the result.
std::vector<SpecialMarker> SpecialMarkersAmong(absl::Span<const std::string_view> markers,
                                               const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_CHAT_SPECIAL_MARKERS_H_
