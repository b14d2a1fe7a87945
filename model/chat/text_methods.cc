// The methods of strings.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/chat/format_text.h"
#include "model/chat/runtime.h"
#include "model/chat/text_tools.h"
#include "model/tokenizer/unicode.h"

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
  const Value& chars = arguments.positional[0];
  const MarkedText* set = nullptr;
  if (!IsAbsent(chars)) {
    ASSIGN_OR_RETURN(set, TextArgument(chars, "chars"));
    RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *set));
  }
  RETURN_IF_ERROR(runtime->ChargeBytes(self.text()->size()));
  return Value::Text(Stripped(*self.text(), set == nullptr ? nullptr : &set->text(),
                              {.left = kLeft, .right = kRight}));
}

Value ListOf(std::vector<MarkedText> parts, List::Kind kind = List::Kind::kList) {
  std::vector<Value> items;
  for (MarkedText& part : parts) items.push_back(Value::Text(std::move(part)));
  return Value::OfList(std::move(items), kind);
}

template <bool kFromRight>
Result SplitText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  const MarkedText* separator = nullptr;
  RETURN_IF_ERROR(runtime->Charge(text.size()));
  if (!IsAbsent(arguments.positional[0])) {
    ASSIGN_OR_RETURN(separator, TextArgument(arguments.positional[0], "sep"));
    if (separator->empty()) return Wrong("sep is empty, allowed: a string that is not");
    RETURN_IF_ERROR(ChargeSearch(runtime, text, *separator));
  }
  ASSIGN_OR_RETURN(const int64_t most, IntegerOr(arguments.positional[1], -1, "maxsplit"));
  const std::string* by = separator == nullptr ? nullptr : &separator->text();
  return ListOf(kFromRight ? SplitFromRight(text, by, most) : Split(text, by, most));
}

Result SplitTextLines(Runtime* runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(runtime->Charge(self.text()->size()));
  return ListOf(SplitLines(*self.text(), arguments.positional[0].IsTrue()));
}

template <bool kFromRight>
Result Partition(Runtime* runtime, const Value& self, const Arguments& arguments) {
  const MarkedText& text = *self.text();
  ASSIGN_OR_RETURN(const MarkedText* separator, TextArgument(arguments.positional[0], "sep"));
  if (separator->empty()) return Wrong("sep is empty, allowed: a string that is not");
  RETURN_IF_ERROR(ChargeSearch(runtime, text, *separator));
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  const size_t at =
      kFromRight ? text.text().rfind(separator->text()) : text.text().find(separator->text());
  if (at == std::string::npos) {
    return kFromRight ? ListOf({MarkedText(), MarkedText(), text}, List::Kind::kTuple)
                      : ListOf({text, MarkedText(), MarkedText()}, List::Kind::kTuple);
  }
  const size_t end = at + separator->size();
  return ListOf({text.Slice(0, at), text.Slice(at, end), text.Slice(end, text.size())},
                List::Kind::kTuple);
}

// The text from character `start` to `stop`, and the bytes in front of it.
struct Part {
  size_t begin = 0;
  size_t end = 0;
};
absl::StatusOr<Part> PartOf(Runtime* runtime, const MarkedText& text, const Value& start,
                            const Value& stop) {
  if (IsAbsent(start) && IsAbsent(stop)) return Part{.begin = 0, .end = text.size()};
  RETURN_IF_ERROR(runtime->ChargeBytes(8 * text.size()));
  const std::vector<size_t> offsets = CharacterOffsets(text.text());
  const auto length = static_cast<int64_t>(offsets.size() - 1);
  const auto clamped = [length](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  ASSIGN_OR_RETURN(const int64_t from, IntegerOr(start, 0, "start"));
  ASSIGN_OR_RETURN(const int64_t to, IntegerOr(IsAbsent(stop) ? Value() : stop, length, "end"));
  const int64_t first = clamped(from);
  return Part{.begin = offsets[first], .end = offsets[std::max(first, clamped(to))]};
}

// startswith, endswith: one string or a tuple of them.
template <bool kAtStart>
Result HasAffix(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Part part,
                   PartOf(runtime, *self.text(), arguments.positional[1], arguments.positional[2]));
  const absl::string_view text =
      absl::string_view(self.text()->text()).substr(part.begin, part.end - part.begin);
  const Value& affixes = arguments.positional[0];
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
  ASSIGN_OR_RETURN(const MarkedText* affix, TextArgument(arguments.positional[0], "affix"));
  RETURN_IF_ERROR(runtime->ChargeBytes(text.size()));
  if (kAtStart && absl::StartsWith(text.text(), affix->text())) {
    return Value::Text(text.Slice(affix->size(), text.size()));
  }
  if (!kAtStart && absl::EndsWith(text.text(), affix->text())) {
    return Value::Text(text.Slice(0, text.size() - affix->size()));
  }
  return self;
}

// find, rfind, index and rindex: the character at which a string begins, or -1.
template <bool kFromRight, bool kMustBe>
Result FindText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* what, TextArgument(arguments.positional[0], "sub"));
  ASSIGN_OR_RETURN(const Part part,
                   PartOf(runtime, *self.text(), arguments.positional[1], arguments.positional[2]));
  RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *what));
  const std::string_view text = std::string_view(self.text()->text()).substr(0, part.end);
  size_t at = kFromRight ? text.rfind(what->text()) : text.find(what->text(), part.begin);
  if (at != std::string_view::npos && at < part.begin) at = std::string_view::npos;
  if (at == std::string_view::npos) {
    if (kMustBe) return Wrong("the string is not in the other");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(NumCharacters(text.substr(0, at))));
}

Result CountText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* what, TextArgument(arguments.positional[0], "sub"));
  RETURN_IF_ERROR(ChargeSearch(runtime, *self.text(), *what));
  const std::string& text = self.text()->text();
  if (what->empty()) return Value::Int(static_cast<int64_t>(NumCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(what->text()); at != std::string::npos;
       at = text.find(what->text(), at + what->size())) {
    ++count;
  }
  return Value::Int(count);
}

Result ReplaceText(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const MarkedText* from, TextArgument(arguments.positional[0], "old"));
  ASSIGN_OR_RETURN(const MarkedText* to, TextArgument(arguments.positional[1], "new"));
  const Value& count = arguments.positional[2];
  ASSIGN_OR_RETURN(const int64_t most, IntegerOr(IsAbsent(count) ? Value() : count, -1, "count"));
  const MarkedText& text = *self.text();
  RETURN_IF_ERROR(ChargeSearch(runtime, text, *from));
  const size_t max_places = text.size() / std::max<size_t>(from->size(), 1) + 1;
  RETURN_IF_ERROR(runtime->ChargeBytes(2 * text.size()));
  // What it can become is charged only where it may matter.
  if (to->size() > from->size()) RETURN_IF_ERROR(runtime->ChargeBytes(max_places * to->size()));
  return Value::Text(Replaced(text, from->text(), *to, most));
}

Result JoinTexts(Runtime* runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(runtime, arguments.positional[0]));
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
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(arguments.positional[0], 0, "width"));
  MarkedText fill(" ", SpecialTokens::kParse);
  if (!IsAbsent(arguments.positional[1])) {
    ASSIGN_OR_RETURN(const MarkedText* given, TextArgument(arguments.positional[1], "fillchar"));
    if (NumCharacters(given->text()) != 1) return Wrong("fillchar is not one character");
    fill = *given;
  }
  return PadText(runtime, *self.text(), width, fill, {.left = kLeft, .right = kRight});
}

// isdigit and the like: true for a text that is not empty and whose characters all are so.
template <bool (*kIs)(char32_t)>
Result AreAll(Runtime* runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->text();
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * text.size()));
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix next = ReadUtf8(text.substr(at));
    if (!kIs(next.code_point)) return Value::Bool(false);
    at += next.size;
  }
  return Value::Bool(!text.empty());
}
bool IsLetterOrDigit(char32_t c) { return IsLetterOf(c) || IsDecimalDigit(c); }
bool IsAsciiCharacter(char32_t c) { return c < 0x80; }

// isupper, islower: some letter is so, and none is of the other case.
template <bool (*kIs)(char32_t), bool (*kIsOther)(char32_t)>
Result IsInCase(Runtime* runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.text()->text();
  RETURN_IF_ERROR(runtime->ChargeBytes(4 * text.size()));
  bool has_some = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix next = ReadUtf8(text.substr(at));
    if (kIsOther(next.code_point)) return Value::Bool(false);
    has_some = has_some || kIs(next.code_point);
    at += next.size;
  }
  return Value::Bool(has_some);
}

Result FormatMethod(Runtime* runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, *self.text(), arguments);
}

constexpr Builtin kMethods[] = {
    {"capitalize", ChangeCase<LetterCase::kCapitalized>},
    {"casefold", ChangeCase<LetterCase::kLower>},
    {"center", Justify<true, true>, 1, {"width", "fillchar"}},
    {"count", CountText, 1, {"sub"}},
    {"endswith", HasAffix<false>, 1, {"suffix", "start", "end"}},
    {"find", FindText<false, false>, 1, {"sub", "start", "end"}},
    {"format", FormatMethod, Builtin::kAny},
    {"index", FindText<false, true>, 1, {"sub", "start", "end"}},
    {"isalnum", AreAll<IsLetterOrDigit>},
    {"isalpha", AreAll<IsLetterOf>},
    {"isascii", AreAll<IsAsciiCharacter>},
    {"isdecimal", AreAll<IsDecimalDigit>},
    {"isdigit", AreAll<IsDecimalDigit>},
    {"islower", IsInCase<IsLowerCase, IsUpperCase>},
    {"isnumeric", AreAll<IsDecimalDigit>},
    {"isspace", AreAll<IsSpace>},
    {"isupper", IsInCase<IsUpperCase, IsLowerCase>},
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
};

}  // namespace

const Builtin* FindTextMethod(std::string_view name) { return FindBuiltin(kMethods, name); }

}  // namespace tandem::jinja
