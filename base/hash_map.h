// Hash tables that keep their content if memory runs out while they grow; Abseil's are corrupt
// then. For everything that grows while requests are served.
#ifndef TANDEM_BASE_HASH_MAP_H_
#define TANDEM_BASE_HASH_MAP_H_

#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"

namespace tandem {

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, absl::Hash<Key>>;
template <typename Key>
using HashSet = std::unordered_set<Key, absl::Hash<Key>>;

}  // namespace tandem

#endif  // TANDEM_BASE_HASH_MAP_H_
