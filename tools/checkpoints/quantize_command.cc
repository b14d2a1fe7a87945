// tandem quantize: writes a model with its weights in a block format.
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "kernels/number_formats.h"
#include "tandem/field_error.h"
#include "tools/checkpoints/quantized_model.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/hub/hub_fetch.h"
#include "tools/option_group.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct QuantizeFlags {
  std::string source;
  std::string to = "int8";
  std::string out;

  absl::StatusOr<DType> Format() const {
    const absl::StatusOr<Quantization> format = ParseQuantization(to);
    if (!format.ok()) return WithField(format.status(), "--to");
    if (const std::optional<DType> dtype = BlockTypeOf(*format)) return *dtype;
    return absl::InvalidArgumentError("--to: must be a block format, got \"none\"");
  }
  absl::Status Check() const {
    if (out.empty()) return absl::InvalidArgumentError("--out: must not be empty");
    return Format().status();
  }
};

absl::Status Run(const QuantizeFlags& flags) {
  const Instant start = Instant::Now();
  std::optional<Progress> progress;
  ASSIGN_OR_RETURN(const DType format, flags.Format());
  ASSIGN_OR_RETURN(const std::string source, BringModel(flags.source));
  ASSIGN_OR_RETURN(
      const QuantizedModel result,
      WriteQuantizedModel(source, format, flags.out, [&](int64_t written, int64_t total) {
        if (!progress.has_value()) {
          progress.emplace("quantising", total);
        }
        progress->Advance(written);
      }));
  progress.reset();
  return Print(Format("%s: %d matrices as %s, %.1f MB of tensors instead of %.1f, in %.1f s\n",
                      flags.out, result.num_quantized, flags.to,
                      static_cast<double>(result.bytes_after) * 1e-6,
                      static_cast<double>(result.bytes_before) * 1e-6,
                      absl::ToDoubleSeconds(Instant::Now() - start)));
}

}  // namespace

Command AddQuantizeCommand(CLI::App* program) {
  const auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* app = program->add_subcommand(
      "quantize", "Write a model with quantized weights, the same as --quantize makes at load");
  OptionGroup group(app);
  group
      .Add("-m,--target,path", "PATH", &flags->source,
           "Model with float weights: a Hugging Face folder, a GGUF file or a model's name")
      ->required();
  group.Add("--to", "NAME", &flags->to,
            "A block format, q8_0 to q2_k, or the best of 8 or 4 bits: int8, int4");
  group
      .Add("--out", "PATH", &flags->out,
           "A name that ends in .gguf makes a file; any other, a folder, which must be empty if it "
           "exists")
      ->required();
  app->footer(
      "Norms, biases and routers stay floats; the embedding and the head get q8_0. Matrices whose "
      "row length is not a multiple of 256 get q4_1, q5_1, q8_0 or iq4_nl in place of a K format.\n"
      "A .gguf file is complete by itself; a folder gets copies of the model's other files.\n"
      "`tandem bench perplexity` measures the loss of quality.");
  AddExamples(app, {"tandem quantize smollm2 --to int4 --out smollm2.gguf",
                    "tandem quantize storyteller-7m --out storyteller-q8"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
