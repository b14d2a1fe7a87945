#include "base/named_values.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"

namespace tandem {
namespace {

constexpr size_t kMinPrefix = 3;
constexpr size_t kCharactersPerMistake = 3;

// The optimal string alignment distance: Damerau's distance in which no part is edited twice.
size_t DistanceOf(absl::string_view a, absl::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<size_t> distances((a.size() + 1) * columns);
  const auto at = [&](size_t i, size_t j) -> size_t& { return distances[i * columns + j]; };
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return distances.back();
}

}  // namespace

std::string NearestName(absl::string_view typed, absl::Span<const std::string> names) {
  std::string nearest;
  size_t most = std::max<size_t>(1, typed.size() / kCharactersPerMistake);
  for (const std::string& name : names) {
    if (typed.size() >= kMinPrefix && absl::StartsWith(name, typed)) return name;
    const size_t distance = DistanceOf(typed, name);
    // Skip names of which no character would remain.
    if (distance > most || distance >= name.size()) continue;
    nearest = name;
    most = distance - 1;
    if (distance == 0) break;
  }
  return nearest;
}

}  // namespace tandem
