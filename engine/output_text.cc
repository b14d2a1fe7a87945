#include "engine/output_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tandem/field_error.h"

namespace tandem {

absl::Status CheckStopStrings(absl::Span<const std::string> stops) {
  if (stops.size() > kMostStopStrings) {
    return FieldError("stop",
                      absl::StrCat(stops.size(), " strings are more than ", kMostStopStrings));
  }
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) return FieldError("stop", "a stop string is empty");
    bytes += stop.size();
  }
  if (bytes <= kMostStopBytes) return absl::OkStatus();
  return FieldError("stop", absl::StrCat(bytes, " bytes in all are more than ", kMostStopBytes));
}

OutputText::OutputText(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                       absl::Span<const std::string> stops, int min_tokens, Shown shown)
    : detokenizer_(Detokenizer::New(tokenizer, prompt, /*skip_special=*/!shown.special_tokens,
                                    shown.of_special)),
      stops_(stops),
      min_tokens_(min_tokens),
      shows_stop_(shown.stop) {}

bool OutputText::Append(TokenId token) {
  if (stopped_) return false;
  ++num_tokens_;
  return AppendText(detokenizer_->Push(token), /*is_last=*/false);
}

void OutputText::Finish() {
  if (!stopped_) AppendText(detokenizer_->Flush(), /*is_last=*/true);
}

bool OutputText::AppendText(std::string_view piece, bool is_last) {
  size_t cut = std::string::npos;
  for (const char byte : piece) {
    decoded_ += byte;
    stops_.Read(byte);
    // What ends in an earlier piece has been let pass, because it came too early.
    if (num_tokens_ <= min_tokens_ || stops_.match() == 0) continue;
    if (!shows_stop_) {
      cut = std::min(cut, decoded_.size() - stops_.match());
    } else if (cut == std::string::npos) {
      cut = decoded_.size();  // behind the first to be complete
    }
  }
  stopped_ = cut != std::string::npos;
  const size_t certain = stopped_  ? cut
                         : is_last ? decoded_.size()
                                   : decoded_.size() - stops_.beginning();
  text_.append(decoded_, text_.size(), certain - text_.size());
  return !stopped_;
}

}  // namespace tandem
