#include <algorithm>
#include <array>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "text/chat/jinja/parser.h"

namespace tandem::jinja {
namespace {

using Kind = Node::Kind;

constexpr int kDeepest = 100;

// Binary operators, the weakest first. A chain of one level's operators becomes one node, which is
// evaluated from the left.
struct Level {
  Kind kind;
  bool has_names;  // whether the operators are names
  std::array<std::string_view, 4> operators;
};
constexpr std::array<Level, 6> kLevels = {{{Kind::kOr, true, {"or"}},
                                           {Kind::kAnd, true, {"and"}},
                                           {Kind::kChain, false, {"+", "-"}},
                                           {Kind::kConcat, false, {"~"}},
                                           {Kind::kChain, false, {"*", "/", "//", "%"}},
                                           {Kind::kChain, false, {"**"}}}};
constexpr size_t kNotLevel = 2;  // `not` and comparisons bind just weaker than this level

std::string Described(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
    case Token::Kind::kVariableBegin:
    case Token::Kind::kBlockBegin:
      return "the beginning of another part";
    case Token::Kind::kVariableEnd:
    case Token::Kind::kBlockEnd:
      return "the end of the tag";
    case Token::Kind::kEnd:
      return "the end of the template";
    case Token::Kind::kString:
      return absl::StrCat("the string ", Quoted(token.text));
    default:
      return Quoted(token.text);
  }
}

int DeepestOf(const Nodes& nodes) {
  int depth = 0;
  for (const NodePtr& node : nodes) depth = std::max(depth, node == nullptr ? 0 : node->depth);
  return depth;
}

}  // namespace

// ---- Tokens ----

bool TokenStream::TakeName(std::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

bool TokenStream::TakeOperator(std::string_view name) {
  if (!IsOperator(name)) return false;
  Next();
  return true;
}

absl::Status TokenStream::Expect(Token::Kind kind, std::string_view allowed) {
  if (!Is(kind)) return Error(allowed);
  Next();
  return absl::OkStatus();
}

absl::Status TokenStream::ExpectOperator(std::string_view name) {
  return TakeOperator(name) ? absl::OkStatus() : Error(name);
}

absl::StatusOr<std::string> TokenStream::ExpectName(std::string_view allowed) {
  if (!Is(Token::Kind::kName)) return Error(allowed);
  std::string name = current().text;
  Next();
  return name;
}

absl::Status TokenStream::Error(std::string_view allowed) const {
  return SyntaxError(current().line,
                     absl::StrCat("found ", Described(current()), ", allowed: ", View(allowed)));
}

NodePtr TokenStream::Make(Node::Kind kind) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

NodePtr TokenStream::Begin(Node::Kind kind) {
  NodePtr node = Make(kind);
  Next();
  return node;
}

absl::StatusOr<NodePtr> TokenStream::Measured(NodePtr node) {
  int depth = std::max(DeepestOf(node->parts), DeepestOf(node->defaults));
  for (const Nodes& body : node->bodies) depth = std::max(depth, DeepestOf(body));
  const CallArguments& arguments = node->arguments;
  depth = std::max(depth, DeepestOf(arguments.positional));
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, value->depth);
  for (const NodePtr* rest : {&arguments.list, &arguments.dict}) {
    if (*rest != nullptr) depth = std::max(depth, (*rest)->depth);
  }
  node->depth = depth + 1;
  if (node->depth <= kDeepest) return node;
  return SyntaxError(
      node->line, absl::StrCat("found expressions or blocks nested more than ", kDeepest, " deep"));
}

absl::Status TokenStream::Enter() {
  // A pair of brackets calls Enter twice.
  if (++depth_ <= 2 * kDeepest) return absl::OkStatus();
  --depth_;
  return SyntaxError(current().line, absl::StrCat("found expressions or blocks nested more than ",
                                                  kDeepest, " deep"));
}

// ---- Expressions ----

absl::StatusOr<NodePtr> ExpressionParser::ParseTuple(TupleStyle style) {
  NodePtr tuple = tokens_.Make(Kind::kTuple);
  const auto is_end = [&] {
    return tokens_.Is(Token::Kind::kVariableEnd) || tokens_.Is(Token::Kind::kBlockEnd) ||
           tokens_.IsOperator(")") || (!style.end.empty() && tokens_.IsName(style.end));
  };
  bool has_comma = false;
  while (!is_end()) {
    ASSIGN_OR_RETURN(tuple->parts.emplace_back(),
                     style.has_choice ? ParseExpression() : ParseWithoutChoice());
    if (!tokens_.TakeOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && tuple->parts.size() == 1) return std::move(tuple->parts[0]);
  if (tuple->parts.empty() && !style.may_be_empty) return tokens_.Error("an expression");
  return tokens_.Measured(std::move(tuple));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseExpression() {
  RETURN_IF_ERROR(tokens_.Enter());
  const absl::Cleanup leave = [this] { tokens_.Leave(); };
  ASSIGN_OR_RETURN(NodePtr value, ParseWithoutChoice());
  while (tokens_.IsName("if")) {
    NodePtr choice = tokens_.Begin(Kind::kChoice);
    choice->parts.push_back(std::move(value));
    ASSIGN_OR_RETURN(choice->parts.emplace_back(), ParseWithoutChoice());
    choice->parts.emplace_back();
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(choice->parts.back(), ParseExpression());
    }
    ASSIGN_OR_RETURN(value, tokens_.Measured(std::move(choice)));
  }
  return value;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseOperators(size_t level) {
  if (level == kLevels.size()) return ParseUnary(/*has_filters=*/true);
  const Level& own = kLevels[level];
  const auto parse_operand = [&] {
    return level + 1 == kNotLevel ? ParseNot() : ParseOperators(level + 1);
  };
  const auto is_own = [&](std::string_view name) {
    if (name.empty()) return false;
    return own.has_names ? tokens_.IsName(name) : tokens_.IsOperator(name);
  };
  ASSIGN_OR_RETURN(NodePtr first, parse_operand());
  NodePtr chain;
  while (std::any_of(own.operators.begin(), own.operators.end(), is_own)) {
    if (chain == nullptr) {
      chain = tokens_.Make(own.kind);
      chain->parts.push_back(std::move(first));
    }
    chain->names.push_back(tokens_.current().text);
    tokens_.Next();
    ASSIGN_OR_RETURN(chain->parts.emplace_back(), parse_operand());
  }
  if (chain == nullptr) return first;
  return tokens_.Measured(std::move(chain));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseNot() {
  if (!tokens_.IsName("not")) return ParseCompare();
  RETURN_IF_ERROR(tokens_.Enter());
  const absl::Cleanup leave = [this] { tokens_.Leave(); };
  NodePtr node = tokens_.Begin(Kind::kNot);
  ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseNot());
  return tokens_.Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseCompare() {
  constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
  ASSIGN_OR_RETURN(NodePtr first, ParseOperators(kNotLevel));
  NodePtr compare;
  for (;;) {
    std::string name;
    const std::string& text = tokens_.current().text;
    if (tokens_.Is(Token::Kind::kOperator) &&
        std::find(kComparisons.begin(), kComparisons.end(), text) != kComparisons.end()) {
      name = text;
    } else if (tokens_.IsName("in")) {
      name = "in";
    } else if (tokens_.IsName("not") && tokens_.next().kind == Token::Kind::kName &&
               tokens_.next().text == "in") {
      name = "not in";
      tokens_.Next();
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = tokens_.Make(Kind::kCompare);
      compare->parts.push_back(std::move(first));
    }
    compare->names.push_back(std::move(name));
    tokens_.Next();
    ASSIGN_OR_RETURN(compare->parts.emplace_back(), ParseOperators(kNotLevel));
  }
  if (compare == nullptr) return first;
  return tokens_.Measured(std::move(compare));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseUnary(bool has_filters) {
  RETURN_IF_ERROR(tokens_.Enter());
  const absl::Cleanup leave = [this] { tokens_.Leave(); };
  NodePtr node;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const bool is_minus = tokens_.IsOperator("-");
    node = tokens_.Make(is_minus ? Kind::kNegative : Kind::kPositive);
    tokens_.Next();
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseUnary(/*has_filters=*/false));
    ASSIGN_OR_RETURN(node, tokens_.Measured(std::move(node)));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (has_filters) return ParseFiltersAndTests(std::move(node));
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  if (token.kind == Token::Kind::kString) return ParseString();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  if (tokens_.TakeOperator("(")) {
    ASSIGN_OR_RETURN(NodePtr inner, ParseTuple({.may_be_empty = true}));
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inner;
  }
  NodePtr node = tokens_.Make(Kind::kConstant);
  if (token.kind == Token::Kind::kInteger) {
    node->value = Value::Int(token.integer);
  } else if (token.kind == Token::Kind::kFloat) {
    node->value = Value::Float(token.number);
  } else if (token.kind != Token::Kind::kName) {
    return tokens_.Error("an expression");
  } else if (token.text == "true" || token.text == "True") {
    node->value = Value::Bool(true);
  } else if (token.text == "false" || token.text == "False") {
    node->value = Value::Bool(false);
  } else if (token.text == "none" || token.text == "None") {
    node->value = Value::None();
  } else {
    node->kind = Kind::kName;
    node->name = token.text;
  }
  tokens_.Next();
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseString() {
  NodePtr node = tokens_.Make(Kind::kConstant);
  std::string text;
  for (; tokens_.Is(Token::Kind::kString); tokens_.Next()) text += tokens_.current().text;
  node->value = Value::Own(text);
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseList() {
  NodePtr list = tokens_.Begin(Kind::kList);
  while (!tokens_.IsOperator("]")) {
    ASSIGN_OR_RETURN(list->parts.emplace_back(), ParseExpression());
    if (!tokens_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return tokens_.Measured(std::move(list));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseDict() {
  NodePtr dict = tokens_.Begin(Kind::kDict);
  while (!tokens_.IsOperator("}")) {
    ASSIGN_OR_RETURN(dict->parts.emplace_back(), ParseExpression());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(dict->parts.emplace_back(), ParseExpression());
    if (!tokens_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return tokens_.Measured(std::move(dict));
}

absl::StatusOr<NodePtr> ExpressionParser::ParsePostfix(NodePtr node) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(node, ParseItem(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> ExpressionParser::ParseAttribute(NodePtr object) {
  NodePtr node = tokens_.Begin(Kind::kAttribute);
  node->parts.push_back(std::move(object));
  if (tokens_.Is(Token::Kind::kInteger)) {  // a.0
    node->kind = Kind::kItem;
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParsePrimary());
  } else {
    ASSIGN_OR_RETURN(node->name, tokens_.ExpectName("a name or a number"));
  }
  return tokens_.Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseItem(NodePtr object) {
  NodePtr node = tokens_.Begin(Kind::kItem);
  node->parts.push_back(std::move(object));
  node->parts.emplace_back();
  if (!tokens_.IsOperator(":")) {
    ASSIGN_OR_RETURN(node->parts.back(), ParseExpression());
  }
  while (tokens_.IsOperator(":") && node->parts.size() < 4) {
    node->kind = Kind::kSlice;
    tokens_.Next();
    node->parts.emplace_back();
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) {
      ASSIGN_OR_RETURN(node->parts.back(), ParseExpression());
    }
  }
  if (node->kind == Kind::kSlice) node->parts.resize(4);
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return tokens_.Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseCall(NodePtr callee) {
  NodePtr node = tokens_.Make(Kind::kCall);
  node->parts.push_back(std::move(callee));
  RETURN_IF_ERROR(ParseArguments(&node->arguments));
  return tokens_.Measured(std::move(node));
}

absl::Status ExpressionParser::ParseArguments(CallArguments* arguments) {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.IsOperator(")")) {
    const bool is_list = tokens_.TakeOperator("*");
    const bool is_dict = !is_list && tokens_.TakeOperator("**");
    const bool is_named = tokens_.Is(Token::Kind::kName) &&
                          tokens_.next().kind == Token::Kind::kOperator &&
                          tokens_.next().text == "=";
    const bool has_rest = arguments->list != nullptr || arguments->dict != nullptr;
    if (is_list && !has_rest) {
      ASSIGN_OR_RETURN(arguments->list, ParseExpression());
    } else if (is_dict && arguments->dict == nullptr) {
      ASSIGN_OR_RETURN(arguments->dict, ParseExpression());
    } else if (is_named && arguments->dict == nullptr) {
      std::string name = tokens_.current().text;
      tokens_.Next();
      tokens_.Next();
      ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
      arguments->named.emplace_back(std::move(name), std::move(value));
    } else if (!has_rest && arguments->named.empty() && !is_list && !is_dict) {
      ASSIGN_OR_RETURN(arguments->positional.emplace_back(), ParseExpression());
    } else {
      return tokens_.Error("positional arguments, then named arguments, then **dictionary");
    }
    if (!tokens_.TakeOperator(",")) break;
  }
  return tokens_.ExpectOperator(")");
}

// ---- Filters and tests ----

absl::StatusOr<NodePtr> ExpressionParser::ParseFiltersAndTests(NodePtr node) {
  for (;;) {
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (tokens_.IsName("is")) {
      ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> ExpressionParser::ParseFilters(NodePtr value) {
  while (tokens_.TakeOperator("|")) {
    ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
  }
  return value;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseFilter(NodePtr value) {
  NodePtr node = tokens_.Make(Kind::kFilter);
  node->parts.push_back(std::move(value));
  ASSIGN_OR_RETURN(node->name, tokens_.ExpectName("the name of a filter"));
  node->builtin = FindFilter(node->name);
  if (tokens_.IsOperator("(")) RETURN_IF_ERROR(ParseArguments(&node->arguments));
  return tokens_.Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseTest(NodePtr value) {
  NodePtr node = tokens_.Begin(Kind::kTest);
  node->parts.push_back(std::move(value));
  node->flag = tokens_.TakeName("not");
  ASSIGN_OR_RETURN(node->name, tokens_.ExpectName("the name of a test"));
  node->builtin = FindTest(node->name);
  const auto is_operand = [&] {
    switch (tokens_.current().kind) {
      case Token::Kind::kName:
        return !tokens_.IsName("else") && !tokens_.IsName("or") && !tokens_.IsName("and");
      case Token::Kind::kString:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat:
        return true;
      default:
        return tokens_.IsOperator("[") || tokens_.IsOperator("{");
    }
  };
  if (tokens_.IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(&node->arguments));
  } else if (tokens_.IsName("is")) {
    return tokens_.Error("two tests joined with `and`");
  } else if (is_operand()) {
    ASSIGN_OR_RETURN(NodePtr operand, ParsePrimary());
    ASSIGN_OR_RETURN(node->arguments.positional.emplace_back(), ParsePostfix(std::move(operand)));
  }
  return tokens_.Measured(std::move(node));
}

// ---- Targets ----

absl::StatusOr<NodePtr> ExpressionParser::ParseTarget(TargetStyle style) {
  NodePtr tuple = tokens_.Make(Kind::kTuple);
  bool has_comma = false;
  do {
    const bool is_end = tokens_.Is(Token::Kind::kBlockEnd) ||
                        (!style.end.empty() && tokens_.current().text == style.end);
    if (is_end && has_comma) break;
    ASSIGN_OR_RETURN(tuple->parts.emplace_back(), ParseOneTarget(style.has_members));
    // `with a = 1, b = 2` has two targets, while `set a, b = 1, 2` has one.
    if (style.end == "=" || !tokens_.TakeOperator(",")) break;
    has_comma = true;
  } while (true);
  if (!has_comma) return std::move(tuple->parts[0]);
  return tokens_.Measured(std::move(tuple));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseOneTarget(bool has_members) {
  RETURN_IF_ERROR(tokens_.Enter());
  const absl::Cleanup leave = [this] { tokens_.Leave(); };
  if (tokens_.TakeOperator("(")) {
    ASSIGN_OR_RETURN(NodePtr inner, ParseTarget({.end = ")", .has_members = has_members}));
    RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inner;
  }
  NodePtr node = tokens_.Make(Kind::kName);
  ASSIGN_OR_RETURN(node->name, tokens_.ExpectName("a name to assign to"));
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (node->name == constant) {
      return SyntaxError(node->line, absl::StrCat("found an assignment to ", node->name,
                                                  ", allowed: any other name"));
    }
  }
  if (has_members && tokens_.TakeOperator(".")) {
    node->kind = Kind::kMember;
    ASSIGN_OR_RETURN(node->names.emplace_back(), tokens_.ExpectName("a member of the namespace"));
  }
  return node;
}

}  // namespace tandem::jinja
