// tandem bench: the benchmarks, whose results are printed as tables or JSON.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tools/bench/bench_commands.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
#include "tools/option_group.h"
#include "tools/report.h"

namespace tandem {

using Json = JsonValue;

namespace {

// Makes `option` a list: one word with commas.
CLI::Option* AsList(CLI::Option* option) { return option->delimiter(',')->type_name("LIST"); }

}  // namespace

CLI::Option* AddNumbers(CLI::App* app, const std::string& name, std::vector<int>* numbers,
                        const std::string& text, int least, int most) {
  const std::string help = absl::StrCat(text, " [", absl::StrJoin(*numbers, ","), "]");
  return AsList(app->add_option(name, *numbers, help))->check(CLI::Range(least, most));
}

CLI::Option* AddNames(CLI::App* app, const std::string& name, std::vector<std::string>* names,
                      const std::string& text, const std::vector<std::string>& allowed) {
  return AsList(app->add_option(name, *names, text))->check([=](const std::string& text) {
    return WithoutName(name, CheckOneOf(name, text, {allowed}));
  });
}

int ThreadsOf(const EngineOptions& options) {
  return options.threads > 0 ? options.threads : NumUsableCores();
}

absl::StatusOr<EngineOptions> PlainEngineOptions(EngineFlags flags, std::string_view reason) {
  if (!flags.options.draft.empty() || flags.options.drafter != DrafterKind::kAuto) {
    return absl::InvalidArgumentError(
        absl::StrCat("--draft, --drafter: must not be given: ", View(reason)));
  }
  flags.options.drafter = DrafterKind::kNone;
  ASSIGN_OR_RETURN(EngineOptions options, flags.ToOptions());
  options.max_batch = 1;
  options.draft.clear();
  return options;
}

Json MachineJson(int num_threads, const std::string& device) {
  return {{"cpu", CpuName()}, {"threads", num_threads}, {"device", device}};
}

Json ModelJson(const ModelInfo& model) {
  Json json = {{"path", model.path},
               {"family", model.family},
               {"dtype", model.dtype},
               {"parameters", model.parameters},
               {"bytes_read_per_pass", model.bytes_read_per_pass},
               {"kv_cache", model.kv_cache}};
  if (model.window > 0) json["window"] = model.window;
  if (model.mask_token.has_value()) json["mask_token"] = *model.mask_token;
  if (model.mapped_tokens.has_value()) json["mapped_tokens"] = *model.mapped_tokens;
  if (model.head_tokens > 0) json["draft_quantize"] = model.quantize;
  if (model.head_tokens > 0) json["draft_head_tokens"] = model.head_tokens;
  if (model.head_coverage.has_value()) json["draft_head_coverage"] = *model.head_coverage;
  return json;
}

Json LimitedJson(const Demand& demand, const LimitedTime& time) {
  return {{"ms", time.ms},
          {"bytes", demand.bytes},
          {"bytes_per_second", demand.bytes / (time.ms * 1e-3)},
          {"flops", demand.flops / (time.ms * 1e-3)},
          {"of_limit", time.of_limit},
          {"bound", time.bound}};
}

std::string BusyLine(const OtherLoad& load) {
  return load.is_disturbing ? absl::StrCat("busy: ", BusyText(load), "\n") : "";
}

Json With(Json fields, const Json& more) {
  fields.update(more);
  return fields;
}

Command AddBenchCommand(CLI::App* program) {
  CLI::App* app = program->add_subcommand("bench", "Measure the decoding speed of this machine");
  const std::vector<Command> benchmarks = {AddBenchSpeculation(app), AddBenchKernels(app),
                                           AddBenchDevice(app), AddBenchPhases(app),
                                           AddBenchPerplexity(app)};
  AddExamples(app, {"tandem bench speculation", "tandem bench kernels --shape 1b --rows 1,5",
                    "tandem bench phases -m storyteller-7m"});
  const auto chosen = [benchmarks]() -> const Command* {
    const auto it = absl::c_find_if(benchmarks, [](const Command& c) { return c.app->parsed(); });
    return it == benchmarks.end() ? nullptr : &*it;
  };
  return {.app = app,
          .check = [app, chosen, benchmarks]() -> absl::Status {
            if (const Command* benchmark = chosen()) return benchmark->check();
            std::fputs(HelpOf(app).c_str(), stderr);
            return absl::InvalidArgumentError(absl::StrCat(
                "bench: needs a benchmark: ",
                absl::StrJoin(benchmarks, ", ", [](std::string* out, const Command& benchmark) {
                  out->append(benchmark.app->get_name());
                })));
          },
          .run = [chosen] { return chosen()->run(); }};
}

}  // namespace tandem
