// tandem bench kernels: compares single operations and passes with the limits of the CPU.
// tandem bench device: compares those of real model shapes on any device, without model files, with
// the device's read bandwidth.
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/number_formats.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint/model_config.h"
#include "tandem/engine_parameters.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/operation_table.h"
#include "tools/bench/passes.h"
#include "tools/bench/row_printer.h"
#include "tools/checkpoints/random_model.h"
#include "tools/help_text.h"
#include "tools/hub/hub_fetch.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/report.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;
// The flags of both benchmarks.
struct OperationFlags {
  std::vector<std::string> ops;  // empty: all
  KvDType kv_cache = KvDType::kF32;
  Quantization quantize = Quantization::kNone;
  bool json = false;
  OperationOptions options;

  bool Wants(const std::string& op) const { return ops.empty() || absl::c_linear_search(ops, op); }
  void AddTo(CLI::App* app, const std::string& rows_text, const std::string& contexts_text,
             int least_context, const std::string& kv_cache_text, const std::string& quantize_text,
             const std::string& repeat_text, const std::string& json_text) {
    AddNumbers(app, "--rows", &options.rows, rows_text, 1, 1 << 16);
    AddNumbers(app, "--contexts", &options.contexts, contexts_text, least_context, 1 << 20);
    OptionGroup group(app);
    group.Add("--repeat", "N", &options.run.repeat, repeat_text, {.low = 1, .high = 10000});
    group.Add("--kv-cache", "NAME", &kv_cache, kv_cache_text, ParseKvDType);
    group.Add("--quantize", "NAME", &quantize, quantize_text, ParseQuantization);
    group.AddFlag("--json", &json, json_text);
  }
};

// ---- On the CPU ----

struct KernelFlags : OperationFlags {
  std::string shape;   // empty: the target's, or 1b
  std::string target;  // empty: no passes
  std::vector<std::string> dtypes = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"};
  std::vector<int> pass_rows = {1, 2, 4, 5, 8, 16, 128, 512};
  std::vector<int> pass_contexts = {0, 1024, 4096};
  int threads = 0;
  CpuOptions cpu;

  OperationOptions passes;  // set by Check

  bool wants_passes() const { return !target.empty() && Wants("passes"); }
  absl::Status Check() {
    if (!ops.empty() && target.empty() && Wants("passes")) {
      return absl::InvalidArgumentError("--ops: \"passes\" needs --target");
    }
    ASSIGN_OR_RETURN(target, BringModel(target));
    if (shape.empty() && !target.empty()) {
      ASSIGN_OR_RETURN(options.config, ReadModelConfig(target));
    } else {
      ASSIGN_OR_RETURN(const RandomModelShape sizes,
                       RandomModelShape::Parse(shape.empty() ? "1b" : shape));
      options.config = sizes.Config();
    }
    for (const std::string& name : dtypes) {
      options.dtypes.push_back(
          *absl::c_find_if(kWeightDTypes, [&](DType dtype) { return ShortNameOf(dtype) == name; }));
    }
    options.kv_dtypes = {std::begin(kAllKvDTypes), std::end(kAllKvDTypes)};
    cpu.num_threads = threads > 0 ? UsableThreads(threads) : NumUsableCores();
    options.bf16_products = UsesBf16Products(cpu.compute);
    passes = options;
    passes.rows = pass_rows;
    passes.contexts = pass_contexts;
    return absl::OkStatus();
  }
};

OrderedJson KernelJson(const OperationResult& result) {
  const Operation& operation = result.operation;
  OrderedJson json = {{"op", operation.op}};
  if (!operation.part.empty()) json["part"] = operation.part;
  json.update({{"dtype", ShortNameOf(operation.dtype)}, {"rows", operation.rows}});
  if (operation.context > 0) json["context"] = operation.context;
  json["shape"] = operation.shape;
  return With(std::move(json), LimitedJson(operation.demand, result.time));
}

absl::Status MeasureKernels(const KernelFlags& flags, MachineLimits* limits, Backend* backend,
                            Measuring* measuring, OnRow on_row) {
  OperationTable table(flags.options, backend, limits);
  if (flags.Wants("matmul")) RETURN_IF_ERROR(table.AddProducts("matmul", "--dtypes"));
  if (flags.Wants("experts")) table.AddExperts();
  if (flags.Wants("attention")) table.AddAttention();
  if (flags.Wants("rms_norm")) table.AddNorms();
  if (flags.Wants("sample")) table.AddHostSampling();
  return RunTable(table, flags.options, measuring,
                  [&](const OperationResult& result) { on_row(KernelJson(result)); });
}

// Loads the target and measures its passes.
absl::Status MeasurePasses(const KernelFlags& flags, MachineLimits* limits, Measuring* measuring,
                           OnRow on_row) {
  ASSIGN_OR_RETURN(const KvCacheType kv_cache, ParseKvCacheType(NameOf(flags.kv_cache)));
  return MeasurePasses({.target = flags.target,
                        .threads = flags.cpu.num_threads,
                        .compute = flags.cpu.compute,
                        .quantize = flags.quantize,
                        .kv_cache = kv_cache},
                       flags.passes, limits, measuring, on_row);
}

absl::Status RunKernels(KernelFlags flags) {
  Measuring measuring;
  ShowIn(&measuring, &flags.options);
  ShowIn(&measuring, &flags.passes);
  RETURN_IF_ERROR(measuring.Begin(kPreparingLimits));
  ASSIGN_OR_RETURN(const std::unique_ptr<MachineLimits> limits,
                   MachineLimits::Create(flags.cpu.num_threads));
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend(flags.cpu));
  const std::string device(backend->description());
  std::vector<OrderedJson> kernels, passes;
  RowPrinter kernel_rows(TimesColumns(), &measuring), pass_rows(TimesColumns(), &measuring);
  const auto collect = [&flags](std::vector<OrderedJson>* rows, RowPrinter* printer) {
    return [=, &flags](const OrderedJson& row) {
      rows->push_back(row);
      if (!flags.json) printer->Print(row);
    };
  };
  if (!flags.json) {
    RETURN_IF_ERROR(measuring.Print(
        absl::StrCat(CpuName(), ": ", device, "\nmedians of ", flags.options.run.repeat,
                     " interleaved samples, compared with the limits\n\n")));
  }
  absl::Status status = MeasureKernels(flags, limits.get(), backend.get(), &measuring,
                                       collect(&kernels, &kernel_rows));
  backend.reset();
  if (status.ok() && flags.wants_passes()) {
    if (!flags.json) {
      RETURN_IF_ERROR(measuring.Print(absl::StrCat(kernels.empty() ? "" : "\n", flags.target,
                                                   ", cache of ", NameOf(flags.kv_cache), "\n")));
    }
    status = MeasurePasses(flags, limits.get(), &measuring, collect(&passes, &pass_rows));
  }
  if (!status.ok() && !IsInterrupted(status)) return status;
  if (!flags.json) {
    RETURN_IF_ERROR(
        measuring.Print(absl::StrCat("\n", limits->ToText(), BusyLine(measuring.load()))));
    return status;
  }
  OrderedJson json = {{"machine", MachineJson(flags.cpu.num_threads, device)},
                      {"limits", limits->ToJson()},
                      {"repeat", flags.options.run.repeat},
                      {"kernels", kernels}};
  if (flags.wants_passes()) {
    json.update(
        {{"target", flags.target}, {"kv_cache", NameOf(flags.kv_cache)}, {"passes", passes}});
  }
  RETURN_IF_ERROR(measuring.Print(LineOf(With(std::move(json), LoadJson(measuring.load())))));
  return status;
}

// ---- On a device ----

struct DeviceFlags : OperationFlags {
  std::string device = "auto";
  std::string shapes = "llama-1b";
  int sample_ms = 20;
  int buffer_mb = 4096;

  std::vector<std::pair<std::string, RandomModelShape>> models;  // set by Check

  absl::Status Check() {
    options.quantized = BlockTypeOf(quantize);
    options.kv_dtypes = {kv_cache};
    options.rows_follow_context = true;
    options.norms_rows = true;
    options.working_set_bytes = int64_t{512} << 20;  // ten times the size of devices' caches
    options.run.sample_seconds = 1e-3 * sample_ms;
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(shapes, '+'))) {
      ASSIGN_OR_RETURN(RandomModelShape shape, RandomModelShape::Parse(name));
      // Make room for the requested contexts, whatever the shape's own context is.
      shape.context = *absl::c_max_element(options.contexts) + *absl::c_max_element(options.rows);
      models.emplace_back(name, shape);
    }
    return absl::OkStatus();
  }
};

// NaN becomes null in JSON text.
//   read_speed: bytes per second
OrderedJson DeviceJson(const OperationResult& result, double read_speed, double of_one_row) {
  const Operation& operation = result.operation;
  OrderedJson json = {{"op", operation.op}};
  if (!operation.part.empty()) json["part"] = operation.part;
  if (operation.rows > 0) {
    json.update(
        {{"rows", operation.rows}, {"batch", operation.batch}, {"context", operation.context}});
  }
  const double reference_seconds = operation.reference_ms * 1e-3;
  return With(std::move(json),
              {{"ms", result.time.ms},
               {"device_ms", result.device_ms},
               {"bytes", operation.demand.bytes},
               {"flops", operation.demand.flops},
               {"flops_per_second", result.flops_per_second()},
               {"bytes_per_second", result.bytes_per_second()},
               {"read_bytes_per_second", read_speed},
               {"of_read", result.bytes_per_second() / read_speed},
               {"reference_ms", operation.reference_ms},
               {"reference_flops_per_second", operation.demand.flops / reference_seconds},
               {"of_one_row", of_one_row}});
}

// Measures the passes last, because only they need the whole model.
absl::Status MeasureModel(const DeviceFlags& flags, const RandomModelShape& shape, Backend* backend,
                          Measuring* measuring, OnResult on_result) {
  constexpr uint64_t kSeed = 5;
  OperationOptions options = flags.options;
  options.config = shape.Config();
  options.dtypes = {shape.dtype};
  ShowIn(measuring, &options);
  OperationTable table(options, backend, nullptr);
  table.AddMemory(int64_t{flags.buffer_mb} << 20);
  if (flags.Wants("sampling")) table.AddDeviceSampling();
  if (flags.Wants("product")) RETURN_IF_ERROR(table.AddProducts("product", "--quantize"));
  if (flags.Wants("attention")) table.AddAttention();
  RETURN_IF_ERROR(RunTable(table, options, measuring, on_result));
  if (!flags.Wants("pass")) return absl::OkStatus();
  RETURN_IF_ERROR(measuring->Begin("making a model of random weights"));
  ASSIGN_OR_RETURN(const std::unique_ptr<Transformer> model,
                   Transformer::Load("random weights", options.config,
                                     MakeRandomWeights(shape, kSeed, options.quantized), backend));
  OperationTable passes(options, backend, nullptr);
  passes.AddPasses(model.get(), options.kv_dtypes[0], std::numeric_limits<int>::max());
  return RunTable(passes, options, measuring, on_result);
}

absl::Status RunDevice(const DeviceFlags& flags) {
  Measuring measuring;
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(flags.device, {}));
  RETURN_IF_ERROR(backend->TuneProducts(EngineOptions().cuda_tune));
  const std::string device =
      absl::StrCat(std::string(backend->name()), ": ", std::string(backend->description()));
  if (!flags.json) RETURN_IF_ERROR(measuring.Print(absl::StrCat(device, "\n")));
  RowPrinter rows(TimesColumns(), &measuring);
  for (const auto& model : flags.models) {
    const std::string& name = model.first;
    double read_speed = NAN;
    OneRow one_row;
    const auto on_result = [&](const OperationResult& result) {
      if (result.operation.op == "read") read_speed = result.bytes_per_second();
      OrderedJson json = DeviceJson(result, read_speed, one_row.Of(result));
      if (flags.json) {
        (void)measuring.Print(LineOf(
            With(With({{"device", device}, {"shape", name}}, json), LoadJson(measuring.load()))));
        return;
      }
      json.erase("flops");  // per call; the table's column "flops" is per second
      rows.Print(With({{"model", name}}, json));
    };
    RETURN_IF_ERROR(MeasureModel(flags, model.second, backend.get(), &measuring, on_result));
  }
  if (!flags.json) RETURN_IF_ERROR(measuring.Print(BusyLine(measuring.load())));
  return measuring.status();
}

}  // namespace

Command AddBenchKernels(CLI::App* bench) {
  const auto flags = std::make_shared<KernelFlags>();
  flags->options.rows = {1, 2, 4, 5, 8, 16, 512};
  flags->options.contexts = {128, 1024, 4096};
  CLI::App* app = bench->add_subcommand(
      "kernels",
      "Compare single operations on the CPU with its read bandwidth and arithmetic peak");
  OptionGroup group(app);
  group.Add("--shape", "SHAPE", &flags->shape,
            "Sizes of the operations, a shape of `tandem make-random` [the target's, else 1b]");
  group.Add("-m,--target", "PATH", &flags->target, "A model whose whole passes are also measured");
  AddNames(app, "--ops", &flags->ops,
           "Any of matmul, experts, attention, rms_norm, sample, and with --target passes [all]",
           {"matmul", "experts", "attention", "rms_norm", "sample", "passes"});
  std::vector<std::string> names;
  for (const DType dtype : kWeightDTypes) names.emplace_back(ShortNameOf(dtype));
  AddNames(app, "--dtypes", &flags->dtypes,
           absl::StrCat("Dtypes of weights, any of ", absl::StrJoin(names, ", "), " [",
                        absl::StrJoin(flags->dtypes, ","), "]"),
           names);
  AddNumbers(
      app, "--pass-rows", &flags->pass_rows,
      "Numbers of rows of whole passes: 1 is decoding, up to 16 a verification, more a prompt", 1,
      1 << 16);
  AddNumbers(app, "--pass-contexts", &flags->pass_contexts, "Tokens in the cache before a pass", 0,
             1 << 20);
  flags->AddTo(app, "Numbers of rows", "Tokens that attention reads", 1,
               "Type of the cache in the target's passes: f32, bf16, int8",
               "Quantization of the target's weights in its passes, the same as for generate",
               "Number of interleaved samples of each operation",
               "Print one JSON object instead of a table");
  group.Add("--threads", "N", &flags->threads, "CPU threads [the number of physical cores]",
            {.low = 1, .high = 1024, .unset = 0});
  group.Add("--compute", "NAME", &flags->cpu.compute,
            "Type of the activations in products with bf16 weights: f32, bf16, auto",
            ParseCpuCompute);
  AddExamples(app, {"tandem bench kernels", "tandem bench kernels --dtypes q4_k --ops matmul",
                    "tandem bench kernels -m storyteller-7m --ops passes"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return RunKernels(*flags); }};
}

Command AddBenchDevice(CLI::App* bench) {
  const auto flags = std::make_shared<DeviceFlags>();
  flags->options.rows = {1, 2, 4, 5, 8, 16, 32, 64, 256};
  flags->options.batches = {1, 4, 16, 64};
  flags->options.contexts = {0, 1024, 4096};
  flags->kv_cache = KvDType::kBF16;
  CLI::App* app = bench->add_subcommand(
      "device",
      "Compare products, attention, passes and sampling with random weights with the read "
      "bandwidth of a device");
  OptionGroup group(app);
  group.Add("--device", "NAME", &flags->device, "auto, cpu, cuda:N");
  group.Add("--shape", "SHAPE+...", &flags->shapes, "Shapes of `tandem make-random`, joined by +");
  AddNames(app, "--ops", &flags->ops, "Any of product, attention, pass, sampling [all]",
           {"product", "attention", "pass", "sampling"});
  AddNumbers(app, "--batches", &flags->options.batches, "Numbers of sequences that decode together",
             1, 1024);
  flags->AddTo(app, "Numbers of rows of one sequence", "Tokens in the cache before the rows", 0,
               "Type of the cache: f32, bf16, int8",
               "Format of the weights: none, or a block format such as q8_0",
               "Number of samples of each operation; the median is reported",
               "Print one JSON object per line, as soon as it is known");
  group.Add("--sample-ms", "MS", &flags->sample_ms, "Minimum duration of a sample",
            {.low = 0, .high = 10000});
  group.Add("--buffer-mb", "MB", &flags->buffer_mb, "Memory to read and to copy, in MiB",
            {.low = 1, .high = 1 << 16});
  AddExamples(app,
              {"tandem bench device --ops product", "tandem bench device --device cuda:0 --json"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return RunDevice(*flags); }};
}

}  // namespace tandem
