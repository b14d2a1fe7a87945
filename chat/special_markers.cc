#include "chat/special_markers.h"

namespace tandem {

std::vector<SpecialMarker> SpecialMarkersAmong(absl::Span<const std::string_view> markers,
                                               const Tokenizer& tokenizer) {
  std::vector<SpecialMarker> special;
  for (const std::string_view marker : markers) {
    const TokenId id = marker.empty() ? -1 : tokenizer.IdOf(marker);
    if (id >= 0 && tokenizer.IsSpecial(id)) special.emplace_back(marker, id);
  }
  return special;
}

}  // namespace tandem
