// tandem bench perplexity: measures how well a model predicts a text file.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "engine/runtime.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/measuring.h"
#include "tools/bench/perplexity.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

constexpr int kDefaultWindow = 1024;

// REQUIRES: stride >= 0, which the option parser guarantees; 0 is the default.
absl::Status CheckStride(int stride, int window) {
  if (stride <= window) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--stride: found ", stride, ", allowed: from 1 to the window of ", window));
}

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  int window = 0;  // 0: the default
  int stride = 0;  // 0: the default
  bool json = false;

  EngineOptions engine_options;  // set by Check

  absl::Status Check() {
    ASSIGN_OR_RETURN(engine_options,
                     PlainEngineOptions(engine, "only the target has a perplexity"));
    return window > 0 ? CheckStride(stride, window) : absl::OkStatus();
  }
};

// The result, with the model and the file measured.
struct PerplexityReport {
  PerplexityOptions options;
  Perplexity result;
  int64_t file_bytes = 0;
  int64_t predicted_bytes = 0;  // without the bytes of tokens that are not predicted
  double seconds = 0.0;
};

absl::StatusOr<PerplexityOptions> OptionsFor(const PerplexityFlags& flags, const Runtime& pair) {
  const int64_t cached = int64_t{pair.target_cache->num_pages()} * flags.engine_options.page_size;
  const int most = static_cast<int>(std::min<int64_t>(pair.target->context_length(), cached));
  PerplexityOptions options;
  options.window = flags.window > 0 ? flags.window : std::min(kDefaultWindow, most);
  if (options.window > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("--window: found ", options.window, ", allowed: at most ", most,
                     ", which the model's context and the cache hold"));
  }
  options.stride = flags.stride > 0 ? flags.stride : options.window / 2;
  RETURN_IF_ERROR(CheckStride(options.stride, options.window));
  return options;
}

absl::StatusOr<Runtime> Load(const EngineOptions& options) {
  const WaitingLine line(absl::StrCat("loading ", options.target));
  return Runtime::Load(options);
}

// Measures report->result, of the tokens until then after an error. Sets the report's other fields.
absl::Status Measure(const PerplexityFlags& flags, PerplexityReport* report) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file));
  ASSIGN_OR_RETURN(const Runtime pair, Load(flags.engine_options));
  ASSIGN_OR_RETURN(report->options, OptionsFor(flags, pair));
  absl::StatusOr<std::vector<TokenId>> ids = pair.tokenizer->Encode(text, SpecialTokens::kPlain);
  if (!ids.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(flags.file, ": ", ids.status().message()));
  }
  const std::vector<TokenId> tokens = pair.tokenizer->WithTemplate(*ids);
  const Instant start = Instant::Now();
  Measuring measuring;
  RETURN_IF_ERROR(measuring.Begin(absl::StrCat("reading ", tokens.size(), " tokens")));
  absl::Status status =
      MeasurePerplexity(tokens, report->options, pair.target.get(), pair.target_cache.get(),
                        [&](const Perplexity& result) {
                          report->result = result;
                          return measuring.Begin(
                              absl::StrCat("reading token ", result.end, " of ", tokens.size()));
                        })
          .status();
  report->seconds = absl::ToDoubleSeconds(Instant::Now() - start);
  report->file_bytes = static_cast<int64_t>(text.size());
  report->predicted_bytes = report->file_bytes;
  // If the template puts a token in front, the first token of the text is predicted too.
  const size_t front = tokens.size() > ids->size() && tokens.front() != ids->front() ? 1 : 0;
  const auto leave_out = [&](size_t index) {
    if (index < front || index - front >= ids->size()) return;
    const auto text = pair.tokenizer->TextOf(tokens[index], /*is_first=*/index == front);
    if (text.has_value()) report->predicted_bytes -= static_cast<int64_t>(text->bytes.size());
  };
  const size_t apart = report->options.stride == report->options.window
                           ? static_cast<size_t>(report->options.window)
                           : tokens.size();
  const auto end = status.ok() ? tokens.size() : static_cast<size_t>(report->result.end);
  for (size_t i = 0; i < end; i += apart) leave_out(i);
  for (size_t i = end; i < tokens.size(); ++i) leave_out(i);
  return status;
}

absl::Status Run(const PerplexityFlags& flags) {
  PerplexityReport report;
  absl::Status status = Measure(flags, &report);
  const Perplexity& result = report.result;
  // Without a predicted token there is nothing to print.
  if (!status.ok() && (!IsInterrupted(status) || result.tokens == 0)) return status;
  const double bits_per_byte = result.BitsPerByte(report.predicted_bytes);
  if (flags.json) {
    RETURN_IF_ERROR(PrintJson({{"target", flags.engine_options.target},
                               {"file", flags.file},
                               {"window", report.options.window},
                               {"stride", report.options.stride},
                               {"bytes", report.file_bytes},
                               {"tokens", result.tokens},
                               {"nats", result.nats},
                               {"perplexity", result.perplexity()},
                               {"bits_per_byte", bits_per_byte},
                               {"seconds", report.seconds}}));
    return status;
  }
  RETURN_IF_ERROR(
      Print(Format("%s on %s\nperplexity %.4f over %d tokens, %.4f bits per byte\n"
                   "windows of %d tokens, %d apart; %.1f s\n",
                   flags.engine_options.target, flags.file, result.perplexity(), result.tokens,
                   bits_per_byte, report.options.window, report.options.stride, report.seconds)));
  return status;
}

}  // namespace

Command AddBenchPerplexity(CLI::App* bench) {
  const auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* app = bench->add_subcommand(
      "perplexity", "Measure how well the target predicts a text file, token by token");
  OptionGroup group(app, "Measurement");
  group.Add("--file", "F.txt", &flags->file, "The text file, in UTF-8")->required();
  group.Add("--window", "N", &flags->window,
            "Tokens per window; every window begins with an empty context [1024, or the model's "
            "context if smaller]",
            {.low = 2, .high = 1 << 30});
  group.Add("--stride", "N", &flags->stride,
            "Distance in tokens between the beginnings of windows. A token is predicted in the "
            "first window that contains it; windows that do not overlap predict all but their "
            "first token [half the window]",
            {.low = 1, .high = 1 << 30});
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of text");
  flags->engine.AddTo(app, {kEngineGroup}, /*with_draft_tokens=*/false);
  AddExamples(app, {"tandem bench perplexity --file text.txt",
                    "tandem bench perplexity -m smollm2 --file text.txt --json"});
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run = [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(*flags); }); }};
}

}  // namespace tandem
