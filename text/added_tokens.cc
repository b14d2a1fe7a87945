#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace tandem {
namespace {

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

const TextRange* FirstOverlap(absl::Span<const TextRange> ranges, TextRange range) {
  // The first range that ends after the beginning of `range`.
  const auto next = std::upper_bound(
      ranges.begin(), ranges.end(), range.begin,
      [](size_t begin, const TextRange& candidate) { return begin < candidate.end; });
  return next != ranges.end() && next->begin < range.end ? &*next : nullptr;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (int i = 0; i < static_cast<int>(tokens_.size()); ++i) {
    const std::string& content = tokens_[i].content;
    TANDEM_CHECK(!content.empty());
    is_first_byte_[static_cast<unsigned char>(content[0])] = true;
    int node = 0;
    for (const char byte : content) {
      const auto [child, is_new] =
          nodes_[node].children.emplace(byte, static_cast<int>(nodes_.size()));
      node = child->second;
      if (is_new) nodes_.emplace_back();
    }
    if (nodes_[node].token < 0) nodes_[node].token = i;
  }
}

const AddedToken* AddedTokenFinder::LongestAt(std::string_view text) const {
  if (!is_first_byte_[static_cast<unsigned char>(text[0])]) return nullptr;
  int longest = -1;
  int node = 0;
  for (const char byte : text) {
    const auto child = nodes_[node].children.find(byte);
    if (child == nodes_[node].children.end()) break;
    node = child->second;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest < 0 ? nullptr : &tokens_[longest];
}

std::vector<TextPart> AddedTokenFinder::Cut(std::string_view text,
                                            absl::Span<const TextRange> plain) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const AddedToken* token = LongestAt(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;  // the next match begins after this one, whether it counts or not
    if (const TextRange* range = FirstOverlap(plain, {begin, end}); token->special && range) {
      // Continue at the border of the plain range, where another token may begin.
      at = begin < range->begin ? range->begin : std::min(end, range->end);
      continue;
    }
    if (token->single_word && TouchesWord(text, begin, end)) continue;
    if (token->left_strip) begin = std::max(SkipSpaceLeft(text, begin, done), done);
    if (token->right_strip) end = SkipSpaceRight(text, end);
    if (begin >= end) continue;  // the token before it includes all of it
    if (begin > done) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(begin, end - begin), token->id});
    // A white-space token without left_strip may lie in the space that the token before it
    // included. As in the reference, it counts, and the space after it is text again.
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
  return parts;
}

}  // namespace tandem
