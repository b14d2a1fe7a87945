// Constraints by XGrammar.
#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/status_macros.h"
#include "model/constraint/grammar_engine.h"
#include "model/constraint/work_budget.h"
#include "model/formats/json_value.h"
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

// What following one output may take of a processor, on the engine's thread: this on average, and
// more for some tokens as long as the credit lasts. Common schemas take .02 ms a token.
constexpr absl::Duration kTimePerToken = absl::Milliseconds(50);
constexpr absl::Duration kMostCredit = absl::Seconds(1);

class XGrammarState final : public ConstraintState {
 public:
  explicit XGrammarState(xgrammar::GrammarMatcher matcher, int vocab_size)
      : matcher_(std::move(matcher)), mask_(xgrammar::GetBitmaskSize(vocab_size)) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    auto clone = std::make_unique<XGrammarState>(*this);
    if (matcher_.has_value()) clone->matcher_ = matcher_->Fork();
    return clone;
  }

  bool Accept(TokenId token) override {
    bool is_accepted = false;
    credit_ = std::min(credit_ + kTimePerToken, kMostCredit);
    Follow([&] { is_accepted = !matcher_->IsTerminated() && matcher_->AcceptToken(token); });
    return is_accepted;
  }

  void Undo() override {
    Follow([&] { matcher_->Rollback(1); });
  }

  absl::Span<const uint32_t> Allowed() override {
    std::fill(mask_.begin(), mask_.end(), 0);
    Follow([&] {
      if (!matcher_->IsTerminated()) FillMask();
    });
    if (!status_.ok()) std::fill(mask_.begin(), mask_.end(), 0);
    return mask_;
  }

  std::string Forced() override {
    std::string forced;
    Follow([&] {
      if (!matcher_->IsTerminated()) forced = matcher_->FindJumpForwardString();
    });
    return forced;
  }

  absl::Status status() const override { return status_; }

 private:
  void FillMask() {
    int64_t size = static_cast<int64_t>(mask_.size());
    DLTensor tensor{.data = mask_.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    matcher_->FillNextTokenBitmask(&tensor);
  }

  // Does the work within what is left. What is cut short leaves a matcher that nobody may use.
  void Follow(absl::FunctionRef<void()> work) {
    if (!matcher_.has_value()) return;
    WorkBudget budget({.time = credit_});
    try {
      work();
    } catch (const WorkBudget::Spent&) {
      matcher_.reset();
      status_ = FieldError(
          "constraint", budget.is_out_of_time()
                            ? absl::StrCat("cannot be followed: it takes more than ",
                                           absl::FormatDuration(kTimePerToken), " for each token")
                            : absl::StrCat("cannot be followed: it ", budget.status().message()));
    }
    credit_ -= budget.time();
  }

  std::optional<xgrammar::GrammarMatcher> matcher_;  // a handle: copies are the same matcher
  std::vector<uint32_t> mask_;
  absl::Duration credit_ = kMostCredit;
  absl::Status status_;
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
      : tokenizer_(tokenizer), compiler_(CompilerFor(tokenizer)) {}

  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const OutputConstraint& constraint, const WorkBudget::Limits& limits) const override {
    warnings.clear();
    const Compiler compiler = CompilerWith(constraint.tokens);
    WorkBudget budget(limits);
    try {
      auto grammar = std::make_shared<XGrammarGrammar>(CompileOrThrow(constraint, compiler));
      if (!warnings.empty()) return absl::InvalidArgumentError(warnings);
      return grammar;
    } catch (const std::bad_alloc&) {
      RETURN_IF_ERROR(budget.status());
      return absl::ResourceExhaustedError("needs more memory than there is");
    } catch (const std::exception& error) {
      RETURN_IF_ERROR(budget.status());
      return absl::InvalidArgumentError(error.what());
    }
  }

 private:
  using Compiler = std::shared_ptr<xgrammar::GrammarCompiler>;  // thread-safe

  // One thread: whoever calls decides how many. What is compiled is kept by the caller.
  static Compiler CompilerFor(const xgrammar::TokenizerInfo& tokenizer) {
    return std::make_shared<xgrammar::GrammarCompiler>(tokenizer, /*max_threads=*/1,
                                                       /*cache_enabled=*/false);
  }

  // For a vocabulary in which these special tokens have a text, without which grammars cannot name
  // them; as it is no beginning of UTF-8, no grammar of characters has it.
  Compiler CompilerWith(const std::vector<TokenId>& tokens) const {
    if (tokens.empty()) return compiler_;
    constexpr size_t kMostKept = 4;  // a model has one or two sets of markers
    const absl::MutexLock lock(&mutex_);
    const auto it = absl::c_find_if(with_tokens_, [&](const auto& e) { return e.first == tokens; });
    if (it != with_tokens_.end()) return it->second;
    std::vector<std::string> texts = tokenizer_.GetDecodedVocab();
    for (const TokenId token : tokens) {
      if (static_cast<size_t>(token) < texts.size()) texts[token] = absl::StrCat("\xff", token);
    }
    if (with_tokens_.size() == kMostKept) with_tokens_.erase(with_tokens_.begin());
    with_tokens_.emplace_back(tokens, CompilerFor(xgrammar::TokenizerInfo(
                                          texts, xgrammar::VocabType::RAW,
                                          tokenizer_.GetVocabSize(), std::vector<int>())));
    return with_tokens_.back().second;
  }

  static xgrammar::CompiledGrammar CompileOrThrow(const OutputConstraint& constraint,
                                                  const Compiler& compiler) {
    switch (constraint.kind) {
      case OutputConstraint::Kind::kJsonObject:
        return CompileSchema(R"({"type": "object"})", /*is_strict=*/false, compiler);
      case OutputConstraint::Kind::kJsonSchema:
        return CompileSchema(constraint.text, constraint.is_strict, compiler);
      case OutputConstraint::Kind::kRegex:
        return compiler->CompileRegex(constraint.text);
      case OutputConstraint::Kind::kChoice:
        return compiler->CompileGrammar(ChoiceGrammar(constraint.choices));
      case OutputConstraint::Kind::kGrammar:
        return compiler->CompileGrammar(constraint.text);
      case OutputConstraint::Kind::kStructuralTag: {
        auto tag = JsonValue::parse(constraint.text);
        SchemasToGrammars(&tag);
        return compiler->CompileStructuralTag(
            JsonValue{{"type", "structural_tag"}, {"format", tag}}.dump());
      }
    }
    TANDEM_CHECK(false);
  }
  static xgrammar::CompiledGrammar CompileSchema(const std::string& schema, bool is_strict,
                                                 const Compiler& compiler) {
    // In one line, as `{"a": 1, "b": 2}`: white space would be tokens that say nothing, and without
    // end where a model likes them.
    return compiler->CompileJSONSchema(schema, /*any_whitespace=*/false, /*indent=*/std::nullopt,
                                       /*separators=*/std::nullopt, is_strict);
  }

  const xgrammar::TokenizerInfo tokenizer_;
  const Compiler compiler_;
  mutable absl::Mutex mutex_;
  mutable std::vector<std::pair<std::vector<TokenId>, Compiler>> with_tokens_
      ABSL_GUARDED_BY(mutex_);
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
