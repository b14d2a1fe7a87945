#ifndef TANDEM_CHAT_JINJA_PARSER_H_
#define TANDEM_CHAT_JINJA_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/jinja/syntax_tree.h"

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
// line end after a tag, white space before a tag that begins a line, and the template's last line
// end are dropped. INVALID_ARGUMENT naming the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// "line 3: `what`".
absl::Status SyntaxError(int line, std::string_view what);

// The tokens of a template, one after another.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }

  bool Is(Token::Kind kind) const { return current().kind == kind; }
  bool IsName(std::string_view name) const {
    return Is(Token::Kind::kName) && current().text == name;
  }
  bool IsOperator(std::string_view name) const {
    return Is(Token::Kind::kOperator) && current().text == name;
  }
  // Goes on if the current token is this one, and says whether it was.
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view name);
  absl::Status Expect(Token::Kind kind, std::string_view allowed);
  absl::Status ExpectOperator(std::string_view name);
  absl::StatusOr<std::string> ExpectName(std::string_view allowed);
  // INVALID_ARGUMENT: the current token is not `allowed` here.
  absl::Status Error(std::string_view allowed) const;

  // A node of the current line.
  NodePtr Make(Node::Kind kind) const;
  // The same, and goes on.
  NodePtr Begin(Node::Kind kind);
  // A node that has all its parts, with its depth. INVALID_ARGUMENT if it is too deep.
  static absl::StatusOr<NodePtr> Measured(NodePtr node);
  // Around what calls itself.
  absl::Status Enter();
  void Leave() { --depth_; }

 private:
  std::vector<Token> tokens_;  // the last is kEnd
  size_t at_ = 0;
  int depth_ = 0;
};

// Parses expressions, with the precedence that Jinja gives its operators. Nodes are of the line in
// which they begin.
class ExpressionParser {
 public:
  // `tokens` must outlive this object.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  struct TupleStyle {
    bool has_choice = true;     // a if b else c, without brackets
    std::string_view end = "";  // a name that ends it too
    bool may_be_empty = false;
  };
  // An expression, or several with commas between them.
  absl::StatusOr<NodePtr> ParseTuple(TupleStyle style);
  absl::StatusOr<NodePtr> ParseExpression();

  struct TargetStyle {
    std::string_view end = "";  // a name or an operator that ends it
    bool has_members = false;   // those of namespaces may be set
  };
  // The target of an assignment: names, perhaps in tuples.
  absl::StatusOr<NodePtr> ParseTarget(TargetStyle style);

  // "| name(arguments)" as often as it is there.
  absl::StatusOr<NodePtr> ParseFilters(NodePtr value);
  // "name(arguments)".
  absl::StatusOr<NodePtr> ParseFilter(NodePtr value);

 private:
  absl::StatusOr<NodePtr> ParseWithoutChoice() { return ParseOperators(0); }
  absl::StatusOr<NodePtr> ParseOperators(size_t level);
  absl::StatusOr<NodePtr> ParseNot();
  absl::StatusOr<NodePtr> ParseCompare();
  absl::StatusOr<NodePtr> ParseUnary(bool has_filters);
  absl::StatusOr<NodePtr> ParsePrimary();
  absl::StatusOr<NodePtr> ParseString();
  absl::StatusOr<NodePtr> ParseList();
  absl::StatusOr<NodePtr> ParseDict();
  absl::StatusOr<NodePtr> ParsePostfix(NodePtr node);
  absl::StatusOr<NodePtr> ParseAttribute(NodePtr object);
  absl::StatusOr<NodePtr> ParseItem(NodePtr object);
  absl::StatusOr<NodePtr> ParseCall(NodePtr callee);
  absl::Status ParseArguments(CallArguments* arguments);
  absl::StatusOr<NodePtr> ParseFiltersAndTests(NodePtr node);
  absl::StatusOr<NodePtr> ParseTest(NodePtr value);
  absl::StatusOr<NodePtr> ParseOneTarget(bool has_members);

  TokenStream& tokens_;
};

// Parses a template. INVALID_ARGUMENT naming the line, what was found and what is allowed;
// UNIMPLEMENTED, naming the line, for what chat templates do without: inheritance, imports,
// recursive loops. So deep, at most, may expressions and blocks nest: 100.
absl::StatusOr<Nodes> ParseTemplate(std::string_view source);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_PARSER_H_
