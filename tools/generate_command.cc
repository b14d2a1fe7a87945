// tandem generate: text from prompts, with a report of what speculation did.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/report_json.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/prompt_file.h"
#include "tools/report.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Plain and speculative runs of --compare, in this order, so that a drift of the machine's speed
// falls on both alike.
constexpr bool kSpeculates[] = {false, true, true, false, false, true};

struct GenerateFlags {
  EngineFlags engine;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> prompt_ids;
  std::string prompts_file;
  int batch = 8;
  int max_tokens = 256;
  SamplingParams sampling;
  std::vector<std::string> logit_bias;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int> stop_tokens;
  bool ignore_eos = false;
  int logprobs = -1;
  int prompt_logprobs = -1;
  std::string logprobs_mode = "raw";
  bool compare = false;
  bool json = false;

  EngineOptions engine_options;  // set by Check

  absl::Status Check();
  Request BaseRequest() const;
  absl::StatusOr<std::vector<Request>> Requests() const;
  bool is_batch() const { return !prompts_file.empty(); }
};

absl::StatusOr<std::vector<TokenId>> ParseIds(const std::string& text) {
  std::vector<TokenId> ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TokenId id = 0;
    if (!absl::SimpleAtoi(part, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt-ids: \"", part, "\" is not a token id; ids look like 1,2,3"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status GenerateFlags::Check() {
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  engine_options.max_batch = is_batch() ? batch : 1;
  // Later runs would find the prompt of the first.
  engine_options.prefix_cache = !compare;
  const int num_prompts =
      prompt.has_value() + !prompt_file.empty() + prompt_ids.has_value() + !prompts_file.empty();
  if (num_prompts > 1) {
    return absl::InvalidArgumentError(
        "give one of --prompt, --prompt-file, --prompt-ids and --prompts");
  }
  if (prompt_ids.has_value()) RETURN_IF_ERROR(ParseIds(*prompt_ids).status());
  sampling.logit_bias.clear();
  for (const std::string& entry : logit_bias) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits(':', 1));
    TokenId id = 0;
    float bias = 0.0f;
    if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias: \"", entry, "\" is not ID:BIAS"));
    }
    sampling.logit_bias.emplace_back(id, bias);
  }
  for (const std::string& text : stop) {
    if (text.empty()) return absl::InvalidArgumentError("--stop: the text is empty");
  }
  // Without a seed the runs to compare would draw differently.
  if (compare && !seed.has_value()) {
    std::random_device entropy;
    seed = uint64_t{entropy()} << 32 | entropy();
  }
  RETURN_IF_ERROR(sampling.Validate(std::numeric_limits<int>::max()));
  if (sampling.min_tokens > max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--min-tokens: ", sampling.min_tokens,
                                                   " is more than --max-tokens, which is ",
                                                   max_tokens));
  }
  return absl::OkStatus();
}

Request GenerateFlags::BaseRequest() const {
  return {.prompt = "",
          .prompt_ids = {},
          .max_tokens = max_tokens,
          .sampling = sampling,
          .seed = seed,
          .sequence = 0,
          .stop = stop,
          .stop_tokens = {stop_tokens.begin(), stop_tokens.end()},
          .ignore_eos = ignore_eos,
          .draft_tokens = std::nullopt,
          .verifier = std::nullopt,
          .logprobs = {.num_top = logprobs, .processed = logprobs_mode == "processed"},
          .prompt_logprobs = {.num_top = prompt_logprobs, .processed = false}};
}

absl::StatusOr<std::vector<Request>> ReadPrompts(const std::string& path, const Request& base) {
  ASSIGN_OR_RETURN(std::vector<Prompt> prompts, ReadPromptFile(path));
  std::vector<Request> requests;
  for (Prompt& prompt : prompts) {
    Request request = base;
    request.prompt = std::move(prompt.text);
    request.prompt_ids = std::move(prompt.ids);
    request.sequence = static_cast<uint32_t>(requests.size());
    requests.push_back(std::move(request));
  }
  return requests;
}

absl::StatusOr<std::vector<Request>> GenerateFlags::Requests() const {
  Request request = BaseRequest();
  if (is_batch()) return ReadPrompts(prompts_file, request);
  if (prompt_ids.has_value()) {
    ASSIGN_OR_RETURN(request.prompt_ids, ParseIds(*prompt_ids));
  } else if (prompt.has_value()) {
    request.prompt = *prompt;
  } else if (!prompt_file.empty()) {
    ASSIGN_OR_RETURN(request.prompt, ReadFile(prompt_file));
  } else {
    if (isatty(STDIN_FILENO)) std::fprintf(stderr, "Type the prompt, then Ctrl-D:\n");
    request.prompt = std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (request.prompt.empty() && request.prompt_ids.empty()) {
    return absl::InvalidArgumentError("the prompt is empty");
  }
  return std::vector<Request>{request};
}

// Runs all requests together; `show` streams the text of the only one.
absl::StatusOr<std::vector<Completion>> RunAll(Engine* engine, std::vector<Request> requests,
                                               bool show) {
  std::vector<GenerationId> ids;
  absl::Status status;
  for (Request& request : requests) {
    Engine::OnPiece on_piece;
    if (show) {
      on_piece = [](const Piece& piece) {
        std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
        return std::fflush(stdout) == 0;
      };
    }
    absl::StatusOr<GenerationId> id = engine->Submit(std::move(request), std::move(on_piece));
    if (!id.ok()) {
      status = id.status();
      break;
    }
    ids.push_back(*id);
  }
  std::vector<Completion> completions;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!status.ok()) engine->Cancel(ids[i]);
    absl::StatusOr<Completion> completion = engine->Wait(ids[i]);
    if (!completion.ok()) {
      status.Update(absl::Status(
          completion.status().code(),
          ids.size() == 1 ? std::string(completion.status().message())
                          : absl::StrCat("prompt ", i + 1, ": ", completion.status().message())));
      continue;
    }
    completions.push_back(*std::move(completion));
  }
  if (!status.ok()) return status;
  return completions;
}

// The same requests decoded plainly, beside the speculative run.
struct Comparison {
  std::vector<Completion> plain;
  double plain_tokens_per_second = 0.0;  // medians over the runs
  double speculative_tokens_per_second = 0.0;
  bool identical = true;
  double speedup() const { return speculative_tokens_per_second / plain_tokens_per_second; }
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Tokens of all sequences over the time from the first submission to the last token.
double JointTokensPerSecond(absl::Span<const Completion> completions) {
  size_t tokens = 0;
  absl::Duration time;
  for (const Completion& completion : completions) {
    tokens += completion.token_ids.size();
    time = std::max(time, completion.timings.end_to_end);
  }
  return static_cast<double>(tokens) / absl::ToDoubleSeconds(time);
}

absl::StatusOr<Comparison> Compare(Engine* engine, const std::vector<Request>& requests,
                                   absl::Span<const Completion> speculative) {
  Comparison comparison;
  std::vector<double> speeds[2];
  for (const bool speculates : kSpeculates) {
    std::vector<Request> run = requests;
    for (Request& request : run) {
      if (!speculates) request.draft_tokens = 0;
    }
    ASSIGN_OR_RETURN(std::vector<Completion> completions,
                     RunAll(engine, std::move(run), /*show=*/false));
    speeds[speculates].push_back(JointTokensPerSecond(completions));
    for (size_t i = 0; i < completions.size(); ++i) {
      if (completions[i].token_ids != speculative[i].token_ids) comparison.identical = false;
    }
    if (!speculates) comparison.plain = std::move(completions);
  }
  comparison.plain_tokens_per_second = Median(speeds[false]);
  comparison.speculative_tokens_per_second = Median(speeds[true]);
  return comparison;
}

void PrintJson(const GenerateFlags& flags, const Engine& engine,
               absl::Span<const Completion> completions,
               const std::optional<Comparison>& comparison) {
  Json all = Json::array();
  for (size_t i = 0; i < completions.size(); ++i) {
    Json json = CompletionJson(completions[i], std::string(NameOf(engine.drafter())));
    if (comparison.has_value()) {
      json["plain"] = {{"token_ids", comparison->plain[i].token_ids},
                       {"timings", TimingsJson(comparison->plain[i])},
                       {"tokens_per_second", comparison->plain_tokens_per_second}};
      json["speedup"] = comparison->speedup();
      json["identical"] = completions[i].token_ids == comparison->plain[i].token_ids;
    }
    all.push_back(std::move(json));
  }
  const Json& output = flags.is_batch() ? all : all[0];
  const std::string text = output.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

void PrintText(const GenerateFlags& flags, const Engine& engine,
               absl::Span<const Completion> completions,
               const std::optional<Comparison>& comparison) {
  if (flags.is_batch()) {
    for (size_t i = 0; i < completions.size(); ++i) {
      std::printf("--- prompt %zu\n%s\n", i + 1, completions[i].text.c_str());
    }
  } else {
    std::printf("\n");
  }
  std::fflush(stdout);
  std::fprintf(stderr, "\n%s", TextReport(engine, JointCompletion(completions)).c_str());
  if (!comparison.has_value()) return;
  std::fprintf(stderr,
               "compared    %.1f tokens/s with speculation, %.1f plain: %.2f times as fast "
               "(medians of 3, interleaved)\nidentical: %s\n",
               comparison->speculative_tokens_per_second, comparison->plain_tokens_per_second,
               comparison->speedup(), comparison->identical ? "true" : "false");
}

absl::Status Run(const GenerateFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Request> requests, flags.Requests());
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(flags.engine_options));
  const bool show = !flags.json && !flags.is_batch();
  ASSIGN_OR_RETURN(const std::vector<Completion> completions, RunAll(engine.get(), requests, show));
  std::optional<Comparison> comparison;
  if (flags.compare) {
    ASSIGN_OR_RETURN(comparison, Compare(engine.get(), requests, completions));
  }
  if (flags.json) {
    PrintJson(flags, *engine, completions, comparison);
  } else {
    PrintText(flags, *engine, completions, comparison);
  }
  return absl::OkStatus();
}

void AddSamplingOptions(CLI::App* app, GenerateFlags* flags) {
  const std::string group = "Sampling";
  SamplingParams& s = flags->sampling;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app->add_option(name, value, help)->group(group);
  };
  add("--temperature", s.temperature, "0 always takes the most likely token [1]")->type_name("T");
  add("--top-k", s.top_k, "Keep the K most likely tokens; 0 keeps all [0]")->type_name("K");
  add("--top-p", s.top_p, "Keep the most likely tokens that reach this sum [1]")->type_name("P");
  add("--min-p", s.min_p, "Keep tokens with at least this share of the largest probability [0]")
      ->type_name("P");
  add("--repetition-penalty", s.repetition_penalty, "Above 1 avoids tokens seen before [1]")
      ->type_name("R");
  add("--frequency-penalty", s.frequency_penalty, "Taken off per occurrence in the output [0]")
      ->type_name("F");
  add("--presence-penalty", s.presence_penalty, "Taken off once for tokens in the output [0]")
      ->type_name("F");
  add("--logit-bias", flags->logit_bias, "Added to a token's logit; repeatable")
      ->type_name("ID:BIAS");
  add("--seed", flags->seed, "Makes the output a function of model, prompt and parameters alone")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
}

void AddPromptOptions(CLI::App* app, GenerateFlags* flags) {
  const std::string group = "Prompt (one of these, else standard input)";
  app->add_option("--prompt", flags->prompt, "Text")->type_name("TEXT")->group(group);
  app->add_option("--prompt-file", flags->prompt_file, "A text file")->type_name("F")->group(group);
  app->add_option("--prompt-ids", flags->prompt_ids, "Token ids, taken as they are")
      ->type_name("1,2,3")
      ->group(group);
  app->add_option("--prompts", flags->prompts_file,
                  "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]}, run as a batch")
      ->type_name("F.jsonl")
      ->group(group);
  app->add_option("--batch", flags->batch, "Prompts at a time with --prompts [8]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(group);
}

void AddOutputOptions(CLI::App* app, GenerateFlags* flags) {
  const std::string group = "Output";
  app->add_option("--max-tokens", flags->max_tokens, "Most tokens to write [256]")
      ->type_name("N")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->group(group);
  app->add_option("--min-tokens", flags->sampling.min_tokens,
                  "No end token, stop token or stop text counts before N tokens [0]")
      ->type_name("N")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->group(group);
  app->add_option("--stop", flags->stop, "Text to stop before; repeatable")
      ->type_name("TEXT")
      ->group(group);
  app->add_option("--stop-token", flags->stop_tokens, "Token id to stop at; repeatable")
      ->type_name("ID")
      ->group(group);
  app->add_flag("--ignore-eos", flags->ignore_eos, "Go on past the model's end tokens")
      ->group(group);
  app->add_option("--logprobs", flags->logprobs,
                  "Report each token's log-probability and the N largest (with --json)")
      ->type_name("N")
      ->check(CLI::Range(0, 100))
      ->group(group);
  app->add_option("--prompt-logprobs", flags->prompt_logprobs, "The same of the prompt's tokens")
      ->type_name("N")
      ->check(CLI::Range(0, 100))
      ->group(group);
  app->add_option("--logprobs-mode", flags->logprobs_mode,
                  "raw: of the model; processed: of the distribution drawn from [raw]")
      ->type_name("NAME")
      ->check(CLI::IsMember({"raw", "processed"}))
      ->group(group);
  app->add_flag("--compare", flags->compare,
                "Also decode plainly, interleaved, and report the speed-up and whether the tokens "
                "are the same")
      ->group(group);
  app->add_flag("--json", flags->json, "One JSON object instead of text and report")->group(group);
}

}  // namespace

Command AddGenerateCommand(CLI::App* program) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App* app = program->add_subcommand("generate", "Write text after a prompt");
  AddPromptOptions(app, flags.get());
  AddSamplingOptions(app, flags.get());
  AddOutputOptions(app, flags.get());
  flags->engine.AddTo(app);
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
