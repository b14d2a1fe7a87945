// A line on standard error that says what a long job is doing.
#ifndef TANDEM_TOOLS_STATUS_LINE_H_
#define TANDEM_TOOLS_STATUS_LINE_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "tandem/completion.h"

namespace tandem {

// A line that appears once the job has taken `quiet`, changes with the job, and is erased in the
// end; only if standard error is a terminal. If there are several, the newest is shown. A log line
// meanwhile is written over it, and the next change shows it again. Thread-safe.
class StatusLine {
 public:
  // `text` is called on a thread of the line, up to ten times a second, until End() returns.
  StatusLine(absl::Duration quiet, std::function<std::string()> text);
  ~StatusLine() { End(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Whether lines are shown: standard error is a terminal, and $TERM is not "dumb".
  static bool IsPossible();
  // Erases the line for good. Two calls must not overlap.
  void End();

 private:
  void Work();

  const std::function<std::string()> text_;
  const Instant begin_;  // not shown before
  std::string shown_;    // on the terminal; this and is_over_ are guarded by the mutex of all lines
  bool is_over_ = false;
  std::thread thread_;
};

// The line of a job that does not tell how far it is: "loading models/storyteller-7m, 3 s".
class WaitingLine {
 public:
  explicit WaitingLine(const std::string& what);

 private:
  StatusLine line_;
};

// The line of a prompt that is read: "reading the prompt: 1,024 of 4,096 tokens, 210 tokens/s".
// Its request asks for Request::prompt_progress if StatusLine::IsPossible(). Thread-safe.
class PromptStatusLine {
 public:
  PromptStatusLine();
  // Call with each piece before its text is printed. The first piece with output erases the line.
  void OnPiece(const Piece& piece);
  void End() { line_.End(); }

 private:
  std::string Text() const;

  mutable absl::Mutex mutex_;
  std::optional<PromptProgress> first_;  // since the prompt was last begun
  std::optional<PromptProgress> latest_;
  StatusLine line_;  // last: it uses all of the above
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_STATUS_LINE_H_
