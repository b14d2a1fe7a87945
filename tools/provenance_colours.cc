#include "tools/provenance_colours.h"

#include <unistd.h>

#include "absl/strings/ascii.h"
#include "base/environment.h"

namespace tandem {
namespace {

constexpr char kGreen[] = "\x1b[32m";
constexpr char kPlain[] = "\x1b[0m";

}  // namespace

bool StandardOutputTakesColours() {
  return isatty(STDOUT_FILENO) != 0 && EnvironmentVariable("NO_COLOR").empty() &&
         EnvironmentVariable("TERM") != "dumb";
}

ProvenanceColours::ProvenanceColours(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt)
    : detokenizer_(Detokenizer::New(tokenizer, prompt, /*skip_special=*/true)) {}

std::string ProvenanceColours::Next(const Piece& piece) {
  std::string out;
  for (size_t i = 0; i < piece.token_ids.size(); ++i) {
    const bool is_drafted = piece.provenance[i] == static_cast<char>(Provenance::kAccepted);
    Append(detokenizer_->Push(piece.token_ids[i]), is_drafted, &out);
  }
  return out;
}

std::string ProvenanceColours::End() {
  std::string out;
  Append(detokenizer_->Flush(), is_green_, &out);
  if (is_green_) out += kPlain;
  is_green_ = false;
  return out;
}

void ProvenanceColours::Append(const std::string& text, bool is_drafted, std::string* out) {
  if (text.empty()) return;
  if (is_drafted != is_green_) *out += is_drafted ? kGreen : kPlain;
  is_green_ = is_drafted;
  for (const char c : text) {
    if (!absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '\n' || c == '\t') *out += c;
  }
}

}  // namespace tandem
