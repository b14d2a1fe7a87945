#include "engine/output_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

// Length of the longest end of `text` that is a proper beginning of `stop`.
size_t OverlapWith(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == stop.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

OutputText::OutputText(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                       std::vector<std::string> stop)
    : detokenizer_(Detokenizer::New(tokenizer, prompt, /*skip_special=*/true)),
      stop_(std::move(stop)) {}

bool OutputText::Append(TokenId token) {
  if (stopped_) return false;
  return AppendText(detokenizer_->Push(token), /*is_last=*/false);
}

void OutputText::Finish() {
  if (!stopped_) AppendText(detokenizer_->Flush(), /*is_last=*/true);
}

bool OutputText::AppendText(std::string_view piece, bool is_last) {
  held_ += piece;
  size_t cut = std::string::npos;
  size_t overlap = 0;
  for (const std::string& stop : stop_) {
    cut = std::min(cut, held_.find(stop));
    overlap = std::max(overlap, OverlapWith(held_, stop));
  }
  stopped_ = cut != std::string::npos;
  const size_t certain = stopped_ ? cut : is_last ? held_.size() : held_.size() - overlap;
  text_.append(held_, 0, certain);
  held_.erase(0, certain);
  return !stopped_;
}

}  // namespace tandem
