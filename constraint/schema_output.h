#ifndef TANDEM_CONSTRAINT_SCHEMA_OUTPUT_H_
#define TANDEM_CONSTRAINT_SCHEMA_OUTPUT_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "constraint/grammar_text.h"
#include "tandem/json_value.h"

namespace tandem {

// The grammar of a schema, which its parts are added to.
struct SchemaOutput {
  GrammarText grammar;
  std::string why;  // the first part without a value has none

  // No value.
  GrammarExpr None(const std::string& path, absl::string_view keyword, absl::string_view reason) {
    if (why.empty()) why = absl::StrCat("schema", path, ".", keyword, " ", reason);
    return {};
  }
};

// JSON in one line, as models write it: `{"a": 1, "b": [2, 3]}`.
std::string JsonInOneLine(const JsonValue& value);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_SCHEMA_OUTPUT_H_
