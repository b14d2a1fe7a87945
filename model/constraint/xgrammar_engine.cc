// Constraints by XGrammar.
#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "model/constraint/grammar_engine.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

// What the library warned of in this thread: when it compiles, that it ignores a part of what it
// was given.
thread_local std::string warnings;

}  // namespace
}  // namespace tandem

// The library is built to call these (cmake/xgrammar.sh).
namespace xgrammar {

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  constexpr int kWarning = 1;
  if (level >= kWarning) tandem::warnings = message;
}
[[noreturn]] void LogFatalImpl(const std::string& /*file*/, int /*line*/,
                               const std::string& message) {
  // It unwinds: what failed is caught where it was called.
  std::rethrow_exception(std::make_exception_ptr(std::runtime_error(message)));
}

}  // namespace xgrammar

namespace tandem {
namespace {

class XGrammarState final : public ConstraintState {
 public:
  explicit XGrammarState(xgrammar::GrammarMatcher matcher, int vocab_size)
      : matcher_(std::move(matcher)),
        vocab_size_(vocab_size),
        mask_(xgrammar::GetBitmaskSize(vocab_size)) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<XGrammarState>(matcher_.Fork(), vocab_size_);
  }

  bool Accept(TokenId token) override {
    return !matcher_.IsTerminated() && matcher_.AcceptToken(token);
  }

  void Undo() override { matcher_.Rollback(1); }

  absl::Span<const uint32_t> Allowed() override {
    if (matcher_.IsTerminated()) {
      std::fill(mask_.begin(), mask_.end(), 0);
      return mask_;
    }
    int64_t size = static_cast<int64_t>(mask_.size());
    DLTensor tensor{.data = mask_.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    matcher_.FillNextTokenBitmask(&tensor);
    return mask_;
  }

  std::string Forced() override {
    return matcher_.IsTerminated() ? "" : matcher_.FindJumpForwardString();
  }

 private:
  xgrammar::GrammarMatcher matcher_;
  int vocab_size_;
  std::vector<uint32_t> mask_;
};

class XGrammarConstraint final : public TokenConstraint {
 public:
  XGrammarConstraint(const xgrammar::CompiledGrammar& grammar, std::vector<int> end_tokens)
      : grammar_(grammar), end_tokens_(std::move(end_tokens)) {}

  std::unique_ptr<ConstraintState> Begin() const override {
    return std::make_unique<XGrammarState>(xgrammar::GrammarMatcher(grammar_, end_tokens_),
                                           grammar_.GetTokenizerInfo().GetVocabSize());
  }

 private:
  xgrammar::CompiledGrammar grammar_;
  std::vector<int> end_tokens_;
};

class XGrammarGrammar final : public CompiledGrammar {
 public:
  explicit XGrammarGrammar(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}

  std::shared_ptr<const TokenConstraint> EndingIn(
      absl::Span<const TokenId> end_tokens) const override {
    return std::make_shared<XGrammarConstraint>(
        grammar_, std::vector<int>(end_tokens.begin(), end_tokens.end()));
  }
  int64_t bytes() const override { return static_cast<int64_t>(grammar_.MemorySizeBytes()); }

 private:
  xgrammar::CompiledGrammar grammar_;
};

// A string of the library's EBNF.
std::string EbnfString(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true);
}

std::string ChoiceGrammar(const std::vector<std::string>& choices) {
  return absl::StrCat("root ::= ",
                      absl::StrJoin(choices, " | ", [](std::string* out, const std::string& text) {
                        absl::StrAppend(out, EbnfString(text));
                      }));
}

// Schemas of a structural tag would allow white space without end.
void SchemasToGrammars(JsonValue* tag) {
  if (!tag->is_structured()) return;
  if (!tag->is_object() || !tag->contains("json_schema")) {
    for (JsonValue& inner : *tag) SchemasToGrammars(&inner);
    return;
  }
  const xgrammar::Grammar grammar = xgrammar::Grammar::FromJSONSchema(
      (*tag)["json_schema"].dump(), /*any_whitespace=*/false, /*indent=*/std::nullopt,
      /*separators=*/std::nullopt, /*strict_mode=*/tag->value("strict", true));
  *tag = {{"type", "grammar"}, {"grammar", grammar.ToString()}};
}

class XGrammarEngine final : public GrammarEngine {
 public:
  explicit XGrammarEngine(const xgrammar::TokenizerInfo& tokenizer)
      // One thread: whoever calls decides how many. What is compiled is kept by the caller.
      : compiler_(tokenizer, /*max_threads=*/1, /*cache_enabled=*/false) {}

  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const OutputConstraint& constraint) const override {
    warnings.clear();
    try {
      auto grammar = std::make_shared<XGrammarGrammar>(CompileOrThrow(constraint));
      if (!warnings.empty()) return absl::InvalidArgumentError(warnings);
      return grammar;
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("needs more memory than there is");
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(error.what());
    }
  }

 private:
  xgrammar::CompiledGrammar CompileOrThrow(const OutputConstraint& constraint) const {
    switch (constraint.kind) {
      case OutputConstraint::Kind::kJsonObject:
        return CompileSchema(R"({"type": "object"})", /*is_strict=*/false);
      case OutputConstraint::Kind::kJsonSchema:
        return CompileSchema(constraint.text, constraint.is_strict);
      case OutputConstraint::Kind::kRegex:
        return compiler_.CompileRegex(constraint.text);
      case OutputConstraint::Kind::kChoice:
        return compiler_.CompileGrammar(ChoiceGrammar(constraint.choices));
      case OutputConstraint::Kind::kGrammar:
        return compiler_.CompileGrammar(constraint.text);
      case OutputConstraint::Kind::kStructuralTag: {
        auto tag = JsonValue::parse(constraint.text);
        SchemasToGrammars(&tag);
        return compiler_.CompileStructuralTag(
            JsonValue{{"type", "structural_tag"}, {"format", tag}}.dump());
      }
    }
    TANDEM_CHECK(false);
  }
  xgrammar::CompiledGrammar CompileSchema(const std::string& schema, bool is_strict) const {
    // In one line, as `{"a": 1, "b": 2}`: white space would be tokens that say nothing, and without
    // end where a model likes them.
    return compiler_.CompileJSONSchema(schema, /*any_whitespace=*/false, /*indent=*/std::nullopt,
                                       /*separators=*/std::nullopt, is_strict);
  }

  mutable xgrammar::GrammarCompiler compiler_;  // thread-safe
};

}  // namespace

bool HasGrammarEngine() { return true; }

absl::StatusOr<std::unique_ptr<GrammarEngine>> GrammarEngine::Make(const Tokenizer& tokenizer,
                                                                   int vocab_size) {
  if (!tokenizer.text_rules().separator.empty()) {
    return absl::UnimplementedError(
        "the tokenizer puts a separator between tokens, which constraints cannot");
  }
  std::vector<std::string> texts;
  std::vector<int> special;
  for (TokenId id = 0; id < std::min(tokenizer.vocab_size(), vocab_size); ++id) {
    const auto text = tokenizer.TextOf(id, /*is_first=*/false);
    const bool has_text = text.has_value() && !tokenizer.IsSpecial(id);
    texts.emplace_back(has_text ? text->bytes : "");  // tokens without text are never allowed
  }
  return std::make_unique<XGrammarEngine>(
      xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, vocab_size, special));
}

}  // namespace tandem
