#include "tools/answer_text.h"

#include <unistd.h>

#include "absl/strings/ascii.h"
#include "base/environment.h"

namespace tandem {
namespace {

constexpr char kGreen[] = "\x1b[32m";
constexpr char kDim[] = "\x1b[2m";
constexpr char kPlain[] = "\x1b[0m";

}  // namespace

bool StandardOutputTakesColours() {
  return isatty(STDOUT_FILENO) != 0 && EnvironmentVariable("NO_COLOR").empty() &&
         EnvironmentVariable("TERM") != "dumb";
}

void ProvenanceColours::Paint(std::string_view text, Ink ink, std::string* out) {
  if (ink != ink_) {
    if (ink_ != Ink()) *out += kPlain;
    if (ink.is_dim) *out += kDim;
    if (ink.is_drafted) *out += kGreen;
    ink_ = ink;
  }
  for (const char c : text) {
    if (!absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '\n' || c == '\t') *out += c;
  }
}

AnswerText::AnswerText(const AnswerReader::Options& reading, const Tokenizer* tokenizer,
                       const Request& request)
    : reader_(reading),
      detokenizer_(Detokenizer::New(tokenizer, request.prompt_ids, request.skip_special_tokens,
                                    request.shown_special_tokens)) {}

std::string AnswerText::Whole(const AnswerReader::Options& reading, std::string_view text) {
  AnswerText answer(reading);
  std::string out;
  answer.Append(answer.reader_.Push(text), /*is_drafted=*/false, &out);
  return out + answer.End();
}

std::string AnswerText::Next(const Piece& piece) {
  std::string out;
  if (detokenizer_ == nullptr) {
    Append(reader_.Push(piece.text), /*is_drafted=*/false, &out);
    return out;
  }
  for (size_t i = 0; i < piece.token_ids.size(); ++i) {
    const bool is_drafted = piece.provenance[i] == static_cast<char>(Provenance::kAccepted);
    Append(reader_.Push(detokenizer_->Push(piece.token_ids[i])), is_drafted, &out);
  }
  return out;
}

std::string AnswerText::End() {
  std::string out;
  if (detokenizer_ != nullptr) {
    Append(reader_.Push(detokenizer_->Flush()), /*is_drafted=*/false, &out);
  }
  Append(reader_.Finish(), /*is_drafted=*/false, &out);
  Write("", {}, &out);
  return out;
}

void AnswerText::Begin(Part part, std::string* out) {
  const Part before = part_;
  part_ = part;
  const bool has_headings = detokenizer_ == nullptr;
  std::string_view between;
  if (before == part && part != Part::kCall) return;
  if (part == Part::kReasoning) {
    between = has_headings ? "reasoning:\n" : "";
  } else if (before == Part::kReasoning) {
    between = has_headings ? "\n\nanswer:\n" : "\n\n";
  } else if (before != Part::kNone) {
    between = "\n";
  }
  Write(between, {}, out);
}

void AnswerText::Append(const AnswerDelta& delta, bool is_drafted, std::string* out) {
  if (!delta.reasoning.empty()) {
    Begin(Part::kReasoning, out);
    Write(delta.reasoning, {.is_drafted = is_drafted, .is_dim = true}, out);
  }
  if (!delta.content.empty()) {
    Begin(Part::kContent, out);
    Write(delta.content, {.is_drafted = is_drafted}, out);
  }
  for (const AnswerDelta::Call& call : delta.calls) {
    if (!call.name.empty()) {
      Begin(Part::kCall, out);
      Write("call " + call.name + " ", {}, out);
    }
    Write(call.arguments, {.is_drafted = is_drafted}, out);
  }
}

void AnswerText::Write(std::string_view text, ProvenanceColours::Ink ink, std::string* out) {
  if (detokenizer_ == nullptr) {
    *out += text;
  } else {
    colours_.Paint(text, ink, out);
  }
}

void AddToJson(const AnswerDelta& answer, SortedJson* json) {
  (*json)["reasoning"] = nullptr;
  if (!answer.reasoning.empty()) (*json)["reasoning"] = answer.reasoning;
  (*json)["content"] = answer.content;
  SortedJson& calls = (*json)["tool_calls"] = SortedJson::array();
  for (const AnswerDelta::Call& call : answer.calls) {
    calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  }
}

}  // namespace tandem
