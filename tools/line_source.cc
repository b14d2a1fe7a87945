#include "tools/line_source.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "tools/text_input.h"

namespace tandem {
namespace {

constexpr int kLinesRemembered = 1000;

class PlainLines final : public LineSource {
 public:
  std::optional<absl::StatusOr<std::string>> NextLine() override {
    if (!input_.has_value()) {
      absl::StatusOr<TextInput> input = TextInput::Open("-");
      if (!input.ok()) return input.status();
      input_.emplace(*std::move(input));
    }
    return input_->NextLine();
  }

 private:
  std::optional<TextInput> input_;
};

class EditedLines final : public LineSource {
 public:
  explicit EditedLines(std::string prompt) : prompt_(std::move(prompt)) {
    // Characters are those of UTF-8, as everything here.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    line_ = el_init("tandem", stdin, stdout, stderr);
    TANDEM_CHECK(line_ != nullptr);
    history_ = history_init();
    TANDEM_CHECK(history_ != nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kLinesRemembered);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(line_, EL_CLIENTDATA, this);
    el_set(line_, EL_PROMPT, &EditedLines::Prompt);
    el_set(line_, EL_EDITOR, "emacs");
    el_set(line_, EL_HIST, history, history_);
    // While a line is edited, keys that send signals are keys like others.
    el_set(line_, EL_SETTY, "-d", "-isig", nullptr);
    // Of words that are not wide it would make copies that nobody frees.
    el_wset(line_, EL_ADDFN, L"suspend", L"Stops the program", &EditedLines::Suspend);
    el_set(line_, EL_BIND, "^Z", "suspend", nullptr);
    el_wset(line_, EL_ADDFN, L"give-up", L"Gives the line up", &EditedLines::GiveUp);
    el_set(line_, EL_BIND, "^C", "give-up", nullptr);
  }
  ~EditedLines() override {
    history_end(history_);
    el_end(line_);
  }

  std::optional<absl::StatusOr<std::string>> NextLine() override {
    is_given_up_ = false;
    int size = 0;
    el_set(line_, EL_PREP_TERM, 1);  // before the prompt, so that no key behind it is lost
    const char* const typed = el_gets(line_, &size);
    if (is_given_up_) {
      el_reset(line_);
      std::fputs("\n", stdout);
      std::fflush(stdout);
      return "";
    }
    if (typed == nullptr || size <= 0) return std::nullopt;
    std::string text(absl::StripSuffix({typed, static_cast<size_t>(size)}, "\n"));
    HistEvent event;
    if (!text.empty()) history(history_, &event, H_ENTER, text.c_str());
    return text;
  }

 private:
  static EditedLines* Of(EditLine* line) {
    void* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return static_cast<EditedLines*>(self);
  }
  static char* Prompt(EditLine* line) { return Of(line)->prompt_.data(); }
  static unsigned char GiveUp(EditLine* line, int /*key*/) {
    Of(line)->is_given_up_ = true;
    return CC_EOF;
  }
  static unsigned char Suspend(EditLine* line, int /*key*/) {
    el_set(line, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(line, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  std::string prompt_;
  EditLine* line_ = nullptr;
  History* history_ = nullptr;
  bool is_given_up_ = false;
};

}  // namespace

bool IsTyped() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

std::unique_ptr<LineSource> OpenStandardInput(const std::string& prompt) {
  if (!IsTyped()) return std::make_unique<PlainLines>();
  return std::make_unique<EditedLines>(prompt);
}

}  // namespace tandem
