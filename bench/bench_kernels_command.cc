// tandem bench kernels: single operations beside the limits of the machine.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "bench/bench_commands.h"
#include "bench/bench_kernels.h"
#include "bench/bench_passes.h"
#include "bench/machine_limits.h"
#include "checkpoint/model_config.h"
#include "engine/runtime.h"
#include "kernels/quantize.h"
#include "nlohmann/json.hpp"
#include "tools/checkpoints/random_model.h"
#include "tools/engine_options.h"
#include "tools/progress.h"
#include "tools/standard_output.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct KernelFlags {
  std::string shape;   // empty: the target's, or 1b
  std::string target;  // empty: no passes
  std::string ops;     // empty: all
  std::string dtypes = "f32,f16,bf16,q8_0,q4_0,q4_k";
  std::string rows = "1,2,4,5,8,16,512";
  std::string contexts = "128,1024,4096";
  std::string pass_rows = "1,2,4,5,8,16,128,512";
  std::string pass_contexts = "0,1024,4096";
  int repeat = 7;
  int threads = 0;
  std::string compute = "auto";
  std::string quantize = "none";  // the target
  std::string kv_cache = "f32";   // what it caches
  bool json = false;

  KernelBenchmarkOptions options;  // set by Check
  PassBenchmarkOptions passes;
  bool wants_passes = false;
  CpuOptions cpu;

  absl::Status Check();
};

constexpr std::string_view kPasses = "passes";

absl::StatusOr<std::vector<DType>> ParseDTypes(const std::string& list) {
  std::vector<std::string_view> names;
  for (const DType dtype : kWeightDTypes) names.push_back(ShortNameOf(dtype));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> chosen, ParseNames("--dtypes", list, names));
  std::vector<DType> dtypes;
  for (const std::string_view name : chosen) {
    for (const DType dtype : kWeightDTypes) {
      if (ShortNameOf(dtype) == name) dtypes.push_back(dtype);
    }
  }
  return dtypes;
}

// The names to choose operations by; whole passes are one more.
std::vector<std::string_view> AllOps() {
  std::vector<std::string_view> ops(std::begin(kKernelOps), std::end(kKernelOps));
  ops.push_back(kPasses);
  return ops;
}

absl::StatusOr<KernelShapes> ShapesOf(const KernelFlags& flags) {
  if (flags.shape.empty() && !flags.target.empty()) {
    ASSIGN_OR_RETURN(const ModelConfig c, ReadModelConfig(flags.target));
    return KernelShapes{.hidden = c.hidden_size,
                        .ffn = c.intermediate_size,
                        .heads = c.num_heads,
                        .kv_heads = c.num_kv_heads,
                        .head_dim = c.head_dim,
                        .vocab = c.vocab_size,
                        .experts = c.num_experts,
                        .experts_per_row = c.experts_per_row,
                        .expert_ffn = c.expert_size,
                        .window = *absl::c_max_element(c.windows)};
  }
  ASSIGN_OR_RETURN(const RandomModelShape s,
                   RandomModelShape::Parse(flags.shape.empty() ? "1b" : flags.shape));
  return KernelShapes{.hidden = s.hidden,
                      .ffn = s.ffn,
                      .heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .head_dim = s.head_dim,
                      .vocab = s.vocab,
                      .experts = s.experts,
                      .experts_per_row = s.experts_per_row,
                      .expert_ffn = s.expert_ffn,
                      .window = s.window};
}

absl::Status KernelFlags::Check() {
  ASSIGN_OR_RETURN(options.shapes, ShapesOf(*this));
  options.ops = AllOps();
  if (!ops.empty()) {
    ASSIGN_OR_RETURN(options.ops, ParseNames("--ops", ops, AllOps()));
    if (target.empty() && absl::c_linear_search(options.ops, kPasses)) {
      return absl::InvalidArgumentError("--ops: passes needs a --target");
    }
  }
  wants_passes = !target.empty() && absl::c_linear_search(options.ops, kPasses);
  ASSIGN_OR_RETURN(options.dtypes, ParseDTypes(dtypes));
  ASSIGN_OR_RETURN(options.rows, ParseNumbers("--rows", rows, 1, 1 << 16));
  ASSIGN_OR_RETURN(options.contexts, ParseNumbers("--contexts", contexts, 1, 1 << 20));
  ASSIGN_OR_RETURN(passes.rows, ParseNumbers("--pass-rows", pass_rows, 1, 1 << 16));
  ASSIGN_OR_RETURN(passes.contexts, ParseNumbers("--pass-contexts", pass_contexts, 0, 1 << 20));
  options.repeat = repeat;
  passes.repeat = repeat;
  cpu.num_threads = threads > 0 ? UsableThreads(threads) : NumUsableCores();
  ASSIGN_OR_RETURN(cpu.compute, ParseCompute(compute));
  options.bf16_products = UsesBf16Products(cpu.compute);
  passes.bf16_products = options.bf16_products;
  return absl::OkStatus();
}

OrderedJson ResultJson(const KernelResult& result) {
  OrderedJson json = {{"op", result.op}};
  if (!result.part.empty()) json["part"] = result.part;
  json.update({{"dtype", ShortNameOf(result.dtype)}, {"rows", result.rows}});
  if (result.context > 0) json["context"] = result.context;
  json.update({{"shape", result.shape},
               {"ms", result.time.ms},
               {"bytes", result.demand.bytes},
               {"bytes_per_second", result.bytes_per_second()},
               {"flops", result.flops_per_second()},
               {"of_limit", result.time.of_limit},
               {"bound", result.time.bound}});
  return json;
}

std::string ToText(const std::vector<KernelResult>& results) {
  Table table({"op", "part", "dtype", "rows", "context", "shape", "ms", "GB/s", "Gflop/s",
               "of limit", "bound by"});
  for (const KernelResult& result : results) {
    table.AddRow({std::string(result.op), std::string(result.part),
                  std::string(ShortNameOf(result.dtype)), absl::StrCat(result.rows),
                  result.context > 0 ? absl::StrCat(result.context) : "",
                  absl::StrJoin(result.shape, "x"), FormatNumber("%.4f", result.time.ms),
                  FormatNumber("%.1f", result.bytes_per_second() * 1e-9),
                  FormatNumber("%.1f", result.flops_per_second() * 1e-9),
                  FormatNumber("%.3f", result.time.of_limit), std::string(result.time.bound)});
  }
  return table.ToText();
}

OrderedJson PassJson(const PassResult& pass) {
  return {{"what", pass.what},
          {"rows", pass.shape.rows},
          {"context", pass.shape.context},
          {"ms", pass.time.ms},
          {"bytes", pass.demand.bytes},
          {"bytes_per_second", pass.bytes_per_second()},
          {"flops", pass.flops_per_second()},
          {"of_limit", pass.time.of_limit},
          {"bound", pass.time.bound}};
}

std::string ToText(const std::vector<PassResult>& passes) {
  Table table(
      {"pass", "rows", "context", "ms", "of one row", "GB/s", "Gflop/s", "of limit", "bound by"});
  double one_row_ms = NAN;  // at the same context
  int context = -1;
  for (const PassResult& pass : passes) {
    if (pass.shape.context != context) one_row_ms = NAN;
    context = pass.shape.context;
    if (pass.shape.rows == 1) one_row_ms = pass.time.ms;
    table.AddRow({std::string(pass.what), absl::StrCat(pass.shape.rows), absl::StrCat(context),
                  FormatNumber("%.3f", pass.time.ms),
                  FormatNumber("%.3f", pass.time.ms / one_row_ms),
                  FormatNumber("%.2f", pass.bytes_per_second() * 1e-9),
                  FormatNumber("%.1f", pass.flops_per_second() * 1e-9),
                  FormatNumber("%.3f", pass.time.of_limit), std::string(pass.time.bound)});
  }
  return table.ToText();
}

// What was measured.
struct KernelsReport {
  std::string device;
  std::vector<KernelResult> kernels;
  std::vector<PassResult> passes;
};

absl::StatusOr<KernelsReport> Measure(const KernelFlags& flags, MachineLimits* limits) {
  KernelsReport report;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeCpuBackend(flags.cpu));
    report.device = std::string(backend->description());
    Progress progress("operations", std::max(1, NumKernelSamples(flags.options)));
    ASSIGN_OR_RETURN(report.kernels, RunKernelBenchmark(flags.options, backend.get(), limits,
                                                        [&] { progress.Advance(1); }));
  }
  if (!flags.wants_passes) return report;
  ASSIGN_OR_RETURN(Runtime pair, Runtime::Load({.target = flags.target,
                                                .drafter = DrafterKind::kNone,
                                                .device = "cpu",
                                                .threads = flags.cpu.num_threads,
                                                .compute = flags.compute,
                                                .quantize = flags.quantize,
                                                .kv_cache = flags.kv_cache}));
  Progress progress("passes", flags.passes.repeat);
  ASSIGN_OR_RETURN(report.passes,
                   RunPassBenchmark(flags.passes, &pair, limits, [&] { progress.Advance(1); }));
  return report;
}

std::string ReportText(const KernelFlags& flags, const KernelsReport& report,
                       MachineLimits* limits) {
  std::string text =
      absl::StrCat(CpuName(), ": ", report.device, "\n", limits->ToText(), "medians of ",
                   flags.repeat, " in turns, each beside the limits\n");
  if (!report.kernels.empty()) absl::StrAppend(&text, "\n", ToText(report.kernels));
  if (!report.passes.empty()) {
    absl::StrAppend(&text, "\n", flags.target, ", cache of ", flags.kv_cache, "\n",
                    ToText(report.passes));
  }
  return text;
}

absl::Status Run(const KernelFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MachineLimits> limits,
                   MachineLimits::Create(flags.cpu.num_threads));
  ASSIGN_OR_RETURN(const KernelsReport report, Measure(flags, limits.get()));
  if (!flags.json) return Print(ReportText(flags, report, limits.get()));
  OrderedJson kernels = OrderedJson::array();
  for (const KernelResult& result : report.kernels) kernels.push_back(ResultJson(result));
  OrderedJson json = {
      {"machine",
       {{"cpu", CpuName()}, {"threads", flags.cpu.num_threads}, {"device", report.device}}},
      {"limits", limits->ToJson()},
      {"repeat", flags.repeat},
      {"kernels", kernels}};
  if (flags.wants_passes) {
    json["target"] = flags.target;
    json["kv_cache"] = flags.kv_cache;
    json["passes"] = OrderedJson::array();
    for (const PassResult& pass : report.passes) json["passes"].push_back(PassJson(pass));
  }
  return PrintJson(json);
}

}  // namespace

Command AddBenchKernels(CLI::App* bench) {
  const auto flags = std::make_shared<KernelFlags>();
  CLI::App* app = bench->add_subcommand(
      "kernels",
      "Compare single operations on the CPU with its read bandwidth and arithmetic peak");
  app->add_option("--shape", flags->shape,
                  "Sizes of the operations, those of a model as `tandem make-random` takes them "
                  "[the target's, else 1b]")
      ->type_name("SHAPE");
  app->add_option("-m,--target", flags->target, "A model: also measure its whole passes")
      ->type_name("PATH");
  app->add_option("--ops", flags->ops,
                  "Some of matmul, attention, rms_norm, sample, and with a target passes [all]")
      ->type_name("LIST");
  app->add_option("--dtypes", flags->dtypes,
                  absl::StrCat("Dtypes of weights [", flags->dtypes, "]"))
      ->type_name("LIST");
  app->add_option("--rows", flags->rows, absl::StrCat("Numbers of rows [", flags->rows, "]"))
      ->type_name("LIST");
  app->add_option("--contexts", flags->contexts,
                  absl::StrCat("Tokens that attention looks at [", flags->contexts, "]"))
      ->type_name("LIST");
  app->add_option("--pass-rows", flags->pass_rows,
                  absl::StrCat("Rows of whole passes: 1 decodes, up to 16 verify, more read a "
                               "prompt [",
                               flags->pass_rows, "]"))
      ->type_name("LIST");
  app->add_option("--pass-contexts", flags->pass_contexts,
                  absl::StrCat("Tokens in the cache before a pass [", flags->pass_contexts, "]"))
      ->type_name("LIST");
  app->add_option("--repeat", flags->repeat, "Measurements of each, in turns [7]")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
  app->add_option("--threads", flags->threads, "CPU threads [the physical cores]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app->add_option("--compute", flags->compute,
                  "Activations in products with bf16 weights: f32, bf16, auto [auto]")
      ->type_name("NAME");
  app->add_option("--quantize", flags->quantize,
                  "The target's weights at load, for its passes: none, or as for generate [none]")
      ->type_name("NAME")
      ->check(CLI::IsMember(NamesIn(kQuantizations)));
  app->add_option("--kv-cache", flags->kv_cache,
                  "What the target's passes cache: f32, bf16, int8 [f32]")
      ->type_name("NAME")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  app->add_flag("--json", flags->json, "One JSON object instead of a table");
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
