#include "text/chat/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace tandem::jinja {
namespace {

using Kind = Node::Kind;
using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<Nodes> Run() { return ParseBody({}); }

 private:
  bool IsStatement(std::string_view name) const {
    return tokens_.Is(Token::Kind::kName) && tokens_.current().text == name;
  }

  // Parses up to a tag with one of the names `ends`, which is then the current token. If `ends` is
  // empty, parses to the end of the template.
  absl::StatusOr<Nodes> ParseBody(Names ends) {
    RETURN_IF_ERROR(tokens_.Enter());
    const absl::Cleanup leave = [this] { tokens_.Leave(); };
    Nodes body;
    for (;;) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return body;
        return tokens_.Error(absl::StrCat("a tag ", View(*(ends.end() - 1))));
      }
      if (token.kind == Token::Kind::kData) {
        NodePtr text = tokens_.Make(Kind::kText);
        text->value = Value::Own(token.text);
        tokens_.Next();
        body.push_back(std::move(text));
      } else if (token.kind == Token::Kind::kVariableBegin) {
        tokens_.Next();
        ASSIGN_OR_RETURN(body.emplace_back(), ParseOutput(Token::Kind::kVariableEnd));
        RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kVariableEnd, "}}"));
      } else {
        tokens_.Next();
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view end) { return IsStatement(end); })) {
          return body;
        }
        ASSIGN_OR_RETURN(body.emplace_back(), ParseStatement());
        RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "%}"));
      }
    }
  }

  // Parses the rest of a tag, and the body between it and a tag with one of the names `ends`.
  absl::StatusOr<Nodes> ParseBlock(Names ends) {
    tokens_.TakeOperator(":");
    RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "%}"));
    return ParseBody(ends);
  }
  // Parses such a body with a single end tag, and moves past the end tag's name.
  absl::StatusOr<NodePtr> ParseLastBlock(std::string_view end, NodePtr node) {
    ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({end}));
    tokens_.Next();
    return tokens_.Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseOutput(Token::Kind end) {
    NodePtr output = tokens_.Make(Kind::kOutput);
    if (end == Token::Kind::kVariableEnd) {
      ASSIGN_OR_RETURN(output->parts.emplace_back(), expressions_.ParseTuple({}));
    } else {
      while (!tokens_.Is(end)) {
        if (!output->parts.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
        ASSIGN_OR_RETURN(output->parts.emplace_back(), expressions_.ParseExpression());
      }
    }
    return tokens_.Measured(std::move(output));
  }

  absl::StatusOr<NodePtr> ParseStatement() {
    constexpr std::array<std::string_view, 6> kOthers = {"include", "import", "from",
                                                         "extends", "block",  "autoescape"};
    if (!tokens_.Is(Token::Kind::kName)) return tokens_.Error("the name of a tag");
    const std::string name = tokens_.current().text;
    if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end()) {
      return absl::UnimplementedError(absl::StrCat("line ", tokens_.current().line,
                                                   ": found the tag ", name,
                                                   ", allowed: the tags of chat templates"));
    }
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "generation") return ParseGeneration();
    if (name == "print") {
      tokens_.Next();
      return ParseOutput(Token::Kind::kBlockEnd);
    }
    if (name == "break" || name == "continue") {
      if (num_loops_ == 0) return tokens_.Error("this tag only inside a loop");
      tokens_.Next();
      return tokens_.Make(name == "break" ? Kind::kBreak : Kind::kContinue);
    }
    return tokens_.Error("if, for, set, macro, call, filter, with, generation, break or continue");
  }

  absl::StatusOr<NodePtr> ParseIf() {
    NodePtr node = tokens_.Make(Kind::kIf);
    while (IsStatement("if") || IsStatement("elif")) {
      tokens_.Next();
      ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseTuple({.has_choice = false}));
      ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"elif", "else", "endif"}));
    }
    if (IsStatement("else")) {
      tokens_.Next();
      ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"endif"}));
    }
    tokens_.Next();
    return tokens_.Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseFor() {
    NodePtr node = tokens_.Begin(Kind::kFor);
    ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseTarget({.end = "in"}));
    if (!tokens_.TakeName("in")) return tokens_.Error("in");
    ASSIGN_OR_RETURN(node->parts.emplace_back(),
                     expressions_.ParseTuple({.has_choice = false, .end = "recursive"}));
    node->parts.emplace_back();
    if (tokens_.TakeName("if")) {
      ASSIGN_OR_RETURN(node->parts.back(), expressions_.ParseExpression());
    }
    if (IsStatement("recursive")) {
      return absl::UnimplementedError(
          absl::StrCat("line ", node->line, ": found a recursive loop, allowed: plain loops"));
    }
    ++num_loops_;
    ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"else", "endfor"}));
    --num_loops_;
    node->bodies.emplace_back();
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(node->bodies.back(), ParseBlock({"endfor"}));
    }
    tokens_.Next();
    return tokens_.Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseSet() {
    NodePtr node = tokens_.Begin(Kind::kSet);
    ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseTarget({.has_members = true}));
    node->parts.emplace_back();
    if (tokens_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(node->parts.back(), expressions_.ParseTuple({}));
      return tokens_.Measured(std::move(node));
    }
    node->kind = Kind::kSetBlock;
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(node->parts.back(), expressions_.ParseFilters(nullptr));
    }
    return ParseLastBlock("endset", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseMacro() {
    NodePtr node = tokens_.Begin(Kind::kMacro);
    ASSIGN_OR_RETURN(node->name, tokens_.ExpectName("the name of a macro"));
    RETURN_IF_ERROR(ParseSignature(node.get()));
    return ParseMacroBody("endmacro", std::move(node));
  }

  // A macro's body is not inside the loops around the macro.
  absl::StatusOr<NodePtr> ParseMacroBody(std::string_view end, NodePtr node) {
    const int num_loops = std::exchange(num_loops_, 0);
    ASSIGN_OR_RETURN(node, ParseLastBlock(end, std::move(node)));
    num_loops_ = num_loops;
    return node;
  }

  absl::Status ParseSignature(Node* node) {
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.IsOperator(")")) {
      if (!node->names.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(node->names.emplace_back(), tokens_.ExpectName("a parameter"));
      if (tokens_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(node->defaults.emplace_back(), expressions_.ParseExpression());
      } else if (!node->defaults.empty()) {
        return tokens_.Error("a parameter with a default value, like those before it");
      }
    }
    return tokens_.ExpectOperator(")");
  }

  absl::StatusOr<NodePtr> ParseCallBlock() {
    NodePtr node = tokens_.Make(Kind::kCallBlock);
    node->name = "caller";
    tokens_.Next();
    if (tokens_.IsOperator("(")) RETURN_IF_ERROR(ParseSignature(node.get()));
    ASSIGN_OR_RETURN(NodePtr call, expressions_.ParseExpression());
    if (call->kind != Kind::kCall) return tokens_.Error("a call of a macro");
    node->parts.push_back(std::move(call));
    return ParseMacroBody("endcall", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseFilterBlock() {
    NodePtr node = tokens_.Begin(Kind::kFilterBlock);
    ASSIGN_OR_RETURN(NodePtr filter, expressions_.ParseFilter(nullptr));
    ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseFilters(std::move(filter)));
    return ParseLastBlock("endfilter", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseWith() {
    NodePtr node = tokens_.Begin(Kind::kWith);
    while (!tokens_.Is(Token::Kind::kBlockEnd)) {
      if (!node->parts.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseTarget({.end = "="}));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(node->parts.emplace_back(), expressions_.ParseExpression());
    }
    return ParseLastBlock("endwith", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseGeneration() {
    NodePtr node = tokens_.Begin(Kind::kBody);
    return ParseLastBlock("endgeneration", std::move(node));
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int num_loops_ = 0;  // loops around the current tag
};

}  // namespace

absl::StatusOr<Nodes> ParseTemplate(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tandem::jinja
