// tandem quantize: a model folder with weights of 8 or 4 bits.
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/quantized_folder.h"
#include "tools/standard_output.h"

namespace tandem {
namespace {

struct QuantizeFlags {
  std::string source;
  std::string to = "int8";
  std::string out;

  absl::Status Check() const {
    if (to != "int8" && to != "int4") {
      return absl::InvalidArgumentError(
          absl::StrCat("--to: \"", to, "\" is not one of int8, int4"));
    }
    if (out.empty()) return absl::InvalidArgumentError("--out: the name is empty");
    return absl::OkStatus();
  }
};

absl::Status Run(const QuantizeFlags& flags) {
  const Instant start = Instant::Now();
  std::optional<Progress> progress;
  ASSIGN_OR_RETURN(
      const QuantizedFolder result,
      WriteQuantizedFolder(flags.source, flags.to == "int8" ? DType::kInt8 : DType::kInt4,
                           flags.out, [&](int64_t written, int64_t total) {
                             if (!progress.has_value()) progress.emplace("quantising", total);
                             progress->Advance(written);
                           }));
  progress.reset();
  return Print(absl::StrFormat(
      "%s: %d matrices as %s, %.1f MB of tensors instead of %.1f, in %.1f s\n", flags.out,
      result.num_quantized, flags.to, static_cast<double>(result.bytes_after) * 1e-6,
      static_cast<double>(result.bytes_before) * 1e-6,
      absl::ToDoubleSeconds(Instant::Now() - start)));
}

}  // namespace

Command AddQuantizeCommand(CLI::App* program) {
  const auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* app = program->add_subcommand(
      "quantize", "Write a model folder with weights of 8 or 4 bits, as --quantize makes at load");
  app->add_option("path", flags->source, "Hugging Face folder of a model of floats")
      ->type_name("PATH")
      ->required();
  app->add_option("--to", flags->to, "int8, int4 (the head gets 8 bits then) [int8]")
      ->type_name("NAME");
  app->add_option("--out", flags->out, "Folder to make; must not hold anything yet")
      ->type_name("DIR")
      ->required();
  app->footer(
      "Weights are whole numbers in groups of 128 inputs with a scale each; the embedding table,\n"
      "norms and biases stay as they are. `tandem bench perplexity` tells what it costs.");
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
