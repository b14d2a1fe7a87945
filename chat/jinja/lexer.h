#ifndef TANDEM_CHAT_JINJA_LEXER_H_
#define TANDEM_CHAT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::jinja {

struct Token {
  enum class Kind {
    kData,  // text outside of tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of strings without quotes and escapes
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Cuts a template as Jinja 3 does with trim_blocks and lstrip_blocks, as transformers sets it: a
// line end behind a tag and white space in front of one that begins a line go, and the template's
// last line end too. INVALID_ARGUMENT naming the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "line 3: `what`".
absl::Status SyntaxError(int line, std::string_view what);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_LEXER_H_
