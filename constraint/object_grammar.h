#ifndef TANDEM_CONSTRAINT_OBJECT_GRAMMAR_H_
#define TANDEM_CONSTRAINT_OBJECT_GRAMMAR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "constraint/grammar_text.h"
#include "constraint/schema_output.h"

namespace tandem {

struct ObjectParts {
  struct Property {
    GrammarExpr pair;  // its name and value
    bool is_required = false;
  };
  std::vector<Property> named{};
  GrammarExpr other{};  // a pair of another name
  int64_t min = 0;      // properties
  int64_t max = -1;     // -1: without end
};

// Objects in one line: named properties in their order, then others. A property that may be left
// out may be followed by any after it. INVALID_ARGUMENT naming minProperties or maxProperties where
// counting would take too many rules, or where names may repeat.
absl::StatusOr<GrammarExpr> ObjectGrammar(const ObjectParts& parts, const std::string& path,
                                          SchemaOutput* output);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_OBJECT_GRAMMAR_H_
