// Writes regular expressions as XGrammar reads them (its cpp/fsm_builder.cc, ParseRegexToIR), and
// matches texts.
#include <array>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/constraint/regex_syntax.h"

namespace tandem {
namespace {

struct PartText {
  std::string text{};
  bool is_atom = true;  // whether a quantifier after the text applies to all of it
};

std::string GroupText(absl::string_view text) { return absl::StrCat("(?:", text, ")"); }
std::string AtomOf(const PartText& text) { return text.is_atom ? text.text : GroupText(text.text); }

std::string CharacterText(char32_t c) {
  if (c >= 0x80) return absl::StrCat("\\u{", absl::Hex(c), "}");
  if (absl::ascii_isalnum(static_cast<unsigned char>(c))) return {static_cast<char>(c)};
  return absl::StrCat("\\x", absl::Hex(c, absl::kZeroPad2));
}

std::string ClassText(absl::Span<const CodePoints::Range> ranges) {
  if (ranges.size() == 1 && ranges[0].first == ranges[0].second) {
    return CharacterText(ranges[0].first);
  }
  std::string text = "[";
  for (const auto& [first, last] : ranges) {
    absl::StrAppend(&text, CharacterText(first));
    if (last > first + 1) absl::StrAppend(&text, "-");
    if (last > first) absl::StrAppend(&text, CharacterText(last));
  }
  return text + "]";
}

// Returns the set as classes, none of which has a range that contains characters of different
// lengths in UTF-8.
std::vector<std::string> ClassesOf(const CodePoints& set) {
  std::vector<std::string> classes;
  std::vector<CodePoints::Range> ranges;
  for (auto [first, last] : set.ranges) {
    for (const char32_t longer : {U'\x80', U'\x800', U'\x10000'}) {
      if (first >= longer || last < longer) continue;
      ranges.push_back({first, longer - 1});
      classes.push_back(ClassText(ranges));
      ranges.clear();
      first = longer;
    }
    ranges.push_back({first, last});
  }
  if (!ranges.empty()) classes.push_back(ClassText(ranges));
  return classes;
}

PartText EitherOf(const std::vector<std::string>& alternatives) {
  if (alternatives.size() == 1) return {.text = alternatives[0]};
  return {.text = GroupText(absl::StrJoin(alternatives, "|"))};
}

PartText PlainSet(const CodePoints& set) { return EitherOf(ClassesOf(set)); }

// Returns an expression for the two digits after `\u00` of the control characters in `set`.
std::string HexText(const CodePoints& set) {
  std::vector<std::string> by_high;
  std::array<std::string, 2> low;
  for (int high = 0; high < 2; ++high) {
    std::vector<CodePoints::Range> digits;
    for (int digit = 0; digit < 16; ++digit) {
      if (!set.Contains(high * 16 + digit)) continue;
      for (const char* hex : {"0123456789abcdef", "0123456789ABCDEF"}) {
        digits.push_back({hex[digit], hex[digit]});
      }
    }
    if (!digits.empty()) low[high] = ClassText(CodePoints::Of(std::move(digits)).ranges);
  }
  if (low[0] == low[1]) return "[01]" + low[0];
  if (low[1].empty()) return "0" + low[0];
  if (low[0].empty()) return "1" + low[1];
  return GroupText(absl::StrCat("0", low[0], "|1", low[1]));
}

PartText JsonSet(const CodePoints& set) {
  static constexpr std::pair<char32_t, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  std::vector<CodePoints::Range> shorts;
  CodePoints with_short;
  for (const auto& [c, escape] : kShort) {
    with_short = Union(with_short, CodePoints::Of({{c, c}}));
    if (set.Contains(c)) shorts.push_back({escape, escape});
  }
  const CodePoints controls = CodePoints::Of({{0, 0x1F}});
  const CodePoints raw = Intersection(set, Complement(Union(controls, with_short)));
  const CodePoints hex = Intersection(Intersection(set, controls), Complement(with_short));
  std::vector<std::string> alternatives = ClassesOf(raw);
  std::vector<std::string> escapes;
  if (!shorts.empty()) escapes.push_back(ClassText(CodePoints::Of(std::move(shorts)).ranges));
  if (!hex.is_empty()) escapes.push_back("u00" + HexText(hex));
  if (escapes.empty()) return EitherOf(alternatives);
  const bool is_escape_alone = alternatives.empty();
  const std::string after = escapes.size() == 1 ? escapes[0] : EitherOf(escapes).text;
  alternatives.push_back("\\x5c" + after);
  if (is_escape_alone) return {.text = alternatives[0], .is_atom = false};
  return EitherOf(alternatives);
}

PartText TextOfPart(const RegexNode& node, TextForm form);

std::string OptionalText(const RegexNode& node, const PartText& text) {
  return AtomOf(text) + (node.kind == RegexNode::Kind::kCodePoints ? "?" : "{0,1}");
}

PartText RepeatText(const RegexNode& node, TextForm form) {
  const RegexNode& child = node.children[0];
  const PartText text = TextOfPart(child, form);
  const std::string atom = AtomOf(text);
  if (node.min == 0 && node.max == 1) return {.text = OptionalText(child, text), .is_atom = false};
  if (node.max >= 0) {
    const bool is_fixed = node.min == node.max;
    return {.text = is_fixed ? absl::StrCat(atom, "{", node.min, "}")
                             : absl::StrCat(atom, "{", node.min, ",", node.max, "}"),
            .is_atom = false};
  }
  if (node.min <= 1) return {.text = atom + (node.min == 0 ? "*" : "+"), .is_atom = false};
  const std::string single_end = child.kind == RegexNode::Kind::kCodePoints
                                     ? atom
                                     : GroupText(absl::StrCat(text.text, "(?:)"));
  return {.text = absl::StrCat(single_end, "{", node.min, ",}"), .is_atom = false};
}

PartText AlternativesText(const RegexNode& node, TextForm form) {
  if (node.children.back().kind == RegexNode::Kind::kEmpty) {
    RegexNode full = node;
    full.children.pop_back();
    full = AlternativesNode(std::move(full.children));
    return {.text = OptionalText(full, TextOfPart(full, form)), .is_atom = false};
  }
  std::vector<std::string> alternatives;
  for (const RegexNode& child : node.children) alternatives.push_back(TextOfPart(child, form).text);
  return EitherOf(alternatives);
}

PartText TextOfPart(const RegexNode& node, TextForm form) {
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      return {.is_atom = false};
    case RegexNode::Kind::kCodePoints:
      return form == TextForm::kPlain ? PlainSet(node.code_points) : JsonSet(node.code_points);
    case RegexNode::Kind::kSequence: {
      PartText text{.is_atom = false};
      for (const RegexNode& child : node.children) text.text += TextOfPart(child, form).text;
      return text;
    }
    case RegexNode::Kind::kAlternatives:
      return AlternativesText(node, form);
    case RegexNode::Kind::kRepeat:
      return RepeatText(node, form);
  }
  return {};
}

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

std::string RegexText(const RegexNode& node, TextForm form) { return TextOfPart(node, form).text; }

bool Matches(const RegexNode& node, absl::string_view text) {
  std::vector<char32_t> code_points;
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(StdView(text));
    code_points.push_back(prefix.code_point);
    text.remove_prefix(prefix.size);
  }
  return EndsOf(node, code_points, {0}).contains(code_points.size());
}

}  // namespace tandem
