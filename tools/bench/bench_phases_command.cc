// tandem bench phases: measures the time to the first token by the prompt's length, the time per
// output token by its position, and compares both with their rooflines.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/phases.h"
#include "tools/bench/row_printer.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/report.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

struct PhaseFlags {
  EngineFlags engine;
  PhaseOptions phases;
  bool json = false;

  EngineOptions engine_options;  // set by Check

  absl::Status Check() {
    ASSIGN_OR_RETURN(engine_options,
                     PlainEngineOptions(engine, "the phases are measured with plain decoding"));
    engine_options.prefix_cache = false;
    engine_options.chunk_tokens = phases.chunk_tokens;
    return absl::OkStatus();
  }
};

void PrintTable(absl::string_view title, const std::vector<OrderedJson>& rows,
                Measuring* measuring) {
  (void)measuring->Print(absl::StrCat("\n", title, "\n"));
  RowPrinter printer(TimesColumns(), measuring);
  for (const OrderedJson& row : rows) printer.Print(row);
}

absl::Status Run(const PhaseFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.engine_options));
  Measuring measuring;
  RETURN_IF_ERROR(measuring.Begin(kPreparingLimits));
  ASSIGN_OR_RETURN(const std::unique_ptr<MachineLimits> limits,
                   MachineLimits::Create(ThreadsOf(flags.engine_options)));
  const ModelInfo target = engine->target_info();
  ASSIGN_OR_RETURN(const PassCounter counter, PassCounterOf(flags.engine_options, target));
  if (!flags.json) {
    RETURN_IF_ERROR(measuring.Print(absl::StrCat(
        CpuName(), ": ", engine->device_description(), "\n", target.path, ": ", target.dtype,
        Format(", %.2f MB of matrices per pass", target.bytes_read_per_pass * 1e-6),
        "; medians of ", flags.phases.repeat, " interleaved samples\n")));
  }
  PhaseCurves curves;
  absl::Status status =
      MeasurePhases(flags.phases, counter, engine.get(), limits.get(), &measuring, &curves);
  if (!status.ok() && !IsInterrupted(status)) return status;
  if (!flags.json) {
    PrintTable("time to the first token", curves.PrefillRows(), &measuring);
    PrintTable("time per output token", curves.DecodeRows(), &measuring);
    RETURN_IF_ERROR(
        measuring.Print(absl::StrCat("\n", limits->ToText(), BusyLine(measuring.load()))));
    return status;
  }
  OrderedJson json = {
      {"machine", MachineJson(ThreadsOf(flags.engine_options), engine->device_description())},
      {"limits", limits->ToJson()},
      {"target", {{"path", target.path}, {"dtype", target.dtype}}},
      {"repeat", flags.phases.repeat},
      {"prefill", curves.PrefillRows()},
      {"decode", curves.DecodeRows()}};
  RETURN_IF_ERROR(measuring.Print(LineOf(With(std::move(json), LoadJson(measuring.load())))));
  return status;
}

}  // namespace

Command AddBenchPhases(CLI::App* bench) {
  const auto flags = std::make_shared<PhaseFlags>();
  CLI::App* app = bench->add_subcommand(
      "phases",
      "Measure the time to the first token by the prompt's length and the time per output token by "
      "its position, compared with the machine's limits");
  OptionGroup group(app, "Measurement");
  AddNumbers(app, "--prompt-lengths", &flags->phases.prompt_lengths,
             "Lengths of the random prompts in tokens", 1, 1 << 20)
      ->group("Measurement");
  group.Add("-n,--max-tokens", "N", &flags->phases.max_tokens,
            "Tokens decoded after each prompt, not counting the first",
            {.low = 1, .high = 1 << 20});
  group.Add("--repeat", "N", &flags->phases.repeat,
            "Number of generations of each length, interleaved", {.low = 1, .high = 10000});
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of tables");
  flags->engine.AddTo(app, {kEngineGroup}, /*with_draft_tokens=*/false);
  AddExamples(app, {"tandem bench phases", "tandem bench phases -m smollm2 --prompt-lengths 64,512",
                    "tandem bench phases --repeat 3 --json"});
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run = [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(*flags); }); }};
}

}  // namespace tandem
