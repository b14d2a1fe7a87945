// tandem lab: measures both phases, the sizes of passes and the speed-up of the draft, and writes
// them as a page and as JSON.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "base/machine_load.h"
#include "base/output_folder.h"
#include "base/status_macros.h"
#include "kernels/peak.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/lab_page.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/measuring.h"
#include "tools/bench/operation.h"
#include "tools/bench/passes.h"
#include "tools/bench/phases.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/option_group.h"
#include "tools/pair_measurement.h"
#include "tools/report.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

constexpr int kNumParts = 3;
constexpr int kMaxBatch = 16;
constexpr int64_t kMaxBatchBytes = int64_t{512} << 20;  // of keys and values
constexpr int kContext = 256;                           // tokens before the measured passes

constexpr int kSeconds = 300;
constexpr int kQuickSeconds = 45;

// How much is measured. Prompts and passes are smaller where the model would take longer than these
// times.
struct Extent {
  absl::Duration phases, passes, speculation;
  int longest_prompt = 4096;
  int largest_pass = 256;
  int pass_repeat = 5;

  // Loading and the limits take the rest of the time.
  static Extent Of(absl::Duration time) {
    Extent extent{.phases = 0.36 * time, .passes = 0.18 * time, .speculation = 0.36 * time};
    if (time < absl::Minutes(2)) {
      extent.longest_prompt = 1024;
      extent.largest_pass = 128;
      extent.pass_repeat = 3;
    }
    return extent;
  }
};
constexpr int kPhaseRepeat = 3;

struct LabFlags {
  EngineFlags engine;
  int seconds = kSeconds;
  bool quick = false;
  std::string out = "tandem-lab.html";
  std::string json_file;

  EngineOptions engine_options;  // set by Check
  Extent extent;

  absl::Status Check() {
    ASSIGN_OR_RETURN(engine_options, engine.ToOptions());
    engine_options.device = "cpu";
    engine_options.drafter =
        engine_options.draft.empty() ? DrafterKind::kNone : DrafterKind::kModel;
    engine_options.max_batch = 1;
    engine_options.prefix_cache = false;
    engine_options.draft_memory_bytes = 0;
    engine_options.chunk_tokens = kContext;
    engine_options.warm_up = true;
    extent = Extent::Of(absl::Seconds(quick ? kQuickSeconds : seconds));
    return absl::OkStatus();
  }
};

// A file that replaces an earlier one of the same name once all of it is written.
class NewFile {
 public:
  // Fails before the measurement if the file could not be written after it.
  static absl::StatusOr<NewFile> Create(const std::string& path) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": exists and is not a file"));
    }
    ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Around(path));
    ASSIGN_OR_RETURN(OutputFile part,
                     folder.NewPart(std::filesystem::path(path).filename().string()));
    return NewFile(path, std::move(folder), std::move(part));
  }
  absl::Status Write(absl::string_view text) {
    RETURN_IF_ERROR(part_.Write(text));
    RETURN_IF_ERROR(part_.Close());
    std::error_code error;
    std::filesystem::rename(part_.path(), path_, error);
    if (error) return absl::InternalError(absl::StrCat(path_, ": ", error.message()));
    folder_.Keep();
    return absl::OkStatus();
  }

 private:
  NewFile(std::string path, OutputFolder folder, OutputFile part)
      : path_(std::move(path)), folder_(std::move(folder)), part_(std::move(part)) {}

  std::string path_;
  OutputFolder folder_;
  OutputFile part_;
};

// 1, 2, 4, ... from `first` to at most `last`.
std::vector<int> PowersOfTwo(int first, int last) {
  std::vector<int> powers;
  for (int power = first; power <= last; power *= 2) powers.push_back(power);
  return powers;
}

class Lab {
 public:
  Lab(const LabFlags& flags, Measuring* measuring) : flags_(flags), measuring_(*measuring) {}

  // After an error *report has what was measured until then.
  absl::Status Run(OrderedJson* report) {
    (*report)["phases"] = OrderedJson::object();
    (*report)["passes"] = OrderedJson::object();
    (*report)["speculation"] = nullptr;
    RETURN_IF_ERROR(measuring_.Begin(kPreparingLimits));
    ASSIGN_OR_RETURN(limits_, MachineLimits::Create(ThreadsOf(flags_.engine_options)));
    absl::Status status = MeasureParts(report);
    (*report)["limits"] = limits_->ToJson();
    return status;
  }

 private:
  absl::Status MeasureParts(OrderedJson* report) {
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags_.engine_options));
      RETURN_IF_ERROR(Describe(*engine, report));
      measuring_.BeginPart(1, kNumParts);
      RETURN_IF_ERROR(MeasurePhases(engine.get(), &(*report)["phases"]));
      measuring_.BeginPart(2, kNumParts);
      if (engine->draft_info().has_value()) {
        RETURN_IF_ERROR(MeasureSpeculation(engine.get(), &(*report)["speculation"]));
      }
    }
    measuring_.BeginPart(3, kNumParts);
    return MeasurePasses(&(*report)["passes"]);
  }

  absl::Status Describe(const Engine& engine, OrderedJson* report) {
    target_ = engine.target_info();
    ASSIGN_OR_RETURN(counter_, PassCounterOf(flags_.engine_options, target_));
    (*report)["machine"] =
        MachineJson(ThreadsOf(flags_.engine_options), engine.device_description());
    (*report)["target"] = ModelJson(target_);
    (*report)["target"]["kv_bytes_per_token"] = target_.kv_bytes_per_token;
    (*report)["target"]["weights_in"] =
        MachineLimits::PlaceOf(target_.bytes_read_per_pass) == Place::kCache ? "cache" : "memory";
    (*report)["target"]["products"] =
        NameOf(counter_->Of({.rows = 1, .context = 0, .logit_rows = 1}).input);
    const std::optional<ModelInfo> draft = engine.draft_info();
    (*report)["draft"] = draft.has_value() ? ModelJson(*draft) : OrderedJson(nullptr);
    return absl::OkStatus();
  }

  // Sets the seconds that this model takes for a token of a prompt, and to write one.
  absl::Status Probe(Engine* engine) {
    RETURN_IF_ERROR(measuring_.Begin("warming up"));
    const int length = std::min(64, Context() / 2);
    constexpr int kWritten = 8;
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(const Completion completion,
                       engine->Generate(RandomRequest(
                           length, std::min(kWritten, Context() - length), target_.vocab_size, i)));
      const Timings& timings = completion.timings;
      prompt_seconds_ = absl::ToDoubleSeconds(timings.time_to_first_token) / length;
      token_seconds_ = absl::ToDoubleSeconds(timings.TimePerOutputToken(
          static_cast<int>(completion.token_ids.size()), completion.first_round_tokens));
    }
    return absl::OkStatus();
  }

  int Context() const {
    return std::min(target_.context_length, target_.num_pages * target_.page_size);
  }

  absl::Status MeasurePhases(Engine* engine, OrderedJson* part) {
    RETURN_IF_ERROR(Probe(engine));
    PhaseOptions options{.prompt_lengths = {},
                         .repeat = kPhaseRepeat,
                         .chunk_tokens = flags_.engine_options.chunk_tokens};
    // Attention makes a token of a long prompt dearer.
    constexpr double kDearer = 1.3;
    double seconds = 0.0;
    // However slow the model, the curve reaches from short prompts to one of this length.
    constexpr int kShortPrompt = 128;
    for (const int length : PowersOfTwo(16, flags_.extent.longest_prompt)) {
      seconds += kPhaseRepeat *
                 (kDearer * length * prompt_seconds_ + (options.max_tokens + 1) * token_seconds_);
      if (length + options.max_tokens + 1 > Context()) break;
      if (absl::Seconds(seconds) > flags_.extent.phases && length > kShortPrompt) break;
      options.prompt_lengths.push_back(length);
    }
    if (options.prompt_lengths.empty()) options.prompt_lengths = {std::max(1, Context() / 2)};
    PhaseCurves curves;
    const LoadWatch watch;
    absl::Status status =
        tandem::MeasurePhases(options, *counter_, engine, limits_.get(), &measuring_, &curves);
    *part = {{"repeat", options.repeat},
             {"prefill", curves.PrefillRows()},
             {"decode", curves.DecodeRows()}};
    part->update(OrderedJson(LoadJson(watch.Read())));
    return status;
  }

  absl::Status MeasureSpeculation(Engine* engine, OrderedJson* part) {
    RETURN_IF_ERROR(measuring_.Begin("answering five tasks"));
    constexpr int kSteps = 100;
    measuring_.Expect(kSteps);
    int done = 0;
    PairFindings findings;
    absl::Status status = MeasurePair(
        flags_.extent.speculation, engine,
        [&](double share) -> absl::Status {
          for (; done < static_cast<int>(kSteps * share); ++done) {
            RETURN_IF_ERROR(measuring_.BeginNext("answering five tasks with drafts and plainly"));
          }
          return measuring_.status();
        },
        &findings);
    if (absl::IsInvalidArgument(status)) {  // the model's context has no room for the tasks
      *part = {{"error", std::string(status.message())}};
      return absl::OkStatus();
    }
    *part = findings.ToJson();
    return status;
  }

  absl::Status MeasurePasses(OrderedJson* part) {
    const double per_row = 2.5 * flags_.extent.pass_repeat * prompt_seconds_;
    const int affordable =
        static_cast<int>(std::min(1e6, absl::ToDoubleSeconds(flags_.extent.passes) / per_row / 2));
    OperationOptions options;
    options.contexts = {std::min(kContext, Context() / 2)};
    options.rows = PowersOfTwo(1, std::clamp(affordable, 8, flags_.extent.largest_pass));
    const int64_t sequence_bytes =
        std::max<int64_t>(1, target_.kv_bytes_per_token * (options.contexts[0] + 1));
    options.batches = PowersOfTwo(
        1, static_cast<int>(std::clamp<int64_t>(kMaxBatchBytes / sequence_bytes, 1, kMaxBatch)));
    options.run.repeat = flags_.extent.pass_repeat;
    std::vector<OrderedJson> rows;
    const LoadWatch watch;
    absl::Status status =
        tandem::MeasurePasses(flags_.engine_options, std::move(options), limits_.get(), &measuring_,
                              [&](const OrderedJson& row) { rows.push_back(row); });
    *part = {{"repeat", flags_.extent.pass_repeat}, {"rows", rows}};
    part->update(OrderedJson(LoadJson(watch.Read())));
    return status;
  }

  const LabFlags& flags_;
  Measuring& measuring_;
  std::unique_ptr<MachineLimits> limits_;
  ModelInfo target_;
  std::optional<PassCounter> counter_;
  double prompt_seconds_ = 0.0;
  double token_seconds_ = 0.0;
};

// Returns the command line with the options that were given.
std::string CommandLineOf(const CLI::App* app) {
  std::string line = absl::StrCat("tandem ", app->get_name());
  for (const CLI::Option* option : app->get_options()) {
    if (option->count() == 0) continue;
    absl::StrAppend(&line, " ", option->get_name());
    if (option->get_expected_max() > 0) {
      absl::StrAppend(&line, " ", absl::StrJoin(option->results(), ","));
    }
  }
  return line;
}

absl::Status Run(const LabFlags& flags, const CLI::App* app) {
  const Instant start = Instant::Now();
  ASSIGN_OR_RETURN(NewFile page, NewFile::Create(flags.out));
  std::optional<NewFile> json_file;
  if (!flags.json_file.empty()) {
    ASSIGN_OR_RETURN(NewFile file, NewFile::Create(flags.json_file));
    json_file.emplace(std::move(file));
  }
  OrderedJson report = {
      {"program", app->get_parent()->version()},
      {"command", CommandLineOf(app)},
      {"date", absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone())}};
  Measuring measuring;
  absl::Status status = Lab(flags, &measuring).Run(&report);
  const bool is_interrupted = IsInterrupted(status);
  if (!status.ok() && (!is_interrupted || report["phases"].empty())) return status;
  report["seconds"] = absl::ToDoubleSeconds(Instant::Now() - start);
  report["interrupted"] = is_interrupted;
  RETURN_IF_ERROR(page.Write(LabPage(report)));
  if (json_file.has_value()) RETURN_IF_ERROR(json_file->Write(LineOf(report)));
  RETURN_IF_ERROR(measuring.Print(absl::StrCat(
      absl::StrJoin(LabFindings(report), "\n"), "\n", BusyLine(measuring.load()), "wrote ",
      flags.out, flags.json_file.empty() ? "" : absl::StrCat(" and ", flags.json_file), "\n")));
  return status;
}

}  // namespace

Command AddLabCommand(CLI::App* program) {
  const auto flags = std::make_shared<LabFlags>();
  flags->engine.prefers_real_pair = true;
  CLI::App* app = program->add_subcommand(
      "lab",
      "Measure in five minutes what limits reading, writing and drafting on this machine's "
      "processor, and write it as a page with pictures");
  OptionGroup group(app);
  group.Add("-o,--out", "FILE", &flags->out, "The page to write; replaces an earlier one");
  group.Add("--json-file", "F", &flags->json_file, "Also write the figures to this file as JSON");
  group.Add("--seconds", "N", &flags->seconds, "Approximate duration", {.low = 1, .high = 86400});
  group.AddFlag("--quick", &flags->quick,
                absl::StrCat("The same as --seconds ", kQuickSeconds, ": fewer and shorter runs"));
  group.Add("-m,--target", "PATH", &flags->engine.options.target,
            "Target model: a Hugging Face folder, a GGUF file or the name of a fetched model "
            "[smollm2 if it was fetched, else the shipped storyteller-7m]");
  AddEngineOptions(app,
                   {"draft", "threads", "compute", "quantize", "draft_quantize", "kv_cache",
                    "context", "packed_weights"},
                   &flags->engine.options);
  AddExamples(app, {"tandem lab", "tandem lab --quick -o quick.html --json-file quick.json",
                    "tandem lab -m target.gguf --draft draft.gguf"});
  return {.app = app,
          .check = [flags] { return flags->Check(); },
          .run = [flags, app] { return Run(*flags, app); }};
}

}  // namespace tandem
