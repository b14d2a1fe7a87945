// Hash maps and sets that stay whole when memory runs out while they grow: Abseil's do not (of
// 2022-06-23: they note their new size before they have it, and then free what was never theirs).
#ifndef TANDEM_BASE_HASH_MAP_H_
#define TANDEM_BASE_HASH_MAP_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Of strings, views of them and literals alike, so that any is looked up without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(absl::string_view text) const { return absl::HashOf(text); }
};

template <typename Key>
inline constexpr bool kIsText = std::is_convertible_v<Key, absl::string_view>;
template <typename Key>
using HashFor = std::conditional_t<kIsText<Key>, TextHash, absl::Hash<Key>>;
template <typename Key>
using EqualFor = std::conditional_t<kIsText<Key>, std::equal_to<>, std::equal_to<Key>>;

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, HashFor<Key>, EqualFor<Key>>;
template <typename Key>
using HashSet = std::unordered_set<Key, HashFor<Key>, EqualFor<Key>>;

// The keys of a map, sorted.
template <typename Map>
std::vector<typename Map::key_type> SortedKeys(const Map& map) {
  std::vector<typename Map::key_type> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace tandem

#endif  // TANDEM_BASE_HASH_MAP_H_
