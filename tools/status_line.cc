#include "tools/status_line.h"

#include <unistd.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/guard.h"
#include "base/utf8.h"
#include "tools/report.h"

namespace tandem {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
constexpr absl::Duration kQuietWait = absl::Seconds(1);
constexpr absl::Duration kQuietPrompt = absl::Milliseconds(500);

// Guards the terminal's line and the list.
ABSL_CONST_INIT absl::Mutex screen(absl::kConstInit);
std::vector<StatusLine*>& Lines() {
  static auto& lines = *new std::vector<StatusLine*>();
  return lines;
}

// Does not wrap a long line, because only one row can be erased. The cursor returns to the
// beginning, so that a log line replaces this one.
void Show(const std::string& text) {
  const std::string shown =
      text.empty() ? "\r\x1b[K" : absl::StrCat("\r\x1b[K\x1b[?7l", text, "\x1b[?7h\r");
  std::fputs(shown.c_str(), stderr);
}

}  // namespace

bool StatusLine::IsPossible() {
  return isatty(STDERR_FILENO) != 0 && EnvironmentVariable("TERM") != "dumb";
}

StatusLine::StatusLine(absl::Duration quiet, std::function<std::string()> text)
    : text_(std::move(text)), begin_(Instant::Now() + quiet) {
  if (!IsPossible()) return;
  absl::MutexLock lock(&screen);
  Lines().push_back(this);
  Attempt("status line", [this] {
    thread_ = std::thread([this] { Attempt("status line", [this] { Work(); }); });
  });
}

void StatusLine::End() {
  {
    absl::MutexLock lock(&screen);
    is_over_ = true;
  }
  if (thread_.joinable()) thread_.join();
  absl::MutexLock lock(&screen);
  std::erase(Lines(), this);
  if (shown_.empty()) return;
  shown_.clear();
  Show("");
  if (!Lines().empty()) Lines().back()->shown_.clear();  // shown again at its next look
}

void StatusLine::Work() {
  const auto is_over = [this] { return is_over_; };
  absl::MutexLock lock(&screen);
  do {
    if (Instant::Now() < begin_ || Lines().back() != this) continue;
    std::string text = text_();
    if (text == shown_) continue;
    Show(text);
    shown_ = std::move(text);
  } while (!screen.AwaitWithTimeout(absl::Condition(&is_over), kBetweenLooks));
}

WaitingLine::WaitingLine(const std::string& what)
    : line_(kQuietWait, [what = EscapeControls(what), start = Instant::Now()] {
        return absl::StrCat(what, ", ", absl::ToInt64Seconds(Instant::Now() - start), " s");
      }) {}

PromptStatusLine::PromptStatusLine() : line_(kQuietPrompt, [this] { return Text(); }) {}

void PromptStatusLine::OnPiece(const Piece& piece) {
  if (!piece.token_ids.empty() || !piece.text.empty()) return End();
  absl::MutexLock lock(&mutex_);
  if (!first_.has_value() || piece.prompt_progress->processed < latest_->processed) {
    first_ = piece.prompt_progress;
  }
  latest_ = piece.prompt_progress;
}

std::string PromptStatusLine::Text() const {
  absl::MutexLock lock(&mutex_);
  std::string text = "reading the prompt";
  if (!latest_.has_value()) return text;
  absl::StrAppend(&text, ": ", ThreeDigits(latest_->processed), " of ", ThreeDigits(latest_->total),
                  " tokens");
  const int num_read = latest_->processed - first_->processed;
  const absl::Duration time = latest_->time - first_->time;
  if (num_read == 0 || !CanBeElapsed(time)) return text;
  return absl::StrCat(text, ", ", ThreeDigits(num_read / absl::ToDoubleSeconds(time)), " tokens/s");
}

}  // namespace tandem
