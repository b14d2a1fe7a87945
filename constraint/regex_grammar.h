#ifndef TANDEM_CONSTRAINT_REGEX_GRAMMAR_H_
#define TANDEM_CONSTRAINT_REGEX_GRAMMAR_H_

#include "constraint/grammar_text.h"
#include "constraint/regex_syntax.h"

namespace tandem {

// The texts that match an expression, as a part of a grammar.
GrammarExpr RegexGrammar(const RegexNode& node, TextForm form);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_REGEX_GRAMMAR_H_
