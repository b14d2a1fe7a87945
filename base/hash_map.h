// Hash tables that keep their content if memory runs out while they grow; Abseil's are corrupt
// then. For everything that grows while requests are served, or models are loaded.
#ifndef TANDEM_BASE_HASH_MAP_H_
#define TANDEM_BASE_HASH_MAP_H_

#include <functional>
#include <new>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace tandem {

template <typename Key>
struct KeyHash : absl::Hash<Key> {};
// Texts are found without a copy.
template <>
struct KeyHash<std::string> : absl::Hash<absl::string_view> {
  using is_transparent = void;
};

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, KeyHash<Key>, std::equal_to<>>;
template <typename Key>
using HashSet = std::unordered_set<Key, KeyHash<Key>, std::equal_to<>>;

// Gives an empty table of Abseil's, which is faster, all of its room: the table must not grow
// later, and its entries must be constructed without exceptions. If memory is short, the table is
// empty again; its destructor would free what it never got.
template <typename Key, typename Value>
void ReserveAll(absl::flat_hash_map<Key, Value>* empty, size_t size) {
  using Table = absl::flat_hash_map<Key, Value>;
  absl::Cleanup make_anew = [empty] { new (empty) Table(); };
  empty->reserve(size);
  std::move(make_anew).Cancel();
}

}  // namespace tandem

#endif  // TANDEM_BASE_HASH_MAP_H_
