// tandem pair: measures whether a draft pays for a target, and with how many tokens.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/pair_measurement.h"
#include "tools/standard_streams.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

OrderedJson RunsJson(const PairTask& task) {
  OrderedJson runs = OrderedJson::array();
  for (size_t i = 0; i < task.runs.size(); ++i) {
    const PairRun& run = task.runs[i];
    OrderedJson acceptance = OrderedJson::array();
    for (int at = 0; at < run.draft_tokens; ++at) acceptance.push_back(run.stats.AcceptanceAt(at));
    runs.push_back({{"draft_tokens", run.draft_tokens},
                    {"gain", task.GainOf(i)},
                    {"tokens_per_second", 1.0 / run.SecondsPerToken()},
                    {"proposed", run.stats.proposed},
                    {"accepted", run.stats.accepted},
                    {"acceptance_rate", run.stats.AcceptanceRate()},
                    {"acceptance_per_position", acceptance}});
  }
  return runs;
}

OrderedJson FindingsJson(const Engine& engine, const PairFindings& findings) {
  OrderedJson tasks = OrderedJson::array();
  for (const PairTask& task : findings.tasks) {
    tasks.push_back({{"task", task.name}, {"runs", RunsJson(task)}});
  }
  const PairTask all = findings.All();
  const size_t best = findings.Best();
  return {{"target", engine.target_info().path},
          {"draft", engine.draft_info()->path},
          {"device", engine.device_description()},
          {"draft_to_target_bytes", findings.bytes_ratio},
          {"step_cost", findings.StepCost()},
          {"row_cost", findings.RowCost()},
          {"tasks", tasks},
          {"all", RunsJson(all)},
          {"best_draft_tokens", kPairLengths[best]},
          {"gain", all.GainOf(best)},
          {"verdict", findings.Verdict()}};
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
                                      absl::StrFormat("%.1f", 1.0 / task.runs[0].SecondsPerToken()),
                                      absl::StrFormat("%.2f", task.runs[1].stats.AcceptanceAt(0))};
    for (size_t i = 1; i < task.runs.size(); ++i) {
      cells.push_back(absl::StrFormat("%.2f", task.GainOf(i)));
    }
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(
      "target  ", engine.target_info().path, "\ndraft   ", engine.draft_info()->path, "\ndevice  ",
      engine.device_description(), "\n\n", table.ToText(),
      absl::StrFormat(
          "\nTimes plain decoding at temperature 0, prompts left out. \"first kept\" is "
          "the share of first draft tokens that were kept.\nA step of the draft costs "
          "%.2f of a plain pass (%.2f of its bytes), one more row %.2f.\n\n",
          findings.StepCost(), findings.bytes_ratio, findings.RowCost()),
      findings.Verdict(), "\n");
}

absl::Status Run(const PairFlags& flags) {
  return RunWithEngine(flags.engine_options, [&](Engine& engine) -> absl::Status {
    constexpr int kSteps = 1000;
    PairFindings findings;
    {
      Progress progress("measuring", kSteps);
      ASSIGN_OR_RETURN(findings,
                       MeasurePair(absl::Seconds(flags.seconds), &engine, [&](double share) {
                         progress.AdvanceTo(static_cast<int64_t>(kSteps * share));
                       }));
    }
    return flags.json ? PrintJson(FindingsJson(engine, findings))
                      : Print(FindingsText(engine, findings));
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
