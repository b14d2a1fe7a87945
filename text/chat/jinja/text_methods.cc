// Python's methods of strings.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/text_tools.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

bool IsAbsent(const Value& value) { return value.is_undefined() || value.is_none(); }

template <LetterCase kCase>
Result ChangeCase(Runtime* runtime, const Value& self, const Arguments&) {
  RETURN_IF_ERROR(runtime->ChargeBytes(8 * self.text()->size()));
  return Value::Text(WithCase(*self.text(), kCase));
}

template <bool kLeft, bool kRight>
Result Strip(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const Value& chars = arguments[0];
  const MarkedText* set = nullptr;
  if (!IsAbsent(chars)) {
    ASSIGN_OR_RETURN(set, TextArgument(chars, "chars"));
    RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *set));
  }
  RETURN_IF_ERROR(runtime->ChargeBytes(self.text()->size()));
  return Value::Text(Stripped(*self.text(), set == nullptr ? nullptr : &set->text(),
                              {.left = kLeft, .right = kRight}));
}

Result ListOf(Runtime* runtime, std::vector<MarkedText> parts,
              List::Kind kind = List::Kind::kList) {
  RETURN_IF_ERROR(runtime->CheckRoom(parts.size() * kElementBytes));
  std::vector<Value> items;
  for (MarkedText& part : parts) items.push_back(Value::Text(std::move(part)));
  return Value::OfList(std::move(items), kind);
}

template <bool kFromRight>
Result SplitText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  const MarkedText* separator = nullptr;
  RETURN_IF_ERROR(runtime->Charge(text.size()));
  if (!IsAbsent(arguments[0])) {
    ASSIGN_OR_RETURN(separator, TextArgument(arguments[0], "sep"));
    if (separator->empty()) return Wrong("sep is empty, allowed: a non-empty string");
    RETURN_IF_ERROR(ChargeSearch(runtime, text, *separator));
  }
  ASSIGN_OR_RETURN(int64_t most, IntegerOr(arguments[1], -1, "maxsplit"));
  // ListOf rejects one part more than fits in memory.
  const size_t affordable = runtime->room() / kElementBytes;
  if (most < 0 || static_cast<size_t>(most) > affordable) most = static_cast<int64_t>(affordable);
  const std::string* by = separator == nullptr ? nullptr : &separator->text();
  return ListOf(runtime, kFromRight ? SplitFromRight(text, by, most) : Split(text, by, most));
}

Result SplitTextLines(Runtime* runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(self.text()->size()));
  const size_t affordable = runtime->room() / kElementBytes;
  return ListOf(runtime, SplitLines(*self.text(), arguments[0].IsTrue(), affordable));
}

template <bool kFromRight>
Result Partition(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  ASSIGN_OR_RETURN(const MarkedText* separator, TextArgument(arguments[0], "sep"));
  if (separator->empty()) return Wrong("sep is empty, allowed: a non-empty string");
  RETURN_IF_ERROR(ChargeSearch(runtime, text, *separator));
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  const size_t at =
      kFromRight ? text.text().rfind(separator->text()) : text.text().find(separator->text());
  if (at == std::string::npos) {
    return kFromRight ? ListOf(runtime, {MarkedText(), MarkedText(), text}, List::Kind::kTuple)
                      : ListOf(runtime, {text, MarkedText(), MarkedText()}, List::Kind::kTuple);
  }
  const size_t end = at + separator->size();
  return ListOf(runtime, {text.Slice(0, at), text.Slice(at, end), text.Slice(end, text.size())},
                List::Kind::kTuple);
}

// Bytes [begin, end) of a text.
struct Part {
  size_t begin = 0;
  size_t end = 0;
};
// Returns the bytes of the characters [start, stop). Returns nullopt if it begins after the end of
// the text or after its own end: such a part does not even contain "".
absl::StatusOr<std::optional<Part>> PartOf(Runtime* runtime, const MarkedText& text,
                                           const Value& start, const Value& stop) {
  if (IsAbsent(start) && IsAbsent(stop)) return Part{.begin = 0, .end = text.size()};
  RETURN_IF_ERROR(runtime->ChargeBytes(8 * text.size()));
  const std::vector<size_t> offsets = CharacterOffsets(text.text());
  const auto length = static_cast<int64_t>(offsets.size() - 1);
  ASSIGN_OR_RETURN(int64_t from, IntegerOr(IsAbsent(start) ? Value() : start, 0, "start"));
  ASSIGN_OR_RETURN(int64_t to, IntegerOr(IsAbsent(stop) ? Value() : stop, length, "end"));
  if (from < 0) from = std::max<int64_t>(from + length, 0);
  if (to < 0) to = std::max<int64_t>(to + length, 0);
  to = std::min(to, length);
  if (from > to) return std::nullopt;
  return Part{.begin = offsets[from], .end = offsets[to]};
}

// startswith, endswith: the argument is a string or a tuple of strings.
template <bool kAtStart>
Result HasAffix(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::optional<Part> part,
                   PartOf(runtime, *self.text(), arguments[1], arguments[2]));
  if (!part.has_value()) return Value::Bool(false);
  const absl::string_view text =
      absl::string_view(self.text()->text()).substr(part->begin, part->end - part->begin);
  const Value& affixes = arguments[0];
  const bool is_tuple = affixes.list() != nullptr && affixes.list()->kind == List::Kind::kTuple;
  const std::vector<Value> list = is_tuple ? affixes.list()->items : std::vector<Value>{affixes};
  for (const Value& affix : list) {
    ASSIGN_OR_RETURN(const MarkedText* wanted, TextArgument(affix, kAtStart ? "prefix" : "suffix"));
    RETURN_IF_ERROR(runtime->ChargeBytes(16 + wanted->size()));
    const bool has_it =
        kAtStart ? absl::StartsWith(text, wanted->text()) : absl::EndsWith(text, wanted->text());
    if (has_it) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool kAtStart>
Result WithoutAffix(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  ASSIGN_OR_RETURN(const MarkedText* affix, TextArgument(arguments[0], "affix"));
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  if (kAtStart && absl::StartsWith(text.text(), affix->text())) {
    return Value::Text(text.Slice(affix->size(), text.size()));
  }
  if (!kAtStart && absl::EndsWith(text.text(), affix->text())) {
    return Value::Text(text.Slice(0, text.size() - affix->size()));
  }
  return self;
}

// find, rfind, index and rindex: the index of the character at which the substring begins. If it is
// not found, find and rfind return -1, and index and rindex fail.
template <bool kFromRight, bool kMustBe>
Result FindText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* what, TextArgument(arguments[0], "sub"));
  ASSIGN_OR_RETURN(const std::optional<Part> part,
                   PartOf(runtime, *self.text(), arguments[1], arguments[2]));
  RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *what));
  std::string_view text = self.text()->text();
  size_t at = std::string_view::npos;
  if (part.has_value()) {
    text = text.substr(0, part->end);
    at = kFromRight ? text.rfind(what->text()) : text.find(what->text(), part->begin);
    if (at != std::string_view::npos && at < part->begin) at = std::string_view::npos;
  }
  if (at == std::string_view::npos) {
    if (kMustBe) return Wrong("the substring was not found");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(NumCharacters(text.substr(0, at))));
}

Result CountText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* what, TextArgument(arguments[0], "sub"));
  ASSIGN_OR_RETURN(const std::optional<Part> part,
                   PartOf(runtime, *self.text(), arguments[1], arguments[2]));
  if (!part.has_value()) return Value::Int(0);
  RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *what));
  const std::string_view text = self.text()->text();
  return Value::Int(static_cast<int64_t>(
      NumPlaces(text.substr(part->begin, part->end - part->begin), what->text())));
}

Result ReplaceText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* from, TextArgument(arguments[0], "old"));
  ASSIGN_OR_RETURN(const MarkedText* to, TextArgument(arguments[1], "new"));
  const Value& count = arguments[2];
  ASSIGN_OR_RETURN(const int64_t most, IntegerOr(IsAbsent(count) ? Value() : count, -1, "count"));
  const MarkedText& text = *self.text();
  RETURN_IF_ERROR(ChargeSearch(runtime, text, *from));
  RETURN_IF_ERROR(runtime->ChargeBytes(2 * text.size()));
  size_t num_places = NumPlaces(text.text(), from->text());
  if (most >= 0) num_places = std::min(num_places, static_cast<size_t>(most));
  // Replacing by a text with another mark splits a run in two.
  const bool is_uniform = to->empty() || (text.runs().size() <= 1 && to->runs().size() == 1 &&
                                          (text.empty() || text.MarkAt(0) == to->MarkAt(0)));
  const size_t place_bytes = to->appended_bytes() + (is_uniform ? 0 : 2 * sizeof(MarkedText::Run));
  RETURN_IF_ERROR(runtime->ChargeBytes(num_places * to->size()));
  RETURN_IF_ERROR(runtime->CheckRoom(text.memory_bytes() + num_places * place_bytes));
  return Value::Text(Replaced(text, from->text(), *to, most));
}

Result JoinTexts(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(runtime, arguments[0]));
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const MarkedText* item, TextArgument(items[i], "an element"));
    RETURN_IF_ERROR(runtime->ChargeBytes(self.text()->size() + item->size()));
    if (i > 0) out.Append(*self.text());
    out.Append(*item);
  }
  return Value::Text(std::move(out));
}

template <bool kLeft, bool kRight>
Result Justify(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments[0], 0, "width"));
  MarkedText fill(" ", SpecialTokens::kParse);
  if (!IsAbsent(arguments[1])) {
    ASSIGN_OR_RETURN(const MarkedText* given, TextArgument(arguments[1], "fillchar"));
    if (NumCharacters(given->text()) != 1) return Wrong("fillchar is not one character");
    fill = *given;
  }
  return PadText(runtime, *self.text(), width, fill, {.left = kLeft, .right = kRight});
}

// zfill: inserts zeros after the sign.
Result FillZeros(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments[0], 0, "width"));
  const bool has_sign = !text.empty() && (text.text()[0] == '-' || text.text()[0] == '+');
  const size_t sign_size = has_sign ? 1 : 0;
  const int64_t rest_width = width > 0 ? width - static_cast<int64_t>(sign_size) : 0;
  ASSIGN_OR_RETURN(const Value padded,
                   PadText(runtime, text.Slice(sign_size, text.size()), rest_width,
                           MarkedText("0", kOwn), {.left = true, .right = false}));
  MarkedText out = text.Slice(0, sign_size);
  out.Append(*padded.text());
  return Value::Text(std::move(out));
}

// expandtabs: replaces tabs by spaces up to the next column that is a multiple of `tabsize`.
Result ExpandTabs(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  const std::string_view whole = text.text();
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments[0], 8, "tabsize"));
  RETURN_IF_ERROR(runtime->ChargeBytes(2 * text.size()));
  MarkedText out;
  int64_t column = 0;
  for (size_t at = 0; at < whole.size();) {
    const size_t size = ReadUtf8(whole.substr(at)).size;
    if (whole[at] == '\t') {
      const auto spaces = static_cast<size_t>(width > 0 ? width - column % width : 0);
      RETURN_IF_ERROR(runtime->ChargeBytes(16 + spaces));
      out.Append(std::string(spaces, ' '), text.MarkAt(at));
      column = 0;
    } else {
      out.Append(text, at, at + size);
      column =
          whole[at] == '\n' || whole[at] == '\r' ? 0 : (column + 1) % std::max<int64_t>(width, 1);
    }
    at += size;
  }
  return Value::Text(std::move(out));
}

// isdigit, isalpha and so on: whether kIs is true for every character. The empty text gives
// kOfEmpty.
template <bool (*kIs)(char32_t), bool kOfEmpty = false>
Result AreAll(Runtime* runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->text();
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * text.size()));
  return Value::Bool(text.empty() ? kOfEmpty : AllCharacters(text, kIs));
}
bool IsAsciiCharacter(char32_t c) { return c < 0x80; }

bool IsUpperOrTitleCase(char32_t c) { return IsUpperCase(c) || IsTitleCase(c); }
bool IsLowerOrTitleCase(char32_t c) { return IsLowerCase(c) || IsTitleCase(c); }

// istitle: every word begins with a capital letter and has no other capital letters.
Result IsTitleText(Runtime* runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->text();
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * text.size()));
  bool has_some = false;
  bool follows_cased = false;
  const bool has_no_other = AllCharacters(text, [&](char32_t c) {
    const bool is_capital = IsUpperOrTitleCase(c);
    const bool is_cased = is_capital || IsLowerCase(c);
    const bool fits = !is_cased || is_capital != follows_cased;
    has_some = has_some || is_cased;
    follows_cased = is_cased;
    return fits;
  });
  return Value::Bool(has_no_other && has_some);
}

// isupper, islower: kIs is true for some character, and kIsOther for none.
template <bool (*kIs)(char32_t), bool (*kIsOther)(char32_t)>
Result IsInCase(Runtime* runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->text();
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * text.size()));
  bool has_some = false;
  const bool has_no_other = AllCharacters(text, [&](char32_t c) {
    has_some = has_some || kIs(c);
    return !kIsOther(c);
  });
  return Value::Bool(has_no_other && has_some);
}

Result FormatMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, *self.text(), arguments);
}

constexpr Builtin kMethods[] = {
    {"capitalize", ChangeCase<LetterCase::kCapitalized>},
    {"casefold", ChangeCase<LetterCase::kFolded>},
    {"center", Justify<true, true>, 1, {"width", "fillchar"}},
    {"count", CountText, 1, {"sub", "start", "end"}},
    {"endswith", HasAffix<false>, 1, {"suffix", "start", "end"}},
    {"expandtabs", ExpandTabs, 0, {"tabsize"}},
    {"find", FindText<false, false>, 1, {"sub", "start", "end"}},
    {"format", FormatMethod, Builtin::kAny},
    {"index", FindText<false, true>, 1, {"sub", "start", "end"}},
    {"isalnum", AreAll<IsLetterOrNumber>},
    {"isalpha", AreAll<IsLetterOf>},
    {"isascii", AreAll<IsAsciiCharacter, true>},
    {"isdecimal", AreAll<IsDecimalDigit>},
    {"isdigit", AreAll<IsDigit>},
    {"islower", IsInCase<IsLowerCase, IsUpperOrTitleCase>},
    {"isnumeric", AreAll<IsNumeric>},
    {"isprintable", AreAll<IsPrintable, true>},
    {"isspace", AreAll<IsSpace>},
    {"istitle", IsTitleText},
    {"isupper", IsInCase<IsUpperCase, IsLowerOrTitleCase>},
    {"join", JoinTexts, 1, {"iterable"}},
    {"ljust", Justify<false, true>, 1, {"width", "fillchar"}},
    {"lower", ChangeCase<LetterCase::kLower>},
    {"lstrip", Strip<true, false>, 0, {"chars"}},
    {"partition", Partition<false>, 1, {"sep"}},
    {"removeprefix", WithoutAffix<true>, 1, {"prefix"}},
    {"removesuffix", WithoutAffix<false>, 1, {"suffix"}},
    {"replace", ReplaceText, 2, {"old", "new", "count"}},
    {"rfind", FindText<true, false>, 1, {"sub", "start", "end"}},
    {"rindex", FindText<true, true>, 1, {"sub", "start", "end"}},
    {"rjust", Justify<true, false>, 1, {"width", "fillchar"}},
    {"rpartition", Partition<true>, 1, {"sep"}},
    {"rsplit", SplitText<true>, 0, {"sep", "maxsplit"}},
    {"rstrip", Strip<false, true>, 0, {"chars"}},
    {"split", SplitText<false>, 0, {"sep", "maxsplit"}},
    {"splitlines", SplitTextLines, 0, {"keepends"}},
    {"startswith", HasAffix<true>, 1, {"prefix", "start", "end"}},
    {"strip", Strip<true, true>, 0, {"chars"}},
    {"swapcase", ChangeCase<LetterCase::kSwapped>},
    {"title", ChangeCase<LetterCase::kTitle>},
    {"upper", ChangeCase<LetterCase::kUpper>},
    {"zfill", FillZeros, 1, {"width"}},
};

}  // namespace

const Builtin* FindTextMethod(std::string_view name) { return FindBuiltin(kMethods, name); }

}  // namespace tandem::jinja
