#include "tandem/reasoning.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "text/chat/tool_tags.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr ReasoningFormat kFormats[] = {{}, {.begin = "[THINK]", .end = "[/THINK]"}};

bool IsWhite(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

}  // namespace

std::optional<ReasoningFormat> ReasoningFormat::Of(const ChatTemplate& chat,
                                                   const Tokenizer& tokenizer) {
  if (chat.is_plain()) return std::nullopt;
  for (const ReasoningFormat& format : kFormats) {
    if (chat.Mentions(format.begin) || chat.Mentions(format.end)) return format;
  }
  for (const ReasoningFormat& format : kFormats) {
    if (tokenizer.IdOf(format.begin) >= 0 && tokenizer.IdOf(format.end) >= 0) return format;
  }
  return std::nullopt;
}

std::vector<TokenId> ReasoningFormat::SpecialTokenIds(const Tokenizer& tokenizer) const {
  std::vector<TokenId> ids;
  for (const SpecialMarker& marker : SpecialMarkersAmong({begin, end}, tokenizer)) {
    ids.push_back(marker.second);
  }
  return ids;
}

ReasoningStart ReasoningStartOf(const ReasoningFormat& format, const Tokenizer& tokenizer,
                                absl::Span<const TokenId> prompt) {
  // Enough tokens for a marker and the white space after it, however they are tokenized.
  constexpr size_t kMaxTokens = 32;
  const size_t count = std::min(prompt.size(), kMaxTokens);
  const std::string tail = tokenizer.Decode(prompt.last(count));
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(tail);
  if (absl::EndsWith(end, View(format.begin))) return ReasoningStart::kInside;
  return absl::EndsWith(end, View(format.end)) ? ReasoningStart::kNone : ReasoningStart::kMayBegin;
}

// ---- The text ----

ReasoningSplitter::ReasoningSplitter(const Options& options) : options_(options) {
  switch (options_.start) {
    case ReasoningStart::kNone:
      place_ = Place::kContent;
      break;
    case ReasoningStart::kMayBegin:
      break;
    case ReasoningStart::kInside:
      has_reasoned_ = true;
      break;
    case ReasoningStart::kContinues:
      has_reasoned_ = has_emitted_ = true;
      place_ = Place::kReasoning;
      break;
  }
}

ReasoningStart ReasoningSplitter::StartOfRest() const {
  if (is_over()) return ReasoningStart::kNone;
  return has_reasoned_ ? ReasoningStart::kContinues : ReasoningStart::kMayBegin;
}

AnswerDelta ReasoningSplitter::Push(std::string_view text) {
  AnswerDelta delta;
  for (size_t i = 0; i < text.size(); ++i) {
    if (place_ == Place::kContent) {
      delta.content += text.substr(i);
      break;
    }
    Read(text[i], &delta);
  }
  return delta;
}

AnswerDelta ReasoningSplitter::Finish() {
  AnswerDelta delta;
  if (place_ == Place::kBefore) ContinueWithoutMarker(&delta);
  if (place_ == Place::kReasoning && !marker_.empty()) EmitReasoning(marker_, &delta);
  spaces_.clear();
  marker_.clear();
  return delta;
}

void ReasoningSplitter::Read(char byte, AnswerDelta* delta) {
  switch (place_) {
    case Place::kBefore:
      return ReadBefore(byte, delta);
    case Place::kReasoning:
      return ReadReasoning(byte, delta);
    case Place::kAfter:
      if (IsWhite(byte)) return;
      place_ = Place::kContent;
      [[fallthrough]];
    case Place::kContent:
      delta->content += byte;
      return;
  }
}

void ReasoningSplitter::ReadBefore(char byte, AnswerDelta* delta) {
  const std::string_view begin = options_.format.begin;
  if (marker_.empty() && IsWhite(byte)) {
    spaces_ += byte;
  } else if (byte == begin[marker_.size()]) {
    marker_ += byte;
    if (marker_ != begin) return;
    spaces_.clear();
    marker_.clear();
    has_reasoned_ = true;
    place_ = Place::kReasoning;
  } else {
    ContinueWithoutMarker(delta);
    Read(byte, delta);
  }
}

void ReasoningSplitter::ContinueWithoutMarker(AnswerDelta* delta) {
  const std::string held = std::move(spaces_) + std::move(marker_);
  spaces_.clear();
  marker_.clear();
  if (options_.start == ReasoningStart::kInside) {
    place_ = Place::kReasoning;
    for (const char byte : held) ReadReasoning(byte, delta);
  } else {
    place_ = Place::kContent;
    delta->content += held;
  }
}

// The first byte of a marker does not occur in it again. Held bytes that turn out not to be a
// marker therefore do not contain the beginning of another one.
void ReasoningSplitter::ReadReasoning(char byte, AnswerDelta* delta) {
  const std::string_view end = options_.format.end;
  if (byte == end[marker_.size()]) {
    marker_ += byte;
    if (marker_ != end) return;
    spaces_.clear();
    marker_.clear();
    place_ = Place::kAfter;
    return;
  }
  if (!marker_.empty()) {
    EmitReasoning(std::exchange(marker_, std::string()), delta);
    return ReadReasoning(byte, delta);
  }
  if (IsWhite(byte)) {
    spaces_ += byte;
  } else {
    EmitReasoning({&byte, 1}, delta);
  }
}

void ReasoningSplitter::EmitReasoning(std::string_view text, AnswerDelta* delta) {
  if (has_emitted_) delta->reasoning += spaces_;
  spaces_.clear();
  delta->reasoning += text;
  has_emitted_ = true;
}

// ---- Limits ----

namespace {

// The variables that switch reasoning on and off in templates that do not read the effort: in those
// of Qwen3, SmolLM3 and GLM-4.5, and in those of DeepSeek-V3.1 and Granite.
constexpr std::string_view kSwitches[] = {"enable_thinking", "thinking"};

}  // namespace

absl::StatusOr<std::optional<int>> ThinkingLimitOf(const ChatInput& input, const ChatTemplate& chat,
                                                   const std::optional<ReasoningFormat>& format) {
  if (input.max_thinking_tokens.has_value() && !format.has_value()) {
    return FieldError("max_thinking_tokens",
                      absl::StrCat(*input.max_thinking_tokens,
                                   " is not possible: the model's chat template and vocabulary "
                                   "have no markers of reasoning"));
  }
  if (input.max_thinking_tokens.has_value() || !format.has_value()) {
    return input.max_thinking_tokens;
  }
  const auto effort = input.kwargs.find("reasoning_effort");
  if (effort == input.kwargs.end() || chat.Mentions("reasoning_effort")) return std::nullopt;
  const bool is_off = IsText(*effort, "none") &&
                      absl::c_any_of(kSwitches, [&](auto name) { return chat.Mentions(name); });
  return is_off ? std::optional<int>(0) : std::nullopt;
}

int64_t CountReasoningTokens(const ReasoningSplitter::Options& options, Detokenizer* detokenizer,
                             absl::Span<const TokenId> answer) {
  ReasoningSplitter splitter(options);
  int64_t count = 0;
  for (const TokenId id : answer) {
    if (splitter.is_over()) break;
    splitter.Push(detokenizer->Push(id));
    ++count;
  }
  return splitter.has_reasoned() ? count : 0;
}

// ---- Constraints ----

namespace {

Json ConstText(const std::string& text) { return {{"type", "const_string"}, {"value", text}}; }

// Returns the constraint as the format of a structural tag; null if it is not valid.
Json FormatOf(const OutputConstraint& constraint) {
  using Kind = OutputConstraint::Kind;
  switch (constraint.kind) {
    case Kind::kJsonObject:
      return {{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}, {"strict", false}};
    case Kind::kJsonSchema: {
      auto schema = ParseJsonValue(constraint.text, "schema");
      if (!schema.ok() || !schema->is_object()) return nullptr;
      return {{"type", "json_schema"},
              {"json_schema", *std::move(schema)},
              {"strict", constraint.is_strict}};
    }
    case Kind::kRegex:
      return {{"type", "regex"}, {"pattern", constraint.text}};
    case Kind::kChoice: {
      if (constraint.choices.empty() || absl::c_linear_search(constraint.choices, "")) {
        return nullptr;
      }
      Json texts = Json::array();
      for (const std::string& choice : constraint.choices) texts.push_back(ConstText(choice));
      return {{"type", "or"}, {"elements", std::move(texts)}};
    }
    case Kind::kGrammar:
      return {{"type", "grammar"}, {"grammar", constraint.text}};
    case Kind::kStructuralTag: {
      auto tag = ParseJsonValue(constraint.text, "structural_tag");
      return tag.ok() ? *std::move(tag) : Json(nullptr);
    }
  }
  return nullptr;
}

}  // namespace

OutputConstraint AfterReasoning(const ReasoningSplitter::Options& options,
                                OutputConstraint constraint) {
  Json content = FormatOf(constraint);
  // Keep an invalid constraint: the engine reports the error.
  if (content.is_null()) return constraint;
  const bool may_begin = options.start == ReasoningStart::kMayBegin;
  const std::string end(options.format.end);
  Json reasoning = {{"type", "tag"},
                    {"begin", may_begin ? std::string(options.format.begin) : ""},
                    {"content", {{"type", "any_text"}, {"excludes", {end}}}},
                    {"end", end}};
  // Templates write up to two line breaks here; more would only waste tokens.
  Json elements = Json::array({std::move(reasoning)});
  elements.push_back({{"type", "regex"}, {"pattern", "\\n{0,2}"}});
  Json in_front = {{"type", "sequence"}, {"elements", std::move(elements)}};
  if (may_begin) in_front = {{"type", "optional"}, {"content", std::move(in_front)}};
  elements = Json::array({std::move(in_front)});
  elements.push_back(std::move(content));
  const Json whole = {{"type", "sequence"}, {"elements", std::move(elements)}};
  return {.kind = OutputConstraint::Kind::kStructuralTag,
          .text = whole.dump(),
          .tokens = std::move(constraint.tokens)};
}

}  // namespace tandem
