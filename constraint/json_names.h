// Expressions, in the grammar engine's dialect, of what JSON strings have between their quotes.
#ifndef TANDEM_CONSTRAINT_JSON_NAMES_H_
#define TANDEM_CONSTRAINT_JSON_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// A character of a JSON string, as itself or as any escape of it; surrogates come in pairs.
const std::string& AnyJsonCharacter();

// Names that others must differ from, by their characters as JSON strings have them.
struct NameTrie {
  std::map<std::string, NameTrie> next;
  bool is_name = false;    // ends here
  bool is_prefix = false;  // no name may begin so

  bool has_any() const { return is_name || !next.empty(); }
  void Add(const std::string& name, bool as_prefix);
  // The node of the name, or of the prefix that it begins with; null if there is neither.
  const NameTrie* Find(const std::string& name) const;
};

// The content of strings that are none of `names`, with one way to write each, so that two texts
// that differ are two strings.
//   max: the most characters that they have; -1: without end
std::string NameBesides(const NameTrie& names, int64_t max);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_JSON_NAMES_H_
