#include <cstddef>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "base/utf8.h"
#include "text/constraint/regex_syntax.h"

namespace tandem {
namespace {

using Ends = std::set<size_t>;  // offsets in a text

// Returns the ends of the matches that begin at one of `begins`.
Ends EndsOf(const RegexNode& node, absl::Span<const char32_t> text, const Ends& begins) {
  Ends ends;
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      return begins;
    case RegexNode::Kind::kCodePoints:
      for (const size_t at : begins) {
        if (at < text.size() && node.code_points.Contains(text[at])) ends.insert(at + 1);
      }
      return ends;
    case RegexNode::Kind::kSequence:
      ends = begins;
      for (const RegexNode& child : node.children) ends = EndsOf(child, text, ends);
      return ends;
    case RegexNode::Kind::kAlternatives:
      for (const RegexNode& child : node.children) ends.merge(EndsOf(child, text, begins));
      return ends;
    case RegexNode::Kind::kRepeat: {
      Ends at = begins;
      if (node.min == 0) ends = begins;
      for (int count = 1; (node.max < 0 || count <= node.max) && !at.empty(); ++count) {
        at = EndsOf(node.children[0], text, at);
        const size_t num_known = ends.size();
        if (count >= node.min) ends.insert(at.begin(), at.end());
        // More repeats cannot add ends. This also ends repeats of a node that matches "".
        if (count > node.min && ends.size() == num_known) break;
      }
      return ends;
    }
  }
  return ends;
}

}  // namespace

bool Matches(const RegexNode& node, absl::string_view text) {
  std::vector<char32_t> code_points;
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8({text.data(), text.size()});
    code_points.push_back(prefix.code_point);
    text.remove_prefix(prefix.size);
  }
  return EndsOf(node, code_points, {0}).contains(code_points.size());
}

}  // namespace tandem
