// tandem bench speculation: compares speculative with plain decoding, as a table or JSON.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/format.h"
#include "base/machine_load.h"
#include "base/status_macros.h"
#include "engine/judged_engine.h"
#include "model/checkpoint/model_config.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_speculation.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/row_printer.h"
#include "tools/conversation.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/report.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

constexpr const char* kStoryOpenings[] = {
    "Once upon a time, there was a small boat that wanted to see the ocean.",
    "Lily found a shiny key under the big tree in her garden.",
    "The old dog and the young cat did not like to share their blanket.",
    "One rainy morning, Ben and his mom baked a cake for the new neighbor.",
    "A little bird sat on the roof and could not remember its song.",
    "Sam was sad because his red kite was stuck on top of the barn.",
    "In the middle of the night, the toys woke up and began to talk.",
    "Grandpa told Mia that there was a secret door behind the bookshelf.",
};
constexpr char kDefaultDraftTokens[] = "1,2,4,8";

struct SpeculationFlags {
  EngineFlags engine;
  std::string prompts_file;
  int num_prompts = 0;       // 0: all
  std::string draft_tokens;  // empty: the default
  bool chat = false;
  bool json = false;
  SpeculationBenchmarkOptions benchmark;

  EngineOptions engine_options;  // set by Check

  absl::Status Check();
  absl::Status LoadPrompts();
  absl::Status PutPrompts(const Engine& engine);
};

absl::Status SpeculationFlags::Check() {
  ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
  const bool has_drafter = engine_options.drafter != DrafterKind::kNone;
  const std::string list = !draft_tokens.empty() ? draft_tokens
                           : has_drafter         ? kDefaultDraftTokens
                                                 : "0";
  benchmark.draft_tokens.clear();
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int count = 0;
    RETURN_IF_ERROR(SetFromText("--draft-tokens", std::string(part), kDraftTokenLimits, &count));
    if (count != 0 && !has_drafter) {
      return absl::InvalidArgumentError(
          absl::StrCat("--draft-tokens: ", part, " needs a --drafter other than none"));
    }
    benchmark.draft_tokens.push_back(count);
  }
  engine_options.max_batch = *std::max_element(benchmark.batches.begin(), benchmark.batches.end());
  engine_options.prefix_cache = false;
  engine_options.draft_memory_bytes = 0;  // it would contain the answers of earlier runs
  return absl::OkStatus();
}

absl::Status SpeculationFlags::LoadPrompts() {
  std::vector<Prompt>& prompts = benchmark.prompts;
  if (prompts_file.empty()) {
    for (const char* opening : kStoryOpenings) prompts.push_back({.text = opening, .ids = {}});
  } else {
    ASSIGN_OR_RETURN(prompts, ReadPromptFile(prompts_file));
  }
  if (num_prompts == 0) return absl::OkStatus();
  if (static_cast<size_t>(num_prompts) > prompts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num-prompts: found ", num_prompts, ", allowed: at most ", prompts.size()));
  }
  prompts.resize(num_prompts);
  return absl::OkStatus();
}

// Formats the prompts as messages, whose answers end where the model ends them.
absl::Status SpeculationFlags::PutPrompts(const Engine& engine) {
  ASSIGN_OR_RETURN(const ChatFormat format, ChatFormat::Load(&engine));
  for (Prompt& prompt : benchmark.prompts) {
    Request request{.prompt = std::move(prompt.text), .prompt_ids = std::move(prompt.ids)};
    RETURN_IF_ERROR(format.PutTurn({}, &request).status());
    prompt = {.text = "", .ids = std::move(request.prompt_ids)};
    benchmark.stop_tokens = std::move(request.stop_tokens);
  }
  benchmark.ignore_eos = false;
  return absl::OkStatus();
}

// The result, with the models and options measured.
struct Report {
  ModelInfo target;
  std::optional<ModelInfo> draft;
  std::string drafter;
  std::string device;
  SpeculationBenchmark benchmark;
  OtherLoad others;                       // during the runs
  std::unique_ptr<MachineLimits> limits;  // null if the benchmark was interrupted

  // Bytes of matrices per second of plain decoding at batch 1. REQUIRES: that was measured.
  double plain_bytes_per_second() const {
    return static_cast<double>(target.bytes_read_per_pass) / (benchmark.plain->step_ms * 1e-3);
  }
  // This speed as a share of the read limit of `place`; nullopt for a cache that is too small for
  // the matrices, and without limits.
  std::optional<double> OfLimit(Place place) const {
    if (limits == nullptr) return std::nullopt;
    if (place == Place::kCache &&
        MachineLimits::PlaceOf(target.bytes_read_per_pass) != Place::kCache) {
      return std::nullopt;
    }
    const std::optional<double> limit = limits->BytesPerSecond(place);
    return limit.has_value() ? std::optional(plain_bytes_per_second() / *limit) : std::nullopt;
  }
};

std::string DraftTokensText(int draft_tokens) {
  return draft_tokens == kAutoDraftTokens ? "auto" : absl::StrCat(draft_tokens);
}

OrderedJson SpreadJson(const Spread& spread) { return {spread.low, spread.high}; }

OrderedJson RunJson(const SpeculationRun& run) {
  const bool is_auto = run.draft_tokens == kAutoDraftTokens;
  return {{"draft_tokens", is_auto ? OrderedJson("auto") : OrderedJson(run.draft_tokens)},
          {"batch", run.batch},
          {"pairs", run.num_pairs},
          {"plain_tokens_per_second", run.plain_tokens_per_second.median},
          {"plain_tokens_per_second_spread", SpreadJson(run.plain_tokens_per_second)},
          {"tokens_per_second", run.tokens_per_second.median},
          {"tokens_per_second_spread", SpreadJson(run.tokens_per_second)},
          {"ratio_to_plain", run.ratio.median},
          {"ratio_spread", SpreadJson(run.ratio)},
          {"decode_ratio", run.decode_ratio.median},
          {"decode_ratio_spread", SpreadJson(run.decode_ratio)},
          {"acceptance_rate", run.acceptance_rate},
          {"tokens_per_round", run.tokens_per_round},
          {"drafted_per_round", run.drafted_per_round},
          {"plain_step_ms", run.plain_step_ms},
          {"draft_step_ms", run.draft_step_ms},
          {"verify_ms", run.verify_ms},
          {"other_ms", run.other_ms},
          {"cost_ratio", run.cost_ratio()},
          {"predicted_ratio", run.predicted_ratio()},
          {"expected_ratio", OrNull(run.expected_ratio)},
          {"identical", OrNull(run.identical)}};
}

OrderedJson PlainJson(const Report& report) {
  if (!report.benchmark.plain.has_value()) return nullptr;
  const PlainDecoding& plain = *report.benchmark.plain;
  return {{"batch", 1},
          {"tokens_per_second", plain.tokens_per_second.median},
          {"tokens_per_second_spread", SpreadJson(plain.tokens_per_second)},
          {"step_ms", plain.step_ms},
          {"bytes_read_per_step", report.target.bytes_read_per_pass},
          {"bytes_per_second", report.plain_bytes_per_second()},
          {"of_limit",
           {{"dram", OrNull(report.OfLimit(Place::kMemory))},
            {"cache", OrNull(report.OfLimit(Place::kCache))}}}};
}

OrderedJson ReportJson(const SpeculationFlags& flags, const Report& report) {
  OrderedJson runs = OrderedJson::array();
  for (const SpeculationRun& run : report.benchmark.runs) runs.push_back(RunJson(run));
  OrderedJson json = {
      {"machine", MachineJson(ThreadsOf(flags.engine_options), report.device)},
      {"limits", report.limits == nullptr ? OrderedJson(nullptr) : report.limits->ToJson()},
      {"target", ModelJson(report.target)},
      {"draft", report.draft.has_value() ? ModelJson(*report.draft) : OrderedJson(nullptr)},
      {"drafter", report.drafter},
      {"prompts", flags.benchmark.prompts.size()},
      {"max_tokens", flags.benchmark.max_tokens},
      {"temperature", flags.benchmark.temperature},
      {"repeat", flags.benchmark.repeat},
      {"synthetic_acceptance", OrNull(flags.benchmark.synthetic_acceptance)},
      {"plain", PlainJson(report)},
      {"runs", runs}};
  return With(std::move(json), LoadJson(report.others));
}

OrderedJson RowOf(const SpeculationRun& run) {
  OrderedJson row = RunJson(run);
  row["range"] = Format("[%.2f, %.2f]", run.ratio.low, run.ratio.high);
  if (run.drafted_per_round > 0) return row;
  for (const char* of_draft :
       {"acceptance_rate", "draft_step_ms", "cost_ratio", "predicted_ratio"}) {
    row[of_draft] = nullptr;
  }
  return row;
}

constexpr Column kRunColumns[] = {{"k", "draft_tokens", nullptr, 1, 4},
                                  {"batch", "batch"},
                                  {"plain tok/s", "plain_tokens_per_second", "%.1f"},
                                  {"spec tok/s", "tokens_per_second", "%.1f"},
                                  {"ratio", "ratio_to_plain", "%.2f"},
                                  {"[low, high]", "range"},
                                  {"accepted", "acceptance_rate", "%.3f"},
                                  {"tok/round", "tokens_per_round", "%.2f"},
                                  {"draft step ms", "draft_step_ms", "%.3f"},
                                  {"verify ms", "verify_ms", "%.3f"},
                                  {"other ms", "other_ms", "%.3f"},
                                  {"c", "cost_ratio", "%.3f"},
                                  {"decode ratio", "decode_ratio", "%.2f"},
                                  {"predicted", "predicted_ratio", "%.2f"},
                                  {"expected", "expected_ratio", "%.2f"}};

std::string ModelText(const ModelInfo& model) {
  return Format("%s: %s, %.1f million parameters, %s, cache of %s", model.path, model.family,
                static_cast<double>(model.parameters) * 1e-6, model.dtype, model.kv_cache);
}

// The text before the table.
std::string HeadingText(const SpeculationFlags& flags, const Report& report) {
  const SpeculationBenchmarkOptions& options = flags.benchmark;
  std::string text = absl::StrCat("target  ", ModelText(report.target), "\n");
  if (report.draft.has_value()) {
    absl::StrAppend(&text, "draft   ", ModelText(*report.draft), "\n");
  }
  absl::StrAppend(&text, "device  ", report.device, "\n");
  text += Format(
      "%d prompts, up to %d tokens each, temperature %g; medians of %d pairs of "
      "passes, interleaved\n\n",
      options.prompts.size(), options.max_tokens, options.temperature, options.repeat);
  return text;
}

// The text after the table.
std::string ClosingText(const SpeculationFlags& flags, const Report& report) {
  const SpeculationBenchmarkOptions& options = flags.benchmark;
  std::string text;
  if (options.synthetic_acceptance.has_value()) {
    text += Format(
        "synthetic acceptance: each draft token was kept with probability %g, so "
        "the output is not the target's\nexpected: (1 - a^(k+1)) / ((1 - a) (1 "
        "+ k c)) for this probability\n",
        *options.synthetic_acceptance);
  }
  absl::StrAppend(
      &text,
      "ratio: of tokens per second, prompts included; decode ratio: of times per token "
      "after the first round\npredicted: decode ratio if verifying k rows cost the same as one: "
      "tokens per round / (1 + k c), c = draft step / plain step\n");
  text += BusyLine(report.others);
  if (!report.benchmark.plain.has_value()) return text;
  absl::StrAppendFormat(
      &text, "\nPlain decoding, batch 1: %.2f MB of matrices per step, %.1f steps/s: %.2f GB/s",
      static_cast<double>(report.target.bytes_read_per_pass) * 1e-6,
      1e3 / report.benchmark.plain->step_ms, report.plain_bytes_per_second() * 1e-9);
  for (const auto& [place, name] : {std::pair(Place::kMemory, "the memory's speed"),
                                    std::pair(Place::kCache, "the last-level cache's speed")}) {
    if (const auto share = report.OfLimit(place); share.has_value()) {
      text += Format(", %.3f of %s", *share, name);
    }
  }
  return absl::StrCat(text, "\n", report.limits == nullptr ? "" : report.limits->ToText());
}

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(const SpeculationFlags& flags) {
  const std::optional<double> acceptance = flags.benchmark.synthetic_acceptance;
  if (!acceptance.has_value()) return LoadEngine(flags.engine_options);
  ASSIGN_OR_RETURN(
      const ModelConfig target,
      ReadModelConfig(flags.engine_options.target, flags.engine_options.allow_unknown_config));
  const WaitingLine line(absl::StrCat("loading ", flags.engine_options.target));
  return CreateEngineWithJudge(flags.engine_options,
                               SyntheticJudge(*acceptance, target.vocab_size));
}

// Measures report->benchmark and report->limits, and prints the rows of the table unless the report
// will be JSON.
absl::Status Measure(const SpeculationFlags& flags, Engine* engine, Measuring* measuring,
                     Report* report) {
  measuring->Expect(NumGroups(flags.benchmark));
  RowPrinter rows(kRunColumns, measuring);
  const SpeculationCallbacks callbacks = {
      .before_group =
          [&](int draft_tokens, int batch) {
            return measuring->BeginNext(
                draft_tokens == 0 ? absl::StrCat("measuring plain decoding, batch ", batch)
                                  : absl::StrCat("measuring k ", DraftTokensText(draft_tokens),
                                                 ", batch ", batch));
          },
      .check = [&] { return measuring->status(); },
      .on_run =
          [&](const SpeculationRun& run) {
            if (!flags.json) rows.Print(RowOf(run));
          }};
  const LoadWatch watch;
  const absl::Status status =
      RunSpeculationBenchmark(flags.benchmark, engine, callbacks, &report->benchmark);
  report->others = watch.Read();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(measuring->Begin(kPreparingLimits));
  ASSIGN_OR_RETURN(report->limits, MachineLimits::Create(ThreadsOf(flags.engine_options)));
  return absl::OkStatus();
}

absl::Status RunSpeculation(SpeculationFlags* flags) {
  RETURN_IF_ERROR(flags->LoadPrompts());
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, MakeEngine(*flags));
  if (flags->chat) RETURN_IF_ERROR(flags->PutPrompts(*engine));
  Report report{.target = engine->target_info(),
                .draft = engine->draft_info(),
                .drafter = std::string(NameOf(engine->drafter())),
                .device = engine->device_description(),
                .benchmark = {},
                .others = {},
                .limits = {}};
  Measuring measuring;
  if (!flags->json) RETURN_IF_ERROR(measuring.Print(HeadingText(*flags, report)));
  absl::Status status = Measure(*flags, engine.get(), &measuring, &report);
  if (!status.ok() && !IsInterrupted(status)) return status;
  RETURN_IF_ERROR(measuring.Print(flags->json ? LineOf(ReportJson(*flags, report))
                                              : ClosingText(*flags, report)));
  RETURN_IF_ERROR(status);
  if (flags->benchmark.synthetic_acceptance.has_value()) return absl::OkStatus();
  for (const SpeculationRun& run : report.benchmark.runs) {
    if (*run.identical || flags->benchmark.temperature > 0) continue;
    return absl::InternalError(
        absl::StrCat("k ", DraftTokensText(run.draft_tokens), ", batch ", run.batch,
                     ": the tokens of speculative and plain decoding differ"));
  }
  return absl::OkStatus();
}

CLI::App* AddSpeculation(CLI::App* bench, SpeculationFlags* flags) {
  SpeculationBenchmarkOptions& benchmark = flags->benchmark;
  CLI::App* app = bench->add_subcommand(
      "speculation", "Compare speculative with plain decoding for several draft lengths");
  OptionGroup group(app, "Measurement");
  group.Add("--prompts", "F.jsonl", &flags->prompts_file,
            "JSON lines {\"prompt\": ...} or {\"prompt_ids\": [...]} [8 openings of stories]");
  group.AddFlag("--chat", &flags->chat,
                "Format prompts as messages with the model's chat template; answers end where the "
                "model ends them");
  group.Add("--num-prompts", "N", &flags->num_prompts, "Use only the first N prompts [all]",
            {.low = 1, .high = 1 << 20});
  group.Add(
      "-k,--draft-tokens", "LIST", &flags->draft_tokens,
      absl::StrCat("Draft lengths: integers, or auto; 0 compares plain decoding with itself [",
                   kDefaultDraftTokens, "; 0 without a draft]"));
  AddNumbers(app, "--batch", &benchmark.batches, "Numbers of sequences decoded together", 1, 1024)
      ->group("Measurement");
  group.Add("-n,--max-tokens", "N", &benchmark.max_tokens, "Tokens per sequence",
            {.low = 1, .high = 1 << 20});
  group.Add("--temperature", "T", &benchmark.temperature, "0 always takes the most likely token",
            {.low = 0, .high = 100});
  group.Add("--repeat", "N", &benchmark.repeat, "Pairs of passes over all prompts",
            {.low = 1, .high = 10000});
  group.Add(
      "--synthetic-acceptance", "A", &benchmark.synthetic_acceptance,
      "Keep each draft token with probability A, independent of the target's distribution, to "
      "measure the engine apart from its draft; the output is then not the target's",
      {.low = 0, .high = 1});
  group.AddFlag("--json", &flags->json, "Print one JSON object instead of a table");
  flags->engine.AddTo(app, {kEngineGroup}, /*with_draft_tokens=*/false);
  AddExamples(app,
              {"tandem bench speculation", "tandem bench speculation -m smollm2 --chat -k auto,4",
               "tandem bench speculation --batch 1,4 --json"});
  return app;
}

}  // namespace

Command AddBenchSpeculation(CLI::App* bench) {
  const auto flags = std::make_shared<SpeculationFlags>();
  return {.app = AddSpeculation(bench, flags.get()),
          .check = [flags] { return flags->Check(); },
          .run =
              [flags] {
                return RunOrFollow(flags->engine_options,
                                   [&] { return RunSpeculation(flags.get()); });
              }};
}

}  // namespace tandem
