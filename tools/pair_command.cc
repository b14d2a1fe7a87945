// tandem pair: measures whether a draft pays for a target, and with how many tokens.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"
#include "tandem/json_value.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/pair_measurement.h"
#include "tools/report.h"
#include "tools/standard_streams.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

struct PairFlags {
  std::string target;
  std::string draft;
  EngineFlags engine;
  int seconds = 45;
  bool json = false;

  EngineOptions engine_options;  // set by Check

  absl::Status Check();
};

absl::Status PairFlags::Check() {
  engine.options.target = target;
  engine.options.draft = draft;
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  engine_options.drafter = DrafterKind::kModel;
  engine_options.max_batch = 1;
  engine_options.prefix_cache = false;
  engine_options.draft_memory_bytes = 0;
  engine_options.warm_up = true;
  return absl::OkStatus();
}

std::string FindingsText(const Engine& engine, const PairFindings& findings) {
  std::vector<std::string> headings = {"task", "plain tok/s", "first kept"};
  for (const int k : kPairLengths) {
    if (k > 0) headings.push_back(absl::StrCat("-k ", k));
  }
  Table table(headings);
  std::vector<PairTask> rows = findings.tasks;
  rows.push_back(findings.All());
  for (const PairTask& task : rows) {
    std::vector<std::string> cells = {task.name,
                                      Format("%.1f", 1.0 / task.runs[0].SecondsPerToken()),
                                      Format("%.2f", task.runs[1].stats.AcceptanceAt(0))};
    for (size_t i = 1; i < task.runs.size(); ++i) {
      cells.push_back(Format("%.2f", task.GainOf(i)));
    }
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(
      "target  ", engine.target_info().path, "\ndraft   ", engine.draft_info()->path, "\ndevice  ",
      engine.device_description(), "\n\n", table.ToText(),
      Format("\nTimes plain decoding at temperature 0, prompts left out. \"first kept\" is "
             "the share of first draft tokens that were kept.\nA %s of the draft costs "
             "%.2f of a plain pass (%.2f of its bytes), one more row %.2f.\n\n",
             findings.in_one_pass ? "pass for all tokens" : "step", findings.StepCost(),
             findings.bytes_ratio, findings.RowCost()),
      findings.Verdict(), "\n",
      findings.others.is_disturbing ? absl::StrCat("Busy: ", BusyText(findings.others), ".\n")
                                    : "");
}

absl::Status Run(const PairFlags& flags) {
  return RunWithEngine(flags.engine_options, [&](Engine& engine) -> absl::Status {
    PairFindings findings;
    {
      Progress progress("measuring");
      RETURN_IF_ERROR(MeasurePair(
          absl::Seconds(flags.seconds), &engine,
          [&](double share) {
            progress.AdvanceToShare(share);
            return absl::OkStatus();
          },
          &findings));
    }
    if (!flags.json) return Print(FindingsText(engine, findings));
    OrderedJson json = {{"target", engine.target_info().path},
                        {"draft", engine.draft_info()->path},
                        {"device", engine.device_description()}};
    json.update(findings.ToJson());
    return PrintJson(json);
  });
}

}  // namespace

Command AddPairCommand(CLI::App* program) {
  const auto flags = std::make_shared<PairFlags>();
  CLI::App* app = program->add_subcommand("pair",
                                          "Measure whether a draft pays for a target, in less than "
                                          "a minute unless the target is large");
  app->add_option("TARGET", flags->target, "A model: a folder, a GGUF file or a known name")
      ->required();
  app->add_option("DRAFT", flags->draft, "A smaller model, or a draft head")->required();
  OptionGroup group(app);
  group.Add("--seconds", "N", &flags->seconds,
            "Measure for N seconds, after loading; each of five tasks is answered at least once "
            "with each draft length",
            {.low = 1, .high = 3600});
  group.AddFlag("--json", &flags->json, "Print a JSON object");
  AddEngineOptions(app,
                   {"threads", "device", "packed_weights", "draft_quantize", "draft_head_tokens"},
                   &flags->engine.options);
  AddExamples(app, {"tandem pair smollm2 models/smollm2-draft",
                    "tandem pair target.gguf draft.gguf --seconds 30 --json"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
