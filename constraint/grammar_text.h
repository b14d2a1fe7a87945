// A grammar in the grammar engine's notation, being written.
#ifndef TANDEM_CONSTRAINT_GRAMMAR_TEXT_H_
#define TANDEM_CONSTRAINT_GRAMMAR_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "constraint/code_points.h"
#include "constraint/regex_syntax.h"

namespace tandem {

struct GrammarExpr {
  enum class Kind { kNothing, kText, kRegex, kClass, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kNothing;        // kNothing: no text matches
  std::string text{};                // of kText; of kRegex and kClass, in the engine's notation
  std::vector<GrammarExpr> parts{};  // of kSequence and kChoice; the one of kRepeat
  int rule = -1;                     // of kRule
  int64_t min = 0;                   // of kRepeat
  int64_t max = -1;                  // -1: without end
  bool is_nothing() const { return kind == Kind::kNothing; }
};

// Each is nothing where no text can match it.
GrammarExpr TextExpr(std::string text);
GrammarExpr RegexExpr(std::string text);
GrammarExpr ClassExpr(const CodePoints& code_points);  // one character
GrammarExpr RuleExpr(int rule);
GrammarExpr RegexGrammar(const RegexNode& node, TextForm form);  // the texts that match it
GrammarExpr Sequence(std::vector<GrammarExpr> parts);
GrammarExpr Choice(std::vector<GrammarExpr> parts);
GrammarExpr Repeat(GrammarExpr part, int64_t min, int64_t max);
GrammarExpr Optional(GrammarExpr part);

// A string of the engine's notation, quotes included.
std::string GrammarString(absl::string_view text);

// Rules that refer to each other by number.
class GrammarText {
 public:
  int AddRule();
  // `mark`: a number that the engine tells while the rule is being matched; 0 for none.
  void SetRule(int rule, GrammarExpr expr, int mark = 0);
  // new_marks: by the old ones; that of 0 is 0.
  void ChangeMarks(const std::vector<int>& new_marks);
  int num_rules() const { return static_cast<int>(rules_.size()); }

  // The rules that `root` needs, with all parts left out that can match no finite text. Empty if
  // nothing is left.
  std::string Write(const GrammarExpr& root) const;

 private:
  struct Rule {
    GrammarExpr expr;
    int mark = 0;
  };
  std::vector<bool> FiniteRules() const;

  std::vector<Rule> rules_;
};

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

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_GRAMMAR_TEXT_H_
