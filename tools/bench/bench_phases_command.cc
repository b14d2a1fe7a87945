// tandem bench phases: measures the time to the first token by the prompt's length, the time per
// output token by its position, and compares both with their rooflines.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "engine/runtime.h"
#include "model/checkpoint/model_config.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/operation.h"
#include "tools/bench/row_printer.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct PhaseFlags {
  EngineFlags engine;
  std::vector<int> prompt_lengths = {16, 64, 128, 256, 512};
  int max_tokens = 16;  // decoded after each prompt, beyond the first
  int repeat = 5;
  bool json = false;

  EngineOptions engine_options;  // set by Check

  absl::Status Check() {
    ASSIGN_OR_RETURN(engine_options,
                     PlainEngineOptions(engine, "the phases are measured with plain decoding"));
    engine_options.prefix_cache = false;
    engine_options.chunk_tokens = 256;
    return absl::OkStatus();
  }
};

std::vector<TokenId> RandomPrompt(int length, int vocab_size, uint64_t seed) {
  const RandomSource random(seed);
  std::vector<TokenId> ids;
  for (uint32_t i = 0; i < static_cast<uint32_t>(length); ++i) {
    const uint32_t bits = random.Block({.stream = RandomStream::kTarget, .position = i}, 0)[0];
    ids.push_back(static_cast<TokenId>(bits % static_cast<uint32_t>(vocab_size)));
  }
  return ids;
}

// One point of a curve, with its roofline.
struct PhasePoint {
  int tokens = 0;  // tokens of the prompt; for decoding, before the middle one of the output tokens
  Demand demand;   // of the prompt, or of one output token
  MachineLimits::Series series = {};
};

struct Curves {
  std::vector<PhasePoint> prefill;
  std::vector<PhasePoint> decode;
};

// Decodes random prompts plainly, alternating between the lengths. After an error *curves has the
// samples until then.
absl::Status Measure(const PhaseFlags& flags, const PassCounter& counter, Engine* engine,
                     MachineLimits* limits, Measuring* measuring, Curves* curves) {
  for (const int length : flags.prompt_lengths) {
    const int middle = length + flags.max_tokens / 2;
    curves->prefill.push_back(
        {length, counter.OfPrompt(length, flags.engine_options.chunk_tokens)});
    curves->decode.push_back({middle, counter.Of({.rows = 1, .context = middle, .logit_rows = 1})});
  }
  measuring->Expect(static_cast<int64_t>(flags.prompt_lengths.size()) * flags.repeat);
  const int vocab_size = engine->target_info().vocab_size;
  // The first pass packs the weights.
  Request first{.prompt_ids = RandomPrompt(1, vocab_size, 1), .max_tokens = 1};
  first.draft_tokens = 0;
  RETURN_IF_ERROR(engine->Generate(std::move(first)).status());
  for (int i = 0; i < flags.repeat; ++i) {
    for (size_t j = 0; j < flags.prompt_lengths.size(); ++j) {
      RETURN_IF_ERROR(measuring->BeginNext(
          absl::StrCat("measuring a prompt of ", flags.prompt_lengths[j], " tokens")));
      Request request;
      request.prompt_ids = RandomPrompt(flags.prompt_lengths[j], vocab_size, 100 * i + j);
      request.max_tokens = flags.max_tokens + 1;
      request.sampling.temperature = 0.0f;
      request.ignore_eos = true;
      request.draft_tokens = 0;
      ASSIGN_OR_RETURN(const Completion completion, engine->Generate(std::move(request)));
      const Timings& timings = completion.timings;
      const absl::Duration per_token = timings.TimePerOutputToken(
          static_cast<int>(completion.token_ids.size()), completion.first_round_tokens);
      PhasePoint& prefill = curves->prefill[j];
      PhasePoint& decode = curves->decode[j];
      limits->AddTime(prefill.demand, absl::ToDoubleSeconds(timings.time_to_first_token),
                      &prefill.series);
      limits->AddTime(decode.demand, absl::ToDoubleSeconds(per_token), &decode.series);
    }
  }
  return absl::OkStatus();
}

// Leaves out points without samples. `field`: the JSON field for a point's number of tokens.
std::vector<OrderedJson> PointsJson(const char* field, bool per_token,
                                    const std::vector<PhasePoint>& points) {
  std::vector<OrderedJson> rows;
  for (const PhasePoint& point : points) {
    if (point.series.empty()) continue;
    const LimitedTime time = point.series.Result();
    rows.push_back(
        With({{field, point.tokens}},
             With(LimitedJson(point.demand, time),
                  {{"intensity", point.demand.flops / point.demand.bytes},  // operations per byte
                   {"tokens_per_second", 1e3 * (per_token ? 1 : point.tokens) / time.ms}})));
  }
  return rows;
}

void PrintTable(absl::string_view title, const std::vector<OrderedJson>& rows,
                Measuring* measuring) {
  (void)measuring->Print(absl::StrCat("\n", title, "\n"));
  RowPrinter printer(TimesColumns(), measuring);
  for (const OrderedJson& row : rows) printer.Print(row);
}

absl::Status Run(const PhaseFlags& flags) {
  ASSIGN_OR_RETURN(
      const ModelConfig config,
      ReadModelConfig(flags.engine_options.target, flags.engine_options.allow_unknown_config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags.engine_options));
  Measuring measuring;
  RETURN_IF_ERROR(measuring.Begin(kPreparingLimits));
  ASSIGN_OR_RETURN(const std::unique_ptr<MachineLimits> limits,
                   MachineLimits::Create(ThreadsOf(flags.engine_options)));
  const ModelInfo target = engine->target_info();
  const auto dtype =
      absl::c_find_if(kWeightDTypes, [&](DType each) { return target.dtype == NameOf(each); });
  if (dtype == std::end(kWeightDTypes)) {
    return absl::InternalError(absl::StrCat("dtype: ", target.dtype));
  }
  const PassCounter counter(config, target.bytes_read_per_pass, target.kv_bytes_per_token, *dtype,
                            UsesBf16Products(flags.engine_options.compute));
  if (!flags.json) {
    RETURN_IF_ERROR(measuring.Print(absl::StrCat(
        CpuName(), ": ", engine->device_description(), "\n", target.path, ": ", target.dtype,
        absl::StrFormat(", %.2f MB of matrices per pass", target.bytes_read_per_pass * 1e-6),
        "; medians of ", flags.repeat, " interleaved samples\n")));
  }
  Curves curves;
  absl::Status status = Measure(flags, counter, engine.get(), limits.get(), &measuring, &curves);
  if (!status.ok() && !IsInterrupted(status)) return status;
  const auto prefill = PointsJson("prompt_tokens", /*per_token=*/false, curves.prefill);
  const auto decode = PointsJson("position", /*per_token=*/true, curves.decode);
  if (!flags.json) {
    PrintTable("time to the first token", prefill, &measuring);
    PrintTable("time per output token", decode, &measuring);
    RETURN_IF_ERROR(measuring.Print(absl::StrCat("\n", limits->ToText())));
    return status;
  }
  const OrderedJson json = {
      {"machine", MachineJson(ThreadsOf(flags.engine_options), engine->device_description())},
      {"limits", limits->ToJson()},
      {"target", {{"path", target.path}, {"dtype", target.dtype}}},
      {"repeat", flags.repeat},
      {"prefill", prefill},
      {"decode", decode}};
  RETURN_IF_ERROR(measuring.Print(LineOf(json)));
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
  AddNumbers(app, "--prompt-lengths", &flags->prompt_lengths,
             "Lengths of the random prompts in tokens", 1, 1 << 20)
      ->group("Measurement");
  group.Add("-n,--max-tokens", "N", &flags->max_tokens,
            "Tokens decoded after each prompt, not counting the first",
            {.low = 1, .high = 1 << 20});
  group.Add("--repeat", "N", &flags->repeat, "Number of generations of each length, interleaved",
            {.low = 1, .high = 10000});
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
