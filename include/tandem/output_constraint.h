#ifndef TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_
#define TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_

#include <string>
#include <vector>

#include "tandem/types.h"

namespace tandem {

// What the whole text of an output must be (docs/constraints.md).
struct OutputConstraint {
  enum class Kind {
    kJsonObject,  // any JSON object
    kJsonSchema,  // what the schema in `text` describes
    kRegex,       // what matches the expression in `text` from beginning to end
    kChoice,      // one of `choices`
    kGrammar,     // what the rule `root` of the grammar in `text` derives, in EBNF as GBNF has it
    // What the format in `text` describes: one of XGrammar's structural tags. Parts of the type
    // json_schema may say "strict": false, as `is_strict` does for a whole schema.
    kStructuralTag,
  };
  Kind kind = Kind::kJsonObject;
  std::string text{};
  std::vector<std::string> choices{};
  // Special tokens that a structural tag names, in ascending order: the output has them where the
  // tag says so. It has no others, but for the one that ends it.
  std::vector<TokenId> tokens{};
  // Of a schema: objects have no properties but those that it names, unless it says otherwise.
  bool is_strict = true;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_OUTPUT_CONSTRAINT_H_
