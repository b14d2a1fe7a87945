// tandem bench device: operations and passes of real shapes on a device, without files.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "bench/bench_commands.h"
#include "bench/bench_device.h"
#include "kernels/backend.h"
#include "kernels/quantize.h"
#include "kvcache/kv_layout.h"
#include "nlohmann/json.hpp"
#include "tools/progress.h"
#include "tools/standard_output.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct DeviceFlags {
  std::string device = "auto";
  std::string shapes = "llama-1b";
  std::string ops = "product,attention,pass,sampling";
  std::string rows = "1,2,4,5,8,16,32,64,256";
  std::string batches = "1,4,16,64";
  std::string contexts = "0,1024,4096";
  std::string quantize = "none";
  std::string kv_cache = "bf16";
  int repeat = 7;
  int sample_ms = 20;
  int buffer_mb = 4096;
  bool json = false;

  std::vector<DeviceBenchmarkOptions> options;  // one a shape; set by Check

  absl::Status Check() {
    DeviceBenchmarkOptions each;
    ASSIGN_OR_RETURN(each.ops,
                     ParseNames("--ops", ops, {std::begin(kDeviceOps), std::end(kDeviceOps)}));
    ASSIGN_OR_RETURN(each.rows, ParseNumbers("--rows", rows, 1, 4096));
    ASSIGN_OR_RETURN(each.batches, ParseNumbers("--batches", batches, 1, 1024));
    ASSIGN_OR_RETURN(each.contexts, ParseNumbers("--contexts", contexts, 0, 1 << 20));
    ASSIGN_OR_RETURN(each.quantized, ValueOf(kQuantizations, "--quantize", quantize));
    ASSIGN_OR_RETURN(each.kv_dtype, ParseKvDType(kv_cache));
    each.repeat = repeat;
    each.sample_seconds = 1e-3 * sample_ms;
    each.buffer_bytes = int64_t{buffer_mb} << 20;
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(shapes, '+'))) {
      each.name = name;
      ASSIGN_OR_RETURN(each.shape, RandomModelShape::Parse(name));
      options.push_back(each);
    }
    return absl::OkStatus();
  }
};

// A result beside one row of the same.
class Reporter {
 public:
  Reporter(const DeviceFlags& flags, std::string device)
      : flags_(flags), device_(std::move(device)) {}

  void Add(const std::string& shape, const DeviceResult& result) {
    const auto key =
        std::tuple(result.op, result.part == "verify" ? "decode" : result.part, result.context);
    if (result.rows == 1 && result.batch == 1) one_row_.emplace_back(key, result.best_ms());
    double of_one_row = NAN;
    for (const auto& [other, ms] : one_row_) {
      if (other == key) of_one_row = result.best_ms() / ms;
    }
    if (flags_.json) {
      output_.Update(PrintJson(ToJson(shape, result, of_one_row)));
      return;
    }
    table_.AddRow({shape, std::string(result.op), std::string(result.part),
                   absl::StrCat(result.rows), absl::StrCat(result.batch),
                   absl::StrCat(result.context), FormatNumber("%.4f", result.ms),
                   FormatNumber("%.4f", result.device_ms),
                   FormatNumber("%.2f", result.flops_per_second() * 1e-12),
                   FormatNumber("%.1f", result.bytes_per_second() * 1e-9),
                   FormatNumber("%.3f", result.of_read()), FormatNumber("%.3f", of_one_row),
                   FormatNumber("%.4f", result.reference_ms),
                   FormatNumber("%.1f", result.reference_flops_per_second() * 1e-12)});
  }
  void NextShape() { one_row_.clear(); }
  // Prints the table, unless every result was printed when it came.
  absl::Status Finish() const {
    return flags_.json ? output_ : Print(absl::StrCat(device_, "\n", table_.ToText()));
  }

 private:
  OrderedJson ToJson(const std::string& shape, const DeviceResult& result,
                     double of_one_row) const {
    OrderedJson json = {{"device", device_}, {"shape", shape}, {"op", result.op}};
    if (!result.part.empty()) json["part"] = result.part;
    if (result.rows > 0) {
      json.update({{"rows", result.rows}, {"batch", result.batch}, {"context", result.context}});
    }
    // No number (NaN) is null.
    json.update({{"ms", result.ms},
                 {"device_ms", result.device_ms},
                 {"bytes", result.bytes},
                 {"flops", result.flops},
                 {"flops_per_second", result.flops_per_second()},
                 {"bytes_per_second", result.bytes_per_second()},
                 {"read_bytes_per_second", result.read_bytes_per_second},
                 {"of_read", result.of_read()},
                 {"reference_ms", result.reference_ms},
                 {"of_one_row", of_one_row}});
    return json;
  }

  const DeviceFlags& flags_;
  const std::string device_;
  absl::Status output_;  // the first failure to print
  std::vector<std::pair<std::tuple<std::string_view, std::string_view, int>, double>> one_row_;
  Table table_{{"shape", "op", "part", "rows", "batch", "context", "ms", "device ms", "TFLOP/s",
                "GB/s", "of bandwidth", "of one row", "cuBLAS ms", "cuBLAS TFLOP/s"}};
};

absl::Status Run(const DeviceFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(flags.device, {}));
  Reporter reporter(
      flags, absl::StrCat(std::string(backend->name()), ": ", std::string(backend->description())));
  int64_t num_results = 0;
  for (const DeviceBenchmarkOptions& options : flags.options) {
    num_results += NumDeviceResults(options, backend.get());
  }
  std::optional<Progress> progress;
  if (!flags.json) progress.emplace("measuring", num_results);  // else lines come meanwhile
  absl::Status status;
  for (const DeviceBenchmarkOptions& options : flags.options) {
    reporter.NextShape();
    status = RunDeviceBenchmark(options, backend.get(), [&](const DeviceResult& result) {
      reporter.Add(options.name, result);
      if (progress.has_value()) progress->Advance(1);
    });
    if (!status.ok()) break;
  }
  progress.reset();
  status.Update(reporter.Finish());
  return status;
}

}  // namespace

Command AddBenchDevice(CLI::App* bench) {
  const auto flags = std::make_shared<DeviceFlags>();
  CLI::App* app = bench->add_subcommand(
      "device",
      "Compare products, attention, passes and sampling of random weights with how fast a device "
      "reads");
  app->add_option("--device", flags->device, "auto, cpu, cuda:N [auto]")->type_name("NAME");
  app->add_option("--shape", flags->shapes,
                  "Shapes as `tandem make-random` takes them, joined by + [llama-1b]")
      ->type_name("SHAPE+...");
  app->add_option("--ops", flags->ops, absl::StrCat("Some of ", flags->ops, " [all]"))
      ->type_name("LIST");
  app->add_option("--rows", flags->rows, absl::StrCat("Rows of one sequence [", flags->rows, "]"))
      ->type_name("LIST");
  app->add_option("--batches", flags->batches,
                  absl::StrCat("Sequences that decode together [", flags->batches, "]"))
      ->type_name("LIST");
  app->add_option("--contexts", flags->contexts,
                  absl::StrCat("Tokens in the cache before the rows [", flags->contexts, "]"))
      ->type_name("LIST");
  app->add_option("--quantize", flags->quantize,
                  "Weights: none, or a block format such as q8_0 [none]")
      ->type_name("NAME")
      ->check(CLI::IsMember(NamesIn(kQuantizations)));
  app->add_option("--kv-cache", flags->kv_cache, "f32, bf16, int8 [bf16]")
      ->type_name("NAME")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  app->add_option("--repeat", flags->repeat, "Samples of each, whose median counts [7]")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  app->add_option("--sample-ms", flags->sample_ms, "That a sample takes at least [20]")
      ->type_name("MS")
      ->check(CLI::Range(0, 10000));
  app->add_option("--buffer-mb", flags->buffer_mb, "Memory to read and to copy, MiB [4096]")
      ->type_name("MB")
      ->check(CLI::Range(1, 1 << 16));
  app->add_flag("--json", flags->json, "A JSON object a line, each as soon as it is known");
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
