#include "text/constraint/regex_syntax.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"

namespace tandem {
namespace {

constexpr int kMaxRepeats = 10'000'000;
constexpr int kMaxNesting = 200;
// These take 8 MB. \W and \p{L} have 700 ranges each.
constexpr size_t kMaxRanges = 1'000'000;

class RegexParser {
 public:
  RegexParser(absl::string_view pattern, RegexMode mode) : pattern_(pattern), mode_(mode) {}

  absl::StatusOr<RegexNode> Parse() {
    if (const size_t at = FindInvalidUtf8(StdView(pattern_)); at != std::string::npos) {
      return ErrorAt(at, "invalid UTF-8");
    }
    ignores_case_ = Take("(?i)");
    std::vector<Alternative> alternatives;
    RETURN_IF_ERROR(ParseAlternatives(0, &alternatives));
    if (!AtEnd()) return ErrorAt(at_, "`)` without `(`");
    const RegexNode anything = RepeatNode(SetNode(CodePoints::Any()), 0, -1);
    std::vector<RegexNode> nodes;
    for (Alternative& one : alternatives) {
      const bool is_open = mode_ == RegexMode::kSearch ||
                           (mode_ == RegexMode::kJsonSchema && one.has_begin != one.has_end);
      if (is_open && !one.has_begin) one.node = SequenceNode({anything, std::move(one.node)});
      if (is_open && !one.has_end) one.node = SequenceNode({std::move(one.node), anything});
      nodes.push_back(std::move(one.node));
    }
    return AlternativesNode(std::move(nodes));
  }

 private:
  struct Alternative {
    bool is_anchored() const { return has_begin || has_end; }

    RegexNode node{};
    bool has_begin = false;
    bool has_end = false;
    size_t anchor_at = 0;
  };
  struct ClassMember {
    NamedClass set{};
    std::optional<char32_t> single{};
  };

  bool AtEnd() const { return at_ == pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool NextIsDigit() const { return absl::ascii_isdigit(static_cast<unsigned char>(Peek())); }
  bool Take(absl::string_view text) {
    if (!absl::StartsWith(pattern_.substr(at_), text)) return false;
    at_ += text.size();
    return true;
  }
  // REQUIRES: !AtEnd().
  char32_t TakeCodePoint() {
    const Utf8Prefix prefix = ReadUtf8(StdView(pattern_.substr(at_)));
    at_ += prefix.size;
    return prefix.code_point;
  }
  template <typename... Parts>
  absl::Status ErrorAt(size_t offset, const Parts&... what) const {
    return absl::InvalidArgumentError(absl::StrCat("at offset ", offset, ": ", what...));
  }
  template <typename... Parts>
  absl::Status Unsupported(size_t offset, const Parts&... what) const {
    return ErrorAt(offset, what..., " is not supported");
  }

  // Stops at `)` or the end.
  absl::Status ParseAlternatives(int depth, std::vector<Alternative>* alternatives) {
    do RETURN_IF_ERROR(ParseSequence(depth, alternatives));
    while (Take("|"));
    return absl::OkStatus();
  }

  absl::Status ParseSequence(int depth, std::vector<Alternative>* alternatives) {
    Alternative whole;
    std::vector<RegexNode> items;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      const size_t begin = at_;
      if (whole.has_end) return Misplaced(whole.anchor_at);
      if (Take("^")) {
        if (!items.empty() || whole.has_begin) return Misplaced(begin);
        whole.has_begin = true;
        whole.anchor_at = begin;
        continue;
      }
      if (Take("$")) {
        whole.has_end = true;
        whole.anchor_at = begin;
        continue;
      }
      if (Peek() != '(') {
        ASSIGN_OR_RETURN(RegexNode atom, ParseAtom());
        RETURN_IF_ERROR(ParseQuantifier(&atom));
        items.push_back(std::move(atom));
        continue;
      }
      std::vector<Alternative> group;
      RETURN_IF_ERROR(ParseGroup(depth, &group));
      const auto anchored =
          absl::c_find_if(group, [](const auto& one) { return one.is_anchored(); });
      if (anchored != group.end()) {
        // Anchors in a group that is the whole alternative are at its ends.
        const bool is_whole =
            items.empty() && !whole.is_anchored() && (AtEnd() || Peek() == '|' || Peek() == ')');
        if (!is_whole) return Misplaced(anchored->anchor_at);
        absl::c_move(group, std::back_inserter(*alternatives));
        return absl::OkStatus();
      }
      std::vector<RegexNode> nodes;
      for (Alternative& one : group) nodes.push_back(std::move(one.node));
      RegexNode node = AlternativesNode(std::move(nodes));
      RETURN_IF_ERROR(ParseQuantifier(&node));
      items.push_back(std::move(node));
    }
    whole.node = SequenceNode(std::move(items));
    alternatives->push_back(std::move(whole));
    return absl::OkStatus();
  }
  absl::Status Misplaced(size_t offset) const {
    return Unsupported(offset, "`", pattern_.substr(offset, 1), "` inside an alternative");
  }

  absl::Status ParseGroup(int depth, std::vector<Alternative>* alternatives) {
    const size_t begin = at_;
    if (depth == kMaxNesting) return ErrorAt(begin, "more than ", kMaxNesting, " nested groups");
    RETURN_IF_ERROR(ParseGroupOpening());
    RETURN_IF_ERROR(ParseAlternatives(depth + 1, alternatives));
    return Take(")") ? absl::OkStatus() : ErrorAt(begin, "`(` without `)`");
  }

  absl::Status ParseGroupOpening() {
    const size_t begin = at_;
    Take("(");
    if (!Take("?") || Take(":")) return absl::OkStatus();
    for (const char* look : {"=", "!", "<=", "<!"}) {
      if (Take(look)) return Unsupported(begin, "lookaround `(?", look, "`");
    }
    if (Take("P=")) return Unsupported(begin, "a back-reference");
    if (Take(">")) return Unsupported(begin, "an atomic group");
    if (!Take("P<") && !Take("<")) return Unsupported(begin, "`(?` of a flag or another extension");
    const size_t name = at_;
    while (absl::ascii_isalnum(static_cast<unsigned char>(Peek())) || Peek() == '_') ++at_;
    const bool is_name =
        at_ > name && !absl::ascii_isdigit(static_cast<unsigned char>(pattern_[name]));
    return is_name && Take(">") ? absl::OkStatus()
                                : ErrorAt(begin, "a group with a malformed name");
  }

  absl::StatusOr<RegexNode> ParseAtom() {
    const size_t begin = at_;
    switch (Peek()) {
      case '*':
      case '+':
      case '?':
        return ErrorAt(begin, "`", pattern_.substr(begin, 1), "` has nothing to repeat");
      case '{':
        return ErrorAt(begin, "`{` has nothing to repeat; write `\\{` for the character");
      case '}':
      case ']':
        return ErrorAt(begin, "`", pattern_.substr(begin, 1), "` alone; write `\\",
                       pattern_.substr(begin, 1), "` for the character");
      case '[':
        return ParseClass();
      case '.':
        ++at_;
        return Set(begin,
                   Complement(CodePoints::Of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
      case '\\': {
        ASSIGN_OR_RETURN(const ClassMember member, ParseEscape(/*is_in_class=*/false));
        return Set(begin, ignores_case_ ? WithAsciiCases(member.set.sure) : member.set.sure);
      }
      default: {
        const char32_t c = TakeCodePoint();
        const CodePoints one = CodePoints::Of({{c, c}});
        return Set(begin, ignores_case_ ? WithAsciiCases(one) : one);
      }
    }
  }

  absl::StatusOr<RegexNode> Set(size_t offset, CodePoints set) {
    if (set.is_empty()) return ErrorAt(offset, "a class that matches no character");
    num_ranges_ += set.ranges.size();
    if (num_ranges_ > kMaxRanges) return ErrorAt(offset, "too many large classes");
    return SetNode(std::move(set));
  }

  absl::StatusOr<RegexNode> ParseClass() {
    const size_t begin = at_;
    Take("[");
    const bool is_negated = Take("^");
    if (Peek() == ']') return ErrorAt(begin, "an empty class");
    NamedClass all;
    while (!Take("]")) {
      if (AtEnd()) return ErrorAt(begin, "`[` without `]`");
      const size_t member_begin = at_;
      ASSIGN_OR_RETURN(ClassMember member, ParseClassMember());
      if (Peek() == '-' && Peek(1) != ']' && Peek(1) != '\0') {
        ++at_;
        ASSIGN_OR_RETURN(const ClassMember last, ParseClassMember());
        if (!member.single.has_value() || !last.single.has_value()) {
          return ErrorAt(member_begin, "a range from or to a class");
        }
        if (*member.single > *last.single) return ErrorAt(member_begin, "a range out of order");
        member.set.sure = CodePoints::Of({{*member.single, *last.single}});
        member.set.possible = member.set.sure;
      }
      absl::c_copy(member.set.sure.ranges, std::back_inserter(all.sure.ranges));
      absl::c_copy(member.set.possible.ranges, std::back_inserter(all.possible.ranges));
    }
    all.sure = CodePoints::Of(std::move(all.sure.ranges));
    all.possible = CodePoints::Of(std::move(all.possible.ranges));
    if (ignores_case_) {
      all.sure = WithAsciiCases(all.sure);
      if (is_negated) all.possible = WithAllCases(all.possible);
    }
    return Set(begin, is_negated ? Negated(all).sure : std::move(all.sure));
  }

  absl::StatusOr<ClassMember> ParseClassMember() {
    const size_t begin = at_;
    if (Peek() == '\\') return ParseEscape(/*is_in_class=*/true);
    if (Peek() == '[' && (Peek(1) == ':' || Peek(1) == '.' || Peek(1) == '=')) {
      return Unsupported(begin, "a class in a class");
    }
    return Single(TakeCodePoint());
  }
  static ClassMember Single(char32_t c) {
    const CodePoints one = CodePoints::Of({{c, c}});
    return {.set = {.sure = one, .possible = one}, .single = c};
  }

  absl::StatusOr<ClassMember> ParseEscape(bool is_in_class) {
    const size_t begin = at_++;
    if (AtEnd()) return ErrorAt(begin, "`\\` at the end");
    const char letter = Peek();
    const auto byte = static_cast<unsigned char>(letter);
    if (absl::ascii_isprint(byte) && !absl::ascii_isalnum(byte)) return Single(TakeCodePoint());
    ++at_;
    if (auto named = ClassOfEscape(letter); named.has_value()) {
      return ClassMember{.set = *std::move(named)};
    }
    constexpr absl::string_view kLetters = "tnvfr";
    constexpr absl::string_view kMeant = "\t\n\v\f\r";
    if (const size_t index = kLetters.find(letter); index != kLetters.npos) {
      return Single(kMeant[index]);
    }
    switch (letter) {
      case 'b':
        if (is_in_class) return Single('\b');
        return Unsupported(begin, "the word boundary `\\b`");
      case 'B':
        return Unsupported(begin, "the word boundary `\\B`");
      case 'k':
        return Unsupported(begin, "a back-reference");
      case '0':
        if (NextIsDigit()) return Unsupported(begin, "an octal escape");
        return Single(0);
      case 'c':
        if (!absl::ascii_isalpha(static_cast<unsigned char>(Peek()))) {
          return ErrorAt(begin, "`\\c` without a letter");
        }
        return Single(static_cast<char32_t>(pattern_[at_++] % 32));
      case 'p':
      case 'P':
        return ParseProperty(begin);
      case 'x':
      case 'u':
        return ParseCodeEscape(begin);
      default:
        if (absl::ascii_isdigit(byte)) return Unsupported(begin, "a back-reference");
        at_ = begin + 1;
        TakeCodePoint();
        return Unsupported(begin, "the escape `", pattern_.substr(begin, at_ - begin), "`");
    }
  }

  absl::StatusOr<ClassMember> ParseProperty(size_t begin) {
    const bool is_negated = pattern_[begin + 1] == 'P';
    const size_t end = pattern_.find('}', at_);
    if (!Take("{") || end == absl::string_view::npos) {
      return ErrorAt(begin, "`", pattern_.substr(begin, 2), "` without a name in { }");
    }
    const absl::string_view name = pattern_.substr(at_, end - at_);
    const std::optional<NamedClass> named = ClassOfCategory(name);
    if (!named.has_value()) {
      return Unsupported(begin, "`", pattern_.substr(begin, end + 1 - begin),
                         "`, which is not a general category,");
    }
    at_ = end + 1;
    return ClassMember{.set = is_negated ? Negated(*named) : *named};
  }

  // Consumes `num_digits` hexadecimal digits and returns their value; nullopt if there are fewer.
  std::optional<char32_t> TakeHex(size_t num_digits) {
    const absl::string_view digits = pattern_.substr(at_, num_digits);
    uint32_t value = 0;
    if (digits.size() < num_digits || !absl::c_all_of(digits, absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(digits, &value)) {
      return std::nullopt;
    }
    at_ += num_digits;
    return value;
  }

  // Parses \xHH, \u{H}, \uHHHH, or two of the last that form a surrogate pair.
  absl::StatusOr<ClassMember> ParseCodeEscape(size_t begin) {
    std::optional<char32_t> value;
    if (pattern_[begin + 1] == 'x') {
      value = TakeHex(2);
    } else if (Take("{")) {
      size_t num_digits = 0;
      while (num_digits < 6 && Peek(num_digits) != '}') ++num_digits;
      if (num_digits > 0) value = TakeHex(num_digits);
      if (!Take("}")) value.reset();
    } else {
      value = TakeHex(4);
      if (value.has_value() && *value >> 10 == 0xD800 >> 10 && Take("\\u")) {
        const std::optional<char32_t> low = TakeHex(4);
        if (!low.has_value() || *low >> 10 != 0xDC00 >> 10) {
          return ErrorAt(begin, "a surrogate without its other half");
        }
        value = 0x10000 + ((*value & 0x3FF) << 10) + (*low & 0x3FF);
      }
    }
    if (!value.has_value() || *value > 0x10FFFF) return ErrorAt(begin, "a malformed escape");
    if (*value >= 0xD800 && *value <= 0xDFFF) {
      return ErrorAt(begin, "a surrogate without its other half");
    }
    return Single(*value);
  }

  absl::Status ParseQuantifier(RegexNode* atom) {
    const size_t begin = at_;
    int min = 0;
    int max = -1;
    if (Take("{")) {
      RETURN_IF_ERROR(ParseCounts(begin, &min, &max));
    } else if (Take("+")) {
      min = 1;
    } else if (Take("?")) {
      max = 1;
    } else if (!Take("*")) {
      return absl::OkStatus();
    }
    if (Peek() == '+') return Unsupported(begin, "a possessive quantifier");
    Take("?");  // lazy quantifiers match the same texts
    *atom = RepeatNode(std::move(*atom), min, max);
    return absl::OkStatus();
  }

  absl::Status ParseCounts(size_t begin, int* min, int* max) {
    RETURN_IF_ERROR(ParseCount(begin, min));
    *max = *min;
    if (Take(",")) {
      *max = -1;
      if (Peek() != '}') RETURN_IF_ERROR(ParseCount(begin, max));
    }
    if (!Take("}")) return NotCounts(begin);
    if (*max != -1 && *max < *min) {
      return ErrorAt(begin, "{", *min, ",", *max, "} is out of order");
    }
    return absl::OkStatus();
  }
  absl::Status ParseCount(size_t begin, int* count) {
    const size_t digits = at_;
    while (NextIsDigit()) ++at_;
    if (at_ == digits) return NotCounts(begin);
    if (!absl::SimpleAtoi(pattern_.substr(digits, at_ - digits), count) || *count > kMaxRepeats) {
      return ErrorAt(begin, "a count above ", kMaxRepeats);
    }
    return absl::OkStatus();
  }
  absl::Status NotCounts(size_t begin) const {
    return ErrorAt(begin, "`{` does not begin a quantifier; write `\\{` for the character");
  }

  absl::string_view pattern_;
  RegexMode mode_;
  size_t at_ = 0;
  size_t num_ranges_ = 0;
  bool ignores_case_ = false;
};

constexpr int64_t kMaxCharacters = int64_t{1} << 60;  // lengths are clamped to this

int64_t LengthTimes(int64_t count, int64_t length) {
  if (count == 0 || length == 0) return 0;
  return length > kMaxCharacters / count ? kMaxCharacters : count * length;
}

}  // namespace

RegexNode SetNode(CodePoints code_points) {
  return {.kind = RegexNode::Kind::kCodePoints, .code_points = std::move(code_points)};
}

RegexNode SequenceNode(std::vector<RegexNode> children) {
  RegexNode sequence{.kind = RegexNode::Kind::kSequence};
  for (RegexNode& child : children) {
    if (child.kind == RegexNode::Kind::kSequence) {
      absl::c_move(child.children, std::back_inserter(sequence.children));
    } else if (child.kind != RegexNode::Kind::kEmpty) {
      sequence.children.push_back(std::move(child));
    }
  }
  if (sequence.children.empty()) return {};
  if (sequence.children.size() > 1) return sequence;
  RegexNode only = std::move(sequence.children[0]);
  return only;
}

RegexNode AlternativesNode(std::vector<RegexNode> children) {
  RegexNode alternatives{.kind = RegexNode::Kind::kAlternatives};
  std::vector<CodePoints::Range> singles;
  bool has_empty = false;
  const auto add = [&](RegexNode node) {
    if (node.kind == RegexNode::Kind::kEmpty) {
      has_empty = true;
    } else if (node.kind == RegexNode::Kind::kCodePoints) {
      absl::c_copy(node.code_points.ranges, std::back_inserter(singles));
    } else {
      alternatives.children.push_back(std::move(node));
    }
  };
  for (RegexNode& child : children) {
    if (child.kind == RegexNode::Kind::kAlternatives) {
      for (RegexNode& one : child.children) add(std::move(one));
    } else {
      add(std::move(child));
    }
  }
  if (!singles.empty()) {
    alternatives.children.push_back(SetNode(CodePoints::Of(std::move(singles))));
  }
  if (has_empty) alternatives.children.push_back({});
  if (alternatives.children.size() > 1) return alternatives;
  RegexNode only = std::move(alternatives.children[0]);
  return only;
}

RegexNode RepeatNode(RegexNode child, int min, int max) {
  if (max == 0 || child.kind == RegexNode::Kind::kEmpty) return {};
  if (min == 1 && max == 1) return child;
  RegexNode repeat{.kind = RegexNode::Kind::kRepeat, .min = min, .max = max};
  repeat.children.push_back(std::move(child));
  return repeat;
}

RegexNode LiteralNode(absl::string_view text) {
  std::vector<RegexNode> characters;
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(StdView(text));
    characters.push_back(SetNode(CodePoints::Of({{prefix.code_point, prefix.code_point}})));
    text.remove_prefix(prefix.size);
  }
  return SequenceNode(std::move(characters));
}

absl::StatusOr<RegexNode> ParseRegex(absl::string_view pattern, RegexMode mode) {
  return RegexParser(pattern, mode).Parse();
}

std::pair<int64_t, int64_t> LengthsOf(const RegexNode& node) {
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      return {0, 0};
    case RegexNode::Kind::kCodePoints:
      return {1, 1};
    case RegexNode::Kind::kSequence: {
      std::pair<int64_t, int64_t> sum = {0, 0};
      for (const RegexNode& child : node.children) {
        const auto [min, max] = LengthsOf(child);
        sum.first = std::min(sum.first + min, kMaxCharacters);
        sum.second = sum.second < 0 || max < 0 ? -1 : std::min(sum.second + max, kMaxCharacters);
      }
      return sum;
    }
    case RegexNode::Kind::kAlternatives: {
      std::pair<int64_t, int64_t> both = LengthsOf(node.children[0]);
      for (const RegexNode& child : node.children) {
        const auto [min, max] = LengthsOf(child);
        both.first = std::min(both.first, min);
        both.second = both.second < 0 || max < 0 ? -1 : std::max(both.second, max);
      }
      return both;
    }
    case RegexNode::Kind::kRepeat: {
      const auto [min, max] = LengthsOf(node.children[0]);
      const bool is_endless = max < 0 || (node.max < 0 && max > 0);
      return {LengthTimes(node.min, min),
              is_endless ? -1 : LengthTimes(std::max(node.max, 0), max)};
    }
  }
  return {0, 0};
}

std::optional<RegexNode> WithLengths(const RegexNode& node, int64_t min, int64_t max) {
  const auto lies_within = [&](std::pair<int64_t, int64_t> lengths) {
    return lengths.first >= min && (max < 0 || (lengths.second >= 0 && lengths.second <= max));
  };
  const std::pair<int64_t, int64_t> lengths = LengthsOf(node);
  if (lies_within(lengths)) return node;
  if (node.kind == RegexNode::Kind::kAlternatives) {
    std::vector<RegexNode> parts;
    for (const RegexNode& child : node.children) {
      const auto [least, most] = LengthsOf(child);
      if ((max >= 0 && least > max) || (most >= 0 && most < min)) continue;
      std::optional<RegexNode> part = WithLengths(child, min, max);
      if (!part.has_value()) return std::nullopt;
      parts.push_back(*std::move(part));
    }
    if (parts.empty()) return std::nullopt;
    return AlternativesNode(std::move(parts));
  }
  std::vector<RegexNode> parts;
  if (node.kind == RegexNode::Kind::kSequence) {
    parts = node.children;
  } else {
    parts.push_back(node);
  }
  RegexNode* variable = nullptr;
  int64_t fixed = 0;
  for (RegexNode& part : parts) {
    const auto [least, most] = LengthsOf(part);
    if (least == most) {
      fixed = std::min(fixed + least, kMaxCharacters);
    } else if (variable == nullptr && part.kind == RegexNode::Kind::kRepeat &&
               part.children[0].kind == RegexNode::Kind::kCodePoints) {
      variable = &part;
    } else {
      return std::nullopt;
    }
  }
  if (variable == nullptr) return std::nullopt;
  const int64_t least = std::max<int64_t>(variable->min, min - fixed);
  int64_t most = variable->max;
  if (max >= 0) most = most < 0 ? max - fixed : std::min(most, max - fixed);
  const bool has_end = variable->max >= 0 || max >= 0;
  if (least > kMaxRepeats || (has_end && most < least)) return std::nullopt;
  // A repeat with a larger maximum is not supported.
  if (most > kMaxRepeats) return std::nullopt;
  *variable = RepeatNode(std::move(variable->children[0]), static_cast<int>(least),
                         has_end ? static_cast<int>(most) : -1);
  return SequenceNode(std::move(parts));
}

}  // namespace tandem
