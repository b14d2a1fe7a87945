// Helpers for tests of regular expressions: PCRE2 as a reference, and random matches.
#ifndef TANDEM_TEXT_CONSTRAINT_REGEX_TESTING_H_
#define TANDEM_TEXT_CONSTRAINT_REGEX_TESTING_H_

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/utf8.h"
#include "text/constraint/regex_syntax.h"
#include "text/regex.h"

namespace tandem {

// Matches whole texts with PCRE2. The expression is in the dialect of PCRE2 or RegexText.
class WholeMatcher {
 public:
  explicit WholeMatcher(absl::string_view pattern)
      : regex_(Regex::Compile(
            absl::StrCat("\\A(?:", absl::StrReplaceAll(pattern, {{"\\u{", "\\x{"}}), ")\\z"))) {}
  absl::Status status() const { return regex_.status(); }
  bool Matches(absl::string_view text) const {
    return !regex_->FindAll({text.data(), text.size()})->empty();
  }

 private:
  absl::StatusOr<Regex> regex_;
};

// Returns a random match of `node`. Repeats are rarely much longer than their minimum.
inline std::string RandomMatch(const RegexNode& node, std::mt19937* random) {
  const auto below = [&](size_t n) { return static_cast<size_t>((*random)() % n); };
  std::string text;
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      break;
    case RegexNode::Kind::kCodePoints: {
      // Prefer the first range, which contains ASCII, and the last character of a range.
      const auto& ranges = node.code_points.ranges;
      const auto [first, last] = ranges[below(below(2) == 0 ? ranges.size() : 1)];
      const size_t at = below(3) == 0 ? last - first : below(last - first + 1);
      AppendUtf8(static_cast<char32_t>(first + at), &text);
      break;
    }
    case RegexNode::Kind::kSequence:
      for (const RegexNode& child : node.children) text += RandomMatch(child, random);
      break;
    case RegexNode::Kind::kAlternatives:
      text = RandomMatch(node.children[below(node.children.size())], random);
      break;
    case RegexNode::Kind::kRepeat: {
      int count = node.min;
      if (below(8) == 0 && node.max >= 0) count = std::min(node.max, node.min + 300);
      while (below(3) != 0 && (node.max < 0 || count < node.max)) ++count;
      for (int i = 0; i < count; ++i) text += RandomMatch(node.children[0], random);
      break;
    }
  }
  return text;
}

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_REGEX_TESTING_H_
