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

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<Nodes> Run() { return ParseBody({}); }

 private:
  // Parses up to a tag with one of the names `ends`, which is then the current token. If `ends` is
  // empty, parses to the end of the template.
  absl::StatusOr<Nodes> ParseBody(Names ends) {
    RETURN_IF_ERROR(Enter());
    const absl::Cleanup leave = [this] { Leave(); };
    Nodes body;
    for (;;) {
      const Token& token = current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) return body;
        return Error(absl::StrCat("a tag ", View(*(ends.end() - 1))));
      }
      if (token.kind == Token::Kind::kData) {
        NodePtr text = Make(Kind::kText);
        text->value = Value::Own(token.text);
        Next();
        body.push_back(std::move(text));
      } else if (token.kind == Token::Kind::kVariableBegin) {
        Next();
        ASSIGN_OR_RETURN(body.emplace_back(), ParseOutput(Token::Kind::kVariableEnd));
        RETURN_IF_ERROR(Expect(Token::Kind::kVariableEnd, "}}"));
      } else {
        Next();
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view end) { return IsName(end); })) {
          return body;
        }
        ASSIGN_OR_RETURN(body.emplace_back(), ParseStatement());
        RETURN_IF_ERROR(Expect(Token::Kind::kBlockEnd, "%}"));
      }
    }
  }

  // Parses the rest of a tag, and the body between it and a tag with one of the names `ends`.
  absl::StatusOr<Nodes> ParseBlock(Names ends) {
    TakeOperator(":");
    RETURN_IF_ERROR(Expect(Token::Kind::kBlockEnd, "%}"));
    return ParseBody(ends);
  }
  // Parses such a body with a single end tag, and moves past the end tag's name.
  absl::StatusOr<NodePtr> ParseLastBlock(std::string_view end, NodePtr node) {
    ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({end}));
    Next();
    return Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseOutput(Token::Kind end) {
    NodePtr output = Make(Kind::kOutput);
    if (end == Token::Kind::kVariableEnd) {
      ASSIGN_OR_RETURN(output->parts.emplace_back(), ParseTuple({}));
    } else {
      while (!Is(end)) {
        if (!output->parts.empty()) RETURN_IF_ERROR(ExpectOperator(","));
        ASSIGN_OR_RETURN(output->parts.emplace_back(), ParseExpression());
      }
    }
    return Measured(std::move(output));
  }

  absl::StatusOr<NodePtr> ParseStatement() {
    constexpr std::array<std::string_view, 6> kOthers = {"include", "import", "from",
                                                         "extends", "block",  "autoescape"};
    if (!Is(Token::Kind::kName)) return Error("the name of a tag");
    const std::string name = current().text;
    if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end()) {
      return absl::UnimplementedError(absl::StrCat("line ", current().line, ": found the tag ",
                                                   name, ", allowed: the tags of chat templates"));
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
      Next();
      return ParseOutput(Token::Kind::kBlockEnd);
    }
    if (name == "break" || name == "continue") {
      if (num_loops_ == 0) return Error("this tag only inside a loop");
      Next();
      return Make(name == "break" ? Kind::kBreak : Kind::kContinue);
    }
    return Error("if, for, set, macro, call, filter, with, generation, break or continue");
  }

  absl::StatusOr<NodePtr> ParseIf() {
    NodePtr node = Make(Kind::kIf);
    while (IsName("if") || IsName("elif")) {
      Next();
      ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseTuple({.has_choice = false}));
      ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"elif", "else", "endif"}));
    }
    if (IsName("else")) {
      Next();
      ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"endif"}));
    }
    Next();
    return Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseFor() {
    NodePtr node = Begin(Kind::kFor);
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseTarget({.end = "in"}));
    if (!TakeName("in")) return Error("in");
    ASSIGN_OR_RETURN(node->parts.emplace_back(),
                     ParseTuple({.has_choice = false, .end = "recursive"}));
    node->parts.emplace_back();
    if (TakeName("if")) {
      ASSIGN_OR_RETURN(node->parts.back(), ParseExpression());
    }
    if (IsName("recursive")) {
      return absl::UnimplementedError(
          absl::StrCat("line ", node->line, ": found a recursive loop, allowed: plain loops"));
    }
    ++num_loops_;
    ASSIGN_OR_RETURN(node->bodies.emplace_back(), ParseBlock({"else", "endfor"}));
    --num_loops_;
    node->bodies.emplace_back();
    if (TakeName("else")) {
      ASSIGN_OR_RETURN(node->bodies.back(), ParseBlock({"endfor"}));
    }
    Next();
    return Measured(std::move(node));
  }

  absl::StatusOr<NodePtr> ParseSet() {
    NodePtr node = Begin(Kind::kSet);
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseTarget({.has_members = true}));
    node->parts.emplace_back();
    if (TakeOperator("=")) {
      ASSIGN_OR_RETURN(node->parts.back(), ParseTuple({}));
      return Measured(std::move(node));
    }
    node->kind = Kind::kSetBlock;
    if (IsOperator("|")) {
      ASSIGN_OR_RETURN(node->parts.back(), ParseFilters(nullptr));
    }
    return ParseLastBlock("endset", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseMacro() {
    NodePtr node = Begin(Kind::kMacro);
    ASSIGN_OR_RETURN(node->name, ExpectName("the name of a macro"));
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
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!IsOperator(")")) {
      if (!node->names.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(node->names.emplace_back(), ExpectName("a parameter"));
      if (TakeOperator("=")) {
        ASSIGN_OR_RETURN(node->defaults.emplace_back(), ParseExpression());
      } else if (!node->defaults.empty()) {
        return Error("a parameter with a default value, like those before it");
      }
    }
    return ExpectOperator(")");
  }

  absl::StatusOr<NodePtr> ParseCallBlock() {
    NodePtr node = Make(Kind::kCallBlock);
    node->name = "caller";
    Next();
    if (IsOperator("(")) RETURN_IF_ERROR(ParseSignature(node.get()));
    ASSIGN_OR_RETURN(NodePtr call, ParseExpression());
    if (call->kind != Kind::kCall) return Error("a call of a macro");
    node->parts.push_back(std::move(call));
    return ParseMacroBody("endcall", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseFilterBlock() {
    NodePtr node = Begin(Kind::kFilterBlock);
    ASSIGN_OR_RETURN(NodePtr filter, ParseFilter(nullptr));
    ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseFilters(std::move(filter)));
    return ParseLastBlock("endfilter", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseWith() {
    NodePtr node = Begin(Kind::kWith);
    while (!Is(Token::Kind::kBlockEnd)) {
      if (!node->parts.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseTarget({.end = "="}));
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(node->parts.emplace_back(), ParseExpression());
    }
    return ParseLastBlock("endwith", std::move(node));
  }

  absl::StatusOr<NodePtr> ParseGeneration() {
    NodePtr node = Begin(Kind::kBody);
    return ParseLastBlock("endgeneration", std::move(node));
  }

  int num_loops_ = 0;  // loops around the current tag
};

}  // namespace

absl::StatusOr<Nodes> ParseTemplate(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tandem::jinja
