// Builds a grammar in the grammar engine's notation.
#ifndef TANDEM_TEXT_CONSTRAINT_GRAMMAR_TEXT_H_
#define TANDEM_TEXT_CONSTRAINT_GRAMMAR_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "text/constraint/code_points.h"
#include "text/constraint/regex_syntax.h"

namespace tandem {

// An expression of a grammar.
struct GrammarExpr {
  enum class Kind { kNothing, kText, kRegex, kClass, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kNothing;        // kNothing: no text matches
  std::string text{};                // of kText; of kRegex and kClass, in the engine's notation
  std::vector<GrammarExpr> parts{};  // of kSequence and kChoice; one for kRepeat
  int rule = -1;                     // of kRule
  int64_t min = 0;                   // of kRepeat
  int64_t max = -1;                  // of kRepeat; -1: unlimited
  bool is_nothing() const { return kind == Kind::kNothing; }
};

// Make expressions. Each returns kNothing if no text can match.
GrammarExpr TextExpr(std::string text);
GrammarExpr RegexExpr(std::string text);
GrammarExpr ClassExpr(const CodePoints& code_points);  // one of these characters
GrammarExpr RuleExpr(int rule);
GrammarExpr RegexGrammar(const RegexNode& node, TextForm form);  // the texts that match `node`
GrammarExpr Sequence(std::vector<GrammarExpr> parts);
GrammarExpr Choice(std::vector<GrammarExpr> parts);
GrammarExpr Repeat(GrammarExpr part, int64_t min, int64_t max);
GrammarExpr Optional(GrammarExpr part);

// Returns `text` as a string in the engine's notation, quotes included.
std::string GrammarString(absl::string_view text);

// Rules that refer to each other by number. Thread-compatible.
class GrammarText {
 public:
  int AddRule();
  // `mark` is a number that the engine reports while the rule is being matched; 0 means no mark.
  void SetRule(int rule, GrammarExpr expr, int mark = 0);
  // Replaces each mark m by new_marks[m]. REQUIRES: new_marks[0] is 0.
  void ChangeMarks(const std::vector<int>& new_marks);
  int num_rules() const { return static_cast<int>(rules_.size()); }

  // Returns the rules that `root` needs, without the parts that cannot match a finite text. Empty
  // if nothing is left.
  std::string Write(const GrammarExpr& root) const;

 private:
  struct Rule {
    GrammarExpr expr;
    int mark = 0;
  };
  std::vector<bool> FiniteRules() const;

  std::vector<Rule> rules_;
};

// The grammar of a schema, to which the schema's parts are added.
struct SchemaOutput {
  GrammarText grammar;
  std::string why;  // the reason of the first part that has no value

  // Returns the expression without values, and keeps the reason if it is the first.
  GrammarExpr None(const std::string& path, absl::string_view keyword, absl::string_view reason) {
    if (why.empty()) why = absl::StrCat("schema", path, ".", keyword, " ", reason);
    return {};
  }
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_GRAMMAR_TEXT_H_
