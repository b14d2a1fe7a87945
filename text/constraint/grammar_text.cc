#include "text/constraint/grammar_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"

namespace tandem {
namespace {

using ExprKind = GrammarExpr::Kind;

// Writes expressions, and collects the rules that they refer to.
class Writer {
 public:
  explicit Writer(const std::vector<bool>& is_finite) : is_finite_(is_finite) {}

  // Returns the text of an expression within a sequence. REQUIRES: IsFinite(expr).
  std::string TextOf(const GrammarExpr& expr) {
    switch (expr.kind) {
      case ExprKind::kNothing:
        break;
      case ExprKind::kText:
        return GrammarString(expr.text);
      case ExprKind::kRegex:
        return absl::StrCat("Regex(", GrammarString(expr.text), ")");
      case ExprKind::kClass:
        return expr.text;
      case ExprKind::kRule:
        if (!is_met_[expr.rule]) {
          is_met_[expr.rule] = true;
          met_.push_back(expr.rule);
        }
        return absl::StrCat("r", expr.rule);
      case ExprKind::kSequence:
      case ExprKind::kChoice: {
        const char* const between = expr.kind == ExprKind::kChoice ? " | " : " ";
        std::string text;
        for (const GrammarExpr& part : expr.parts) {
          if (IsFinite(part)) absl::StrAppend(&text, text.empty() ? "" : between, TextOf(part));
        }
        return absl::StrCat("(", text, ")");
      }
      case ExprKind::kRepeat:
        if (!IsFinite(expr.parts[0])) return "\"\"";
        return absl::StrCat("(", TextOf(expr.parts[0]), "){", expr.min, ",",
                            expr.max < 0 ? "" : absl::StrCat(expr.max), "}");
    }
    return "";
  }

  // Whether the expression matches some finite text.
  bool IsFinite(const GrammarExpr& expr) const {
    switch (expr.kind) {
      case ExprKind::kNothing:
        return false;
      case ExprKind::kRule:
        return is_finite_[expr.rule];
      case ExprKind::kSequence:
        return absl::c_all_of(expr.parts, [this](const auto& part) { return IsFinite(part); });
      case ExprKind::kChoice:
        return absl::c_any_of(expr.parts, [this](const auto& part) { return IsFinite(part); });
      case ExprKind::kRepeat:
        return expr.min == 0 || IsFinite(expr.parts[0]);
      default:
        return true;
    }
  }

  const std::vector<int>& met() const { return met_; }

 private:
  const std::vector<bool>& is_finite_;
  std::vector<bool> is_met_ = std::vector<bool>(is_finite_.size());
  std::vector<int> met_;  // rules, in the order in which they are written
};

// XGrammar 0.2.8 compiles repeats of more than 128 in a regular expression wrongly:
// "a*(?:x|yz){0,130}" accepts "xa". It unrolls shorter repeats, which takes some milliseconds for
// each character (with 49,152 tokens). In its grammars, repeats of rules are right and are not
// unrolled.
constexpr int64_t kMaxRepeat = 128;
constexpr int64_t kMaxWrittenOut = 512;  // characters of an unrolled expression

bool HasLongRepeat(const RegexNode& node) {
  const bool is_long = node.kind == RegexNode::Kind::kRepeat &&
                       (node.max > kMaxRepeat || (node.max < 0 && node.min > kMaxRepeat));
  return is_long || absl::c_any_of(node.children, HasLongRepeat);
}

// Returns the number of characters of an expression whose repeats are unrolled, at most
// kMaxWrittenOut + 1.
int64_t NumWrittenOut(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::kCodePoints) return 1;
  int64_t sum = 0;
  for (const RegexNode& child : node.children) sum += NumWrittenOut(child);
  if (node.kind == RegexNode::Kind::kRepeat) sum *= std::max({node.min, node.max, 1});
  return std::min(sum, kMaxWrittenOut + 1);
}

}  // namespace

GrammarExpr TextExpr(std::string text) {
  return {.kind = ExprKind::kText, .text = std::move(text)};
}
GrammarExpr RegexExpr(std::string text) {
  return {.kind = ExprKind::kRegex, .text = std::move(text)};
}
GrammarExpr ClassExpr(const CodePoints& code_points) {
  std::string text = "[";
  for (const auto& [first, last] : code_points.ranges) {
    text += Format("\\U%08x-\\U%08x", static_cast<uint32_t>(first), static_cast<uint32_t>(last));
  }
  return {.kind = ExprKind::kClass, .text = text + "]"};
}
GrammarExpr RuleExpr(int rule) { return {.kind = ExprKind::kRule, .rule = rule}; }

GrammarExpr Sequence(std::vector<GrammarExpr> parts) {
  if (absl::c_any_of(parts, [](const GrammarExpr& part) { return part.is_nothing(); })) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  if (parts.empty()) return TextExpr("");
  return {.kind = ExprKind::kSequence, .parts = std::move(parts)};
}

GrammarExpr Choice(std::vector<GrammarExpr> parts) {
  std::erase_if(parts, [](const GrammarExpr& part) { return part.is_nothing(); });
  if (parts.empty()) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = ExprKind::kChoice, .parts = std::move(parts)};
}

GrammarExpr Repeat(GrammarExpr part, int64_t min, int64_t max) {
  if (max == 0 || (part.is_nothing() && min == 0)) return TextExpr("");
  if (part.is_nothing() || (max >= 0 && max < min)) return {};
  if (min == 1 && max == 1) return part;
  GrammarExpr repeat{.kind = ExprKind::kRepeat, .min = min, .max = max};
  repeat.parts.push_back(std::move(part));
  return repeat;
}

GrammarExpr Optional(GrammarExpr part) { return Repeat(std::move(part), 0, 1); }

std::string GrammarString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += Format("\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

int GrammarText::AddRule() {
  rules_.emplace_back();
  return num_rules() - 1;
}

void GrammarText::SetRule(int rule, GrammarExpr expr, int mark) {
  rules_[rule] = {.expr = std::move(expr), .mark = mark};
}

void GrammarText::ChangeMarks(const std::vector<int>& new_marks) {
  for (Rule& rule : rules_) rule.mark = new_marks[rule.mark];
}

std::vector<bool> GrammarText::FiniteRules() const {
  std::vector<bool> is_finite(rules_.size());
  const Writer writer(is_finite);
  // Rules are made before the rules that they need: one pass from the last rule to the first finds
  // most of them.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (int i = num_rules() - 1; i >= 0; --i) {
      if (is_finite[i] || !writer.IsFinite(rules_[i].expr)) continue;
      is_finite[i] = true;
      is_changed = true;
    }
  }
  return is_finite;
}

std::string GrammarText::Write(const GrammarExpr& root) const {
  const std::vector<bool> is_finite = FiniteRules();
  Writer writer(is_finite);
  if (!writer.IsFinite(root)) return "";
  std::string text = absl::StrCat("root ::= ", writer.TextOf(root), "\n");
  for (size_t i = 0; i < writer.met().size(); ++i) {
    const int number = writer.met()[i];
    const Rule& rule = rules_[number];
    absl::StrAppend(&text, "r", number);
    if (rule.mark > 0) absl::StrAppend(&text, "[temperature=", rule.mark, "]");
    absl::StrAppend(&text, " ::= ", writer.TextOf(rule.expr), "\n");
  }
  return text;
}

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
