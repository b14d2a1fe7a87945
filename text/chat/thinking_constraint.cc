#include "text/chat/thinking_constraint.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

using Rules = ThinkingConstraint::Rules;

constexpr char kField[] = "max_thinking_tokens";

// Returns how many bytes of the current character are missing after `byte`, if `missing` were
// before it.
int MissingAfter(char byte, int missing) {
  const auto value = static_cast<unsigned char>(byte);
  if (value < 0x80) return 0;
  if (value < 0xC0) return std::max(missing - 1, 0);
  return value < 0xE0 ? 1 : value < 0xF0 ? 2 : 3;
}

// The position in an answer after some of its tokens.
struct Place {
  enum class Stage : char { kBefore, kThinking, kOver };
  Stage stage = Stage::kBefore;
  bool is_line_end = false;  // the reasoning so far ends with a line
  char num_missing = 0;      // bytes of its last character
  int num_matched = 0;       // bytes of the next marker
  int num_tokens = 0;        // of the reasoning
  int num_forced = 0;        // tokens of the end marker
};

Place PlaceAt(ReasoningStart start) {
  switch (start) {
    case ReasoningStart::kNone:
      return {.stage = Place::Stage::kOver};
    case ReasoningStart::kMayBegin:
      return {.stage = Place::Stage::kBefore};
    case ReasoningStart::kInside:
    case ReasoningStart::kContinues:
      return {.stage = Place::Stage::kThinking};
  }
  TANDEM_CHECK(false);
}

// The first byte of a marker does not occur in it again (ReasoningSplitter).
void Read(char byte, const ReasoningFormat& format, Place* place) {
  const std::string_view marker = place->stage == Place::Stage::kBefore ? format.begin : format.end;
  if (place->stage == Place::Stage::kOver) return;
  const bool goes_on = byte == marker[place->num_matched];
  if (!goes_on && place->num_matched > 0 && place->stage == Place::Stage::kThinking) {
    place->num_matched = 0;
    return Read(byte, format, place);
  }
  if (goes_on) {
    place->is_line_end = false;
    place->num_missing = 0;
    if (++place->num_matched < static_cast<int>(marker.size())) return;
    place->num_matched = 0;
    place->stage =
        place->stage == Place::Stage::kBefore ? Place::Stage::kThinking : Place::Stage::kOver;
  } else if (place->stage == Place::Stage::kThinking) {
    place->is_line_end = byte == '\n';
    place->num_missing = static_cast<char>(MissingAfter(byte, place->num_missing));
  } else if (place->num_matched > 0 || !absl::ascii_isspace(static_cast<unsigned char>(byte))) {
    place->stage = Place::Stage::kOver;  // an answer without reasoning
  }
}

class ThinkingState final : public ConstraintState {
 public:
  ThinkingState(std::shared_ptr<const Rules> rules,
                std::shared_ptr<const std::vector<uint32_t>> everything,
                std::unique_ptr<ConstraintState> inner)
      : rules_(std::move(rules)),
        everything_(std::move(everything)),
        inner_(std::move(inner)),
        places_({PlaceAt(rules_->markers.start)}) {}

  std::unique_ptr<ConstraintState> Clone() const override {
    auto clone = std::make_unique<ThinkingState>(rules_, everything_,
                                                 inner_ == nullptr ? nullptr : inner_->Clone());
    clone->places_ = places_;
    return clone;
  }

  bool Accept(TokenId token) override {
    if (token < 0 || token >= rules_->vocab_size) return false;
    if (IsForcing() && token != Rest().front()) return false;
    places_.push_back(After(token));
    absl::Cleanup undo = [this] { places_.pop_back(); };
    if (inner_ != nullptr && !inner_->Accept(token)) return false;
    std::move(undo).Cancel();
    return true;
  }

  void Undo() override {
    if (inner_ != nullptr) inner_->Undo();
    places_.pop_back();
  }

  void Commit() override {
    if (inner_ != nullptr) inner_->Commit();
    places_.erase(places_.begin(), places_.end() - 1);
  }

  absl::Span<const uint32_t> Allowed() override {
    const absl::Span<const uint32_t> inner =
        inner_ == nullptr ? absl::MakeConstSpan(*everything_) : inner_->Allowed();
    if (!IsForcing()) return inner;
    forced_.assign(everything_->size(), 0);
    const TokenId token = Rest().front();
    const size_t word = token / 32;
    const uint32_t bit = uint32_t{1} << (token % 32);
    if (word < inner.size()) forced_[word] = inner[word] & bit;
    return forced_;
  }

  std::string Forced() override { return inner_ == nullptr || IsForcing() ? "" : inner_->Forced(); }

  std::vector<TokenId> ForcedTokens() override {
    if (IsForcing()) return {Rest().begin(), Rest().end()};
    return inner_ == nullptr ? std::vector<TokenId>() : inner_->ForcedTokens();
  }

  int num_free() const override {
    const Place& place = places_.back();
    if (inner_ != nullptr) return 0;
    switch (place.stage) {
      case Place::Stage::kBefore:  // the next token may complete the first marker
        return rules_->max_tokens;
      case Place::Stage::kThinking:
        return std::max(rules_->max_tokens - place.num_tokens, 0);
      case Place::Stage::kOver:
        return std::numeric_limits<int>::max();
    }
    TANDEM_CHECK(false);
  }

  absl::Status status() const override {
    return inner_ == nullptr ? absl::OkStatus() : inner_->status();
  }
  absl::Duration work() const override {
    return inner_ == nullptr ? absl::ZeroDuration() : inner_->work();
  }
  bool may_draft() const override { return inner_ == nullptr || inner_->may_draft(); }

 private:
  // Whether the next token must be one of the end marker.
  bool IsForcing() const {
    const Place& place = places_.back();
    if (place.stage != Place::Stage::kThinking) return false;
    if (place.num_forced > 0) return true;
    if (place.num_tokens < rules_->max_tokens) return false;
    const int num_over = place.num_tokens - rules_->max_tokens - rules_->window;
    // A character has at most three more bytes, and each may be a token.
    return place.is_line_end || num_over >= (place.num_missing > 0 ? 3 : 0);
  }

  // The tokens that are left to force. REQUIRES: IsForcing().
  absl::Span<const TokenId> Rest() const {
    const Place& place = places_.back();
    return absl::MakeConstSpan(rules_->closings[place.num_matched]).subspan(place.num_forced);
  }

  Place After(TokenId token) const {
    Place next = places_.back();
    if (next.stage == Place::Stage::kOver) return next;
    if (IsForcing()) {
      ++next.num_forced;
      if (Rest().size() == 1) next.stage = Place::Stage::kOver;
      return next;
    }
    if (next.stage == Place::Stage::kThinking) ++next.num_tokens;
    for (const char byte : rules_->text_of(token)) Read(byte, rules_->markers.format, &next);
    return next;
  }

  const std::shared_ptr<const Rules> rules_;
  const std::shared_ptr<const std::vector<uint32_t>> everything_;
  const std::unique_ptr<ConstraintState> inner_;  // or null
  std::vector<Place> places_;  // after the last committed token, and after each token since
  std::vector<uint32_t> forced_;
};

// Returns the tokens of `text` if the bytes of the tokens are `text`, after white space if
// `may_begin_white`; else nothing.
std::vector<TokenId> TokensOf(std::string_view text, bool may_begin_white,
                              const Tokenizer& tokenizer) {
  if (const TokenId id = tokenizer.IdOf(text); id >= 0) return {id};
  absl::StatusOr<std::vector<TokenId>> tokens = tokenizer.Encode(text, SpecialTokens::kPlain);
  if (!tokens.ok()) return {};
  std::string bytes;
  for (const TokenId id : *tokens) {
    if (const auto piece = tokenizer.TextOf(id, /*is_first=*/false)) bytes += piece->bytes;
  }
  const bool is_it =
      bytes == text || (may_begin_white && absl::StripLeadingAsciiWhitespace(bytes) == View(text));
  return is_it ? *std::move(tokens) : std::vector<TokenId>();
}

}  // namespace

int ThinkingWindow(int max_tokens) { return std::min(32, max_tokens / 4); }

ThinkingConstraint::ThinkingConstraint(Rules rules, std::shared_ptr<const TokenConstraint> inner)
    : rules_(std::make_shared<const Rules>(std::move(rules))),
      inner_(std::move(inner)),
      everything_(std::make_shared<const std::vector<uint32_t>>((rules_->vocab_size + 31) / 32,
                                                                ~uint32_t{0})) {
  TANDEM_CHECK(rules_->closings.size() == rules_->markers.format.end.size());
}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> ThinkingConstraint::Make(
    const ThinkingBudget& budget, const Tokenizer& tokenizer, int vocab_size,
    std::shared_ptr<const TokenConstraint> inner) {
  RETURN_IF_ERROR(CheckWithin(kField, budget.max_tokens, {.low = 0}));
  const ReasoningFormat& format = budget.markers.format;
  Rules rules{.markers = budget.markers,
              .max_tokens = budget.max_tokens,
              .window = ThinkingWindow(budget.max_tokens),
              .vocab_size = vocab_size};
  for (size_t i = 0; i < format.end.size(); ++i) {
    std::vector<TokenId> tokens =
        TokensOf(format.end.substr(i), /*may_begin_white=*/i == 0, tokenizer);
    const bool is_known = std::all_of(tokens.begin(), tokens.end(),
                                      [=](TokenId id) { return 0 <= id && id < vocab_size; });
    if (!is_known) tokens.clear();
    if (tokens.empty() && i == 0) {
      return FieldError(kField, absl::StrCat("the model's vocabulary cannot write ",
                                             View(format.end), ", which ends its reasoning"));
    }
    // A beginning that cannot be completed stays in the reasoning, before a whole marker.
    rules.closings.push_back(tokens.empty() ? rules.closings.front() : std::move(tokens));
  }
  rules.text_of = [&tokenizer, begin = tokenizer.IdOf(format.begin),
                   end = tokenizer.IdOf(format.end)](TokenId id) -> std::string_view {
    const bool is_hidden = tokenizer.IsSpecial(id) && id != begin && id != end;
    const auto text = is_hidden ? std::nullopt : tokenizer.TextOf(id, /*is_first=*/false);
    return text.has_value() ? text->bytes : std::string_view();
  };
  return std::make_shared<const ThinkingConstraint>(std::move(rules), std::move(inner));
}

std::unique_ptr<ConstraintState> ThinkingConstraint::Begin() const {
  return std::make_unique<ThinkingState>(rules_, everything_,
                                         inner_ == nullptr ? nullptr : inner_->Begin());
}

}  // namespace tandem
