#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "text/chat/jinja/parser.h"
#include "text/chat/jinja/text_tools.h"

namespace tandem::jinja {
namespace {

constexpr std::array<std::string_view, 28> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!", "&"};

constexpr size_t kLongestName = 256;  // bytes; limits the time of comparing names

// Makes all line ends "\n" and removes one at the end of the template.
std::string Normalized(std::string_view source) {
  std::string text = absl::StrReplaceAll(View(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool IsNameStart(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsAsciiDigit(c); }

// Replaces the escapes of Python's strings. Unknown escapes are kept as they are.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  // Returns false if an escape is malformed or not a character.
  bool Run(std::string* out) {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '\\' || at_ == text_.size()) {
        out->push_back(c);
      } else if (!Escape(out)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool Escape(std::string* out) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_++];
    if (const size_t index = kLetters.find(c); index != kLetters.npos) {
      out->push_back(kMeant[index]);
      return true;
    }
    if (c == '\n') return true;
    if (c >= '0' && c <= '7') {
      --at_;
      return Code(8, 1, 3, out);
    }
    if (c == 'x') return Code(16, 2, 2, out);
    if (c == 'u') return Code(16, 4, 4, out);
    if (c == 'U') return Code(16, 8, 8, out);
    out->push_back('\\');
    out->push_back(c);
    return true;
  }
  bool Code(int base, size_t fewest, size_t most, std::string* out) {
    const std::string_view digits = text_.substr(at_, most);
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    const auto size = static_cast<size_t>(read.ptr - digits.data());
    if (read.ec != std::errc() || size < fewest) return false;
    at_ += size;
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    AppendUtf8(code, out);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Whether a character is a digit in `base`, which is at most 16.
struct DigitOf {
  int base;
  bool operator()(char c) const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return kDigits.substr(0, base).find(absl::ascii_tolower(static_cast<unsigned char>(c))) !=
           kDigits.npos;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = NextTag();
      if (tag == source_.npos) {
        AddData(source_.substr(at_));
        break;
      }
      RETURN_IF_ERROR(ReadTag(tag));
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  size_t NextTag() const {
    for (size_t at = source_.find('{', at_); at != source_.npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.npos;
  }

  bool IsAt(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void Advance(size_t size) {
    const std::string_view passed = source_.substr(at_, size);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += passed.size();
    if (!passed.empty()) starts_line_ = passed.back() == '\n';
  }
  void SkipSpace() { Advance(LeadingSpace(source_.substr(at_))); }

  void Add(Token::Kind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }
  void AddData(std::string_view text) {
    if (!text.empty()) Add(Token::Kind::kData, text);
  }

  // Returns the text before the tag at `tag`. The tag's `sign` and position decide whether trailing
  // white space is dropped.
  std::string_view TextBefore(size_t tag, char sign, bool is_variable) const {
    const std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') return text.substr(0, text.size() - TrailingSpace(text));
    if (sign == '+' || is_variable) return text;
    const size_t line = text.rfind('\n') + 1;  // 0 without a line end
    if (line == 0 && !starts_line_) return text;
    const bool is_blank = LeadingSpace(text.substr(line)) == text.size() - line;
    return is_blank ? text.substr(0, line) : text;
  }

  absl::Status ReadTag(size_t tag) {
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = after == '-' || after == '+';
    AddData(TextBefore(tag, has_sign ? after : '\0', kind == '{'));
    Advance(tag - at_ + (has_sign ? 3 : 2));
    if (kind == '#') return SkipComment();
    if (kind == '%') {
      if (const size_t size = RawTagSize("raw"); size > 0) return ReadRaw(size);
    }
    Add(kind == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    return ReadInside(kind == '{' ? "}}" : "%}");
  }

  // Called after "%}" or "#}": skips the line end, or all white space if the sign is a minus.
  void EndTag(char sign) {
    if (sign == '-') return SkipSpace();
    if (sign != '+' && IsAt("\n")) Advance(1);
  }

  absl::Status SkipComment() {
    const int line = line_;
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return SyntaxError(line, "found an unterminated comment, allowed: #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    EndTag(sign);
    return absl::OkStatus();
  }

  // If at_, which is after "{%", begins the tag `name` without arguments: returns the number of
  // bytes up to and including its "%}". Otherwise returns 0.
  size_t RawTagSize(std::string_view name) const {
    std::string_view rest = source_.substr(at_);
    rest.remove_prefix(LeadingSpace(rest));
    if (!rest.starts_with(name)) return 0;
    rest.remove_prefix(name.size());
    rest.remove_prefix(LeadingSpace(rest));
    const bool has_sign = rest.starts_with("-") || rest.starts_with("+");
    if (has_sign) rest.remove_prefix(1);
    if (!rest.starts_with("%}")) return 0;
    return source_.size() - at_ - rest.size() + 2;
  }

  absl::Status ReadRaw(size_t tag_size) {
    const int line = line_;
    Advance(tag_size);
    if (source_[at_ - 3] == '-') SkipSpace();
    for (size_t end = source_.find("{%", at_); end != source_.npos;
         end = source_.find("{%", end + 1)) {
      Lexer tag(source_);
      const char sign = end + 2 < source_.size() ? source_[end + 2] : '\0';
      tag.at_ = end + (sign == '-' || sign == '+' ? 3 : 2);
      const size_t size = tag.RawTagSize("endraw");
      if (size == 0) continue;
      AddData(TextBefore(end, sign, /*is_variable=*/false));
      Advance(tag.at_ + size - at_);
      EndTag(source_[at_ - 3]);
      return absl::OkStatus();
    }
    return SyntaxError(line, "found an unterminated raw block, allowed: endraw");
  }

  // Reads the tokens up to and including `end`.
  absl::Status ReadInside(std::string_view end) {
    const int line = line_;
    const bool is_block = end[0] == '%';
    std::string open;  // brackets
    for (;;) {
      SkipSpace();
      if (at_ == source_.size()) {
        return SyntaxError(line, "found an unterminated tag, allowed: ", end);
      }
      const char c = source_[at_];
      const bool has_sign = c == '-' || (is_block && c == '+');
      if (open.empty() && source_.substr(at_ + (has_sign ? 1 : 0)).starts_with(end)) {
        Add(is_block ? Token::Kind::kBlockEnd : Token::Kind::kVariableEnd, "");
        Advance(end.size() + (has_sign ? 1 : 0));
        if (is_block) {
          EndTag(c);
        } else if (has_sign) {
          SkipSpace();
        }
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(ReadToken(&open));
    }
  }

  absl::Status ReadToken(std::string* open) {
    const char c = source_[at_];
    if (IsNameStart(c)) {
      const auto* end = std::find_if_not(source_.begin() + at_, source_.end(), IsNamePart);
      const auto size = static_cast<size_t>(end - (source_.begin() + at_));
      if (size > kLongestName) {
        return SyntaxError(line_, "found a name of ", size, " bytes, allowed: at most ",
                           kLongestName);
      }
      Add(Token::Kind::kName, source_.substr(at_, size));
      Advance(size);
      return absl::OkStatus();
    }
    if (IsAsciiDigit(c)) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString(c);
    for (const std::string_view op : kOperators) {
      if (!IsAt(op)) continue;
      RETURN_IF_ERROR(Balance(c, open));
      Add(Token::Kind::kOperator, op);
      Advance(op.size());
      return absl::OkStatus();
    }
    return SyntaxError(line_, "found ", Quoted(View(source_.substr(at_, 1))),
                       ", allowed: an expression");
  }

  absl::Status Balance(char bracket, std::string* open) const {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(bracket) != kOpening.npos) open->push_back(bracket);
    const size_t index = kClosing.find(bracket);
    if (index == kClosing.npos) return absl::OkStatus();
    if (open->empty() || open->back() != kOpening[index]) {
      return SyntaxError(line_, "found ", std::string(1, bracket),
                         " without its opening bracket, allowed: pairs");
    }
    open->pop_back();
    return absl::OkStatus();
  }

  absl::Status ReadString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return SyntaxError(line_, "found an unterminated string, allowed: a closing quote");
    }
    std::string text;
    if (!Unescaper(source_.substr(at_ + 1, end - at_ - 1)).Run(&text)) {
      return SyntaxError(line_,
                         "found an escape that is not a character, allowed: \\n, \\x41 and so on");
    }
    Add(Token::Kind::kString, text);
    Advance(end + 1 - at_);
    return absl::OkStatus();
  }

  // Returns the end of the digits from `at` on, with single underscores between them.
  template <typename IsDigit>
  size_t DigitsEnd(size_t at, IsDigit is_digit) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }
  size_t DigitsEnd(size_t at) const { return DigitsEnd(at, IsAsciiDigit); }

  // Returns the base of a prefix such as 0x if digits follow it, else 10.
  int BaseAt(size_t at) const {
    if (at + 1 >= source_.size() || source_[at] != '0') return 10;
    const char letter = static_cast<char>(source_[at + 1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    return base != 10 && DigitsEnd(at + 2, DigitOf{base}) > at + 2 ? base : 10;
  }

  absl::Status ReadNumber() {
    const int base = BaseAt(at_);
    size_t end = base == 10 ? DigitsEnd(at_) : DigitsEnd(at_ + 2, DigitOf{base});
    bool is_float = false;
    const bool is_index = at_ > 0 && source_[at_ - 1] == '.';  // a.0.1
    const auto digit_at = [&](size_t i) { return i < source_.size() && IsAsciiDigit(source_[i]); };
    const bool may_be_float = !is_index && base == 10;
    if (may_be_float && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      end = DigitsEnd(end + 1);
    }
    if (may_be_float && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const bool has_sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + (has_sign ? 2 : 1))) {
        is_float = true;
        end = DigitsEnd(end + (has_sign ? 2 : 1));
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Token token{.kind = is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
                .text = digits,
                .line = line_};
    const bool is_read = is_float ? absl::SimpleAtod(digits, &token.number)
                         : base == 10
                             ? absl::SimpleAtoi(digits, &token.integer)
                             : absl::numbers_internal::safe_strto64_base(
                                   absl::string_view(digits).substr(2), &token.integer, base);
    const bool has_extra_zeros = !is_float && base == 10 && digits[0] == '0' && token.integer != 0;
    if (has_extra_zeros) {
      return SyntaxError(line_, "found the number ", Quoted(digits),
                         ", allowed: integers without leading zeros");
    }
    if (!is_read) {
      return SyntaxError(line_, "found the number ", Quoted(digits), ", allowed: 64-bit numbers");
    }
    tokens_.push_back(std::move(token));
    Advance(end - at_);
    return absl::OkStatus();
  }

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;  // whether at_ is at the beginning of a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  const std::string text = Normalized(source);
  return Lexer(text).Run();
}

}  // namespace tandem::jinja
