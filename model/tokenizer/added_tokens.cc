#include "model/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

// Letters, marks, decimal digits and connectors: \w of regular expressions with Unicode.
bool IsWordCharacter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200C || c == 0x200D;  // joiners
  }
}

// Start of the character that ends at `end`.
size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t at = PreviousCharacter(text, begin);
    if (IsWordCharacter(ReadUtf8(text.substr(at)).code_point)) return true;
  }
  return end < text.size() && IsWordCharacter(ReadUtf8(text.substr(end)).code_point);
}

size_t SkipSpaceLeft(std::string_view text, size_t begin, size_t least) {
  while (begin > least) {
    const size_t at = PreviousCharacter(text, begin);
    if (!IsWhiteSpace(ReadUtf8(text.substr(at)).code_point)) break;
    begin = at;
  }
  return begin;
}

size_t SkipSpaceRight(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Prefix next = ReadUtf8(text.substr(end));
    if (!IsWhiteSpace(next.code_point)) break;
    end += next.size;
  }
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : by_first_byte_(256) {
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    by_first_byte_[static_cast<unsigned char>(token.content[0])].push_back(std::move(token));
  }
  for (std::vector<AddedToken>& list : by_first_byte_) {
    std::stable_sort(list.begin(), list.end(), [](const AddedToken& a, const AddedToken& b) {
      return a.content.size() > b.content.size();
    });
  }
}

const AddedToken* AddedTokenFinder::LongestAt(std::string_view text) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[0])]) {
    if (text.substr(0, token.content.size()) == token.content) return &token;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokenFinder::Cut(std::string_view text, SpecialTokens special) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t at = 0; !by_first_byte_.empty() && at < text.size();) {
    const AddedToken* token = LongestAt(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;  // the next match begins behind this one, whether it counts or not
    if (token->special && special == SpecialTokens::kPlain) continue;
    if (token->single_word && TouchesWord(text, begin, end)) continue;
    if (token->left_strip) begin = SkipSpaceLeft(text, begin, done);
    if (token->right_strip) end = SkipSpaceRight(text, end);
    begin = std::max(begin, done);
    if (begin > done) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
  return parts;
}

}  // namespace tandem
