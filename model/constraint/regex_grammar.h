#ifndef TANDEM_MODEL_CONSTRAINT_REGEX_GRAMMAR_H_
#define TANDEM_MODEL_CONSTRAINT_REGEX_GRAMMAR_H_

#include "model/constraint/grammar_text.h"
#include "model/constraint/regex_syntax.h"

namespace tandem {

// The texts that match an expression, as a part of a grammar.
GrammarExpr RegexGrammar(const RegexNode& node, TextForm form);

}  // namespace tandem

#endif  // TANDEM_MODEL_CONSTRAINT_REGEX_GRAMMAR_H_
