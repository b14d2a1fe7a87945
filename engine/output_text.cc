#include "engine/output_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tandem/field_error.h"

namespace tandem {

StopAutomaton::StopAutomaton(absl::Span<const std::string> stops) : states_(1) {
  for (const std::string& stop : stops) Add(stop);
  // Shorter states first: a state extends the results of its suffixes.
  std::vector<int> order = {kRoot};
  for (size_t i = 0; i < order.size(); ++i) {
    const int parent = order[i];
    for (int child = states_[parent].first_child; child != kNone;
         child = states_[child].next_sibling) {
      State& state = states_[child];
      if (parent != kRoot) state.shorter = Next(states_[parent].shorter, state.byte);
      const State& shorter = states_[state.shorter];
      state.match = std::max(state.match, shorter.match);
      state.beginning = state.first_child != kNone ? state.length : shorter.beginning;
      order.push_back(child);
    }
  }
  num_steps_ = 0;
}

void StopAutomaton::Read(char byte) { state_ = Next(state_, byte); }

int StopAutomaton::Next(int state, char byte) {
  for (; state != kRoot; state = states_[state].shorter) {
    if (const int child = ChildOf(state, byte); child != kNone) return child;
  }
  return std::max(ChildOf(kRoot, byte), kRoot);
}

int StopAutomaton::ChildOf(int state, char byte) {
  ++num_steps_;
  int child = states_[state].first_child;
  for (; child != kNone && states_[child].byte != byte; child = states_[child].next_sibling) {
    ++num_steps_;
  }
  return child;
}

void StopAutomaton::Add(const std::string& stop) {
  TANDEM_CHECK(!stop.empty());
  int state = kRoot;
  for (const char byte : stop) {
    int child = ChildOf(state, byte);
    if (child == kNone) {
      child = static_cast<int>(states_.size());
      states_.push_back({.byte = byte,
                         .length = states_[state].length + 1,
                         .next_sibling = states_[state].first_child});
      states_[state].first_child = child;
    }
    state = child;
  }
  states_[state].match = states_[state].length;
}

absl::Status CheckStopStrings(absl::Span<const std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return FieldError("stop", absl::StrCat("must have at most ", kMaxStopStrings, " strings, got ",
                                           stops.size()));
  }
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) return FieldError("stop", "a stop string is empty");
    bytes += stop.size();
  }
  if (bytes <= kMaxStopBytes) return absl::OkStatus();
  return FieldError(
      "stop", absl::StrCat("must have at most ", kMaxStopBytes, " bytes in total, got ", bytes));
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
    // Matches that ended in the first `min_tokens` tokens are part of the text.
    if (num_tokens_ <= min_tokens_ || stops_.match() == 0) continue;
    if (!shows_stop_) {
      cut = std::min(cut, decoded_.size() - stops_.match());
    } else if (cut == std::string::npos) {
      cut = decoded_.size();  // after the first complete stop string
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
