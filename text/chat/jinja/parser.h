#ifndef TANDEM_TEXT_CHAT_JINJA_PARSER_H_
#define TANDEM_TEXT_CHAT_JINJA_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/chat/jinja/syntax_tree.h"

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
    kEnd,  // the end of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: without quotes, with its escapes replaced
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

// Splits a template into tokens as Jinja 3 does with trim_blocks and lstrip_blocks, which
// transformers sets: line ends after block tags and comments, white space before those that begin a
// line, and the template's last line end are dropped. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// INVALID_ARGUMENT with "line 3: " and the message that the parts make.
template <typename... Parts>
absl::Status SyntaxError(int line, const Parts&... parts) {
  return Wrong("line ", line, ": ", parts...);
}

// Reads the tokens of a template one after another. Thread-compatible.
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
  // Moves past the current token if it is this one, and returns whether it was.
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view name);
  absl::Status Expect(Token::Kind kind, std::string_view allowed);
  absl::Status ExpectOperator(std::string_view name);
  absl::StatusOr<std::string> ExpectName(std::string_view allowed);
  // INVALID_ARGUMENT: "found [the current token], allowed: `allowed`".
  absl::Status Error(std::string_view allowed) const;

  // Returns a node with the current line.
  NodePtr Make(Node::Kind kind) const;
  // Does the same, and moves to the next token.
  NodePtr Begin(Node::Kind kind);
  // Sets the depth of a node that has all its parts. INVALID_ARGUMENT if it is too deep.
  static absl::StatusOr<NodePtr> Measured(NodePtr node);
  // Called around recursive functions. INVALID_ARGUMENT if they nest too deep.
  absl::Status Enter();
  void Leave() { --depth_; }

 private:
  std::vector<Token> tokens_;  // the last is kEnd
  size_t at_ = 0;
  int depth_ = 0;
};

// Parses expressions with Jinja's operator precedence. A node's line is the one in which it begins.
// Thread-compatible.
class ExpressionParser : protected TokenStream {
 public:
  using TokenStream::TokenStream;

  struct TupleStyle {
    bool has_choice = true;     // whether `a if b else c` is allowed without brackets
    std::string_view end = "";  // a name that also ends the tuple
    bool may_be_empty = false;
  };
  // Parses an expression, or several separated by commas.
  absl::StatusOr<NodePtr> ParseTuple(TupleStyle style);
  absl::StatusOr<NodePtr> ParseExpression();

  struct TargetStyle {
    std::string_view end = "";  // a name or an operator that ends the target
    bool has_members = false;   // whether members of namespaces are allowed
  };
  // Parses the target of an assignment: a name, or a tuple of targets.
  absl::StatusOr<NodePtr> ParseTarget(TargetStyle style);

  // Parses any number of "| name(arguments)".
  absl::StatusOr<NodePtr> ParseFilters(NodePtr value);
  // Parses "name(arguments)".
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
};

// Parses a template. Expressions and blocks may nest 100 deep. INVALID_ARGUMENT names the line, the
// token found and the tokens allowed. UNIMPLEMENTED names the line of a feature that chat templates
// do not use: inheritance, imports, recursive loops.
absl::StatusOr<Nodes> ParseTemplate(std::string_view source);

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_PARSER_H_
