// tandem bench phases: time to the first token and time per output token, and their rooflines.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "bench/bench_commands.h"
#include "bench/bench_kernels.h"
#include "bench/bench_phases.h"
#include "bench/machine_limits.h"
#include "checkpoint/model_config.h"
#include "engine/runtime.h"
#include "nlohmann/json.hpp"
#include "tools/engine_options.h"
#include "tools/progress.h"
#include "tools/standard_output.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct PhaseFlags {
  EngineFlags engine;
  std::string prompt_lengths = "16,64,128,256,512";
  bool json = false;
  PhaseBenchmarkOptions benchmark;

  EngineOptions engine_options;  // set by Check

  absl::Status Check() {
    if (!engine.options.draft.empty() || engine.options.drafter != DrafterKind::kAuto) {
      return absl::InvalidArgumentError(
          "--draft, --drafter: the phases are those of plain decoding; give neither");
    }
    engine.options.drafter = DrafterKind::kNone;
    ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
    engine_options.max_batch = 1;
    engine_options.prefix_cache = false;
    engine_options.chunk_tokens = benchmark.chunk_tokens;
    ASSIGN_OR_RETURN(benchmark.prompt_lengths,
                     ParseNumbers("--prompt-lengths", prompt_lengths, 1, 1 << 20));
    return absl::OkStatus();
  }
  int num_threads() const {
    return engine_options.threads > 0 ? engine_options.threads : NumUsableCores();
  }
};

absl::StatusOr<DType> DTypeOf(const ModelInfo& info) {
  for (const DType dtype : kWeightDTypes) {
    if (info.dtype == NameOf(dtype)) return dtype;
  }
  return absl::InternalError(absl::StrCat("dtype: ", info.dtype));
}

OrderedJson PointJson(const char* name, const PhasePoint& point) {
  return {{name, point.tokens},
          {"ms", point.time.ms},
          {"bytes", point.demand.bytes},
          {"bytes_per_second", point.bytes_per_second()},
          {"flops", point.flops_per_second()},
          {"intensity", point.intensity()},
          {"of_limit", point.time.of_limit},
          {"bound", point.time.bound}};
}

std::string PointTable(const char* name, const std::vector<PhasePoint>& points, bool per_token) {
  Table table({name, "ms", "tok/s", "flop/byte", "Gflop/s", "GB/s", "of limit", "bound by"});
  for (const PhasePoint& point : points) {
    table.AddRow({absl::StrCat(point.tokens), FormatNumber("%.3f", point.time.ms),
                  FormatNumber("%.1f", 1e3 * (per_token ? 1 : point.tokens) / point.time.ms),
                  FormatNumber("%.2f", point.intensity()),
                  FormatNumber("%.1f", point.flops_per_second() * 1e-9),
                  FormatNumber("%.2f", point.bytes_per_second() * 1e-9),
                  FormatNumber("%.3f", point.time.of_limit), std::string(point.time.bound)});
  }
  return table.ToText();
}

absl::Status Run(const PhaseFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MachineLimits> limits,
                   MachineLimits::Create(flags.num_threads()));
  ASSIGN_OR_RETURN(
      const ModelConfig config,
      ReadModelConfig(flags.engine_options.target, flags.engine_options.allow_unknown_config));
  ASSIGN_OR_RETURN(const CpuCompute compute, ParseCompute(flags.engine_options.compute));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(flags.engine_options));
  const ModelInfo target = engine->target_info();
  ASSIGN_OR_RETURN(const DType dtype, DTypeOf(target));
  const PassCounter counter(config, target.bytes_read_per_pass, target.kv_bytes_per_token, dtype,
                            UsesBf16Products(compute));
  PhaseBenchmark result;
  {
    const PhaseBenchmarkOptions& options = flags.benchmark;
    Progress progress("measuring",
                      static_cast<int64_t>(options.prompt_lengths.size()) * options.repeat);
    ASSIGN_OR_RETURN(result, RunPhaseBenchmark(options, counter, engine.get(), limits.get(),
                                               [&] { progress.Advance(1); }));
  }
  if (!flags.json) {
    return Print(absl::StrCat(
        CpuName(), ": ", engine->device_description(), "\n", limits->ToText(), target.path, ": ",
        target.dtype,
        absl::StrFormat(", %.2f MB of matrices per pass", target.bytes_read_per_pass * 1e-6),
        "; medians of ", flags.benchmark.repeat, " in turns\n\ntime to the first token\n",
        PointTable("prompt", result.prefill, /*per_token=*/false), "\ntime per output token\n",
        PointTable("position", result.decode, /*per_token=*/true)));
  }
  OrderedJson prefill = OrderedJson::array();
  for (const PhasePoint& point : result.prefill) {
    prefill.push_back(PointJson("prompt_tokens", point));
  }
  OrderedJson decode = OrderedJson::array();
  for (const PhasePoint& point : result.decode) decode.push_back(PointJson("position", point));
  return PrintJson({{"machine",
                     {{"cpu", CpuName()},
                      {"threads", flags.num_threads()},
                      {"device", engine->device_description()}}},
                    {"limits", limits->ToJson()},
                    {"target", {{"path", target.path}, {"dtype", target.dtype}}},
                    {"repeat", flags.benchmark.repeat},
                    {"prefill", prefill},
                    {"decode", decode}});
}

}  // namespace

Command AddBenchPhases(CLI::App* bench) {
  const auto flags = std::make_shared<PhaseFlags>();
  CLI::App* app = bench->add_subcommand(
      "phases",
      "Time to the first token against the prompt's length, time per output token against its "
      "position, and how far each is from the machine's limits");
  const std::string group = "Measurement";
  app->add_option(
         "--prompt-lengths", flags->prompt_lengths,
         absl::StrCat("Tokens of the prompts, which are random [", flags->prompt_lengths, "]"))
      ->type_name("LIST")
      ->group(group);
  app->add_option("-n,--max-tokens", flags->benchmark.tokens_per_position,
                  "Tokens decoded after each prompt, beyond the first [16]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  app->add_option("--repeat", flags->benchmark.repeat, "Generations of each length, in turns [5]")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->group(group);
  app->add_flag("--json", flags->json, "One JSON object instead of tables")->group(group);
  flags->engine.AddTo(app, {kEngineGroup}, /*with_draft_tokens=*/false);
  return {
      .app = app,
      .check = [flags] { return flags->Check(); },
      .run = [flags] { return RunOrFollow(flags->engine_options, [&] { return Run(*flags); }); }};
}

}  // namespace tandem
