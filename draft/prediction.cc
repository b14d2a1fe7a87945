#include "draft/prediction.h"

#include <algorithm>

namespace tandem {
namespace {

// Tokens alike that tell a place: fewer stand in many.
constexpr size_t kLeastRun = 3;

// How many tokens before `end` are the last ones of `output`, at most `most`.
size_t RunBefore(absl::Span<const TokenId> tokens, size_t end, absl::Span<const TokenId> output,
                 size_t most) {
  size_t run = 0;
  while (run < std::min({most, end, output.size()}) &&
         tokens[end - 1 - run] == output[output.size() - 1 - run]) {
    ++run;
  }
  return run;
}

}  // namespace

absl::Span<const TokenId> Prediction::Behind(absl::Span<const TokenId> output) {
  for (; num_followed_ < output.size(); ++num_followed_) {
    if (!has_parted_ && next_ < tokens_.size() && tokens_[next_] == output[num_followed_]) {
      ++next_;
    } else {
      has_parted_ = true;
      Resume(output.first(num_followed_ + 1));
    }
  }
  return has_parted_ ? absl::Span<const TokenId>() : absl::MakeConstSpan(tokens_).subspan(next_);
}

// At the end of the longest run, up to twice the least; of equals at the next behind where they
// parted, else the last before it.
void Prediction::Resume(absl::Span<const TokenId> output) {
  size_t best_run = kLeastRun - 1;
  size_t best = 0;
  const auto distance = [this](size_t end) {
    return end >= next_ ? end - next_ : tokens_.size() + (next_ - end);
  };
  for (size_t end = kLeastRun; end <= tokens_.size(); ++end) {
    const size_t run = RunBefore(tokens_, end, output, 2 * kLeastRun);
    const bool is_nearer = run == best_run && distance(end) < distance(best);
    if (run < kLeastRun || (run <= best_run && !is_nearer)) continue;
    best_run = run;
    best = end;
  }
  if (best_run < kLeastRun) return;
  has_parted_ = false;
  next_ = best;
}

}  // namespace tandem
