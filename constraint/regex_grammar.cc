#include "constraint/regex_grammar.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

// XGrammar 0.2.8 compiles repeats of more than 128 in an expression wrongly: of "a*(?:x|yz){0,130}"
// it takes "xa". It writes out shorter ones, and takes some milliseconds for each character (of
// 49,152 tokens). Its grammars repeat rules rightly, and write out nothing.
constexpr int64_t kMaxRepeat = 128;
constexpr int64_t kMaxWrittenOut = 512;  // characters

bool HasLongRepeat(const RegexNode& node) {
  const bool is_long = node.kind == RegexNode::Kind::kRepeat &&
                       (node.max > kMaxRepeat || (node.max < 0 && node.min > kMaxRepeat));
  return is_long || absl::c_any_of(node.children, HasLongRepeat);
}

// The characters that an expression has once its repeats are written out.
int64_t NumWrittenOut(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::kCodePoints) return 1;
  int64_t sum = 0;
  for (const RegexNode& child : node.children) sum += NumWrittenOut(child);
  if (node.kind == RegexNode::Kind::kRepeat) sum *= std::max({node.min, node.max, 1});
  return std::min(sum, kMaxWrittenOut + 1);
}

}  // namespace

GrammarExpr RegexGrammar(const RegexNode& node, TextForm form) {
  if (!HasLongRepeat(node) && NumWrittenOut(node) <= kMaxWrittenOut) {
    return RegexExpr(RegexText(node, form));
  }
  if (node.kind == RegexNode::Kind::kRepeat) {
    const RegexNode& child = node.children[0];
    const bool is_class = child.kind == RegexNode::Kind::kCodePoints && form == TextForm::kPlain;
    return Repeat(is_class ? ClassExpr(child.code_points) : RegexGrammar(child, form), node.min,
                  node.max);
  }
  std::vector<GrammarExpr> parts;
  for (const RegexNode& child : node.children) parts.push_back(RegexGrammar(child, form));
  return node.kind == RegexNode::Kind::kAlternatives ? Choice(std::move(parts))
                                                     : Sequence(std::move(parts));
}

}  // namespace tandem
