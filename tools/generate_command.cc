// tandem generate: generates text from prompts and reports the effect of speculation.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "engine/report_json.h"
#include "spdlog/spdlog.h"
#include "tandem/answer_reader.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "tools/answer_text.h"
#include "tools/command.h"
#include "tools/conversation.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/plain_comparison.h"
#include "tools/prompt_batch.h"
#include "tools/report.h"
#include "tools/request_options.h"
#include "tools/standard_streams.h"
#include "tools/status_line.h"
#include "tools/text_input.h"

namespace tandem {
namespace {

using Json = SortedJson;

struct GenerateFlags {
  GenerateFlags() { engine.prefers_real_pair = true; }

  EngineFlags engine;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> prompt_ids;
  std::string prompts_file;
  int batch = 8;
  int max_tokens = 256;
  bool chat = false;
  std::optional<std::string> system;  // message, with --chat
  ToolsOption tools_option;
  ThinkingOption thinking;
  SamplingFlags sampling;
  ConstraintFlags constraint_flags;
  std::string prediction_file;
  std::vector<std::string> stop;
  std::vector<int> stop_tokens;
  bool ignore_eos = false;
  int logprobs = -1;
  int prompt_logprobs = -1;
  std::string logprobs_mode = "raw";
  bool compare = false;
  bool json = false;

  // Set by Check.
  EngineOptions engine_options;
  std::optional<OutputConstraint> constraint;
  std::string prediction;
  JsonValue tools;

  absl::Status Check();
  Request BaseRequest() const;
  // Returns the only request of a command line without --prompts.
  absl::StatusOr<Request> OnlyRequest() const;
  ChatFormat::Turn Turn() const {
    return {.system = system, .tools = tools, .max_thinking_tokens = thinking.max_tokens};
  }
  // Returns an engine's error with the names of command-line options.
  absl::Status WithOptionNames(const absl::Status& status) const {
    return ThinkingOption::WithOptionNames(
        tools_option.WithOptionNames(constraint_flags.WithOptionNames(status)));
  }
  bool is_batch() const { return !prompts_file.empty(); }
};

absl::StatusOr<std::vector<TokenId>> ParseIds(const std::string& text) {
  std::vector<TokenId> ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt-ids: \"", part, "\" is not a token id; give ids as in 1,2,3"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status GenerateFlags::Check() {
  engine.options.max_batch = is_batch() ? batch : 1;
  engine.options.max_generations = MostPromptsBegun(batch, compare);
  // Otherwise later runs would reuse the first run's prompt.
  engine.options.prefix_cache = !compare;
  if (compare) engine.options.draft_memory_bytes = 0;  // it would contain the answers
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  if (prompt_ids.has_value()) RETURN_IF_ERROR(ParseIds(*prompt_ids).status());
  if (chat && prompt_ids.has_value()) {
    return absl::InvalidArgumentError("--chat: needs a text prompt, not --prompt-ids");
  }
  for (const auto& [option, count] :
       {std::pair("--logprobs", logprobs), std::pair("--prompt-logprobs", prompt_logprobs)}) {
    if (count >= 0 && !json) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, ": needs --json, because only the JSON has log-probabilities"));
    }
  }
  if (system.has_value() && !chat) {
    return absl::InvalidArgumentError("--system: needs --chat");
  }
  if (tools_option.is_given() && !chat) {
    return absl::InvalidArgumentError("--tools: needs --chat");
  }
  if (thinking.max_tokens.has_value() && !chat) {
    return absl::InvalidArgumentError("--max-thinking-tokens: needs --chat");
  }
  ASSIGN_OR_RETURN(tools, tools_option.Read());
  for (const std::string& text : stop) {
    if (text.empty()) return absl::InvalidArgumentError("--stop: must not be empty");
  }
  // Without a seed the compared runs would draw different random numbers.
  if (compare && !sampling.seed.has_value()) {
    std::random_device entropy;
    sampling.seed = uint64_t{entropy()} << 32 | entropy();
  }
  RETURN_IF_ERROR(sampling.Check());
  ASSIGN_OR_RETURN(constraint, constraint_flags.Read());
  if (!prediction_file.empty()) {
    ASSIGN_OR_RETURN(prediction, ReadFile(prediction_file));
  }
  if (sampling.params.min_tokens > max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min-tokens: found ", sampling.params.min_tokens,
                     ", allowed: at most --max-tokens, which is ", max_tokens));
  }
  return absl::OkStatus();
}

Request GenerateFlags::BaseRequest() const {
  return {.prompt = "",
          .prompt_ids = {},
          .max_tokens = max_tokens,
          .sampling = sampling.params,
          .constraint = constraint,
          .choice_law = constraint_flags.law(),
          .seed = sampling.seed,
          .sequence = 0,
          .stop = stop,
          .stop_tokens = {stop_tokens.begin(), stop_tokens.end()},
          .ignore_eos = ignore_eos,
          .draft_tokens = std::nullopt,
          .verifier = std::nullopt,
          .prediction = prediction,
          .logprobs = {.num_top = logprobs, .processed = logprobs_mode == "processed"},
          .prompt_logprobs = {.num_top = prompt_logprobs, .processed = false}};
}

absl::StatusOr<Request> GenerateFlags::OnlyRequest() const {
  Request request = BaseRequest();
  if (prompt_ids.has_value()) {
    ASSIGN_OR_RETURN(request.prompt_ids, ParseIds(*prompt_ids));
    return request;
  }
  if (prompt.has_value()) {
    request.prompt = *prompt;
  } else {
    const bool is_typed = prompt_file.empty() && isatty(STDIN_FILENO) != 0;
    if (is_typed) std::fprintf(stderr, "Type the prompt, then Ctrl-D:\n");
    ASSIGN_OR_RETURN(TextInput input, TextInput::Open(prompt_file.empty() ? "-" : prompt_file));
    ASSIGN_OR_RETURN(request.prompt, input.ReadRest());
  }
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  return request;
}

// Runs one request and streams its text to standard output; on a terminal, draft tokens are green,
// and a status line tells how much of a long prompt is read.
absl::StatusOr<Completion> RunShown(Engine* engine, Request request,
                                    const AnswerReader::Options& reading) {
  std::optional<AnswerText> text;
  if (StandardOutputTakesColours()) {
    // AnswerText needs the prompt as token ids; encode it the same way as the engine.
    if (request.prompt_ids.empty()) {
      ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                       engine->tokenizer().Encode(request.prompt, request.special));
      request.prompt_ids = engine->tokenizer().WithTemplate(std::move(ids));
      request.prompt.clear();
    }
    text.emplace(reading, &engine->tokenizer(), request);
  } else {
    text.emplace(reading);
  }
  request.prompt_progress = StatusLine::IsPossible();
  PromptStatusLine line;
  absl::Status printed;
  absl::StatusOr<Completion> completion = engine->Generate(request, [&](const Piece& piece) {
    line.OnPiece(piece);
    printed.Update(Print(text->Next(piece)));
    return printed.ok();
  });
  line.End();
  if (printed.ok()) printed = Print(text->End());
  if (printed.ok() && completion.ok()) printed = Print("\n");
  RETURN_IF_ERROR(printed);
  return completion;
}

// Says that the target has a chat template, if it has one and warnings are logged. For prompts of
// text without --chat: models that were trained to answer continue them poorly.
void TellOfChatTemplate(const Engine& engine) {
  const absl::StatusOr<ChatTemplate::Source> source =
      ChatTemplate::ReadSource(engine.target_info().path);
  if (!source.ok() || source->jinja.empty() || !spdlog::should_log(spdlog::level::warn)) return;
  std::fprintf(stderr,
               "tandem: the model has a chat template; --chat uses it to format the prompt as a "
               "user's message\n");
}

absl::Status RunOne(const GenerateFlags& flags, Request request, Engine* engine) {
  AnswerReader::Options reading;
  if (flags.chat) {
    ASSIGN_OR_RETURN(const ChatFormat format, ChatFormat::Load(engine));
    absl::StatusOr<AnswerReader::Options> put = format.PutTurn(flags.Turn(), &request);
    RETURN_IF_ERROR(flags.WithOptionNames(put.status()));
    reading = *std::move(put);
  } else if (request.prompt_ids.empty()) {
    TellOfChatTemplate(*engine);
  }
  absl::StatusOr<Completion> shown =
      flags.json ? engine->Generate(request) : RunShown(engine, request, reading);
  RETURN_IF_ERROR(flags.WithOptionNames(shown.status()));
  std::optional<PlainComparison> comparison;
  if (flags.compare) {
    ASSIGN_OR_RETURN(comparison, CompareWithPlain(engine, {request}, {&*shown, 1}));
  }
  // With a comparison, report a warm run: the first run was cold.
  const Completion& completion =
      comparison.has_value() ? comparison->speculative.completions[0] : *shown;
  if (!flags.json) {
    std::fprintf(stderr, "\n%s%s", TextReport(*engine, completion).c_str(),
                 comparison.has_value() ? ToText(*comparison).c_str() : "");
    return absl::OkStatus();
  }
  Json json = CompletionJson(completion, std::string(NameOf(engine->drafter())));
  if (flags.chat) AddToJson(AnswerReader::Read(reading, completion.text), &json);
  if (comparison.has_value()) AddToJson(*comparison, 0, &json);
  return Print(OneLine(json) + "\n");
}

absl::Status RunBatch(const GenerateFlags& flags, PromptReader* reader, Engine* engine) {
  std::optional<ChatFormat> format;
  if (flags.chat) {
    ASSIGN_OR_RETURN(format, ChatFormat::Load(engine));
  }
  const auto tell = [&] { TellOfChatTemplate(*engine); };
  const auto put_turn = [&](Request* request) { return format->PutTurn(flags.Turn(), request); };
  return RunPromptBatch(
      {.file = reader->name(),
       .base = flags.BaseRequest(),
       .batch = flags.batch,
       .compare = flags.compare,
       .json = flags.json,
       .put_turn = flags.chat ? put_turn : PromptBatchOptions::PutTurn(),
       .on_first_text = flags.chat ? std::function<void()>() : tell,
       .in_its_names = [&](const absl::Status& status) { return flags.WithOptionNames(status); }},
      reader, engine);
}

absl::Status Run(const GenerateFlags& flags) {
  if (flags.is_batch()) {
    ASSIGN_OR_RETURN(TextInput input, TextInput::Open(flags.prompts_file));
    PromptReader reader(std::move(input));
    return RunWithEngine(flags.engine_options,
                         [&](Engine& engine) { return RunBatch(flags, &reader, &engine); });
  }
  ASSIGN_OR_RETURN(const Request request, flags.OnlyRequest());
  return RunWithEngine(flags.engine_options,
                       [&](Engine& engine) { return RunOne(flags, request, &engine); });
}

void AddPromptOptions(CLI::App* app, GenerateFlags* flags) {
  OptionGroup group(app, "Prompt (at most one source; default: standard input)");
  group.Add("-p,--prompt", "TEXT", &flags->prompt, "The text of the prompt");
  group.Add("--prompt-file", "F", &flags->prompt_file, "A text file with the prompt");
  group.Add("--prompt-ids", "1,2,3", &flags->prompt_ids, "The token ids of the prompt");
  group.Add("--prompts", "F.jsonl", &flags->prompts_file,
            "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]}, run as a batch");
  AllowOneOf(app, {"--prompt", "--prompt-file", "--prompt-ids", "--prompts"});
  group.AddFlag("--chat", &flags->chat,
                "Treat the prompt as a user's message and format it with the chat template");
  group.Add("--system", "TEXT", &flags->system, "The system message, with --chat");
  flags->tools_option.AddTo(&group);
  flags->thinking.AddTo(&group);
  group.Add("--prediction", "F", &flags->prediction_file,
            "A text that the output may repeat in large parts: draft tokens are taken from it");
  group.Add("--batch", "N", &flags->batch, "Number of prompts to run at a time, with --prompts",
            kBatchLimits);
}

void AddOutputOptions(CLI::App* app, GenerateFlags* flags) {
  OptionGroup group(app, "Output");
  group.Add("-n,--max-tokens", "N", &flags->max_tokens, "Maximum number of tokens to generate",
            {.low = 1});
  group.Add("--stop", "TEXT", &flags->stop, "Text to stop before; repeatable");
  group.Add("--stop-token", "ID", &flags->stop_tokens, "Token id to stop at; repeatable");
  group.AddFlag("--ignore-eos", &flags->ignore_eos, "Continue past the model's end tokens");
  group.Add("--logprobs", "N", &flags->logprobs,
            "Report each token's log-probability and the N largest (with --json)", kLogprobLimits);
  group.Add("--prompt-logprobs", "N", &flags->prompt_logprobs,
            "Report the same for the prompt's tokens (with --json)", kLogprobLimits);
  group.Add("--logprobs-mode", "NAME", &flags->logprobs_mode,
            "raw: log-probabilities of the model; processed: of the distribution that tokens are "
            "drawn from",
            OneOf{{"raw", "processed"}});
  group.AddFlag("--compare", &flags->compare,
                "Then run three times plainly and three times with speculation, alternating, and "
                "report medians, their spread and whether the tokens are the same; runs do not "
                "draft from the text of earlier runs (as with --draft-memory 0)");
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of text and report");
}

}  // namespace

Command AddGenerateCommand(CLI::App* program) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App* app = program->add_subcommand("generate", "Generate text after a prompt");
  AddPromptOptions(app, flags.get());
  flags->sampling.AddTo(app);
  flags->constraint_flags.AddTo(app);
  AddOutputOptions(app, flags.get());
  flags->engine.AddTo(app, {kEngineGroup, kStoreGroup});
  app->get_option("--compare")->excludes("--kv-store");
  AddExamples(app, {"tandem generate -p \"Once upon a time\" -n 64",
                    "tandem generate -m smollm2 --chat -p \"Why do cats purr?\"",
                    "tandem generate --prompt-file story.txt --compare"});
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run = [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(*flags); }); }};
}

}  // namespace tandem
