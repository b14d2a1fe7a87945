#ifndef TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_
#define TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_

#include <string>
#include <vector>

#include "tandem/types.h"

namespace tandem {

// A constraint on the whole text of an output (docs/constraints.md).
struct OutputConstraint {
  enum class Kind {
    kJsonObject,  // any JSON object
    kJsonSchema,  // an instance of the schema in `text`
    kRegex,       // a full match of the expression in `text`
    kChoice,      // one of `choices`
    kGrammar,     // derived from the rule `root` of the grammar in `text`, in GBNF's EBNF
    // The format described by `text`, one of XGrammar's structural tags. Parts of the type
    // json_schema may set "strict": false, as `is_strict` does for a whole schema.
    kStructuralTag,
  };
  Kind kind = Kind::kJsonObject;
  std::string text{};
  std::vector<std::string> choices{};
  // Special tokens that a structural tag names, in ascending order. The output contains them where
  // the tag requires them, and no other special tokens except the final end token.
  std::vector<TokenId> tokens{};
  // For a schema: objects have only the properties that it names, unless it allows others.
  bool is_strict = true;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_
