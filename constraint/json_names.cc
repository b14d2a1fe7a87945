#include "constraint/json_names.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "constraint/regex_syntax.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr size_t kMaxTrieDepth = 64;  // characters of a name

// A way to write a character that must not stand in a JSON string as itself, and only one for each.
constexpr char kPlainEscape[] = R"(\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f])))";
// Any escape; surrogates come in pairs.
constexpr char kAnyEscape[] =
    R"(\\(?:["\\/bfnrt]|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|)"
    R"([dD](?:[0-7][0-9a-fA-F]{2}|[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))))";

// The characters that may stand in a JSON string as themselves, but for those of `without`.
std::string CharactersBut(std::vector<CodePoints::Range> without) {
  without.insert(without.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  return RegexText(SetNode(Complement(CodePoints::Of(std::move(without)))), TextForm::kPlain);
}

// A character of a JSON string, with one way to write each.
const std::string& PlainCharacter() {
  static const auto& text =
      *new std::string(absl::StrCat("(?:", CharactersBut({}), "|", kPlainEscape, ")"));
  return text;
}

// The characters of a name as JSON strings have them.
std::vector<std::string> CharactersOf(const std::string& name) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < name.size();) {
    size_t end = i + 1;
    while (end < name.size() && (name[end] & 0xc0) == 0x80) ++end;
    const std::string quoted = Json(name.substr(i, end - i)).dump();
    characters.push_back(quoted.substr(1, quoted.size() - 2));
    i = end;
  }
  return characters;
}

// How a name that has come to `node` may go on so that it is none of those that are there.
//   room: characters that it may still have; -1: without end
std::string Continuations(const NameTrie& node, int64_t room) {
  std::vector<CodePoints::Range> first;  // of the names' next characters
  std::string ways;
  bool has_escapes = false;
  for (const auto& [character, next] : node.next) {
    const bool is_escape = character[0] == '\\';
    has_escapes |= is_escape;
    const char32_t code = ReadUtf8(character).code_point;
    if (!is_escape) first.emplace_back(code, code);
    const bool is_dead_end = next.is_prefix || (next.is_name && room == 1);
    if (is_dead_end) continue;
    absl::StrAppend(&ways, "|", RegexText(LiteralNode(character), TextForm::kPlain),
                    "(?:", Continuations(next, room < 0 ? -1 : room - 1), ")",
                    next.is_name ? "" : "{0,1}");
  }
  std::string others = CharactersBut(std::move(first));
  if (!has_escapes) absl::StrAppend(&others, "|", kPlainEscape);
  return absl::StrCat("(?:", others, ")", PlainCharacter(), "*", ways);
}

}  // namespace

const std::string& AnyJsonCharacter() {
  static const auto& text =
      *new std::string(absl::StrCat("(?:", CharactersBut({}), "|", kAnyEscape, ")"));
  return text;
}

void NameTrie::Add(const std::string& name, bool as_prefix) {
  NameTrie* at = this;
  const std::vector<std::string> characters = CharactersOf(name);
  for (size_t i = 0; i < characters.size() && i < kMaxTrieDepth; ++i) {
    at = &at->next[characters[i]];
  }
  as_prefix |= characters.size() > kMaxTrieDepth;
  at->is_name = true;
  at->is_prefix |= as_prefix;
}

const NameTrie* NameTrie::Find(const std::string& name) const {
  const NameTrie* at = this;
  for (const std::string& character : CharactersOf(name)) {
    if (at->is_prefix) return at;
    const auto it = at->next.find(character);
    if (it == at->next.end()) return nullptr;
    at = &it->second;
  }
  return at;
}

std::string NameBesides(const NameTrie& names, int64_t max) {
  if (!names.has_any()) return absl::StrCat(PlainCharacter(), "*");
  return absl::StrCat("(?:", Continuations(names, max), ")", names.is_name ? "" : "{0,1}");
}

}  // namespace tandem
