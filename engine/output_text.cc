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
                       std::vector<std::string> stop, int min_tokens)
    : detokenizer_(Detokenizer::New(tokenizer, prompt, /*skip_special=*/true)),
      stop_(std::move(stop)),
      min_tokens_(min_tokens) {}

bool OutputText::Append(TokenId token) {
  if (stopped_) return false;
  ++num_tokens_;
  return AppendText(detokenizer_->Push(token), /*is_last=*/false);
}

void OutputText::Finish() {
  if (!stopped_) AppendText(detokenizer_->Flush(), /*is_last=*/true);
}

bool OutputText::AppendText(std::string_view piece, bool is_last) {
  const size_t old_size = held_.size();
  held_ += piece;
  size_t cut = std::string::npos;
  size_t overlap = 0;
  for (const std::string& stop : stop_) {
    if (num_tokens_ > min_tokens_) {
      // What ends in the old text has been looked at, and let pass if it came too early.
      const size_t begin = old_size >= stop.size() ? old_size - stop.size() + 1 : 0;
      cut = std::min(cut, held_.find(stop, begin));
    }
    overlap = std::max(overlap, OverlapWith(held_, stop));
  }
  stopped_ = cut != std::string::npos;
  const size_t certain = stopped_ ? cut : is_last ? held_.size() : held_.size() - overlap;
  text_.append(held_, 0, certain);
  held_.erase(0, certain);
  return !stopped_;
}

}  // namespace tandem
