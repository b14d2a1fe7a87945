// tandem make-random: writes a model folder with random weights.
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tools/checkpoints/random_model.h"
#include "tools/command.h"
#include "tools/help_text.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

struct MakeRandomFlags {
  std::string shape_text = "tiny";
  uint64_t seed = 0;
  std::string folder;
  bool print_config = false;

  RandomModelShape shape;  // set by Check

  absl::Status Check() {
    ASSIGN_OR_RETURN(shape, RandomModelShape::Parse(shape_text));
    if (folder.empty() && !print_config) {
      return absl::InvalidArgumentError("--out: must be given unless --print-config is");
    }
    return absl::OkStatus();
  }
};

absl::Status Run(const MakeRandomFlags& flags) {
  if (flags.print_config) {
    return Print(flags.shape.ConfigJson());
  }
  const Instant start = Instant::Now();
  Progress progress("writing weights", flags.shape.weight_bytes());
  RETURN_IF_ERROR(WriteRandomModel(flags.shape, flags.seed, flags.folder,
                                   [&](int64_t bytes) { progress.Advance(bytes); }));
  return Print(Format("%s: %.1f million parameters, %.1f MB of %s weights, seed %d, in %.1f s\n",
                      flags.folder, static_cast<double>(flags.shape.num_parameters()) * 1e-6,
                      static_cast<double>(flags.shape.weight_bytes()) * 1e-6,
                      NameOf(flags.shape.dtype), flags.seed,
                      absl::ToDoubleSeconds(Instant::Now() - start)));
}

}  // namespace

Command AddMakeRandomCommand(CLI::App* program) {
  const auto flags = std::make_shared<MakeRandomFlags>();
  CLI::App* app = program->add_subcommand(
      "make-random", "Write a model folder with random weights and a byte tokenizer");
  app->add_option("--shape", flags->shape_text,
                  "A name from the table below, or key=value,... [tiny]")
      ->type_name("NAME|k=v,...");
  app->add_option("--seed", flags->seed, "Seed: the weights depend only on it and the shape [0]")
      ->type_name("N");
  app->add_option("--out", flags->folder, "Folder to create; must be empty if it exists")
      ->type_name("DIR");
  app->add_flag("--print-config", flags->print_config,
                "Print the config.json of the shape and write nothing")
      ->excludes("--out");
  app->footer(absl::StrCat(
      "Shapes (dtype bfloat16; family llama, except the qwen3 shapes):\n", DescribeNamedShapes(),
      "Each column is a key: vocab is at least 257, and tied says whether the head shares the "
      "embedding table. Other keys: dtype (bfloat16, float16, float32); family (llama, mistral, "
      "qwen2, qwen3); base, the shape that the other keys change [tiny].\n"
      "Tokens 0 to 255 are the bytes, and 256 is <|endoftext|>. The other tokens have no text."));
  AddExamples(app, {"tandem make-random --out tiny",
                    "tandem make-random --shape base=1b,layers=4 --out cut-1b",
                    "tandem make-random --shape 8b --print-config"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags] { return Run(*flags); }};
}

}  // namespace tandem
