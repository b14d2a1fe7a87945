// The grammar engine that uses XGrammar.
#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "tandem/types.h"
#include "text/constraint/constraint_source.h"
#include "text/constraint/grammar_engine.h"
#include "text/constraint/string_lengths.h"
#include "text/constraint/work_budget.h"

namespace tandem {
namespace {

// The library's last warning on this thread. While it compiles, a warning means that it ignores a
// part of the constraint.
thread_local std::string warnings;

}  // namespace
}  // namespace tandem

// The library is built so that it calls these functions (cmake/xgrammar.sh).
namespace xgrammar {

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
  constexpr int kWarning = 1;
  if (level >= kWarning) tandem::warnings = message;
}
[[noreturn]] void LogFatalImpl(const std::string& /*file*/, int /*line*/,
                               const std::string& message) {
  // Unwind to the call of the library, which catches the exception.
  std::rethrow_exception(std::make_exception_ptr(std::runtime_error(message)));
}

}  // namespace xgrammar

namespace tandem {
namespace {

// The bounds and token properties that the matchers of one grammar look up. Immutable.
class StringBounds {
 public:
  // `lengths` are those of the rules with the marks 1, 2, ...; `texts` are those of the tokens.
  StringBounds(std::vector<LengthRanges> lengths, const std::vector<std::string>& texts)
      : lengths_(std::move(lengths)) {
    num_characters_.reserve(texts.size());
    for (size_t v = 0; v < texts.size(); ++v) {
      StringProgress string;
      bool has_quote = false;
      for (const char byte : texts[v]) {
        has_quote |= byte == '"';
        if (!string.has_ended()) string.Add(byte);
      }
      if (has_quote) tokens_with_quotes_.push_back(static_cast<TokenId>(v));
      num_characters_.push_back(has_quote ? -1 : static_cast<int>(string.num_characters()));
      max_characters_ = std::max(max_characters_, num_characters_.back());
    }
  }

  const LengthRanges& OfMark(int mark) const { return lengths_[mark - 1]; }
  bool HasMark(int mark) const { return mark > 0 && mark <= static_cast<int>(lengths_.size()); }
  bool HasQuote(TokenId token) const { return num_characters_[token] < 0; }
  const std::vector<TokenId>& tokens_with_quotes() const { return tokens_with_quotes_; }
  // [vocab] the number of characters that a token adds to a string; -1 for tokens with quotes.
  const std::vector<int>& num_characters() const { return num_characters_; }
  int max_characters() const { return max_characters_; }

 private:
  std::vector<LengthRanges> lengths_;
  std::vector<int> num_characters_;
  std::vector<TokenId> tokens_with_quotes_;
  int max_characters_ = 0;
};

// A grammar whose texts end with one of some tokens.
struct EndingGrammar {
  xgrammar::CompiledGrammar grammar;
  std::vector<int> end_tokens;
  std::shared_ptr<const StringBounds> bounds;  // null: no rule has a mark
};

// The state of one output: XGrammar's matcher, and the characters of strings whose lengths its
// grammar leaves open. Copies share the matcher, as XGrammar's do; Fork makes an independent one. A
// matcher must not be used after a function has thrown (WorkBudget).
class BoundedMatcher {
 public:
  // `grammar` must outlive the matcher.
  explicit BoundedMatcher(const EndingGrammar& grammar)
      : matcher_(grammar.grammar, grammar.end_tokens),
        bounds_(grammar.bounds.get()),
        texts_(&grammar.grammar.GetTokenizerInfo().GetDecodedVocab()) {}
  BoundedMatcher Fork() const {
    BoundedMatcher fork = *this;
    fork.matcher_ = matcher_.Fork();
    return fork;
  }

  bool IsTerminated() const { return matcher_.IsTerminated(); }
  // Returns false and changes nothing if the token is not allowed next.
  bool Accept(TokenId token) {
    Step step{.num_steps = 1};
    if (bounds_ != nullptr && token >= 0 && static_cast<size_t>(token) < texts_->size()) {
      if (!steps_.empty()) step.place = steps_.back().place;
      if (bounds_->HasQuote(token)) {
        std::vector<Place> places;
        if (!AcceptBytes((*texts_)[token], &places)) return false;
        steps_.push_back({.num_steps = static_cast<int>(places.size()), .place = places.back()});
        return true;
      }
      if (step.place.mark > 0) {
        for (const char byte : (*texts_)[token]) step.place.string.Add(byte);
        if (!AreWithin(bounds_->OfMark(step.place.mark), step.place.string)) return false;
      }
    }
    if (!matcher_.AcceptToken(token)) return false;
    steps_.push_back(step);
    return true;
  }
  // Undoes the last token. REQUIRES: there is one.
  void Undo() {
    matcher_.Rollback(steps_.back().num_steps);
    steps_.pop_back();
  }
  // Sets bit v % 32 of word v / 32 if token v is allowed next, else clears it.
  // REQUIRES: !IsTerminated().
  void FillMask(absl::Span<uint32_t> mask) {
    auto size = static_cast<int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    matcher_.FillNextTokenBitmask(&tensor);
    if (bounds_ == nullptr) return;
    if (!steps_.empty() && steps_.back().place.mark > 0) ClearLongTokens(mask);
    for (const TokenId token : bounds_->tokens_with_quotes()) {
      const uint32_t bit = uint32_t{1} << (token % 32);
      if ((mask[token / 32] & bit) != 0 && !MayCome(token)) mask[token / 32] &= ~bit;
    }
  }
  std::string Forced() {
    // A string may end at any length within its bounds.
    if (!steps_.empty() && steps_.back().place.mark > 0) return "";
    return matcher_.FindJumpForwardString();
  }

 private:
  // The mark of the current rule, and the state of its string.
  struct Place {
    int mark = 0;
    StringProgress string{};
  };

  int CurrentMark() const {
    const std::optional<float> mark = matcher_.GetTemperature();
    return mark.has_value() && bounds_->HasMark(static_cast<int>(*mark)) ? static_cast<int>(*mark)
                                                                         : 0;
  }
  // Accepts a text byte by byte, because rules with marks may begin and end within it. Returns
  // false and changes nothing if the text is not allowed next.
  bool AcceptBytes(const std::string& text, std::vector<Place>* places) {
    Place place = steps_.empty() ? Place() : steps_.back().place;
    for (const char byte : text) {
      bool may_come = true;
      if (place.mark > 0) {
        place.string.Add(byte);
        may_come = AreWithin(bounds_->OfMark(place.mark), place.string);
      }
      if (!may_come || !matcher_.AcceptString(std::string(1, byte))) {
        matcher_.Rollback(static_cast<int>(places->size()));
        return false;
      }
      const int mark = CurrentMark();
      if (mark != place.mark || place.string.has_ended()) place = {.mark = mark};
      places->push_back(place);
    }
    return true;
  }
  bool MayCome(TokenId token) {
    std::vector<Place> places;
    if (!AcceptBytes((*texts_)[token], &places)) return false;
    matcher_.Rollback(static_cast<int>(places.size()));
    return true;
  }
  // Clears the tokens without quotes that would make the current string too long.
  void ClearLongTokens(absl::Span<uint32_t> mask) const {
    const Place& place = steps_.back().place;
    const int64_t max = bounds_->OfMark(place.mark).back().second;
    const int64_t room = max - place.string.num_characters();
    if (max < 0 || room >= bounds_->max_characters()) return;
    const std::vector<int>& num_characters = bounds_->num_characters();
    for (size_t v = 0; v < num_characters.size(); ++v) {
      if (num_characters[v] <= 0 || (mask[v / 32] >> (v % 32) & 1) == 0) continue;
      bool is_too_long = num_characters[v] > room;
      if (!place.string.is_between_characters()) {
        StringProgress string = place.string;
        for (const char byte : (*texts_)[v]) string.Add(byte);
        is_too_long = string.num_characters() > max;
      }
      if (is_too_long) mask[v / 32] &= ~(uint32_t{1} << (v % 32));
    }
  }

  xgrammar::GrammarMatcher matcher_;
  const StringBounds* bounds_;             // null: no rule has a mark
  const std::vector<std::string>* texts_;  // of the tokens
  struct Step {
    int num_steps = 0;  // steps of the matcher
    Place place{};      // the place after them
  };
  std::vector<Step> steps_;  // one for each token
};

class XGrammarState final : public ConstraintState {
 public:
  explicit XGrammarState(std::shared_ptr<const EndingGrammar> grammar)
      : grammar_(std::move(grammar)),
        matcher_(BoundedMatcher(*grammar_)),
        mask_(xgrammar::GetBitmaskSize(grammar_->grammar.GetTokenizerInfo().GetVocabSize())) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    auto clone = std::make_unique<XGrammarState>(*this);
    if (matcher_.has_value()) clone->matcher_ = matcher_->Fork();
    return clone;
  }

  bool Accept(TokenId token) override {
    if (!status_.ok()) return false;
    bool is_accepted = false;
    const Work work = Follow(account_.LeftForToken(), [&] {
      is_accepted = !matcher_->IsTerminated() && matcher_->Accept(token);
    });
    if (work.status.ok() && !is_accepted) {
      account_.AddDraftWork(work.time);
      return false;
    }
    tokens_.push_back(token);
    account_.AddToken(token, work.time);
    status_ = work.status;
    return true;
  }

  void Undo() override {
    account_.Undo();
    tokens_.pop_back();
    status_ = absl::OkStatus();
    if (!matcher_.has_value()) return;
    account_.AddDraftWork(Within({}, [&] { matcher_->Undo(); }).time);
  }

  void Commit() override { account_.Commit(); }

  absl::Span<const uint32_t> Allowed() override {
    std::fill(mask_.begin(), mask_.end(), 0);
    if (!status_.ok()) return mask_;
    Work work = Follow(account_.LeftForMask(), [&] {
      if (!matcher_->IsTerminated()) matcher_->FillMask(absl::MakeSpan(mask_));
    });
    account_.AddMask(work.time);
    status_ = std::move(work.status);
    if (!status_.ok()) std::fill(mask_.begin(), mask_.end(), 0);
    return mask_;
  }

  std::string Forced() override {
    std::string forced;
    if (!status_.ok()) return forced;
    const Work work = Follow(account_.left_for_drafts(), [&] {
      if (!matcher_->IsTerminated()) forced = matcher_->Forced();
    });
    account_.AddDraftWork(work.time);
    return forced;
  }

  absl::Status status() const override { return status_; }
  absl::Duration work() const override { return work_; }
  bool may_draft() const override { return account_.may_draft(); }

 private:
  struct Work {
    absl::Status status;
    absl::Duration time;
  };

  // Does the work on a matcher that has read `tokens_`, within the time left. Makes the matcher
  // first if it was dropped.
  Work Follow(absl::Duration left, absl::FunctionRef<void()> work) {
    if (!matcher_.has_value()) {
      Work replay = Within({.time = absl::InfiniteDuration()}, [&] {
        matcher_.emplace(*grammar_);
        for (const TokenId token : tokens_) matcher_->Accept(token);
      });
      account_.AddDraftWork(replay.time);
      if (!replay.status.ok()) return {std::move(replay.status), absl::ZeroDuration()};
    }
    return Within({.time = left}, work);
  }

  // Does the work within the limits. Drops the matcher if the work fails or is cut short.
  Work Within(const WorkBudget::Limits& limits, absl::FunctionRef<void()> work) {
    const WorkBudget budget(limits);
    absl::Status status;
    try {
      work();
    } catch (const WorkBudget::Spent&) {
      status = FieldError("constraint", absl::StrCat("cannot be followed: it takes more than ",
                                                     absl::FormatDuration(TimeAccount::kPerToken),
                                                     " for each token"));
    } catch (const std::bad_alloc&) {
      status = Caught("constraint", [] { std::rethrow_exception(std::current_exception()); });
    } catch (const std::exception& error) {
      status = FieldError("constraint", absl::StrCat("cannot be followed: ", error.what()));
    }
    if (!status.ok()) matcher_.reset();
    const absl::Duration time = budget.time();
    work_ += time;
    return {std::move(status), time};
  }

  std::shared_ptr<const EndingGrammar> grammar_;
  std::optional<BoundedMatcher> matcher_;  // a handle: copies are the same matcher
  std::vector<uint32_t> mask_;
  std::vector<TokenId> tokens_;  // the accepted tokens
  TimeAccount account_;
  absl::Duration work_;
  absl::Status status_;  // after the last token
};

class XGrammarConstraint final : public TokenConstraint {
 public:
  explicit XGrammarConstraint(EndingGrammar grammar)
      : grammar_(std::make_shared<const EndingGrammar>(std::move(grammar))) {}

  std::unique_ptr<ConstraintState> Begin() const override {
    return std::make_unique<XGrammarState>(grammar_);
  }

 private:
  std::shared_ptr<const EndingGrammar> grammar_;
};

class XGrammarGrammar final : public CompiledGrammar {
 public:
  XGrammarGrammar(xgrammar::CompiledGrammar grammar, std::vector<LengthRanges> lengths)
      : grammar_(std::move(grammar)) {
    if (lengths.empty()) return;
    bounds_ = std::make_shared<StringBounds>(std::move(lengths),
                                             grammar_.GetTokenizerInfo().GetDecodedVocab());
  }

  std::shared_ptr<const TokenConstraint> EndingIn(
      absl::Span<const TokenId> end_tokens) const override {
    return std::make_shared<XGrammarConstraint>(
        EndingGrammar{grammar_, std::vector<int>(end_tokens.begin(), end_tokens.end()), bounds_});
  }
  int64_t bytes() const override { return static_cast<int64_t>(grammar_.MemorySizeBytes()); }

 private:
  xgrammar::CompiledGrammar grammar_;
  std::shared_ptr<const StringBounds> bounds_;
};

class XGrammarEngine final : public GrammarEngine {
 public:
  explicit XGrammarEngine(const xgrammar::TokenizerInfo& tokenizer)
      : tokenizer_(tokenizer), compiler_(CompilerFor(tokenizer)) {}

  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const OutputConstraint& constraint, const WorkBudget::Limits& limits) const override {
    warnings.clear();
    ASSIGN_OR_RETURN(ConstraintSource source, SourceOf(constraint));
    const Compiler compiler = CompilerWith(constraint.tokens);
    WorkBudget budget(limits);
    try {
      auto grammar = std::make_shared<XGrammarGrammar>(
          source.is_tag ? compiler->CompileStructuralTag(source.text)
                        : compiler->CompileGrammar(source.text),
          std::move(source.lengths));
      if (!warnings.empty()) return absl::InvalidArgumentError(warnings);
      return grammar;
    } catch (const std::bad_alloc&) {
      RETURN_IF_ERROR(budget.status());
      return Caught("constraint", [] { std::rethrow_exception(std::current_exception()); });
    } catch (const std::exception& error) {
      RETURN_IF_ERROR(budget.status());
      return absl::InvalidArgumentError(error.what());
    }
  }

 private:
  using Compiler = std::shared_ptr<xgrammar::GrammarCompiler>;  // thread-safe

  // One thread, because the caller has its own threads. No cache, because the caller keeps
  // grammars.
  static Compiler CompilerFor(const xgrammar::TokenizerInfo& tokenizer) {
    return std::make_shared<xgrammar::GrammarCompiler>(tokenizer, /*max_threads=*/1,
                                                       /*cache_enabled=*/false);
  }

  // Returns a compiler for a vocabulary in which these special tokens have a text: grammars cannot
  // name tokens without one. The texts do not begin like UTF-8, so no grammar of characters matches
  // them.
  Compiler CompilerWith(const std::vector<TokenId>& tokens) const {
    if (tokens.empty()) return compiler_;
    constexpr size_t kMaxKept = 4;  // a model has one or two sets of markers
    const absl::MutexLock lock(&mutex_);
    const auto it = absl::c_find_if(with_tokens_, [&](const auto& e) { return e.first == tokens; });
    if (it != with_tokens_.end()) return it->second;
    std::vector<std::string> texts = tokenizer_.GetDecodedVocab();
    for (const TokenId token : tokens) {
      if (static_cast<size_t>(token) < texts.size()) texts[token] = absl::StrCat("\xff", token);
    }
    if (with_tokens_.size() == kMaxKept) with_tokens_.erase(with_tokens_.begin());
    with_tokens_.emplace_back(tokens, CompilerFor(xgrammar::TokenizerInfo(
                                          texts, xgrammar::VocabType::RAW,
                                          tokenizer_.GetVocabSize(), std::vector<int>())));
    return with_tokens_.back().second;
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
        "constraints do not support tokenizers that put a separator between tokens");
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
