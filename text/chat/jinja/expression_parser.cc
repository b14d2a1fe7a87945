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
  return SyntaxError(current().line, "found ", Described(current()), ", allowed: ", allowed);
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
  return SyntaxError(node->line, "found expressions or blocks nested more than ", kDeepest,
                     " deep");
}

absl::Status TokenStream::Enter() {
  // A pair of brackets calls Enter twice.
  if (++depth_ <= 2 * kDeepest) return absl::OkStatus();
  --depth_;
  return SyntaxError(current().line, "found expressions or blocks nested more than ", kDeepest,
                     " deep");
}

// ---- Expressions ----

absl::StatusOr<NodePtr> ExpressionParser::ParseTuple(TupleStyle style) {
  NodePtr tuple = Make(Kind::kTuple);
  const auto is_end = [&] {
    return Is(Token::Kind::kVariableEnd) || Is(Token::Kind::kBlockEnd) || IsOperator(")") ||
           (!style.end.empty() && IsName(style.end));
  };
  bool has_comma = false;
  while (!is_end()) {
    ASSIGN_OR_RETURN(tuple->parts.emplace_back(),
                     style.has_choice ? ParseExpression() : ParseWithoutChoice());
    if (!TakeOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && tuple->parts.size() == 1) return std::move(tuple->parts[0]);
  if (tuple->parts.empty() && !style.may_be_empty) return Error("an expression");
  return Measured(std::move(tuple));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseExpression() {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  ASSIGN_OR_RETURN(NodePtr value, ParseWithoutChoice());
  while (IsName("if")) {
    NodePtr choice = Begin(Kind::kChoice);
    choice->parts.push_back(std::move(value));
    ASSIGN_OR_RETURN(choice->parts.emplace_back(), ParseWithoutChoice());
    choice->parts.emplace_back();
    if (TakeName("else")) {
      ASSIGN_OR_RETURN(choice->parts.back(), ParseExpression());
    }
    ASSIGN_OR_RETURN(value, Measured(std::move(choice)));
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
    return own.has_names ? IsName(name) : IsOperator(name);
  };
  ASSIGN_OR_RETURN(NodePtr first, parse_operand());
  NodePtr chain;
  while (std::any_of(own.operators.begin(), own.operators.end(), is_own)) {
    if (chain == nullptr) {
      chain = Make(own.kind);
      chain->parts.push_back(std::move(first));
    }
    chain->names.push_back(current().text);
    Next();
    ASSIGN_OR_RETURN(chain->parts.emplace_back(), parse_operand());
  }
  if (chain == nullptr) return first;
  return Measured(std::move(chain));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  NodePtr node = Begin(Kind::kNot);
  ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseNot());
  return Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseCompare() {
  constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
  ASSIGN_OR_RETURN(NodePtr first, ParseOperators(kNotLevel));
  NodePtr compare;
  for (;;) {
    std::string name;
    const std::string& text = current().text;
    if (Is(Token::Kind::kOperator) &&
        std::find(kComparisons.begin(), kComparisons.end(), text) != kComparisons.end()) {
      name = text;
    } else if (IsName("in")) {
      name = "in";
    } else if (IsName("not") && next().kind == Token::Kind::kName && next().text == "in") {
      name = "not in";
      Next();
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = Make(Kind::kCompare);
      compare->parts.push_back(std::move(first));
    }
    compare->names.push_back(std::move(name));
    Next();
    ASSIGN_OR_RETURN(compare->parts.emplace_back(), ParseOperators(kNotLevel));
  }
  if (compare == nullptr) return first;
  return Measured(std::move(compare));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseUnary(bool has_filters) {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  NodePtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const bool is_minus = IsOperator("-");
    node = Make(is_minus ? Kind::kNegative : Kind::kPositive);
    Next();
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseUnary(/*has_filters=*/false));
    ASSIGN_OR_RETURN(node, Measured(std::move(node)));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (has_filters) return ParseFiltersAndTests(std::move(node));
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParsePrimary() {
  const Token& token = current();
  if (token.kind == Token::Kind::kString) return ParseString();
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  if (TakeOperator("(")) {
    ASSIGN_OR_RETURN(NodePtr inner, ParseTuple({.may_be_empty = true}));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  NodePtr node = Make(Kind::kConstant);
  if (token.kind == Token::Kind::kInteger) {
    node->value = Value::Int(token.integer);
  } else if (token.kind == Token::Kind::kFloat) {
    node->value = Value::Float(token.number);
  } else if (token.kind != Token::Kind::kName) {
    return Error("an expression");
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
  Next();
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseString() {
  NodePtr node = Make(Kind::kConstant);
  std::string text;
  for (; Is(Token::Kind::kString); Next()) text += current().text;
  node->value = Value::Own(text);
  return node;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseList() {
  NodePtr list = Begin(Kind::kList);
  while (!IsOperator("]")) {
    ASSIGN_OR_RETURN(list->parts.emplace_back(), ParseExpression());
    if (!TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return Measured(std::move(list));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseDict() {
  NodePtr dict = Begin(Kind::kDict);
  while (!IsOperator("}")) {
    ASSIGN_OR_RETURN(dict->parts.emplace_back(), ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(dict->parts.emplace_back(), ParseExpression());
    if (!TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(ExpectOperator("}"));
  return Measured(std::move(dict));
}

absl::StatusOr<NodePtr> ExpressionParser::ParsePostfix(NodePtr node) {
  for (;;) {
    if (IsOperator(".")) {
      ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (IsOperator("[")) {
      ASSIGN_OR_RETURN(node, ParseItem(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> ExpressionParser::ParseAttribute(NodePtr object) {
  NodePtr node = Begin(Kind::kAttribute);
  node->parts.push_back(std::move(object));
  if (Is(Token::Kind::kInteger)) {  // a.0
    node->kind = Kind::kItem;
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParsePrimary());
  } else {
    ASSIGN_OR_RETURN(node->name, ExpectName("a name or a number"));
  }
  return Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseItem(NodePtr object) {
  NodePtr node = Begin(Kind::kItem);
  node->parts.push_back(std::move(object));
  node->parts.emplace_back();
  if (!IsOperator(":")) {
    ASSIGN_OR_RETURN(node->parts.back(), ParseExpression());
  }
  while (IsOperator(":") && node->parts.size() < 4) {
    node->kind = Kind::kSlice;
    Next();
    node->parts.emplace_back();
    if (!IsOperator(":") && !IsOperator("]")) {
      ASSIGN_OR_RETURN(node->parts.back(), ParseExpression());
    }
  }
  if (node->kind == Kind::kSlice) node->parts.resize(4);
  RETURN_IF_ERROR(ExpectOperator("]"));
  return Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseCall(NodePtr callee) {
  NodePtr node = Make(Kind::kCall);
  node->parts.push_back(std::move(callee));
  RETURN_IF_ERROR(ParseArguments(&node->arguments));
  return Measured(std::move(node));
}

absl::Status ExpressionParser::ParseArguments(CallArguments* arguments) {
  RETURN_IF_ERROR(ExpectOperator("("));
  while (!IsOperator(")")) {
    const bool is_list = TakeOperator("*");
    const bool is_dict = !is_list && TakeOperator("**");
    const bool is_named =
        Is(Token::Kind::kName) && next().kind == Token::Kind::kOperator && next().text == "=";
    const bool has_rest = arguments->list != nullptr || arguments->dict != nullptr;
    if (is_list && !has_rest) {
      ASSIGN_OR_RETURN(arguments->list, ParseExpression());
    } else if (is_dict && arguments->dict == nullptr) {
      ASSIGN_OR_RETURN(arguments->dict, ParseExpression());
    } else if (is_named && arguments->dict == nullptr) {
      std::string name = current().text;
      Next();
      Next();
      ASSIGN_OR_RETURN(NodePtr value, ParseExpression());
      arguments->named.emplace_back(std::move(name), std::move(value));
    } else if (!has_rest && arguments->named.empty() && !is_list && !is_dict) {
      ASSIGN_OR_RETURN(arguments->positional.emplace_back(), ParseExpression());
    } else {
      return Error("positional arguments, then named arguments, then **dictionary");
    }
    if (!TakeOperator(",")) break;
  }
  return ExpectOperator(")");
}

// ---- Filters and tests ----

absl::StatusOr<NodePtr> ExpressionParser::ParseFiltersAndTests(NodePtr node) {
  for (;;) {
    if (IsOperator("|")) {
      ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (IsName("is")) {
      ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<NodePtr> ExpressionParser::ParseFilters(NodePtr value) {
  while (TakeOperator("|")) {
    ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
  }
  return value;
}

absl::StatusOr<NodePtr> ExpressionParser::ParseFilter(NodePtr value) {
  NodePtr node = Make(Kind::kFilter);
  node->parts.push_back(std::move(value));
  ASSIGN_OR_RETURN(node->name, ExpectName("the name of a filter"));
  node->builtin = FindFilter(node->name);
  if (IsOperator("(")) RETURN_IF_ERROR(ParseArguments(&node->arguments));
  return Measured(std::move(node));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseTest(NodePtr value) {
  NodePtr node = Begin(Kind::kTest);
  node->parts.push_back(std::move(value));
  node->flag = TakeName("not");
  ASSIGN_OR_RETURN(node->name, ExpectName("the name of a test"));
  node->builtin = FindTest(node->name);
  const auto is_operand = [&] {
    switch (current().kind) {
      case Token::Kind::kName:
        return !IsName("else") && !IsName("or") && !IsName("and");
      case Token::Kind::kString:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat:
        return true;
      default:
        return IsOperator("[") || IsOperator("{");
    }
  };
  if (IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(&node->arguments));
  } else if (IsName("is")) {
    return Error("two tests joined with `and`");
  } else if (is_operand()) {
    ASSIGN_OR_RETURN(NodePtr operand, ParsePrimary());
    ASSIGN_OR_RETURN(node->arguments.positional.emplace_back(), ParsePostfix(std::move(operand)));
  }
  return Measured(std::move(node));
}

// ---- Targets ----

absl::StatusOr<NodePtr> ExpressionParser::ParseTarget(TargetStyle style) {
  NodePtr tuple = Make(Kind::kTuple);
  bool has_comma = false;
  do {
    const bool is_end =
        Is(Token::Kind::kBlockEnd) || (!style.end.empty() && current().text == style.end);
    if (is_end && has_comma) break;
    ASSIGN_OR_RETURN(tuple->parts.emplace_back(), ParseOneTarget(style.has_members));
    // `with a = 1, b = 2` has two targets, while `set a, b = 1, 2` has one.
    if (style.end == "=" || !TakeOperator(",")) break;
    has_comma = true;
  } while (true);
  if (!has_comma) return std::move(tuple->parts[0]);
  return Measured(std::move(tuple));
}

absl::StatusOr<NodePtr> ExpressionParser::ParseOneTarget(bool has_members) {
  RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Leave(); };
  if (TakeOperator("(")) {
    ASSIGN_OR_RETURN(NodePtr inner, ParseTarget({.end = ")", .has_members = has_members}));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  NodePtr node = Make(Kind::kName);
  ASSIGN_OR_RETURN(node->name, ExpectName("a name to assign to"));
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (node->name == constant) {
      return SyntaxError(node->line, "found an assignment to ", node->name,
                         ", allowed: any other name");
    }
  }
  if (has_members && TakeOperator(".")) {
    node->kind = Kind::kMember;
    ASSIGN_OR_RETURN(node->names.emplace_back(), ExpectName("a member of the namespace"));
  }
  return node;
}

}  // namespace tandem::jinja
