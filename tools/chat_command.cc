// tandem chat: a conversation in the terminal.
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "engine/report_json.h"
#include "tandem/answer_reader.h"
#include "tools/answer_text.h"
#include "tools/command.h"
#include "tools/conversation.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/report.h"
#include "tools/request_options.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"
#include "tools/text_input.h"

namespace tandem {
namespace {

constexpr int kLinesRemembered = 1000;

// Lines from a terminal or a pipe.
class LineSource {
 public:
  virtual ~LineSource() = default;
  // Returns the next line without its line end, or nullopt at the end of the input.
  // INVALID_ARGUMENT for a line that is too long, which is skipped.
  virtual std::optional<absl::StatusOr<std::string>> NextLine() = 0;
};

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
    // Text is UTF-8 everywhere in the program.
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
    // Keys such as Ctrl-C do not send signals while a line is edited.
    el_set(line_, EL_SETTY, "-d", "-isig", nullptr);
    // el_set would copy these narrow strings and never free the copies.
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
    el_set(line_, EL_PREP_TERM, 1);  // before the prompt, so that no key typed after it is lost
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

bool IsTyped() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

// Opens the lines of standard input. If standard input and standard output are terminals, shows
// `prompt` and edits lines with libedit, with a history for the arrow keys; Ctrl-C abandons the
// line, which then reads as empty, and Ctrl-D on an empty line is the end. Only one may exist at a
// time.
std::unique_ptr<LineSource> OpenStandardInput(const std::string& prompt) {
  if (!IsTyped()) return std::make_unique<PlainLines>();
  return std::make_unique<EditedLines>(prompt);
}

constexpr char kHelp[] =
    "/system TEXT   sets the system message; without TEXT removes it\n"
    "/k N|auto|0    most draft tokens per round; 0 decodes plainly\n"
    "/tool TEXT     gives the result of the next open call (with --tools)\n"
    "/stats         statistics of the last answer, and of all answers\n"
    "/reset         forgets the conversation, except the system message\n"
    "/help          prints this\n"
    "/quit          ends, as Ctrl-D does\n"
    "Ctrl-C stops an answer. Anything else is a message to the model.\n";

struct ChatFlags {
  ChatFlags() {
    engine.prefers_real_pair = true;
    engine.options.max_batch = 1;
    sampling.params.temperature = 0.7f;  // small models ramble at 1
  }

  EngineFlags engine;
  std::string system;
  int max_tokens = 1024;
  SamplingFlags sampling;
  ToolsOption tools_option;
  ThinkingOption thinking;

  // Set by Check.
  EngineOptions engine_options;
  JsonValue tools;

  absl::Status Check();
};

absl::Status ChatFlags::Check() {
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  ASSIGN_OR_RETURN(tools, tools_option.Read());
  return sampling.Check();
}

// Prints a line to standard error, where everything except answers goes.
void PrintNote(absl::string_view text) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

class ChatSession {
 public:
  ChatSession(Engine* engine, Conversation conversation, ToolsOption tools_option)
      : engine_(engine),
        conversation_(std::move(conversation)),
        tools_option_(std::move(tools_option)) {}

  // Runs until the input ends, or until /quit.
  absl::Status Run();

 private:
  // A command, and the rest of its line.
  using Words = std::pair<absl::string_view, absl::string_view>;
  // Runs a command other than /tool. Returns false for /quit.
  bool RunCommand(const Words& words);
  void SetDraftTokens(const std::string& text);
  void TellStats() const;
  // Prints the answer to a message, or to the result of a call. Returns errors of standard output
  // and of the engine; prints errors about the message itself and returns OK.
  absl::Status Answer(const std::string& message, bool is_result);
  absl::Status GiveResult(const std::string& result);
  void TellEnd(const Completion& answer) const;
  void TellOpenCalls() const;

  Engine* const engine_;
  Conversation conversation_;
  const ToolsOption tools_option_;
  const bool has_colours_ = StandardOutputTakesColours();
  const bool is_typed_ = IsTyped();
  std::optional<Completion> last_;
};

absl::Status ChatSession::Run() {
  // On a terminal Ctrl-C never ends the program, not even between two lines.
  std::optional<InterruptFlag> interrupt;
  if (is_typed_) interrupt.emplace(InterruptFlag::Second::kNothing);
  const std::unique_ptr<LineSource> lines = OpenStandardInput("> ");
  if (is_typed_) {
    PrintNote(absl::StrCat(
        engine_->target_info().path, ", drafter ", View(NameOf(engine_->drafter())),
        has_colours_ ? ", drafted text in green" : "", ". /help lists commands; Ctrl-D ends."));
  }
  while (const std::optional<absl::StatusOr<std::string>> line = lines->NextLine()) {
    if (absl::IsInvalidArgument(line->status())) {
      PrintNote(absl::StrCat("tandem: ", line->status().message()));
      continue;
    }
    RETURN_IF_ERROR(line->status());
    const absl::string_view text = absl::StripAsciiWhitespace(**line);
    if (text.empty()) continue;
    if (text.front() != '/') {
      RETURN_IF_ERROR(Answer(std::string(text), /*is_result=*/false));
      continue;
    }
    Words words = absl::StrSplit(text, absl::MaxSplits(' ', 1));
    words.second = absl::StripAsciiWhitespace(words.second);
    if (words.first == "/tool") {
      RETURN_IF_ERROR(GiveResult(std::string(words.second)));
    } else if (!RunCommand(words)) {
      break;
    }
  }
  return absl::OkStatus();
}

bool ChatSession::RunCommand(const Words& words) {
  const std::string rest(words.second);
  if (words.first == "/quit") return false;
  if (words.first == "/system") {
    conversation_.SetSystem(rest);
    PrintNote(rest.empty() ? "no system message" : "the system message is set");
  } else if (words.first == "/k") {
    SetDraftTokens(rest);
  } else if (words.first == "/stats") {
    TellStats();
  } else if (words.first == "/reset") {
    conversation_.Reset();
    PrintNote("forgotten");
  } else if (words.first == "/help") {
    std::fputs(kHelp, stderr);
  } else {
    PrintNote(absl::StrCat("tandem: ", words.first, ": no such command; /help lists the commands"));
  }
  return true;
}

void ChatSession::SetDraftTokens(const std::string& text) {
  int draft_tokens = 0;
  const absl::Status status = SetFromText("/k", text, kDraftTokenLimits, &draft_tokens);
  if (!status.ok()) return PrintNote(absl::StrCat("tandem: ", status.message()));
  conversation_.SetDraftTokens(draft_tokens);
  PrintNote(engine_->drafter() == DrafterKind::kNone ? "the engine runs without a drafter"
                                                     : absl::StrCat("draft tokens: ", text));
}

void ChatSession::TellStats() const {
  if (!last_.has_value()) return PrintNote("nothing answered yet");
  std::fputs(TextReport(*engine_, *last_).c_str(), stderr);
  const RoundStats all = engine_->stats();
  PrintNote(Format("all answers %d tokens, %.2f per round; draft tokens accepted: %s", all.emitted,
                   all.TokensPerRound(), AcceptanceText(all)));
}

absl::Status ChatSession::GiveResult(const std::string& result) {
  if (conversation_.OpenCalls().empty()) {
    PrintNote("tandem: /tool: no call waits for a result");
    return absl::OkStatus();
  }
  if (!result.empty()) return Answer(result, /*is_result=*/true);
  PrintNote("tandem: /tool: found nothing, allowed: the text of the result");
  return absl::OkStatus();
}

absl::Status ChatSession::Answer(const std::string& message, bool is_result) {
  std::optional<AnswerText> text;
  absl::Status printed;
  const InterruptFlag interrupt(InterruptFlag::Second::kNothing);
  PromptStatusLine line;
  const Conversation::Callbacks callbacks = {
      .on_begin =
          [&](const Request& request, const AnswerReader::Options& reading) {
            if (has_colours_) {
              text.emplace(reading, &engine_->tokenizer(), request);
            } else {
              text.emplace(reading);
            }
          },
      .on_piece =
          [&](const Piece& piece) {
            line.OnPiece(piece);
            printed = Print(text->Next(piece));
            return printed.ok();
          },
      .is_interrupted = [] { return InterruptFlag::is_set(); }};
  absl::StatusOr<std::optional<Completion>> answer =
      is_result ? conversation_.GiveResult(message, callbacks)
                : absl::StatusOr<std::optional<Completion>>(conversation_.Send(message, callbacks));
  line.End();
  RETURN_IF_ERROR(printed);
  if (absl::IsInvalidArgument(answer.status()) || absl::IsOutOfRange(answer.status())) {
    const absl::Status status =
        ThinkingOption::WithOptionNames(tools_option_.WithOptionNames(answer.status()));
    PrintNote(absl::StrCat("tandem: ", status.message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(answer.status());
  if (answer->has_value()) {
    RETURN_IF_ERROR(Print(text->End() + "\n"));
    TellEnd(**answer);
    last_ = **answer;
  }
  TellOpenCalls();
  return absl::OkStatus();
}

void ChatSession::TellOpenCalls() const {
  for (const JsonValue& call : conversation_.OpenCalls()) {
    PrintNote(absl::StrCat("(", call["function"]["name"].get<std::string>(),
                           " waits for its result: /tool TEXT)"));
  }
}

void ChatSession::TellEnd(const Completion& answer) const {
  const int num_tokens = static_cast<int>(answer.token_ids.size());
  if (answer.finish_reason == FinishReason::kCancelled) {
    PrintNote("(stopped)");
  } else if (answer.prompt_tokens + num_tokens >= conversation_.room()) {
    PrintNote(absl::StrCat("(the context of ", conversation_.room(),
                           " tokens is full; /reset begins a new conversation)"));
  } else if (answer.finish_reason == FinishReason::kLength) {
    PrintNote(absl::StrCat("(cut off after ", num_tokens, " tokens, the limit of --max-tokens)"));
  }
  if (!is_typed_) return;
  PrintNote(Format("%s(%d tokens, %.0f a second, %.2f per round)%s", has_colours_ ? "\x1b[2m" : "",
                   num_tokens, answer.TokensPerSecond(), answer.stats.TokensPerRound(),
                   has_colours_ ? "\x1b[0m" : ""));
}

absl::Status Run(const ChatFlags& flags, Engine* engine) {
  ASSIGN_OR_RETURN(ChatFormat format, ChatFormat::Load(engine));
  Request base;
  base.max_tokens = flags.max_tokens;
  base.sampling = flags.sampling.params;
  base.seed = flags.sampling.seed;
  base.prompt_progress = StatusLine::IsPossible();
  Conversation conversation(engine, std::move(format), std::move(base));
  conversation.SetSystem(flags.system);
  conversation.SetTools(flags.tools);
  conversation.SetMaxThinkingTokens(flags.thinking.max_tokens);
  return ChatSession(engine, std::move(conversation), flags.tools_option).Run();
}

}  // namespace

Command AddChatCommand(CLI::App* program) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App* app =
      program->add_subcommand("chat", "Hold a conversation with the target in the terminal");
  OptionGroup group(app);
  group.Add("--system", "TEXT", &flags->system, "The system message");
  group.Add("-n,--max-tokens", "N", &flags->max_tokens, "Maximum number of tokens of an answer",
            {.low = 1});
  flags->tools_option.AddTo(&group);
  flags->thinking.AddTo(&group);
  flags->sampling.AddTo(app);
  flags->engine.AddTo(app, {kEngineGroup, kStoreGroup});
  app->footer(absl::StrCat("A line is a message, or one of these:\n",
                           absl::StripTrailingAsciiWhitespace(kHelp)));
  AddExamples(app, {"tandem chat", "tandem chat -m smollm2 --temperature 0",
                    "tandem chat --system \"Answer in one sentence.\""});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run =
              [flags] {
                return RunOrFollow(flags->engine_options, [&] {
                  return RunWithEngine(flags->engine_options,
                                       [&](Engine& engine) { return Run(*flags, &engine); });
                });
              }};
}

}  // namespace tandem
